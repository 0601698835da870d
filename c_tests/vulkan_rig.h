/* A Vulkan host for tests of slots: an instance and a device of the CPU driver, by the loader, with what a
 * case asks for, and a count of what the validation layer has to say. */
#ifndef NRDMA_VULKAN_RIG_H
#define NRDMA_VULKAN_RIG_H
#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#include "gpu_rig.h"

#define VULKAN_FUNCTIONS(X)                                                                                \
  X(vkCreateDevice)                                                                                        \
  X(vkDestroyInstance) X(vkEnumeratePhysicalDevices) X(vkGetPhysicalDeviceMemoryProperties)                \
      X(vkGetDeviceQueue) X(vkDestroyDevice) X(vkCreateBuffer) X(vkDestroyBuffer)                          \
          X(vkGetBufferMemoryRequirements) X(vkAllocateMemory) X(vkFreeMemory) X(vkBindBufferMemory)       \
              X(vkMapMemory) X(vkCreateCommandPool) X(vkDestroyCommandPool) X(vkAllocateCommandBuffers)    \
                  X(vkBeginCommandBuffer) X(vkEndCommandBuffer) X(vkCmdCopyBuffer) X(vkCmdPipelineBarrier) \
                      X(vkQueueSubmit) X(vkQueueWaitIdle) X(vkEnumerateDeviceExtensionProperties)

typedef struct {
    void *library;
    PFN_vkGetInstanceProcAddr lookup;
    VkInstance instance;
    VkPhysicalDevice physical;
    VkDevice device;
    VkQueue queue;
    VkDebugUtilsMessengerEXT messenger;
#define VULKAN_FIELD(name) PFN_##name name;
    VULKAN_FUNCTIONS(VULKAN_FIELD)
#undef VULKAN_FIELD
} vulkan_rig;

/* What the validation layer said, and the names of it. */
static int vulkan_messages;
static char vulkan_said[4096];

static VKAPI_ATTR VkBool32 VKAPI_CALL vulkan_hear(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                                  VkDebugUtilsMessageTypeFlagsEXT type,
                                                  const VkDebugUtilsMessengerCallbackDataEXT *data,
                                                  void *user)
{
    (void)severity;
    (void)type;
    (void)user;
    const char *name = data->pMessageIdName != NULL ? data->pMessageIdName : "?";
    /* The loader's own, about environment variables. */
    if (strcmp(name, "Loader Message") == 0)
        return VK_FALSE;
    ++vulkan_messages;
    strncat(vulkan_said, name, sizeof vulkan_said - strlen(vulkan_said) - 2);
    strcat(vulkan_said, " ");
    fprintf(stderr, "validation: %s: %.300s\n", name, data->pMessage);
    return VK_FALSE;
}

/* extension, feature: what the device is made with; address: also bufferDeviceAddress. */
static inline vulkan_rig vulkan_open(int extension, int feature, int address)
{
    vulkan_rig rig;
    memset(&rig, 0, sizeof rig);
    rig.library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    CHECK(rig.library != NULL);
    gpu_symbol(rig.library, &rig.lookup, "vkGetInstanceProcAddr");
    const PFN_vkCreateInstance create = (PFN_vkCreateInstance)rig.lookup(NULL, "vkCreateInstance");
    const PFN_vkEnumerateInstanceExtensionProperties list =
        (PFN_vkEnumerateInstanceExtensionProperties)rig.lookup(NULL,
                                                               "vkEnumerateInstanceExtensionProperties");
    VkExtensionProperties all[64];
    uint32_t count = 64;
    CHECK(list(NULL, &count, all) >= 0);
    const char *const debug = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
    int has_debug = 0;
    for (uint32_t i = 0; i < count; ++i)
        has_debug |= strcmp(all[i].extensionName, debug) == 0;
    CHECK(has_debug);
    const VkDebugUtilsMessengerCreateInfoEXT hear = {
        .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
        .messageSeverity =
            VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
        .messageType = 7,
        .pfnUserCallback = vulkan_hear};
    const VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                   .apiVersion = VK_API_VERSION_1_2};
    const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                       .pNext = &hear,
                                       .pApplicationInfo = &app,
                                       .enabledExtensionCount = 1,
                                       .ppEnabledExtensionNames = &debug};
    CHECK_EQ(create(&info, NULL, &rig.instance), VK_SUCCESS);
#define VULKAN_RESOLVE(name)                              \
  rig.name = (PFN_##name)rig.lookup(rig.instance, #name); \
  CHECK(rig.name != NULL);
    VULKAN_FUNCTIONS(VULKAN_RESOLVE)
#undef VULKAN_RESOLVE
    const PFN_vkCreateDebugUtilsMessengerEXT listen =
        (PFN_vkCreateDebugUtilsMessengerEXT)rig.lookup(rig.instance, "vkCreateDebugUtilsMessengerEXT");
    CHECK_EQ(listen(rig.instance, &hear, NULL, &rig.messenger), VK_SUCCESS);
    count = 1;
    CHECK(rig.vkEnumeratePhysicalDevices(rig.instance, &count, &rig.physical) >= 0);
    CHECK_EQ(count, 1);
    VkPhysicalDeviceBufferDeviceAddressFeatures addresses = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_BUFFER_DEVICE_ADDRESS_FEATURES,
        .bufferDeviceAddress = VK_TRUE};
    VkPhysicalDeviceExternalMemoryRDMAFeaturesNV rdma = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_RDMA_FEATURES_NV,
        .pNext = address ? &addresses : NULL,
        .externalMemoryRDMA = VK_TRUE};
    const float priority = 1;
    const VkDeviceQueueCreateInfo queue = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueCount = 1, .pQueuePriorities = &priority};
    const char *const name = VK_NV_EXTERNAL_MEMORY_RDMA_EXTENSION_NAME;
    const VkDeviceCreateInfo device = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                       .pNext = feature ? &rdma : NULL,
                                       .queueCreateInfoCount = 1,
                                       .pQueueCreateInfos = &queue,
                                       .enabledExtensionCount = extension != 0,
                                       .ppEnabledExtensionNames = &name};
    CHECK_EQ(rig.vkCreateDevice(rig.physical, &device, NULL, &rig.device), VK_SUCCESS);
    rig.vkGetDeviceQueue(rig.device, 0, 0, &rig.queue);
    return rig;
}

static inline void vulkan_close(vulkan_rig *rig)
{
    rig->vkDestroyDevice(rig->device, NULL);
    const PFN_vkDestroyDebugUtilsMessengerEXT deaf =
        (PFN_vkDestroyDebugUtilsMessengerEXT)rig->lookup(rig->instance, "vkDestroyDebugUtilsMessengerEXT");
    deaf(rig->instance, rig->messenger, NULL);
    rig->vkDestroyInstance(rig->instance, NULL);
}

static inline nrdma_gpu_buffer_config vulkan_config(const vulkan_rig *rig, uint32_t slots, uint64_t frame)
{
    nrdma_gpu_buffer_config config = gpu_config(NRDMA_GPU_VULKAN, slots, frame, NRDMA_MEMORY_AUTO);
    config.vk_instance = rig->instance;
    config.vk_physical_device = rig->physical;
    config.vk_device = rig->device;
    config.vk_get_instance_proc_addr = (nrdma_proc)rig->lookup;
    return config;
}

/* A buffer that the CPU can read. */
typedef struct {
    VkBuffer buffer;
    VkDeviceMemory memory;
    unsigned char *bytes;
} vulkan_staging;

static inline vulkan_staging vulkan_stage(const vulkan_rig *rig, uint64_t size)
{
    vulkan_staging out;
    const VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                     .size = size,
                                     .usage = VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    CHECK_EQ(rig->vkCreateBuffer(rig->device, &info, NULL, &out.buffer), VK_SUCCESS);
    VkMemoryRequirements needs;
    rig->vkGetBufferMemoryRequirements(rig->device, out.buffer, &needs);
    VkPhysicalDeviceMemoryProperties memory;
    rig->vkGetPhysicalDeviceMemoryProperties(rig->physical, &memory);
    uint32_t type = 0;
    while (!(needs.memoryTypeBits >> type & 1) || (memory.memoryTypes[type].propertyFlags & 6) != 6)
        CHECK(++type < memory.memoryTypeCount);
    const VkMemoryAllocateInfo allocate = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                           .allocationSize = needs.size,
                                           .memoryTypeIndex = type};
    CHECK_EQ(rig->vkAllocateMemory(rig->device, &allocate, NULL, &out.memory), VK_SUCCESS);
    CHECK_EQ(rig->vkBindBufferMemory(rig->device, out.buffer, out.memory, 0), VK_SUCCESS);
    void *bytes = NULL;
    CHECK_EQ(rig->vkMapMemory(rig->device, out.memory, 0, VK_WHOLE_SIZE, 0, &bytes), VK_SUCCESS);
    out.bytes = (unsigned char *)bytes;
    return out;
}

/* The GPU's side: copies a slot's bytes out by the queue, as a renderer would use them. */
static inline void vulkan_read(const vulkan_rig *rig, const nrdma_gpu_slot *slot, unsigned char *out,
                               uint64_t size)
{
    const vulkan_staging staging = vulkan_stage(rig, size);
    VkCommandPool pool;
    const VkCommandPoolCreateInfo pools = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
    CHECK_EQ(rig->vkCreateCommandPool(rig->device, &pools, NULL, &pool), VK_SUCCESS);
    VkCommandBuffer commands;
    const VkCommandBufferAllocateInfo allocate = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                                  .commandPool = pool,
                                                  .commandBufferCount = 1};
    CHECK_EQ(rig->vkAllocateCommandBuffers(rig->device, &allocate, &commands), VK_SUCCESS);
    const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                            .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
    CHECK_EQ(rig->vkBeginCommandBuffer(commands, &begin), VK_SUCCESS);
    VkBuffer from;
    memcpy(&from, &slot->native, sizeof from);
    const VkBufferCopy copy = {.srcOffset = slot->native_offset, .size = size};
    rig->vkCmdCopyBuffer(commands, from, staging.buffer, 1, &copy);
    const VkMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                     .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
                                     .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
    rig->vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1,
                              &barrier, 0, NULL, 0, NULL);
    CHECK_EQ(rig->vkEndCommandBuffer(commands), VK_SUCCESS);
    const VkSubmitInfo submit = {
        .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 1, .pCommandBuffers = &commands};
    CHECK_EQ(rig->vkQueueSubmit(rig->queue, 1, &submit, VK_NULL_HANDLE), VK_SUCCESS);
    CHECK_EQ(rig->vkQueueWaitIdle(rig->queue), VK_SUCCESS);
    memcpy(out, staging.bytes, size);
    rig->vkDestroyCommandPool(rig->device, pool, NULL);
    rig->vkDestroyBuffer(rig->device, staging.buffer, NULL);
    rig->vkFreeMemory(rig->device, staging.memory, NULL);
}
#endif
