/* Slots of a D3D12 device by NvAPI, on fakes of both that run on any system. d3d12_slots CASE, with
 * NRDMA_NVAPI_LIB. */
#include "fakes/d3d12.h"
#include "gpu_rig.h"

static void (*fail)(unsigned);
static const char *(*failed)(void);
static int (*references)(void);

static void find_nvapi(void)
{
    void *library = dlopen(getenv("NRDMA_NVAPI_LIB"), RTLD_NOW);
    CHECK(library != NULL);
    gpu_symbol(library, &fail, "fake_nvapi_fail");
    gpu_symbol(library, &failed, "fake_nvapi_failed");
    gpu_symbol(library, &references, "fake_nvapi_references");
}

static nrdma_gpu_buffer_config d3d12_config(com_device *device, uint32_t slots, uint64_t frame)
{
    nrdma_gpu_buffer_config config = gpu_config(NRDMA_GPU_D3D12, slots, frame, NRDMA_MEMORY_AUTO);
    config.d3d12_device = device;
    return config;
}

static void nothing_left(const com_device *device)
{
    CHECK_EQ(device->resources, 0);
    CHECK_EQ(device->references, 1);
    CHECK_EQ(references(), 0);
}

/* Both addresses are in the slot, on 64 KiB wherever NvAPI puts them; the GPU's is never touched (nothing is
 * there). */
static void good(void)
{
    find_nvapi();
    for (uint32_t skew = 0; skew <= 0x8000; skew += 0x8000) {
        for (int ring = 0; ring < 2; ++ring) {
            com_device device = com_make_device(skew);
            nrdma_gpu_buffer_config config = d3d12_config(&device, 3, 70000);
            config.flags = ring ? NRDMA_GPU_CONTIGUOUS : 0;
            uint64_t total = 0;
            CHECK_EQ(nrdma_gpu_buffer_probe(&config, &total, NULL, 0), NRDMA_OK);
            CHECK_EQ(total, 6 * UNIT);
            nothing_left(&device);
            nrdma_gpu_buffer *buffer = gpu_make(&config);
            CHECK_EQ(device.resources, ring ? 1 : 3);
            CHECK_EQ(device.references, 2);
            gpu_slots_apart(buffer, UNIT);
            const nrdma_gpu_buffer_info info = gpu_info(buffer);
            CHECK(info.api == NRDMA_GPU_D3D12 && info.memory == NRDMA_MEMORY_DEVICE &&
                  info.rdma_capable == 1);
            CHECK_EQ(info.total_bytes, (skew == 0 ? 6 : ring ? 7 : 9) * UNIT);
            for (uint32_t i = 0; i < 3; ++i) {
                const nrdma_gpu_slot *slot = nrdma_gpu_buffer_slot(buffer, i);
                const com_resource *resource = (const com_resource *)(uintptr_t)slot->native;
                CHECK(slot->address == (uintptr_t)resource->bytes + slot->native_offset);
                CHECK(slot->gpu_va == resource->gpu_va + slot->native_offset &&
                      slot->gpu_va != slot->address);
                CHECK(slot->native_offset % UNIT == (skew == 0 ? 0 : UNIT - skew));
                CHECK(resource->references == 1 && resource->creation_mask == 1 &&
                      resource->visible_mask == 1);
                CHECK(slot->host == NULL && slot->native_memory == 0);
                memset((void *)(uintptr_t)slot->address, (int)i, slot->size); /* the card */
            }
            CHECK_EQ(nrdma_gpu_buffer_write(buffer, 0, 0, "x", 1), NRDMA_NOT_SUPPORTED);
            CHECK_EQ(nrdma_gpu_buffer_flush(buffer), NRDMA_OK);
            nrdma_gpu_buffer_destroy(buffer);
            nothing_left(&device);
        }
    }
}

static void misuse(void)
{
    find_nvapi();
    com_device device = com_make_device(0);
    const nrdma_gpu_buffer_config right = d3d12_config(&device, 2, 70000);
    nrdma_gpu_buffer_config config = right;
    config.d3d12_device = NULL;
    gpu_refused(&config, NRDMA_INVALID_PARAMETER, "d3d12_device");
    config = right;
    config.memory = NRDMA_MEMORY_PINNED;
    gpu_refused(&config, NRDMA_INVALID_PARAMETER, "NRDMA_MEMORY_PINNED is no kind of D3D12 memory");
    config = right;
    config.exports = NRDMA_EXPORT_WIN32;
    gpu_refused(&config, NRDMA_NOT_SUPPORTED, "D3D12 memory cannot be exported");
    config = right;
    config.d3d12_creation_node_mask = 3;
    gpu_refused(&config, NRDMA_INVALID_PARAMETER, "d3d12_creation_node_mask is 0x3");
    config.d3d12_creation_node_mask = 2;
    config.d3d12_visible_node_mask = 1;
    gpu_refused(&config, NRDMA_INVALID_PARAMETER, "d3d12_visible_node_mask 0x1");
    config.d3d12_visible_node_mask = 3;
    nrdma_gpu_buffer *buffer = gpu_make(&config);
    const com_resource *resource = (const com_resource *)(uintptr_t)nrdma_gpu_buffer_slot(buffer, 0)->native;
    CHECK(resource->creation_mask == 2 && resource->visible_mask == 3);
    nrdma_gpu_buffer_destroy(buffer);
    config = d3d12_config(&device, 65, 1 << 20);
    gpu_refused(&config, NRDMA_OUT_OF_MEMORY, "67108864");
    config = d3d12_config(&device, UINT32_MAX, 1);
    gpu_refused(&config, NRDMA_INVALID_PARAMETER, "slot_count");
    nothing_left(&device);
}

/* Every call fails, at every position. */
static void faults(void)
{
    find_nvapi();
    com_device device = com_make_device(0x1000);
    const nrdma_gpu_buffer_config config = d3d12_config(&device, 3, 70000);
    unsigned k = 1, errors = 0;
    for (;; ++k) {
        nrdma_gpu_buffer *buffer = NULL;
        fail(k);
        const nrdma_status status = nrdma_gpu_buffer_create(&config, &buffer);
        const int hit = failed()[0] != 0;
        CHECK((status < 0) == hit && (buffer == NULL) == hit);
        if (hit)
            CHECK(strstr(nrdma_last_error(), failed()) != NULL);
        errors += hit;
        nrdma_gpu_buffer_destroy(buffer);
        nothing_left(&device);
        if (failed()[0] == 0)
            break;
        if (!hit)
            CHECK(strcmp(failed(), "NvAPI_Unload") == 0);
    }
    fail(0);
    CHECK(errors == 8 &&
          k >= 9); /* the start, the query, three buffers and each once more for its alignment */
}

/* What NRDMA_FAKE_NVAPI says is missing is named. */
static void refused(const char *part)
{
    com_device device = com_make_device(0);
    const nrdma_gpu_buffer_config config = d3d12_config(&device, 2, 70000);
    nrdma_gpu_buffer *buffer = NULL;
    const nrdma_status status = nrdma_gpu_buffer_create(&config, &buffer);
    fprintf(stderr, "%d %s\n", status, nrdma_last_error());
    CHECK(status < 0 && buffer == NULL && strstr(nrdma_last_error(), part) != NULL);
    CHECK(device.resources == 0 && device.references == 1);
}

/* An older driver that cannot say what the GPU has: making one tells. */
static void untold(void)
{
    find_nvapi();
    com_device device = com_make_device(0);
    const nrdma_gpu_buffer_config config = d3d12_config(&device, 2, 70000);
    nrdma_gpu_buffer_destroy(gpu_make(&config));
    nothing_left(&device);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"good", good}, {"misuse", misuse}, {"faults", faults}, {"untold", untold}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i)
        if (argc > 1 && strcmp(cases[i].name, argv[1]) == 0) {
            cases[i].run();
            return 0;
        }
    if (argc > 2) {
        refused(argv[2]);
        return 0;
    }
    fprintf(stderr, "no such case\n");
    return 2;
}
