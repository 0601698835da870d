// In place of ossia score's RdmaGpuBuffer.hpp/.cpp and CudaVmmAllocator.hpp/.cpp: its call sites stay as they are.
#pragma once
#include <nrdma/gpu_buffer.hpp>

#include <utility>

namespace score::gfx {
using RdmaGpuApi = nrdma::Gpu_api;
using RdmaGpuSlot = nrdma::Gpu_slot;

// What score's Vulkan code hands over; the function is (nrdma_proc)qInst->getInstanceProcAddr("vkGetInstanceProcAddr").
struct RdmaVulkanContext {
    void *instance{}, *physDev{}, *dev{};
    nrdma_proc getInstanceProcAddr{};
};
struct RdmaGpuBufferConfig {
    RdmaGpuApi api{};
    std::uint32_t slotCount{};
    std::size_t frameBytes{};
    const void* apiContext{};  // RdmaVulkanContext for Vulkan, ID3D12Device for D3D12
};

class RdmaGpuBuffer : public nrdma::Gpu_buffer {
public:
    bool create(const RdmaGpuBufferConfig& config) noexcept
    {
        nrdma::Gpu_buffer_config c{config.api, config.slotCount, config.frameBytes};
        if (config.api == RdmaGpuApi::Vulkan && config.apiContext) {
            const auto& vk = *static_cast<const RdmaVulkanContext*>(config.apiContext);
            c.vulkan = {vk.instance, vk.physDev, vk.dev, vk.getInstanceProcAddr, 0, 0, nullptr};
        } else if (config.api == RdmaGpuApi::D3D12) {
            c.d3d12Device = const_cast<void*>(config.apiContext);
        }
        return Gpu_buffer::create(c);
    }
};
}  // namespace score::gfx
