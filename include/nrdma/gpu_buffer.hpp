/* C++17 view of slots: RDMA-capable memory for capture cards and NICs. Part of nrdma.hpp, and complete without it.
 *
 * Members and numbers are those of ossia score's RdmaGpuBuffer, so that code written for it compiles with this. No
 * function throws; builds with -fno-exceptions and -fno-rtti.
 */
#ifndef NRDMA_GPU_BUFFER_HPP
#define NRDMA_GPU_BUFFER_HPP

#include <nrdma/nrdma.h>

#include <cstddef>
#include <cstdint>
#include <new>

#if defined(__GNUC__) && !defined(_WIN32)
#  pragma GCC visibility push(default)
#endif
/* X11 has a macro of this name. */
#pragma push_macro("None")
#undef None

namespace nrdma {

enum class Gpu_api : std::uint8_t { None, Cuda, Vulkan, D3D12, HostFallback };
enum class Gpu_memory : std::uint8_t { Auto, Device, Vmm, Pinned, Pages };

/* One slot: the same bytes as the card, GPU code and the CPU address them. */
struct Gpu_slot {
    void* gpuVA{};              /* what the card's SDK takes */
    std::size_t size{};         /* this slot's alone, from gpuVA on */
    void* opaque{};             /* VkBuffer, ID3D12Resource*, or CUDA's allocation handle */
    std::uint64_t gpuAddress{}; /* for GPU code; 0 is none */
    void* host{};               /* for the CPU; null is none */
};

/* The host's Vulkan objects. */
struct Gpu_vulkan {
    void* instance{};
    void* physicalDevice{};
    void* device{};
    nrdma_proc getInstanceProcAddr{};
    std::uint32_t usage{};
    std::uint32_t queueFamilyCount{};
    const std::uint32_t* queueFamilies{};
};

/* What slots are to be; see nrdma_gpu_buffer_config. The first three are enough for CUDA on GPU 0 and for host memory. */
struct Gpu_buffer_config {
    Gpu_api api{Gpu_api::None};
    std::uint32_t slotCount{};
    std::size_t frameBytes{};
    Gpu_memory memory{Gpu_memory::Auto};
    std::uint32_t flags{};
    std::uint32_t exports{};
    std::size_t alignment{};
    int cudaDevice{};
    const std::uint8_t* gpuUuid{};
    void* cudaContext{};
    Gpu_vulkan vulkan{};
    void* d3d12Device{};
    std::uint32_t d3d12CreationNodeMask{};
    std::uint32_t d3d12VisibleNodeMask{};

    nrdma_gpu_buffer_config c() const noexcept
    {
        nrdma_gpu_buffer_config config = NRDMA_GPU_BUFFER_CONFIG_INIT;
        config.api = static_cast<std::int32_t>(api);
        config.slot_count = slotCount;
        config.frame_bytes = frameBytes;
        config.memory = static_cast<std::int32_t>(memory);
        config.flags = flags;
        config.exports = exports;
        config.alignment = alignment;
        config.cuda_device = cudaDevice;
        config.gpu_uuid = gpuUuid;
        config.cuda_context = cudaContext;
        config.vk_instance = vulkan.instance;
        config.vk_physical_device = vulkan.physicalDevice;
        config.vk_device = vulkan.device;
        config.vk_get_instance_proc_addr = vulkan.getInstanceProcAddr;
        config.vk_buffer_usage = vulkan.usage;
        config.vk_queue_family_count = vulkan.queueFamilyCount;
        config.vk_queue_families = vulkan.queueFamilies;
        config.d3d12_device = d3d12Device;
        config.d3d12_creation_node_mask = d3d12CreationNodeMask;
        config.d3d12_visible_node_mask = d3d12VisibleNodeMask;
        return config;
    }
};

/* Owns slots. Move-only. Const members may be called from any thread at any time; create, destroy and moves from one
 * at a time. */
class Gpu_buffer {
public:
    Gpu_buffer() noexcept = default;
    Gpu_buffer(Gpu_buffer&& other) noexcept { swap(other); }
    Gpu_buffer& operator=(Gpu_buffer&& other) noexcept
    {
        if (this != &other) {
            destroy();
            swap(other);
        }
        return *this;
    }
    Gpu_buffer(const Gpu_buffer&) = delete;
    Gpu_buffer& operator=(const Gpu_buffer&) = delete;
    ~Gpu_buffer() { destroy(); }

    /* Frees what it had, then makes all slots or none. When false: status(), and nrdma_last_error() until this
     * thread's next failing call. */
    bool create(const Gpu_buffer_config& config) noexcept
    {
        destroy();
        const nrdma_gpu_buffer_config c = config.c();
        m_status = nrdma_gpu_buffer_create(&c, &m_buffer);
        if (m_status < 0)
            return false;
        m_info.struct_size = sizeof m_info;
        (void)nrdma_gpu_buffer_get_info(m_buffer, &m_info);
        m_slots = new (std::nothrow) Gpu_slot[m_info.slot_count];
        if (m_slots == nullptr) {
            destroy();
            m_status = NRDMA_OUT_OF_MEMORY;
            return false;
        }
        for (std::uint32_t i = 0; i < m_info.slot_count; ++i) {
            const nrdma_gpu_slot& slot = *nrdma_gpu_buffer_slot(m_buffer, i);
            m_slots[i] = {pointer(slot.address), static_cast<std::size_t>(slot.size), pointer(slot.native),
                          slot.gpu_va, slot.host};
        }
        return true;
    }

    /* Frees the slots. The card must have let go of them. */
    void destroy() noexcept
    {
        nrdma_gpu_buffer_destroy(m_buffer);
        delete[] m_slots;
        m_buffer = nullptr;
        m_slots = nullptr;
        m_info = nrdma_gpu_buffer_info{};
        m_status = NRDMA_OK;
    }

    bool valid() const noexcept { return m_buffer != nullptr; }
    Gpu_api backend() const noexcept { return static_cast<Gpu_api>(m_info.api); }
    std::size_t slotCount() const noexcept { return m_info.slot_count; }
    /* At the same place until create or destroy; an empty slot when out of range. No call into the library. */
    const Gpu_slot& slot(std::size_t index) const noexcept
    {
        static const Gpu_slot empty{};
        return index < slotCount() ? m_slots[index] : empty;
    }
    /* Which slot an SDK's address is; slotCount() when none. */
    std::size_t find(const void* gpuVA) const noexcept
    {
        std::size_t index = 0;
        while (index < slotCount() && m_slots[index].gpuVA != gpuVA)
            ++index;
        return index;
    }

    const nrdma_gpu_buffer_info& info() const noexcept { return m_info; }
    /* Of the last create. */
    nrdma_status status() const noexcept { return m_status; }
    nrdma_status exportHandle(std::size_t index, std::uint32_t type, nrdma_gpu_export& out) const noexcept
    {
        out.struct_size = sizeof out;
        return nrdma_gpu_buffer_export(m_buffer, index, type, &out);
    }
    nrdma_status write(std::size_t index, std::size_t offset, const void* source, std::size_t size) noexcept
    {
        return nrdma_gpu_buffer_write(m_buffer, index, offset, source, size);
    }
    nrdma_status read(std::size_t index, std::size_t offset, void* target, std::size_t size) const noexcept
    {
        return nrdma_gpu_buffer_read(m_buffer, index, offset, target, size);
    }
    /* Between "the card is done" and the GPU's first read. */
    nrdma_status flush() const noexcept
    {
        return m_info.needs_flush != 0 ? nrdma_gpu_buffer_flush(m_buffer) : NRDMA_OK;
    }
    nrdma_gpu_buffer* get() const noexcept { return m_buffer; }

    void swap(Gpu_buffer& other) noexcept
    {
        exchange(m_buffer, other.m_buffer);
        exchange(m_slots, other.m_slots);
        exchange(m_info, other.m_info);
        exchange(m_status, other.m_status);
    }

private:
    static void* pointer(std::uint64_t address) noexcept
    {
        return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
    }
    template <class T>
    static void exchange(T& a, T& b) noexcept
    {
        const T old = a;
        a = b;
        b = old;
    }

    nrdma_gpu_buffer* m_buffer{};
    Gpu_slot* m_slots{};
    nrdma_gpu_buffer_info m_info{};
    nrdma_status m_status{NRDMA_OK};
};

/* The card's lock on every slot, all or none; let go in reverse order, before the memory: declare it after its buffer.
 * The buffer may move meanwhile. Move-only.
 *
 *   nrdma::Gpu_pins pins(buffer,
 *       [&](void* p, std::size_t n) { return card.DMABufferLock((ULWord*)p, ULWord(n), true, true); },
 *       [&](void* p, std::size_t n) { card.DMABufferUnlock((ULWord*)p, ULWord(n)); });
 */
template <class Pin, class Unpin>
class Gpu_pins {
public:
    Gpu_pins(const Gpu_buffer& buffer, Pin pin, Unpin unpin)
        : m_slots(&buffer.slot(0)), m_frame(static_cast<std::size_t>(buffer.info().frame_bytes)),
          m_unpin(static_cast<Unpin&&>(unpin))
    {
        for (; m_count < buffer.slotCount(); ++m_count) {
            if (!pin(m_slots[m_count].gpuVA, m_frame)) {
                release();
                return;
            }
        }
    }
    Gpu_pins(Gpu_pins&& other) noexcept
        : m_slots(other.m_slots), m_frame(other.m_frame), m_count(other.m_count),
          m_unpin(static_cast<Unpin&&>(other.m_unpin))
    {
        other.m_count = 0;
    }
    Gpu_pins& operator=(Gpu_pins&&) = delete;
    Gpu_pins(const Gpu_pins&) = delete;
    Gpu_pins& operator=(const Gpu_pins&) = delete;
    ~Gpu_pins() { release(); }

    /* Whether every slot is locked. */
    explicit operator bool() const noexcept { return m_count > 0; }

    void release()
    {
        while (m_count > 0)
            m_unpin(m_slots[--m_count].gpuVA, m_frame);
    }

private:
    const Gpu_slot* m_slots;
    std::size_t m_frame;
    std::size_t m_count{};
    Unpin m_unpin;
};

}  // namespace nrdma

#pragma pop_macro("None")
#if defined(__GNUC__) && !defined(_WIN32)
#  pragma GCC visibility pop
#endif

#endif /* NRDMA_GPU_BUFFER_HPP */
