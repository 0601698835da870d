// A capture loop over slots: a card writes frames into GPU memory, or into main memory where it cannot reach
// the GPU's.
//
//   capture [FRAMES]
//
// There is no card here: Card stands for its SDK, and its transfers are nrdma's own writes. With a real one,
// lock() is DMABufferLock, VHD_CreateSlotEx or ibv_reg_mr, and capture() is the SDK's wait for the next
// frame.
#include <nrdma/nrdma.hpp>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr std::size_t frame_bytes = 1920 * 1080 * 2;

class Card {
public:
    explicit Card(nrdma::Gpu_buffer& slots) : m_slots(slots) {}
    bool lock(void* address, std::size_t size)
    {
        std::printf("lock   %p, %zu bytes\n", address, size);
        return true;
    }
    void unlock(void* address) { std::printf("unlock %p\n", address); }
    /* Transfers frame number `frame` into a slot. */
    bool capture(std::size_t slot, unsigned frame)
    {
        m_frame.assign(frame_bytes, static_cast<unsigned char>(frame));
        return m_slots.write(slot, 0, m_frame.data(), m_frame.size()) == NRDMA_OK;
    }

private:
    nrdma::Gpu_buffer& m_slots;
    std::vector<unsigned char> m_frame;
};

/* The rungs of this host's ladder, best first. nrdma itself never takes another one than it is told. */
bool make_slots(nrdma::Gpu_buffer& slots)
{
    const std::uint32_t depth = nrdma_gpu_ring_depth(0, frame_bytes, 6, 3);
    for (nrdma::Gpu_api api : {nrdma::Gpu_api::Cuda, nrdma::Gpu_api::HostFallback}) {
        if (slots.create({api, depth, frame_bytes})) {
            std::printf("%s\n", slots.info().note);
            return true;
        }
        std::printf("no: %s\n", nrdma_last_error());
    }
    return false;
}

}  // namespace

int main(int argc, char** argv)
{
    const int frames = argc > 1 ? std::atoi(argv[1]) : 10;
    nrdma::Gpu_buffer slots;
    if (!make_slots(slots))
        return 1;
    Card card(slots);
    // Declared after the slots, so that the card lets go before the memory does.
    nrdma::Gpu_pins pins(
        slots, [&](void* address, std::size_t size) { return card.lock(address, size); },
        [&](void* address, std::size_t) { card.unlock(address); });
    if (!pins)
        return 1;
    for (int frame = 0; frame < frames; ++frame) {
        const std::size_t slot = static_cast<std::size_t>(frame) % slots.slotCount();
        if (!card.capture(slot, static_cast<unsigned>(frame)) || slots.flush() != NRDMA_OK)
            return 1;
        // GPU code would read slots.slot(slot).gpuAddress now. This looks at the last byte, from the CPU.
        unsigned char last = 0;
        if (slots.read(slot, frame_bytes - 1, &last, 1) != NRDMA_OK ||
            last != static_cast<unsigned char>(frame)) {
            std::printf("frame %d is wrong: %s\n", frame, nrdma_last_error());
            return 1;
        }
    }
    std::printf("%d frames through %zu slots\n", frames, slots.slotCount());
    return 0;
}
