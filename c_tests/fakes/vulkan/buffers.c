#include "fake.h"

static API VkResult VKAPI_CALL CreateBuffer(VkDevice h, const VkBufferCreateInfo *ci,
                                            const VkAllocationCallbacks *a, VkBuffer *out)
{
    Dev *d = dev_of(h);
    if (shall_fail("vkCreateBuffer"))
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    VkExternalMemoryBufferCreateInfo *x =
        (void *)find(ci->pNext, VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO);
    int rd = x && (x->handleTypes & RDMA_BIT);
    VkBufferCreateInfo c = *ci;
    Cut cu = {0};
    pthread_mutex_lock(&chain_mu);
    if (rd)
        cu = cut(&c, VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO);
    VkResult r = DNEXT(d, vkCreateBuffer)(h, &c, a, out);
    uncut(cu);
    pthread_mutex_unlock(&chain_mu);
    if (r == VK_SUCCESS && rd)
        put(&bufs, (uint64_t)*out, 1, NULL, 0);
    return r;
}
static API void VKAPI_CALL DestroyBuffer(VkDevice h, VkBuffer b, const VkAllocationCallbacks *a)
{
    Obj o;
    take(&bufs, (uint64_t)b, &o);
    Dev *d = dev_of(h);
    DNEXT(d, vkDestroyBuffer)(h, b, a);
}
static void fix_req(Dev *d, int rd, VkMemoryRequirements *r)
{
    if (rd && d->ext && !fault("notype")) {
        if (r->alignment < 65536)
            r->alignment = 65536;
        r->size = (r->size + 65535) & ~(VkDeviceSize)65535;
        r->memoryTypeBits = 1u << d->fake;
    }
}
static API void VKAPI_CALL Req(VkDevice h, VkBuffer b, VkMemoryRequirements *r)
{
    Dev *d = dev_of(h);
    Obj o;
    DNEXT(d, vkGetBufferMemoryRequirements)(h, b, r);
    fix_req(d, get(&bufs, (uint64_t)b, &o), r);
}
static API void VKAPI_CALL Req2(VkDevice h, const VkBufferMemoryRequirementsInfo2 *q,
                                VkMemoryRequirements2 *r)
{
    Dev *d = dev_of(h);
    Obj o;
    DNEXT(d, vkGetBufferMemoryRequirements2)(h, q, r);
    fix_req(d, get(&bufs, (uint64_t)q->buffer, &o), &r->memoryRequirements);
}
static API VkResult VKAPI_CALL Alloc(VkDevice h, const VkMemoryAllocateInfo *ai,
                                     const VkAllocationCallbacks *a, VkDeviceMemory *out)
{
    Dev *d = dev_of(h);
    if (ai->memoryTypeIndex != d->fake)
        return DNEXT(d, vkAllocateMemory)(h, ai, a, out);
    if (shall_fail("vkAllocateMemory") || fault("allocfail"))
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    VkExportMemoryAllocateInfo *x = (void *)find(ai->pNext, VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO);
    int ex = x && (x->handleTypes & RDMA_BIT);
    VkMemoryAllocateInfo c = *ai;
    c.memoryTypeIndex = d->real;
    c.allocationSize += 65536;
    Cut cu = {0};
    pthread_mutex_lock(&chain_mu);
    if (x)
        cu = cut(&c, VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO);
    VkResult r = DNEXT(d, vkAllocateMemory)(h, &c, a, out);
    uncut(cu);
    pthread_mutex_unlock(&chain_mu);
    if (r)
        return r;
    void *p = NULL;
    r = DNEXT(d, vkMapMemory)(h, *out, 0, VK_WHOLE_SIZE, 0, &p);
    if (r) {
        DNEXT(d, vkFreeMemory)(h, *out, a);
        return r;
    }
    VkDeviceSize off =
        fault("lowbits")
            ? 0
            : (-(uintptr_t)p) &
                  65535; /* hand out a 64 KiB aligned address, as a BAR1 page would be; bind moves by the same amount */
    put(&mems, (uint64_t)*out, ex, (char *)p + off, off);
    return VK_SUCCESS;
}
static API void VKAPI_CALL Free(VkDevice h, VkDeviceMemory m, const VkAllocationCallbacks *a)
{
    Dev *d = dev_of(h);
    Obj o;
    if (m && take(&mems, (uint64_t)m, &o))
        DNEXT(d, vkUnmapMemory)(h, m);
    DNEXT(d, vkFreeMemory)(h, m, a);
}
static API VkResult VKAPI_CALL Map(VkDevice h, VkDeviceMemory m, VkDeviceSize o, VkDeviceSize s,
                                   VkMemoryMapFlags f, void **p)
{
    Dev *d = dev_of(h);
    Obj t;
    if (get(&mems, (uint64_t)m, &t))
        return VK_ERROR_MEMORY_MAP_FAILED;
    return DNEXT(d, vkMapMemory)(h, m, o, s, f, p);
}
static API VkResult VKAPI_CALL Bind(VkDevice h, VkBuffer b, VkDeviceMemory m, VkDeviceSize o)
{
    Dev *d = dev_of(h);
    if (shall_fail("vkBindBufferMemory"))
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    Obj t;
    if (get(&mems, (uint64_t)m, &t))
        o += t.off;
    return DNEXT(d, vkBindBufferMemory)(h, b, m, o);
}
static API VkResult VKAPI_CALL Bind2(VkDevice h, uint32_t n, const VkBindBufferMemoryInfo *q)
{
    Dev *d = dev_of(h);
    VkBindBufferMemoryInfo *c = malloc(n * sizeof *c + 1);
    for (uint32_t i = 0; i < n; i++) {
        Obj t;
        c[i] = q[i];
        if (get(&mems, (uint64_t)q[i].memory, &t))
            c[i].memoryOffset += t.off;
    }
    VkResult r = DNEXT(d, vkBindBufferMemory2)(h, n, c);
    free(c);
    return r;
}
VkResult VKAPI_CALL fake_address(VkDevice h, const VkMemoryGetRemoteAddressInfoNV *q, VkRemoteAddressNV *out)
{
    (void)h;
    Obj o;
    if (shall_fail("vkGetMemoryRemoteAddressNV") || fault("addrfail") || q->handleType != RDMA_BIT ||
        !get(&mems, (uint64_t)q->memory, &o) || !o.exported)
        return VK_ERROR_INVALID_EXTERNAL_HANDLE;
    *out = o.ptr;
    return VK_SUCCESS;
}
#define F(n, f)              \
  if (!strcmp(name, "vk" n)) \
  return (PFN_vkVoidFunction)f
PFN_vkVoidFunction buffer_function(const char *name)
{
    F("CreateBuffer", CreateBuffer);
    F("DestroyBuffer", DestroyBuffer);
    F("GetBufferMemoryRequirements", Req);
    F("GetBufferMemoryRequirements2", Req2);
    F("GetBufferMemoryRequirements2KHR", Req2);
    F("AllocateMemory", Alloc);
    F("FreeMemory", Free);
    F("MapMemory", Map);
    F("BindBufferMemory", Bind);
    F("BindBufferMemory2", Bind2);
    F("BindBufferMemory2KHR", Bind2);
    return NULL;
}
