#ifndef MI_BASE_IINTERFACE_H
#define MI_BASE_IINTERFACE_H
#define STAND_IN_IINTERFACE 1
#include <mi/base/types.h>
#include <mi/base/uuid.h>
namespace mi {
namespace base {
class IInterface {
public:
    typedef Uuid_t<0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0> IID;
    static bool compare_iid(const Uuid& id) { return id == IID(); }
    virtual Uint32 retain() const = 0;
    virtual Uint32 release() const = 0;
    virtual const IInterface* get_interface(const Uuid& id) const = 0;
    template <class T>
    const T* get_interface() const
    {
        return static_cast<const T*>(get_interface(typename T::IID()));
    }
    virtual IInterface* get_interface(const Uuid& id) = 0;
    template <class T>
    T* get_interface()
    {
        return static_cast<T*>(get_interface(typename T::IID()));
    }
    virtual Uuid get_iid() const = 0;

protected:
    template <class Object>
    static Object* same(Object* o, const Uuid& id)
    {
        return id == IID() ? (o->retain(), o) : 0;
    }
    static const IInterface* get_interface_static(const IInterface* o, const Uuid& id) { return same(o, id); }
    static IInterface* get_interface_static(IInterface* o, const Uuid& id) { return same(o, id); }
};
}  // namespace base
}  // namespace mi
#endif
