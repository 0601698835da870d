// nrdma::Gpu_buffer behaves as ossia score's RdmaGpuBuffer, and score's call sites compile against the adapter of
// docs/slots.md. gpu_score CASE, on the fake CUDA driver.
#include <pthread.h>

#include <type_traits>
#include <utility>
#include <vector>

#include "../examples/score_adapter.hpp"
#include "gpu_rig.h"

using score::gfx::RdmaGpuApi;
using score::gfx::RdmaGpuBuffer;

static_assert(int(RdmaGpuApi::None) == 0 && int(RdmaGpuApi::Cuda) == 1 && int(RdmaGpuApi::Vulkan) == 2, "");
static_assert(int(RdmaGpuApi::D3D12) == 3 && int(RdmaGpuApi::HostFallback) == 4, "");
static_assert(NRDMA_GPU_NONE == 0 && NRDMA_GPU_CUDA == 1 && NRDMA_GPU_HOST_FALLBACK == 4, "");
template <class Buffer>
constexpr bool is_move_only = std::is_nothrow_default_constructible<Buffer>::value &&
                              std::is_nothrow_move_constructible<Buffer>::value &&
                              std::is_nothrow_move_assignable<Buffer>::value &&
                              std::is_nothrow_destructible<Buffer>::value &&
                              !std::is_copy_constructible<Buffer>::value && !std::is_copy_assignable<Buffer>::value;
static_assert(is_move_only<RdmaGpuBuffer> && is_move_only<nrdma::Gpu_buffer>, "");

// Only score's member names and enum values below.
template <class Buffer, class Config>
static void as_score(RdmaGpuApi api)
{
    Buffer buffer;
    CHECK(!buffer.valid());
    CHECK(buffer.backend() == RdmaGpuApi::None);
    CHECK_EQ(buffer.slotCount(), 0);
    CHECK(buffer.slot(0).gpuVA == nullptr && buffer.slot(0).size == 0 && buffer.slot(0).opaque == nullptr);
    buffer.destroy();
    CHECK(!buffer.create(Config{RdmaGpuApi::None, 3, 1000}));
    CHECK(!buffer.create(Config{static_cast<RdmaGpuApi>(77), 3, 1000}));
    CHECK(!buffer.create(Config{api, 0, 1000}));
    CHECK(!buffer.create(Config{api, 3, 0}));
    // score's own says yes to these.
    CHECK(!buffer.create(Config{api, 3, SIZE_MAX}));
    CHECK(!buffer.create(Config{api, 0xffffffffu, 1000}));
    CHECK(!buffer.valid() && buffer.slotCount() == 0);

    CHECK(buffer.create(Config{api, 3, 829440}));
    CHECK(buffer.valid() && buffer.backend() == api);
    CHECK_EQ(buffer.slotCount(), 3);
    for (std::size_t i = 0; i < 3; ++i) {
        CHECK(buffer.slot(i).gpuVA != nullptr && buffer.slot(i).size >= 829440);
        CHECK_EQ(reinterpret_cast<std::uintptr_t>(buffer.slot(i).gpuVA) % UNIT, 0);
    }
    CHECK(buffer.slot(3).gpuVA == nullptr && buffer.slot(SIZE_MAX).size == 0);
    const auto* kept = &buffer.slot(1);
    void* const address = buffer.slot(1).gpuVA;

    Buffer other(std::move(buffer));
    CHECK(!buffer.valid() && buffer.slotCount() == 0 && buffer.backend() == RdmaGpuApi::None);
    CHECK(other.valid() && &other.slot(1) == kept && other.slot(1).gpuVA == address);
    Buffer third;
    CHECK(third.create(Config{api, 1, 1}));
    third = std::move(other);
    CHECK(third.slotCount() == 3 && third.slot(1).gpuVA == address && !other.valid());
    Buffer& itself = third;
    third = std::move(itself);
    CHECK(third.valid() && third.slotCount() == 3);
    CHECK(third.create(Config{api, 2, 5}));
    CHECK_EQ(third.slotCount(), 2);
    third.destroy();
    third.destroy();
    CHECK(!third.valid() && third.slot(0).gpuVA == nullptr);
    std::vector<Buffer> many(4);
    for (Buffer& one : many)
        CHECK(one.create(Config{api, 2, 5}));
    many.erase(many.begin());
    CHECK(many.front().valid());
}

static void traits()
{
    for (RdmaGpuApi api : {RdmaGpuApi::Cuda, RdmaGpuApi::HostFallback}) {
        as_score<RdmaGpuBuffer, score::gfx::RdmaGpuBufferConfig>(api);
        as_score<nrdma::Gpu_buffer, nrdma::Gpu_buffer_config>(api);
    }
    // Never another API than the one that was asked for.
    RdmaGpuBuffer buffer;
    CHECK(!buffer.create({RdmaGpuApi::Vulkan, 2, 5}));
    CHECK(!buffer.create({RdmaGpuApi::D3D12, 2, 5}));
    CHECK(!buffer.valid() && buffer.status() < 0 && nrdma_last_error()[0] != 0);
}

// score's ladder: each rung is refused in words, the last one holds, and destroying leaves the words alone.
static void ladder()
{
    const gpu_rig rig = gpu_load();
    rig.set_attribute(116, 0);
    rig.set_attribute(110, 0);
    nrdma::Gpu_buffer buffer;
    int rung = 0;
    for (nrdma::Gpu_memory memory : {nrdma::Gpu_memory::Device, nrdma::Gpu_memory::Vmm}) {
        nrdma::Gpu_buffer_config config{nrdma::Gpu_api::Cuda, 3, 1000};
        config.memory = memory;
        CHECK(!buffer.create(config));
        CHECK(strstr(nrdma_last_error(), rung++ == 0 ? "116" : "110") != nullptr);
        buffer.destroy();
        nrdma::Gpu_buffer().destroy();
        CHECK(strstr(nrdma_last_error(), "attribute") != nullptr);
        CHECK_EQ(buffer.status(), NRDMA_OK);
    }
    CHECK(buffer.create({nrdma::Gpu_api::HostFallback, 3, 1000}));
    CHECK(buffer.find(buffer.slot(2).gpuVA) == 2 && buffer.find(&rung) == 3);
    CHECK(buffer.slot(2).host == buffer.slot(2).gpuVA && buffer.flush() == NRDMA_OK);
    char text[6] = "";
    CHECK_EQ(buffer.write(1, 10, "slots", 6), NRDMA_OK);
    CHECK_EQ(buffer.read(1, 10, text, 6), NRDMA_OK);
    CHECK(strcmp(text, "slots") == 0);
    nrdma_gpu_export out = NRDMA_GPU_EXPORT_INIT;
    CHECK_EQ(buffer.exportHandle(0, NRDMA_EXPORT_FD, out), NRDMA_INVALID_PARAMETER);
}

// A card that locks addresses, and refuses from some number on.
struct Card {
    std::vector<void*> locked, unlocked;
    std::size_t room = 100, frame = 0;
};

static auto pin(nrdma::Gpu_buffer& buffer, Card& card)
{
    auto lock = [&card](void* address, std::size_t frame) {
        if (card.locked.size() == card.room)
            return false;
        card.locked.push_back(address);
        card.frame = frame;
        return true;
    };
    auto unlock = [&card](void* address, std::size_t) { card.unlocked.push_back(address); };
    return nrdma::Gpu_pins<decltype(lock), decltype(unlock)>(buffer, lock, unlock);
}

static void pins()
{
    nrdma::Gpu_buffer buffer;
    CHECK(buffer.create({nrdma::Gpu_api::Cuda, 4, 3000}));
    for (std::size_t room = 0; room <= 4; ++room) {
        Card card;
        card.room = room;
        {
            auto pinned = pin(buffer, card);
            CHECK(bool(pinned) == (room == 4));
            CHECK_EQ(card.unlocked.size(), room == 4 ? 0 : room);
            auto moved = std::move(pinned);
            nrdma::Gpu_buffer elsewhere = std::move(buffer); // the slots stay where they are
            CHECK(bool(moved) == (room == 4) && !pinned);
            buffer = std::move(elsewhere);
        }
        CHECK_EQ(card.locked.size(), room);
        CHECK(card.frame == (room ? 3000u : 0u));
        CHECK(card.unlocked == std::vector<void*>(card.locked.rbegin(), card.locked.rend()));
    }
    nrdma::Gpu_buffer empty;
    Card card;
    CHECK(!pin(empty, card));
    nrdma::Gpu_pins named(
        buffer, [](void*, std::size_t) { return true; }, [](void*, std::size_t) {});
    CHECK(bool(named));
    named.release();
    CHECK(!named);
}

// create and destroy on the render thread, slots used by the pump.
static void* pump(void* buffer)
{
    const auto& slots = *static_cast<const nrdma::Gpu_buffer*>(buffer);
    std::size_t seen = 0;
    for (std::size_t i = 0; i < 100000; ++i)
        seen += slots.slot(i % 5).gpuVA != nullptr;
    return reinterpret_cast<void*>(seen);
}

static void threads()
{
    nrdma::Gpu_buffer buffer;
    CHECK(buffer.create({nrdma::Gpu_api::Cuda, 4, 3000}));
    pthread_t pumps[3];
    for (pthread_t& thread : pumps)
        CHECK_EQ(pthread_create(&thread, nullptr, pump, &buffer), 0);
    for (pthread_t& thread : pumps) {
        void* seen = nullptr;
        CHECK_EQ(pthread_join(thread, &seen), 0);
        CHECK(seen == reinterpret_cast<void*>(std::size_t(80000)));
    }
}

// Destroyed at exit, in whatever order that is.
static nrdma::Gpu_buffer at_exit;

int main(int argc, char** argv)
{
    const char* name = argc > 1 ? argv[1] : "";
    gpu_load();
    if (strcmp(name, "traits") == 0)
        traits();
    else if (strcmp(name, "ladder") == 0)
        ladder();
    else if (strcmp(name, "pins") == 0)
        pins();
    else if (strcmp(name, "threads") == 0)
        threads();
    else if (strcmp(name, "exit") == 0)
        CHECK(at_exit.create({nrdma::Gpu_api::Cuda, 4, 3000}));
    else
        return 2;
    return 0;
}
