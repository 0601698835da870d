#ifndef MI_BASE_UUID_H
#define MI_BASE_UUID_H
#define STAND_IN_UUID 1
#include <mi/base/types.h>
namespace mi {
namespace base {
struct Uuid {
    Uint32 m_id1, m_id2, m_id3, m_id4;
};
inline bool operator==(const Uuid& a, const Uuid& b)
{
    return a.m_id1 == b.m_id1 && a.m_id2 == b.m_id2 && a.m_id3 == b.m_id3 && a.m_id4 == b.m_id4;
}
inline bool operator!=(const Uuid& a, const Uuid& b) { return !(a == b); }
template <Uint32 a, Uint16 b, Uint16 c, Uint8 d, Uint8 e, Uint8 f, Uint8 g, Uint8 h, Uint8 i, Uint8 j,
          Uint8 k>
class Uuid_t {
public:
    operator const Uuid&() const
    {
        static const Uuid id = {m_id1, m_id2, m_id3, m_id4};
        return id;
    }
    static const Uint32 m_id1 = a;
    static const Uint32 m_id2 = Uint32(b) | Uint32(c) << 16;
    static const Uint32 m_id3 = Uint32(d) | Uint32(e) << 8 | Uint32(f) << 16 | Uint32(g) << 24;
    static const Uint32 m_id4 = Uint32(h) | Uint32(i) << 8 | Uint32(j) << 16 | Uint32(k) << 24;
};
}  // namespace base
}  // namespace mi
#endif
