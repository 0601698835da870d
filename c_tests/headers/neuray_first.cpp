// nrdma's header first, then whatever the SDK has: both give the same classes.
#include <nrdma/neuray.hpp>
#if __has_include(<mi/base/handle.h>)
#  include <mi/base/handle.h>
#  include <mi/base/interface_implement.h>
#endif
#if __has_include(<mi/neuraylib/irdma_context.h>)
#  include <mi/neuraylib/irdma_context.h>
#endif
#include "neuray_tu.hpp"

// Whose declarations these are: OURS, BASE (mi/base is the SDK's), FULL (both are). A real SDK has no marks.
#if defined(NRDMA_WANT_BASE) || defined(NRDMA_WANT_FULL)
#  if !defined(STAND_IN_TYPES) || !defined(STAND_IN_UUID) || !defined(STAND_IN_IINTERFACE) ||         \
      !defined(STAND_IN_INTERFACE_DECLARE) || !defined(STAND_IN_ATOM) || !defined(STAND_IN_HANDLE) || \
      !defined(STAND_IN_INTERFACE_IMPLEMENT)
#    error "mi/base is not the SDK's"
#  endif
#elif defined(NRDMA_WANT_OURS) && defined(STAND_IN_TYPES)
#  error "mi/base is not ours"
#endif
#if defined(NRDMA_WANT_FULL) && !defined(STAND_IN_IRDMA_CONTEXT)
#  error "mi/neuraylib is not the SDK's"
#endif

using mi::neuraylib::IRDMA_buffer;
using mi::neuraylib::IRDMA_context;

namespace {

class Host_context final : public mi::base::Interface_implement<IRDMA_context> {
public:
    explicit Host_context(int* alive) : m_alive(alive) { ++*m_alive; }
    ~Host_context() { --*m_alive; }
    IRDMA_buffer* get_write_memory(mi::Size, mi::Sint32 gpu_id) override
    {
        return gpu_id == -1 ? nullptr : marked(1);
    }
    IRDMA_buffer* get_read_memory(mi::Size, mi::Sint32) override { return marked(2); }
    IRDMA_buffer* wrap_user_buffer(mi::Uint8*, mi::Size, mi::Sint32) override { return marked(3); }
    mi::Sint32 flush(IRDMA_buffer* buffer) override { return buffer == nullptr ? -1 : -2; }

private:
    IRDMA_buffer* marked(mi::Size n) { return reinterpret_cast<IRDMA_buffer*>(n); }
    int* m_alive;
};

}  // namespace

IRDMA_context* make_context(int* alive) { return new Host_context(alive); }

int main()
{
    int alive = 0;
    const int wrong = use_context(make_context(&alive));
    return wrong != 0 ? wrong : alive;
}
