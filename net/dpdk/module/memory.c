/* Registers the program's memory with devices that read it by DMA. All reactors register the same
 * regions, so that each is counted. */
#include "net/dpdk/module/memory.h"

#include <errno.h>
#include <pthread.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_memory.h>
#include <stdlib.h>
#include <unistd.h>

struct region {
    struct region *next;
    const struct sl_module_device *device;
    void *base;
    size_t bytes;
    uint32_t count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct region *regions;

static struct region **module_memory_find(const struct sl_module_device *device, const void *base)
{
    struct region **at = &regions;
    while (*at != NULL && ((*at)->device != device || (*at)->base != base)) {
        at = &(*at)->next;
    }
    return at;
}

/* Devices use virtual addresses: with an IOMMU, when the EAL's mode is IOVA_VA. ENOTSUP: the bus
 * needs no mapping. EEXIST: registered through another device. */
static int map(const struct sl_module_device *device, void *base, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (((uintptr_t)base | bytes) % page != 0) {
        return SL_ERR_UNSUPPORTED;
    }
    const bool is_new = rte_extmem_register(base, bytes, NULL, 0, page) == 0;
    if (!is_new && rte_errno != EEXIST) {
        return rte_errno == ENOMEM ? SL_ERR_NO_MEMORY : SL_ERR_UNSUPPORTED;
    }
    if (rte_dev_dma_map(device->info.device, base, (uintptr_t)base, bytes) != 0 &&
        rte_errno != ENOTSUP) {
        if (is_new) {
            (void)rte_extmem_unregister(base, bytes);
        }
        return SL_ERR_UNSUPPORTED;
    }
    return 0;
}

static int add_new(const struct sl_module_device *device, void *base, size_t bytes)
{
    struct region *region = calloc(1, sizeof *region);
    if (region == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    const int err = map(device, base, bytes);
    if (err != 0) {
        free(region);
        return err;
    }
    *region = (struct region){
        .next = regions, .device = device, .base = base, .bytes = bytes, .count = 1};
    regions = region;
    return 0;
}

int sl_module_memory_add(const struct sl_module_device *device, void *base, size_t bytes)
{
    if (sl_module_has(device, SL_MODULE_COPIES)) {
        return 0;
    }
    int err = 0;
    (void)pthread_mutex_lock(&lock);
    struct region *known = *module_memory_find(device, base);
    if (known == NULL) {
        err = add_new(device, base, bytes);
    } else if (known->bytes == bytes) {
        known->count++;
    } else {
        err = SL_ERR_UNSUPPORTED;
    }
    (void)pthread_mutex_unlock(&lock);
    return err;
}

static void unmap(const struct region *region)
{
    (void)rte_dev_dma_unmap(region->device->info.device, region->base, (uintptr_t)region->base,
                            region->bytes);
    for (const struct region *other = regions; other != NULL; other = other->next) {
        if (other->base == region->base) {
            return; /* another device uses it */
        }
    }
    (void)rte_extmem_unregister(region->base, region->bytes);
}

void sl_module_memory_remove(const struct sl_module_device *device, void *base)
{
    (void)pthread_mutex_lock(&lock);
    struct region **at = module_memory_find(device, base);
    struct region *region = *at;
    if (region != NULL && --region->count == 0) {
        *at = region->next;
        unmap(region);
        free(region);
    }
    (void)pthread_mutex_unlock(&lock);
}
