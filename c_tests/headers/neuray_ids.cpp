// The ids of nrdma.h and of neuray.hpp are the same sixteen bytes, and every interface is one pointer wide.
#include <nrdma/neuray.hpp>
#include <nrdma/nrdma.h>

using mi::neuraylib::IRDMA_buffer;
using mi::neuraylib::IRDMA_context;

template <class I>
constexpr bool same(nrdma_uuid id)
{
    return I::IID::m_id1 == id.id1 && I::IID::m_id2 == id.id2 && I::IID::m_id3 == id.id3 &&
           I::IID::m_id4 == id.id4;
}

static_assert(same<IRDMA_buffer>(NRDMA_IID_RDMA_BUFFER), "IRDMA_buffer");
static_assert(same<IRDMA_context>(NRDMA_IID_RDMA_CONTEXT), "IRDMA_context");
static_assert(same<mi::base::IInterface>(NRDMA_IID_INTERFACE), "IInterface");
static_assert(sizeof(IRDMA_buffer) == sizeof(void*) && sizeof(IRDMA_context) == sizeof(void*), "one pointer");
static_assert(sizeof(mi::neuraylib::IJob_execution_context) == sizeof(void*), "one pointer");
static_assert(sizeof(mi::neuraylib::ISerializer) == sizeof(void*), "one pointer");
static_assert(sizeof(mi::neuraylib::IDeserializer) == sizeof(void*), "one pointer");
static_assert(sizeof(mi::neuraylib::IFragmented_job) == sizeof(void*), "one pointer");
static_assert(sizeof(mi::neuraylib::IScheduler) == sizeof(void*), "one pointer");
static_assert(sizeof(mi::neuraylib::IDice_configuration) == sizeof(void*), "one pointer");
static_assert(sizeof(mi::neuraylib::IFragmented_job::Scheduling_mode) == 4, "an enumerator of 32 bits");
static_assert(sizeof(mi::neuraylib::Tag_struct) == 4 && sizeof(mi::neuraylib::Tag) == 4, "a number");
static_assert(mi::neuraylib::IFragmented_job::USER_DEFINED == NRDMA_USER_DEFINED, "scheduling modes");
static_assert(sizeof(mi::base::Uuid) == 16 && alignof(mi::base::Uuid) == 4, "Uuid");
