#include "fake.h"

static API VkResult VKAPI_CALL CreateInstance(const VkInstanceCreateInfo *ci, const VkAllocationCallbacks *a,
                                              VkInstance *out)
{
    VkLayerInstanceCreateInfo *l = (VkLayerInstanceCreateInfo *)ci->pNext;
    while (l &&
           !(l->sType == VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO && l->function == VK_LAYER_LINK_INFO))
        l = (VkLayerInstanceCreateInfo *)l->pNext;
    if (!l)
        return VK_ERROR_INITIALIZATION_FAILED;
    PFN_vkGetInstanceProcAddr gipa = l->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    l->u.pLayerInfo = l->u.pLayerInfo->pNext;
    VkResult r = ((PFN_vkCreateInstance)gipa(NULL, "vkCreateInstance"))(ci, a, out);
    if (r == VK_SUCCESS) {
        Inst *i = calloc(1, sizeof *i);
        i->key = KEY(*out);
        i->h = *out;
        i->gipa = gipa;
#define RESOLVE(n) i->n = (PFN_##n)gipa(*out, #n);
        INST_FNS(RESOLVE)
#undef RESOLVE
        pthread_mutex_lock(&mu);
        i->next = insts;
        insts = i;
        pthread_mutex_unlock(&mu);
    }
    return r;
}
static API void VKAPI_CALL DestroyInstance(VkInstance h, const VkAllocationCallbacks *a)
{
    if (!h)
        return;
    Inst *i = inst_of(h);
    PFN_vkDestroyInstance f = INEXT(i, vkDestroyInstance);
    pthread_mutex_lock(&mu);
    for (Inst **p = &insts; *p; p = &(*p)->next)
        if (*p == i) {
            *p = i->next;
            break;
        }
    pthread_mutex_unlock(&mu);
    free(i);
    f(h, a);
}
static API VkResult VKAPI_CALL EnumExt(VkPhysicalDevice pd, const char *layer, uint32_t *n,
                                       VkExtensionProperties *p)
{
    static const VkExtensionProperties mine = {EXT, VK_NV_EXTERNAL_MEMORY_RDMA_SPEC_VERSION};
    if (layer && !strcmp(layer, LAYER)) {
        if (!p) {
            *n = 1;
            return VK_SUCCESS;
        }
        if (!*n)
            return VK_INCOMPLETE;
        p[0] = mine;
        *n = 1;
        return VK_SUCCESS;
    }
    if (!layer && shall_fail("vkEnumerateDeviceExtensionProperties"))
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    Inst *i = inst_of(pd);
    PFN_vkEnumerateDeviceExtensionProperties f = INEXT(i, vkEnumerateDeviceExtensionProperties);
    if (layer || fault("noext"))
        return f(pd, layer, n, p);
    uint32_t c = 0;
    VkResult r = f(pd, NULL, &c, NULL);
    if (r)
        return r;
    if (!p) {
        *n = c + 1;
        return VK_SUCCESS;
    }
    uint32_t cap = *n, k = cap < c ? cap : c;
    r = f(pd, NULL, &k, p);
    if (r < 0)
        return r;
    if (k < cap) {
        p[k++] = mine;
        *n = k;
        return k == c + 1 ? VK_SUCCESS : VK_INCOMPLETE;
    }
    *n = k;
    return VK_INCOMPLETE;
}
static void do_feat(VkPhysicalDeviceFeatures2 *f)
{
    VkPhysicalDeviceExternalMemoryRDMAFeaturesNV *x =
        (void *)find(f->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_RDMA_FEATURES_NV);
    if (x)
        x->externalMemoryRDMA = !fault("noext") && !fault("nofeature");
}
static API void VKAPI_CALL Feat2(VkPhysicalDevice pd, VkPhysicalDeviceFeatures2 *f)
{
    Inst *i = inst_of(pd);
    INEXT(i, vkGetPhysicalDeviceFeatures2)(pd, f);
    do_feat(f);
}
static API void VKAPI_CALL Feat2K(VkPhysicalDevice pd, VkPhysicalDeviceFeatures2 *f)
{
    Inst *i = inst_of(pd);
    INEXT(i, vkGetPhysicalDeviceFeatures2KHR)(pd, f);
    do_feat(f);
}
static void add_type(VkPhysicalDeviceMemoryProperties *m)
{
    if (fault("noext") || fault("notype") || m->memoryTypeCount >= VK_MAX_MEMORY_TYPES ||
        m->memoryHeapCount >= VK_MAX_MEMORY_HEAPS)
        return;
    m->memoryHeaps[m->memoryHeapCount].size = 64u << 20;
    m->memoryHeaps[m->memoryHeapCount].flags = VK_MEMORY_HEAP_DEVICE_LOCAL_BIT; /* a small "BAR1" heap */
    m->memoryTypes[m->memoryTypeCount].propertyFlags =
        VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT |
        VK_MEMORY_PROPERTY_RDMA_CAPABLE_BIT_NV; /* the one combination the spec lists */
    m->memoryTypes[m->memoryTypeCount++].heapIndex = m->memoryHeapCount++;
}
static API void VKAPI_CALL MemP(VkPhysicalDevice pd, VkPhysicalDeviceMemoryProperties *m)
{
    Inst *i = inst_of(pd);
    INEXT(i, vkGetPhysicalDeviceMemoryProperties)(pd, m);
    add_type(m);
}
static void add_budget(VkPhysicalDeviceMemoryProperties2 *m, uint32_t before)
{
    VkPhysicalDeviceMemoryBudgetPropertiesEXT *b =
        (void *)find(m->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT);
    if (b && m->memoryProperties.memoryHeapCount > before) {
        b->heapBudget[before] = m->memoryProperties.memoryHeaps[before].size;
        b->heapUsage[before] = 0;
    }
}
static API void VKAPI_CALL MemP2(VkPhysicalDevice pd, VkPhysicalDeviceMemoryProperties2 *m)
{
    Inst *i = inst_of(pd);
    INEXT(i, vkGetPhysicalDeviceMemoryProperties2)(pd, m);
    uint32_t b = m->memoryProperties.memoryHeapCount;
    add_type(&m->memoryProperties);
    add_budget(m, b);
}
static API void VKAPI_CALL MemP2K(VkPhysicalDevice pd, VkPhysicalDeviceMemoryProperties2 *m)
{
    Inst *i = inst_of(pd);
    INEXT(i, vkGetPhysicalDeviceMemoryProperties2KHR)(pd, m);
    uint32_t b = m->memoryProperties.memoryHeapCount;
    add_type(&m->memoryProperties);
    add_budget(m, b);
}
static API void VKAPI_CALL ExtBuf(VkPhysicalDevice pd, const VkPhysicalDeviceExternalBufferInfo *q,
                                  VkExternalBufferProperties *p)
{
    Inst *i = inst_of(pd);
    if (q->handleType != RDMA_BIT) {
        INEXT(i, vkGetPhysicalDeviceExternalBufferProperties)(pd, q, p);
        return;
    }
    memset(&p->externalMemoryProperties, 0, sizeof p->externalMemoryProperties);
    if (fault("noext") || fault("noexport"))
        return;
    p->externalMemoryProperties.externalMemoryFeatures = VK_EXTERNAL_MEMORY_FEATURE_EXPORTABLE_BIT;
    p->externalMemoryProperties.compatibleHandleTypes = RDMA_BIT;
}
static API VkResult VKAPI_CALL CreateDevice(VkPhysicalDevice pd, const VkDeviceCreateInfo *ci,
                                            const VkAllocationCallbacks *a, VkDevice *out)
{
    Inst *in = inst_of(pd);
    VkLayerDeviceCreateInfo *l = (VkLayerDeviceCreateInfo *)ci->pNext;
    while (l &&
           !(l->sType == VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO && l->function == VK_LAYER_LINK_INFO))
        l = (VkLayerDeviceCreateInfo *)l->pNext;
    if (!l)
        return VK_ERROR_INITIALIZATION_FAILED;
    PFN_vkGetInstanceProcAddr gipa = l->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    PFN_vkGetDeviceProcAddr gdpa = l->u.pLayerInfo->pfnNextGetDeviceProcAddr;
    l->u.pLayerInfo = l->u.pLayerInfo->pNext;
    VkDeviceCreateInfo c = *ci;
    int ext = 0, feat = 0;
    const char **names = malloc((c.enabledExtensionCount + 1) * sizeof *names);
    uint32_t k = 0;
    for (uint32_t j = 0; j < c.enabledExtensionCount; j++)
        if (!strcmp(c.ppEnabledExtensionNames[j], EXT))
            ext = 1;
        else
            names[k++] = c.ppEnabledExtensionNames[j];
    if (ext && fault("noext")) {
        free(names);
        return VK_ERROR_EXTENSION_NOT_PRESENT;
    }
    c.ppEnabledExtensionNames = names;
    c.enabledExtensionCount = k;
    VkPhysicalDeviceExternalMemoryRDMAFeaturesNV *x =
        (void *)find(c.pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_RDMA_FEATURES_NV);
    if (x && x->externalMemoryRDMA) {
        feat = 1;
        if (fault("nofeature")) {
            free(names);
            return VK_ERROR_FEATURE_NOT_PRESENT;
        }
    }
    pthread_mutex_lock(&chain_mu);
    Cut cu = cut(&c, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_RDMA_FEATURES_NV);
    VkResult r = ((PFN_vkCreateDevice)gipa(in->h, "vkCreateDevice"))(pd, &c, a, out);
    uncut(cu);
    pthread_mutex_unlock(&chain_mu);
    free(names);
    if (r == VK_SUCCESS) {
        Dev *d = calloc(1, sizeof *d);
        d->key = KEY(*out);
        d->h = *out;
        d->pd = pd;
        d->in = in;
        d->ext = ext;
        d->feat = feat;
        d->gdpa = gdpa;
#define RESOLVE(n) d->n = (PFN_##n)gdpa(*out, #n);
        DEV_FNS(RESOLVE)
#undef RESOLVE
        VkPhysicalDeviceMemoryProperties m;
        INEXT(in, vkGetPhysicalDeviceMemoryProperties)(pd, &m);
        for (d->real = 0; d->real < m.memoryTypeCount; d->real++)
            if ((m.memoryTypes[d->real].propertyFlags & 6) == 6)
                break;               /* HOST_VISIBLE|HOST_COHERENT */
        d->fake = m.memoryTypeCount; /* ours is appended */
        pthread_mutex_lock(&mu);
        d->next = devs;
        devs = d;
        pthread_mutex_unlock(&mu);
    }
    return r;
}
static API void VKAPI_CALL DestroyDevice(VkDevice h, const VkAllocationCallbacks *a)
{
    if (!h)
        return;
    Dev *d = dev_of(h);
    PFN_vkDestroyDevice f = DNEXT(d, vkDestroyDevice);
    pthread_mutex_lock(&mu);
    for (Dev **p = &devs; *p; p = &(*p)->next)
        if (*p == d) {
            *p = d->next;
            break;
        }
    pthread_mutex_unlock(&mu);
    free(d);
    f(h, a);
}
#define F(n, f)              \
  if (!strcmp(name, "vk" n)) \
  return (PFN_vkVoidFunction)f
static API PFN_vkVoidFunction VKAPI_CALL GDPA(VkDevice h, const char *name)
{
    F("GetDeviceProcAddr", GDPA);
    F("DestroyDevice", DestroyDevice);
    PFN_vkVoidFunction f = buffer_function(name);
    if (f)
        return f;
    Dev *d = dev_of(h);
    if (!strcmp(name, "vkGetMemoryRemoteAddressNV"))
        return d->ext ? (PFN_vkVoidFunction)fake_address : NULL;
    return d->gdpa(h, name);
}
static API PFN_vkVoidFunction VKAPI_CALL GIPA(VkInstance h, const char *name)
{
    F("GetInstanceProcAddr", GIPA);
    F("GetDeviceProcAddr", GDPA);
    F("CreateInstance", CreateInstance);
    F("DestroyInstance", DestroyInstance);
    F("CreateDevice", CreateDevice);
    F("EnumerateDeviceExtensionProperties", EnumExt);
    F("GetPhysicalDeviceFeatures2", Feat2);
    F("GetPhysicalDeviceFeatures2KHR", Feat2K);
    F("GetPhysicalDeviceMemoryProperties", MemP);
    F("GetPhysicalDeviceMemoryProperties2", MemP2);
    F("GetPhysicalDeviceMemoryProperties2KHR", MemP2K);
    F("GetPhysicalDeviceExternalBufferProperties", ExtBuf);
    F("GetPhysicalDeviceExternalBufferPropertiesKHR", ExtBuf);
    PFN_vkVoidFunction f = buffer_function(name);
    if (f)
        return f;
    F("GetMemoryRemoteAddressNV", fake_address);
    if (!h)
        return NULL;
    Inst *i = inst_of(h);
    return i->gipa(h, name);
}
VISIBLE VkResult VKAPI_CALL vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *v)
{
    if (v->loaderLayerInterfaceVersion > 2)
        v->loaderLayerInterfaceVersion = 2;
    v->pfnGetInstanceProcAddr = GIPA;
    v->pfnGetDeviceProcAddr = GDPA;
    v->pfnGetPhysicalDeviceProcAddr = NULL;
    return VK_SUCCESS;
}

/* The same fake without the loader's layer machinery: the test adopts handles it made itself and passes
 * fake_vk_gipa to the code under test. Needed where layers do not reach (Windows under wine) and handy where
 * no manifest can be installed. */
#ifdef FAKE_VK_EMBED
VISIBLE PFN_vkVoidFunction VKAPI_CALL fake_vk_gipa(VkInstance h, const char *n) { return GIPA(h, n); }
VISIBLE void fake_vk_adopt(VkInstance in, VkPhysicalDevice pd, VkDevice dev, PFN_vkGetInstanceProcAddr gipa,
                           int ext)
{
    Inst *i = calloc(1, sizeof *i);
    i->key = KEY(in);
    i->h = in;
    i->pd = pd;
    i->gipa = gipa;
#  define RESOLVE(n) i->n = (PFN_##n)gipa(in, #  n);
    INST_FNS(RESOLVE)
#  undef RESOLVE
    PFN_vkGetDeviceProcAddr gdpa = (PFN_vkGetDeviceProcAddr)gipa(in, "vkGetDeviceProcAddr");
    Dev *d = calloc(1, sizeof *d);
    d->key = KEY(dev);
    d->h = dev;
    d->pd = pd;
    d->in = i;
    d->ext = d->feat = ext;
    d->gdpa = gdpa;
#  define RESOLVE(n) d->n = (PFN_##n)gdpa(dev, #  n);
    DEV_FNS(RESOLVE)
#  undef RESOLVE
    VkPhysicalDeviceMemoryProperties m;
    i->vkGetPhysicalDeviceMemoryProperties(pd, &m);
    for (d->real = 0; d->real < m.memoryTypeCount; d->real++)
        if ((m.memoryTypes[d->real].propertyFlags & 6) == 6)
            break;
    d->fake = m.memoryTypeCount;
    pthread_mutex_lock(&mu);
    i->next = insts;
    insts = i;
    d->next = devs;
    devs = d;
    pthread_mutex_unlock(&mu);
}
#endif
