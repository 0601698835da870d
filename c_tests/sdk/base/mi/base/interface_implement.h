#ifndef MI_BASE_INTERFACE_IMPLEMENT_H
#define MI_BASE_INTERFACE_IMPLEMENT_H
#define STAND_IN_INTERFACE_IMPLEMENT 1
#include <mi/base/atom.h>
#include <mi/base/types.h>
#include <mi/base/uuid.h>
namespace mi {
namespace base {
class IInterface;
template <class I>
class Interface_implement : public I {
public:
    Interface_implement(Uint32 initial = 1) : m_refcnt(initial) {}
    virtual Uint32 retain() const { return ++m_refcnt; }
    virtual Uint32 release() const
    {
        Uint32 left = --m_refcnt;
        if (!left)
            delete this;
        return left;
    }
    virtual const IInterface* get_interface(const Uuid& id) const
    {
        return I::get_interface_static(this, id);
    }
    virtual IInterface* get_interface(const Uuid& id) { return I::get_interface_static(this, id); }
    using I::get_interface;
    Uuid get_iid() const { return typename I::IID(); }

protected:
    virtual ~Interface_implement() {}

private:
    mutable Atom32 m_refcnt;
};
}  // namespace base
}  // namespace mi
#endif
