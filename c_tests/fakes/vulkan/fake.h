/* VK_LAYER_NRDMA_fake_rdma: adds VK_NV_external_memory_rdma to a driver that runs on the CPU, for tests. It
 * is strict where the validation layer is silent: an address is had only of memory that was allocated for
 * export, and the RDMA memory type is shown only to buffers that were made for it. With FAKE_VK_EMBED the
 * same without the loader: the test adopts handles of its own and passes fake_vk_gipa on.
 *
 * NRDMA_FAKE_VK=noext,nofeature,notype,noexport,addrfail,allocfail,lowbits: what this device lacks or does.
 */
#ifndef NRDMA_FAKE_VULKAN_H
#define NRDMA_FAKE_VULKAN_H
#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>
#include <vulkan/vk_layer.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXT VK_NV_EXTERNAL_MEMORY_RDMA_EXTENSION_NAME
#define RDMA_BIT VK_EXTERNAL_MEMORY_HANDLE_TYPE_RDMA_ADDRESS_BIT_NV
#define LAYER "VK_LAYER_NRDMA_fake_rdma"
#define KEY(h) (*(void **)(h))
#define API VKAPI_ATTR
#ifdef _WIN32
#  define VISIBLE __declspec(dllexport)
#else
#  define VISIBLE __attribute__((visibility("default")))
#endif
/* Next-in-chain pointers are resolved once, while the object is being created: asking the loader later
 * returns the top of the chain, which is this layer again. */
#define INST_FNS(X)                                                                                         \
  X(vkDestroyInstance)                                                                                      \
  X(vkEnumerateDeviceExtensionProperties)                                                                   \
  X(vkGetPhysicalDeviceFeatures2) X(vkGetPhysicalDeviceFeatures2KHR) X(vkGetPhysicalDeviceMemoryProperties) \
      X(vkGetPhysicalDeviceMemoryProperties2) X(vkGetPhysicalDeviceMemoryProperties2KHR)                    \
          X(vkGetPhysicalDeviceExternalBufferProperties)
#define DEV_FNS(X)                                                                                          \
  X(vkDestroyDevice)                                                                                        \
  X(vkCreateBuffer)                                                                                         \
  X(vkDestroyBuffer) X(vkGetBufferMemoryRequirements) X(vkGetBufferMemoryRequirements2) X(vkAllocateMemory) \
      X(vkFreeMemory) X(vkMapMemory) X(vkUnmapMemory) X(vkBindBufferMemory) X(vkBindBufferMemory2)
#define FIELD(n) PFN_##n n;
typedef struct Inst {
    struct Inst *next;
    void *key;
    void *pd; /* set by adopt only */
    VkInstance h;
    PFN_vkGetInstanceProcAddr gipa;
    INST_FNS(FIELD)
} Inst;
typedef struct Dev {
    struct Dev *next;
    void *key;
    VkDevice h;
    VkPhysicalDevice pd;
    Inst *in;
    int ext, feat;
    uint32_t real, fake;
    PFN_vkGetDeviceProcAddr gdpa;
    DEV_FNS(FIELD)
} Dev;
typedef struct Obj {
    struct Obj *next;
    uint64_t h;
    int exported;
    void *ptr;
    VkDeviceSize off;
} Obj;
extern Inst *insts;
extern Dev *devs;
extern Obj *bufs, *mems;
extern pthread_mutex_t mu, chain_mu;

/* The next layer's or driver's function. */
#define INEXT(i, n) ((i)->n)
#define DNEXT(d, n) ((d)->n)

/* Whether NRDMA_FAKE_VK has a word. */
int fault(const char *word);
/* Counts a call that may fail; not 0: it shall. */
int shall_fail(const char *call);
Inst *inst_of(void *h);
Dev *dev_of(void *h);
void put(Obj **list, uint64_t h, int exported, void *p, VkDeviceSize off);
int get(Obj *const *list, uint64_t h, Obj *out);
int take(Obj **list, uint64_t h, Obj *out);
VkBaseOutStructure *find(const void *chain, VkStructureType type);
/* Takes one struct out of a chain for the length of one call down, under chain_mu, and puts it back. */
typedef struct {
    VkBaseOutStructure *prev, *me;
} Cut;
Cut cut(const void *head, VkStructureType type);
void uncut(Cut c);

/* buffers.c */
PFN_vkVoidFunction buffer_function(const char *name);
VkResult VKAPI_CALL fake_address(VkDevice h, const VkMemoryGetRemoteAddressInfoNV *q, VkRemoteAddressNV *out);
#endif
