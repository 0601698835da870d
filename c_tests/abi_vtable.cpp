// nrdma's objects through the virtual tables of the C++ compiler.
#include <doctest/doctest.h>
#include <nrdma/nrdma.hpp>

#include <cstring>
#ifdef __cpp_rtti
#  include <typeinfo>
#endif

using mi::base::IInterface;
using mi::base::Uuid;
using mi::neuraylib::IRDMA_buffer;
using mi::neuraylib::IRDMA_context;
using nrdma::Handle;

namespace {

struct Rig {
    nrdma::Node node;
    Handle<IRDMA_context> context;
    Rig()
    {
        REQUIRE(node.create() == NRDMA_OK);
        context = node.get_rdma_context(0);
        REQUIRE(context.is_valid_interface());
    }
};

// Kept from the optimiser, so that the call goes through the table.
template <class T>
T* hidden(T* p)
{
    T* volatile q = p;
    return q;
}

// The count, seen from outside.
template <class T>
unsigned count(const T* object)
{
    object->retain();
    return object->release();
}

const Uuid iid_2019 = nrdma::to_uuid(NRDMA_IID_RDMA_BUFFER_2019);

}  // namespace

TEST_CASE_FIXTURE(Rig, "IInterface on a context")
{
    IRDMA_context* c = hidden(context.get());
    CHECK(c->retain() == 2);
    CHECK(c->release() == 1);
    CHECK(c->get_iid() == IRDMA_context::IID());
    Handle<IInterface> any(c->get_interface<IInterface>());
    CHECK(any.get() == c);
    CHECK(hidden(any.get())->get_iid() == IRDMA_context::IID());
    CHECK(any.get_interface<IRDMA_context>() == context);
    CHECK(!any.get_interface<IRDMA_buffer>().is_valid_interface());
    const IRDMA_context* seen = c;
    Handle<const IRDMA_context> again(seen->get_interface<IRDMA_context>());
    CHECK(again.get() == c);
    again.reset();
    any.reset();
    CHECK(count(c) == 1);
}

TEST_CASE_FIXTURE(Rig, "every slot of a context")
{
    IRDMA_context* c = hidden(context.get());
    Handle<IRDMA_buffer> write(c->get_write_memory(4096));
    Handle<IRDMA_buffer> read(c->get_read_memory(0x12345));
    mi::Uint8 mine[64] = {1, 2, 3};
    Handle<IRDMA_buffer> wrapped(c->wrap_user_buffer(mine, sizeof mine));
    REQUIRE(write);
    REQUIRE(read);
    REQUIRE(wrapped);
    CHECK(write->get_size() == 4096);
    CHECK(read->get_size() == 0x12345);
    CHECK(wrapped->get_size() == sizeof mine);
    CHECK(wrapped->get_data() == mine);
    CHECK(c->flush(nullptr) == -1);
    CHECK(c->flush(write.get()) == -2);
    CHECK(c->get_write_memory(4096, 99) == nullptr);
    CHECK(c->get_read_memory(4096, -2) == nullptr);
    CHECK(c->wrap_user_buffer(nullptr, 1) == nullptr);
    CHECK(std::strlen(nrdma_last_error()) > 0);
}

TEST_CASE_FIXTURE(Rig, "every slot of a buffer")
{
    Handle<IRDMA_buffer> w(context->get_write_memory(4096));
    REQUIRE(w);
    IRDMA_buffer* b = hidden(w.get());
    const IRDMA_buffer* cb = hidden(static_cast<const IRDMA_buffer*>(b));
    CHECK(cb->retain() == 2);
    CHECK(cb->release() == 1);
    CHECK(b->get_iid() == IRDMA_buffer::IID());
    CHECK(b->get_id() != 0);
    CHECK(b->get_gpu_id() == -1);
    CHECK(b->get_data() != nullptr);
    CHECK(cb->get_data() == b->get_data());
    CHECK(cb->get_size() == 4096);
    CHECK_FALSE(nrdma_buffer_is_gpudirect(nrdma::to_c(b)));
    for (int i = 0; i < 4096; ++i)
        b->get_data()[i] = static_cast<mi::Uint8>(i * 7);

    Handle<IRDMA_buffer> part(b->duplicate(16, 32));
    Handle<const IRDMA_buffer> tail(cb->duplicate(4000, 96));
    REQUIRE(part);
    REQUIRE(tail);
    CHECK(part->get_data() == b->get_data() + 16);
    CHECK(part->get_size() == 32);
    CHECK(part->get_id() != b->get_id());
    CHECK(tail->get_data() == b->get_data() + 4000);
    CHECK(tail->get_size() == 96);
    CHECK(b->duplicate(4000, 97) == nullptr);
    CHECK(b->duplicate(mi::SIZE_MAX_VALUE, 2) == nullptr);
    CHECK(cb->duplicate(4096, 0) == nullptr);

    // The views keep the memory.
    w.reset();
    CHECK(part->get_data()[0] == static_cast<mi::Uint8>(16 * 7));
    CHECK(tail->get_data()[95] == static_cast<mi::Uint8>(4095 * 7));
}

TEST_CASE_FIXTURE(Rig, "a buffer answers both ids of IRDMA_buffer, and the 2019 one is the same object")
{
    Handle<IRDMA_buffer> w(context->get_write_memory(1));
    REQUIRE(w);
    Handle<IInterface> old(w->get_interface(iid_2019));
    CHECK(old.get() == w.get());
    CHECK(count(w.get()) == 2);
    const IRDMA_buffer* seen = w.get();
    Handle<const IInterface> seen_old(seen->get_interface(iid_2019));
    CHECK(seen_old.get() == seen);
    CHECK(w->get_interface(Uuid{1, 2, 3, 4}) == nullptr);
    CHECK(seen->get_interface(IRDMA_context::IID()) == nullptr);
}

TEST_CASE_FIXTURE(Rig, "C and C++ see the same object")
{
    nrdma_context* c = nrdma::to_c(context.get());
    nrdma_buffer* b = nrdma_context_get_write_memory(c, 100, -1);
    REQUIRE(b != nullptr);
    Handle<IRDMA_buffer> w(nrdma::to_interface(b));
    CHECK(w->get_size() == nrdma_buffer_get_size(b));
    CHECK(w->get_data() == nrdma_buffer_get_data(b));
    CHECK(w->get_id() == nrdma_buffer_get_id(b));
    nrdma_uuid iid;
    nrdma_buffer_get_iid(b, &iid);
    CHECK(nrdma::to_uuid(iid) == w->get_iid());
    nrdma_context_get_iid(c, &iid);
    CHECK(nrdma::to_uuid(iid) == IRDMA_context::IID());
    CHECK(nrdma_buffer_retain(b) == 2);
    CHECK(w->release() == 1);
}

namespace {

// A host's own class behind nrdma's interface.
class Foreign final : public mi::base::Interface_implement<IRDMA_buffer> {
public:
    mi::Uint64 get_id() const override { return 1; }
    mi::Sint32 get_gpu_id() const override { return -1; }
    const mi::Uint8* get_data() const override { return nullptr; }
    mi::Uint8* get_data() override { return nullptr; }
    mi::Size get_size() const override { return 1; }
    const IRDMA_buffer* duplicate(mi::Size, mi::Size) const override { return nullptr; }
    IRDMA_buffer* duplicate(mi::Size, mi::Size) override { return nullptr; }
    bool is_gpudirect() override { return false; }
};

}  // namespace

TEST_CASE_FIXTURE(Rig, "a buffer that is not nrdma's is refused and left alone")
{
    Handle<IRDMA_buffer> foreign(new Foreign);
    CHECK(context->flush(foreign.get()) == -1);
    CHECK(count(foreign.get()) == 1);
}

TEST_CASE_FIXTURE(Rig, "type information")
{
    Handle<IRDMA_buffer> w(context->get_write_memory(64));
    REQUIRE(w);
    IInterface* buffer = hidden(static_cast<IInterface*>(w.get()));
    IInterface* other = hidden(static_cast<IInterface*>(context.get()));
#ifdef __cpp_rtti
    CHECK(dynamic_cast<IRDMA_buffer*>(buffer) == w.get());
    CHECK(dynamic_cast<IRDMA_context*>(buffer) == nullptr);
    CHECK(dynamic_cast<const IRDMA_buffer*>(static_cast<const IInterface*>(buffer)) == w.get());
    CHECK(dynamic_cast<void*>(buffer) == w.get());
    CHECK(dynamic_cast<IRDMA_context*>(other) == context.get());
    CHECK(dynamic_cast<IRDMA_buffer*>(other) == nullptr);
    CHECK(typeid(*buffer) == typeid(IRDMA_buffer));
    CHECK(typeid(*other) == typeid(IRDMA_context));
#else
    // Nothing was donated; the two words are there all the same.
    void** table;
    std::memcpy(&table, static_cast<const void*>(buffer), sizeof table);
    CHECK(table[-1] == nullptr);
    CHECK(table[-2] == nullptr);
    CHECK(other->get_iid() == IRDMA_context::IID());
#endif
}
