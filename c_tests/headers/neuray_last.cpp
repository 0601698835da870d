// What the SDK has first, then nrdma's header.
#if __has_include(<mi/neuraylib/irdma_context.h>)
#  include <mi/neuraylib/irdma_context.h>
#endif
#if __has_include(<mi/base/handle.h>)
#  include <mi/base/interface_implement.h>
#  include <mi/base/handle.h>
#endif
#include <nrdma/neuray.hpp>
#include "neuray_tu.hpp"

#include <cstdio>

using mi::base::Handle;
using mi::base::IInterface;
using mi::neuraylib::IRDMA_buffer;
using mi::neuraylib::IRDMA_context;

#define EXPECT(x)                                     \
  do {                                                \
    if (!(x)) {                                       \
      std::fprintf(stderr, "%d: %s\n", __LINE__, #x); \
      return 1;                                       \
    }                                                 \
  } while (0)

// Takes over the reference.
int use_context(IRDMA_context* taken)
{
    Handle<IRDMA_context> context(taken);
    EXPECT(context.is_valid_interface());
    EXPECT(context && context.get() == taken && &*context == taken && context == taken);
    EXPECT(context->retain() == 2 && context->release() == 1);
    EXPECT(context->get_iid() == IRDMA_context::IID());
    EXPECT(IRDMA_context::compare_iid(IInterface::IID()) && !IRDMA_context::compare_iid(IRDMA_buffer::IID()));

    Handle<IInterface> base(context.get_interface<IInterface>());
    EXPECT(base.is_valid_interface() && base.get() == context.get());
    Handle<IRDMA_context> back(base.get_interface<IRDMA_context>());
    EXPECT(back == context && !(back != context));
    EXPECT(!base.get_interface<IRDMA_buffer>().is_valid_interface());
    EXPECT(!Handle<IInterface>().get_interface<IRDMA_buffer>());
    EXPECT(taken->retain() == 4 && taken->release() == 3);

    Handle<const IRDMA_context> seen(context);
    EXPECT(seen.get_interface<const IInterface>().get() == context.get());
    Handle<IRDMA_context> own(taken, mi::base::DUP_INTERFACE);
    Handle<IRDMA_context> none;
    own.swap(none);
    EXPECT(!own && none.get() == taken);
    none = nullptr;
    EXPECT(!none.is_valid_interface());
    own = context;
    own.reset();
    EXPECT(own.get() == nullptr);
    back.reset();
    base.reset();
    seen.reset();
    EXPECT(taken->retain() == 2 && taken->release() == 1);

    EXPECT(context->get_write_memory(1) == nullptr);
    EXPECT(reinterpret_cast<mi::Size>(context->get_write_memory(1, 0)) == 1);
    EXPECT(reinterpret_cast<mi::Size>(context->get_read_memory(1)) == 2);
    EXPECT(reinterpret_cast<mi::Size>(context->wrap_user_buffer(nullptr, 1)) == 3);
    EXPECT(context->flush(nullptr) == -1);
    return 0;
}
