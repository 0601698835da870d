// nrdma::Node owns a node, moves it, and is harmless when empty.
#include <doctest/doctest.h>
#include <nrdma/nrdma.hpp>

#include <type_traits>
#include <utility>

static_assert(!std::is_copy_constructible<nrdma::Node>::value && !std::is_copy_assignable<nrdma::Node>::value,
              "two owners would destroy the node twice");
static_assert(std::is_nothrow_move_constructible<nrdma::Node>::value, "for containers");
static_assert(sizeof(nrdma::Node) == sizeof(void*), "nothing but the pointer");

TEST_CASE("an empty node")
{
    nrdma::Node node;
    CHECK_FALSE(node);
    CHECK(node.get() == nullptr);
    CHECK(node.host_id() == 0);
    CHECK_FALSE(node.get_rdma_context(0).is_valid_interface());
    nrdma_job job = NRDMA_JOB_INIT;
    CHECK(node.execute(job, 1) == NRDMA_INVALID_PARAMETER);
    CHECK(node.listen("unix:/nowhere") == NRDMA_INVALID_PARAMETER);
    CHECK(node.connect("unix:/nowhere") == NRDMA_INVALID_PARAMETER);
    CHECK(node.wait_peers(0, 0) == NRDMA_INVALID_PARAMETER);
    CHECK(node.trim(0) == NRDMA_INVALID_PARAMETER);
    nrdma_stats stats;
    CHECK(node.stats(stats) == NRDMA_INVALID_PARAMETER);
    node.reset();
}

TEST_CASE("a node is moved, given away and taken back")
{
    nrdma_node_config config = NRDMA_NODE_CONFIG_INIT;
    config.host_id = 4711;
    nrdma::Node a;
    REQUIRE(a.create(&config) == NRDMA_OK);
    CHECK(a.host_id() == 4711);
    nrdma::Node b(std::move(a));
    CHECK_FALSE(a);
    CHECK(b.host_id() == 4711);
    a = std::move(b);
    CHECK(a.host_id() == 4711);
    nrdma_node* raw = a.release();
    CHECK_FALSE(a);
    a.reset(raw);
    CHECK(a.get() == raw);
    config.host_id = 4712;
    REQUIRE(a.create(&config) == NRDMA_OK);
    CHECK(a.host_id() == 4712);
    nrdma_stats stats;
    CHECK(a.stats(stats) == NRDMA_OK);
    CHECK(stats.peers == 0);
    uint64_t peers = 1;
    CHECK(a.peers(nullptr, 0, &peers) == NRDMA_OK);
    CHECK(peers == 0);
    CHECK(a.shutdown() == NRDMA_OK);
    CHECK(a.shutdown() == NRDMA_OK);
}

TEST_CASE("a context holds what it needs after its node is gone")
{
    nrdma::Handle<mi::neuraylib::IRDMA_context> context;
    nrdma::Handle<mi::neuraylib::IRDMA_buffer> buffer;
    {
        nrdma::Node node;
        REQUIRE(node.create() == NRDMA_OK);
        context = node.get_rdma_context(node.host_id());
        REQUIRE(context.is_valid_interface());
        buffer = context->get_write_memory(100);
        REQUIRE(buffer.is_valid_interface());
        buffer->get_data()[99] = 9;
    }
    CHECK(context->get_write_memory(100) == nullptr);
    CHECK(context->flush(buffer.get()) == -1);
    CHECK(buffer->get_data()[99] == 9);
}
