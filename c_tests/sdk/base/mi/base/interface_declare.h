#ifndef MI_BASE_INTERFACE_DECLARE_H
#define MI_BASE_INTERFACE_DECLARE_H
#define STAND_IN_INTERFACE_DECLARE 1
#include <mi/base/iinterface.h>
namespace mi {
namespace base {
template <Uint32 a, Uint16 b, Uint16 c, Uint8 d, Uint8 e, Uint8 f, Uint8 g, Uint8 h, Uint8 i, Uint8 j,
          Uint8 k, class I = IInterface>
class Interface_declare : public I {
public:
    typedef Interface_declare<a, b, c, d, e, f, g, h, i, j, k, I> Self;
    typedef Uuid_t<a, b, c, d, e, f, g, h, i, j, k> IID;
    static bool compare_iid(const Uuid& id) { return id == IID() || I::compare_iid(id); }

protected:
    static const IInterface* get_interface_static(const IInterface* o, const Uuid& id)
    {
        return id == IID() ? (o->retain(), static_cast<const Self*>(o)) : I::get_interface_static(o, id);
    }
    static IInterface* get_interface_static(IInterface* o, const Uuid& id)
    {
        return id == IID() ? (o->retain(), static_cast<Self*>(o)) : I::get_interface_static(o, id);
    }
};
}  // namespace base
}  // namespace mi
#endif
