#ifndef MI_BASE_HANDLE_H
#define MI_BASE_HANDLE_H
#define STAND_IN_HANDLE 1
#include <mi/base/iinterface.h>
namespace mi {
namespace base {
struct Dup_interface_helper {};
typedef const Dup_interface_helper* Dup_interface;
static const Dup_interface DUP_INTERFACE = 0;
template <class T>
class Handle {
    T* m_iptr;

public:
    Handle() : m_iptr(0) {}
    explicit Handle(T* p) : m_iptr(p) {}
    Handle(T* p, Dup_interface) : m_iptr(p)
    {
        if (p)
            p->retain();
    }
    Handle(const Handle& o) : m_iptr(o.m_iptr)
    {
        if (m_iptr)
            m_iptr->retain();
    }
    template <class U>
    Handle(const Handle<U>& o) : m_iptr(o.get())
    {
        if (m_iptr)
            m_iptr->retain();
    }
    ~Handle() { reset(); }
    void swap(Handle& o)
    {
        T* p = m_iptr;
        m_iptr = o.m_iptr;
        o.m_iptr = p;
    }
    Handle& operator=(const Handle& o)
    {
        Handle(o).swap(*this);
        return *this;
    }
    Handle& operator=(T* p)
    {
        Handle(p).swap(*this);
        return *this;
    }
    void reset()
    {
        if (m_iptr) {
            m_iptr->release();
            m_iptr = 0;
        }
    }
    bool is_valid_interface() const { return m_iptr != 0; }
    T* get() const { return m_iptr; }
    T& operator*() const { return *m_iptr; }
    T* operator->() const { return m_iptr; }
    template <class U>
    Handle<U> get_interface() const
    {
        return m_iptr ? Handle<U>(static_cast<U*>(m_iptr->get_interface(typename U::IID()))) : Handle<U>();
    }
    typedef bool (Handle::*bool_conversion_support)() const;
    operator bool_conversion_support() const { return m_iptr ? &Handle::is_valid_interface : 0; }
    friend bool operator==(const Handle& a, const T* b) { return a.get() == b; }
    friend bool operator!=(const Handle& a, const T* b) { return a.get() != b; }
};
template <class A, class B>
bool operator==(const Handle<A>& a, const Handle<B>& b)
{
    return a.get() == b.get();
}
template <class A, class B>
bool operator!=(const Handle<A>& a, const Handle<B>& b)
{
    return a.get() != b.get();
}
template <class T>
Handle<T> make_handle(T* p)
{
    return Handle<T>(p);
}
template <class T>
Handle<T> make_handle_dup(T* p)
{
    return Handle<T>(p, DUP_INTERFACE);
}
}  // namespace base
}  // namespace mi
#endif
