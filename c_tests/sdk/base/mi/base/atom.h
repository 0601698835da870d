#ifndef MI_BASE_ATOM_H
#define MI_BASE_ATOM_H
#define STAND_IN_ATOM 1
#include <mi/base/types.h>
namespace mi {
namespace base {
class Atom32 {
public:
    Atom32() : m_value(0) {}
    Atom32(const Uint32 value) : m_value(value) {}
    Uint32 operator++() { return __atomic_add_fetch(&m_value, 1, __ATOMIC_SEQ_CST); }
    Uint32 operator--() { return __atomic_sub_fetch(&m_value, 1, __ATOMIC_SEQ_CST); }
    operator Uint32() const { return m_value; }

private:
    volatile Uint32 m_value;
};
}  // namespace base
}  // namespace mi
#endif
