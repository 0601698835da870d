/* Slots of the host's Vulkan device, on the CPU driver below a fake layer below the validation layer
 * (gpu.cmake sets the order). vulkan_slots CASE. */
#include "vulkan_rig.h"

static void (*fail)(unsigned);
static const char *(*failed)(void);
static unsigned (*live)(void);

/* The fake layer, which the loader has loaded. */
static void find_layer(void)
{
    void *layer = dlopen(getenv("NRDMA_TEST_LAYER"), RTLD_NOW | RTLD_NOLOAD);
    CHECK(layer != NULL);
    gpu_symbol(layer, &fail, "fake_vk_fail");
    gpu_symbol(layer, &failed, "fake_vk_failed");
    gpu_symbol(layer, &live, "fake_vk_live");
}

/* The card writes by the slot's address, the GPU reads by its buffer. */
static void card_to_gpu(const vulkan_rig *rig, nrdma_gpu_buffer *buffer)
{
    enum { SIZE = 70000 };
    static unsigned char got[SIZE];
    const uint32_t count = gpu_info(buffer).slot_count;
    for (uint32_t i = 0; i < count; ++i) {
        unsigned char *card = (unsigned char *)(uintptr_t)nrdma_gpu_buffer_slot(buffer, i)->address;
        for (int k = 0; k < SIZE; ++k)
            card[k] = (unsigned char)(k * 7 + k / 251 + (int)i);
    }
    for (uint32_t i = 0; i < count; ++i) {
        vulkan_read(rig, nrdma_gpu_buffer_slot(buffer, i), got, SIZE);
        for (int k = 0; k < SIZE; ++k)
            CHECK(got[k] == (unsigned char)(k * 7 + k / 251 + (int)i));
    }
}

static void good(void)
{
    vulkan_rig rig = vulkan_open(1, 1, 0);
    find_layer();
    for (int ring = 0; ring < 2; ++ring) {
        nrdma_gpu_buffer_config config = vulkan_config(&rig, 3, 70000);
        config.flags = ring ? NRDMA_GPU_CONTIGUOUS : 0;
        uint64_t total = 0;
        CHECK_EQ(nrdma_gpu_buffer_probe(&config, &total, NULL, 0), NRDMA_OK);
        CHECK_EQ(total, 6 * UNIT);
        CHECK_EQ(live(), 0);
        nrdma_gpu_buffer *buffer = gpu_make(&config);
        CHECK_EQ(live(), ring ? 2 : 6);
        gpu_slots_apart(buffer, UNIT);
        const nrdma_gpu_buffer_info info = gpu_info(buffer);
        CHECK(info.api == NRDMA_GPU_VULKAN && info.memory == NRDMA_MEMORY_DEVICE && info.cuda_device == -1);
        CHECK(info.total_bytes >= total && info.rdma_capable == 1 && info.needs_flush == 0 &&
              info.note[0] == 0);
        const nrdma_gpu_slot *slot = nrdma_gpu_buffer_slot(buffer, 2);
        CHECK(slot->native != 0 && slot->native_memory != 0 && slot->gpu_va == 0 && slot->host == NULL);
        card_to_gpu(&rig, buffer);
        /* The CPU has no way in. */
        CHECK_EQ(nrdma_gpu_buffer_write(buffer, 0, 0, "x", 1), NRDMA_NOT_SUPPORTED);
        char byte;
        CHECK_EQ(nrdma_gpu_buffer_read(buffer, 0, 0, &byte, 1), NRDMA_NOT_SUPPORTED);
        CHECK(strstr(nrdma_last_error(), "queue") != NULL);
        CHECK_EQ(nrdma_gpu_buffer_flush(buffer), NRDMA_OK);
        nrdma_gpu_buffer_destroy(buffer);
        CHECK_EQ(live(), 0);
    }
    vulkan_close(&rig);
    CHECK_EQ(vulkan_messages, 0);
}

/* Addresses that are only on pages: slots begin on 64 KiB all the same. */
static void low_bits(void)
{
    vulkan_rig rig = vulkan_open(1, 1, 0);
    find_layer();
    for (int ring = 0; ring < 2; ++ring) {
        nrdma_gpu_buffer_config config = vulkan_config(&rig, 3, 70000);
        config.flags = ring ? NRDMA_GPU_CONTIGUOUS : 0;
        nrdma_gpu_buffer *buffer = gpu_make(&config);
        gpu_slots_apart(buffer, UNIT);
        card_to_gpu(&rig, buffer);
        nrdma_gpu_buffer_destroy(buffer);
    }
    CHECK_EQ(live(), 0);
    vulkan_close(&rig);
    CHECK_EQ(vulkan_messages, 0);
}

/* For shaders there is an address of its own. */
static void addressed(void)
{
    vulkan_rig rig = vulkan_open(1, 1, 1);
    nrdma_gpu_buffer_config config = vulkan_config(&rig, 2, 70000);
    config.vk_buffer_usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
    const uint32_t family = 0;
    config.vk_queue_families = &family;
    config.vk_queue_family_count = 1;
    nrdma_gpu_buffer *buffer = gpu_make(&config);
    CHECK(nrdma_gpu_buffer_slot(buffer, 1)->gpu_va != 0);
    card_to_gpu(&rig, buffer);
    nrdma_gpu_buffer_destroy(buffer);
    vulkan_close(&rig);
    CHECK_EQ(vulkan_messages, 0);
}

/* The validation layer is there, and above the fake layer: it sees a mistake that only it can name. */
static void validation_on_top(void)
{
    vulkan_rig rig = vulkan_open(1, 1, 0);
    const nrdma_gpu_buffer_config config = vulkan_config(&rig, 1, 70000);
    nrdma_gpu_buffer *buffer = gpu_make(&config);
    VkDeviceMemory memory;
    memcpy(&memory, &nrdma_gpu_buffer_slot(buffer, 0)->native_memory, sizeof memory);
    CHECK_EQ(vulkan_messages, 0);
    void *bytes = NULL;
    CHECK(rig.vkMapMemory(rig.device, memory, 0, VK_WHOLE_SIZE, 0, &bytes) != VK_SUCCESS);
    CHECK(strstr(vulkan_said, "VUID-vkMapMemory-memory-00682") != NULL);
    nrdma_gpu_buffer_destroy(buffer);
    /* And it would tell of what we leave behind: this buffer the host has forgotten. */
    CHECK(gpu_make(&config) != NULL);
    vulkan_close(&rig);
    CHECK(strstr(vulkan_said, "VUID-vkDestroyDevice-device-00378") != NULL);
}

/* The extension is there and was not enabled. */
static void not_enabled(void)
{
    vulkan_rig rig = vulkan_open(0, 0, 0);
    const nrdma_gpu_buffer_config config = vulkan_config(&rig, 2, 70000);
    gpu_refused(&config, NRDMA_NOT_SUPPORTED, "VK_NV_external_memory_rdma is not enabled on this device");
    vulkan_close(&rig);
    CHECK_EQ(vulkan_messages, 0);
}

/* What NRDMA_FAKE_VK says is missing is named. */
static void refused(const char *part, int with_extension, int with_probe)
{
    vulkan_rig rig = vulkan_open(with_extension, 0, 0);
    find_layer();
    const nrdma_gpu_buffer_config config = vulkan_config(&rig, 2, 70000);
    nrdma_gpu_buffer *buffer = NULL;
    const nrdma_status status = nrdma_gpu_buffer_create(&config, &buffer);
    fprintf(stderr, "%d %s\n", status, nrdma_last_error());
    CHECK(status < 0 && buffer == NULL && strstr(nrdma_last_error(), part) != NULL);
    CHECK_EQ(nrdma_gpu_buffer_probe(&config, NULL, NULL, 0), with_probe ? status : NRDMA_OK);
    CHECK_EQ(live(), 0);
    vulkan_close(&rig);
    CHECK_EQ(vulkan_messages, 0);
}

static void misuse(void)
{
    vulkan_rig rig = vulkan_open(1, 1, 0);
    find_layer();
    const nrdma_gpu_buffer_config right = vulkan_config(&rig, 2, 70000);
    nrdma_gpu_buffer_config config = right;
    config.vk_instance = NULL;
    gpu_refused(&config, NRDMA_INVALID_PARAMETER, "vk_instance");
    config = right;
    config.vk_physical_device = NULL;
    gpu_refused(&config, NRDMA_INVALID_PARAMETER, "vk_physical_device");
    config = right;
    config.vk_device = NULL;
    gpu_refused(&config, NRDMA_INVALID_PARAMETER, "vk_device");
    config = right;
    config.vk_get_instance_proc_addr = (nrdma_proc)0;
    gpu_refused(&config, NRDMA_INVALID_PARAMETER, "vk_get_instance_proc_addr");
    config = right;
    config.memory = NRDMA_MEMORY_VMM;
    gpu_refused(&config, NRDMA_INVALID_PARAMETER, "NRDMA_MEMORY_VMM is no kind of Vulkan memory");
    config = right;
    config.exports = NRDMA_EXPORT_DMA_BUF;
    gpu_refused(&config, NRDMA_NOT_SUPPORTED, "Vulkan memory cannot be exported");
    config = right;
    config.vk_queue_family_count = 3;
    gpu_refused(&config, NRDMA_INVALID_PARAMETER, "vk_queue_families");
    config = right;
    config.frame_bytes = UINT64_MAX;
    gpu_refused(&config, NRDMA_INVALID_PARAMETER, "frame_bytes");
    /* The fake's heap has 64 MiB. */
    config = vulkan_config(&rig, 65, 1 << 20);
    gpu_refused(&config, NRDMA_OUT_OF_MEMORY, "67108864");
    CHECK_EQ(live(), 0);
    vulkan_close(&rig);
    CHECK_EQ(vulkan_messages, 0);
}

/* Every call that may fail does, at every position: an error that names it, and nothing left. */
static void faults(void)
{
    vulkan_rig rig = vulkan_open(1, 1, 0);
    find_layer();
    for (int ring = 0; ring < 2; ++ring) {
        nrdma_gpu_buffer_config config = vulkan_config(&rig, 3, 70000);
        config.flags = ring ? NRDMA_GPU_CONTIGUOUS : 0;
        unsigned k = 1;
        for (;; ++k) {
            nrdma_gpu_buffer *buffer = NULL;
            fail(k);
            const nrdma_status status = nrdma_gpu_buffer_create(&config, &buffer);
            if (failed()[0] == 0) {
                fail(0);
                CHECK_EQ(status, NRDMA_OK);
                nrdma_gpu_buffer_destroy(buffer);
                break;
            }
            CHECK(status < 0 && buffer == NULL);
            CHECK(strstr(nrdma_last_error(), failed()) != NULL);
            CHECK_EQ(live(), 0);
        }
        CHECK(k > (ring ? 4u : 12u));
        CHECK_EQ(live(), 0);
    }
    vulkan_close(&rig);
    CHECK_EQ(vulkan_messages, 0);
}

/* The fake without layers, as where no layer reaches (Windows under wine): nrdma is given its lookup function. */
static void embedded(void)
{
    vulkan_rig rig = vulkan_open(0, 0, 0);
    void *fake = dlopen(getenv("NRDMA_TEST_LAYER"), RTLD_NOW);
    CHECK(fake != NULL);
    void (*adopt)(VkInstance, VkPhysicalDevice, VkDevice, PFN_vkGetInstanceProcAddr, int);
    PFN_vkGetInstanceProcAddr lookup;
    gpu_symbol(fake, &adopt, "fake_vk_adopt");
    gpu_symbol(fake, &lookup, "fake_vk_gipa");
    gpu_symbol(fake, &live, "fake_vk_live");
    adopt(rig.instance, rig.physical, rig.device, rig.lookup, 1);
    nrdma_gpu_buffer_config config = vulkan_config(&rig, 3, 70000);
    gpu_refused(&config, NRDMA_NOT_SUPPORTED, "VkPhysicalDevice has no VK_NV_external_memory_rdma");
    config.vk_get_instance_proc_addr = (nrdma_proc)lookup;
    nrdma_gpu_buffer *buffer = gpu_make(&config);
    gpu_slots_apart(buffer, UNIT);
    card_to_gpu(&rig, buffer);
    nrdma_gpu_buffer_destroy(buffer);
    CHECK_EQ(live(), 0);
    vulkan_close(&rig);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"good", good},           {"low_bits", low_bits},       {"validation_on_top", validation_on_top},
        {"addressed", addressed}, {"not_enabled", not_enabled}, {"misuse", misuse},
        {"faults", faults},       {"embedded", embedded}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i)
        if (argc > 1 && strcmp(cases[i].name, argv[1]) == 0) {
            cases[i].run();
            return 0;
        }
    if (argc > 3) {
        refused(argv[3], strcmp(argv[1], "with") == 0, strcmp(argv[2], "planned") == 0);
        return 0;
    }
    fprintf(stderr, "no such case\n");
    return 2;
}
