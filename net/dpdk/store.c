#include "net/dpdk/store.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/bytes.h"

#define BLOCK_BYTES     (64U << 10)
#define BLOCK_COUNT     128U
#define BLOCKS_HEAD     32U /* of these for messages at the head only */
#define BLOCKS_STRANGER 16U /* of these at most for unauthenticated peers */
#define STRANGER_PART   8U  /* unauthenticated peers' part of the parked packets */

static_assert(SL_DPDK_SHORT_BYTES <= BLOCK_BYTES, "a block holds any short message");

struct sl_dpdk_store {
    uint8_t *memory; /* of all blocks; unused pages are never touched */
    struct sl_dpdk_block *current, *free;
    struct sl_dpdk_block *strangers; /* as `current`, for unauthenticated peers */
    uint32_t free_count, stranger_count;
    struct sl_dpdk_block blocks[BLOCK_COUNT];
    /* Parked packets, at most half of what each port lends, so that others still arrive. */
    uint32_t waiting[SL_DPDK_PORTS];           /* by netif */
    uint32_t strangers_waiting[SL_DPDK_PORTS]; /* those of unauthenticated peers */
    struct sl_dpdk_parked *parked, *parked_free;
    uint32_t parked_fresh; /* the first that was never used */
    /* Copies of misrouted packets, by the index in `parked`; NULL if there can be none. Unused
     * pages are never touched. */
    uint8_t *copies;
    size_t copies_bytes;
    uint32_t copy_bytes;
};

static uint32_t waiting_max(const struct sl_dpdk_netif *netif)
{
    return netif->info.packets / 2U;
}

static uint8_t *dpdk_store_map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void free_store(struct sl_dpdk_store *store)
{
    if (store->memory != NULL) {
        munmap(store->memory, (size_t)BLOCK_COUNT * BLOCK_BYTES);
    }
    if (store->copies != NULL) {
        munmap(store->copies, store->copies_bytes);
    }
    free(store->parked);
    free(store);
}

static void put_free(struct sl_dpdk_store *store, struct sl_dpdk_block *block)
{
    store->stranger_count -= block->of_stranger ? 1 : 0;
    block->of_stranger = false;
    block->next = store->free;
    store->free = block;
    store->free_count++;
}

/* Allocates the parked packets of all netifs. False: no memory. */
static bool open_parked(const struct sl_dpdk *dpdk, struct sl_dpdk_store *store)
{
    size_t count = 1;
    bool has_misrouted = false;
    for (uint32_t i = 0; i < dpdk->netif_count; i++) {
        const struct sl_dpdk_port_info *info = &dpdk->netifs[i].info;
        count += waiting_max(&dpdk->netifs[i]);
        has_misrouted = has_misrouted || info->queues.reactors > 1;
        store->copy_bytes =
            info->frame_bytes_max > store->copy_bytes ? info->frame_bytes_max : store->copy_bytes;
    }
    store->parked = malloc(count * sizeof *store->parked);
    if (has_misrouted) {
        store->copies_bytes = count * store->copy_bytes;
        store->copies = dpdk_store_map(store->copies_bytes);
    }
    return store->parked != NULL && (store->copies != NULL || !has_misrouted);
}

int sl_dpdk_store_open(struct sl_dpdk *dpdk)
{
    struct sl_dpdk_store *store = calloc(1, sizeof *store);
    if (store == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    store->memory = dpdk_store_map((size_t)BLOCK_COUNT * BLOCK_BYTES);
    if (store->memory == NULL || !open_parked(dpdk, store)) {
        free_store(store);
        return SL_ERR_NO_MEMORY;
    }
    for (uint32_t i = BLOCK_COUNT; i > 0; i--) {
        struct sl_dpdk_block *block = &store->blocks[i - 1];
        block->store = store;
        block->memory = store->memory + (size_t)(i - 1) * BLOCK_BYTES;
        put_free(store, block);
    }
    dpdk->store = store;
    return 0;
}

void sl_dpdk_store_close(struct sl_dpdk *dpdk)
{
    struct sl_dpdk_store *store = dpdk->store;
    if (store == NULL) {
        return;
    }
    free_store(store);
    dpdk->store = NULL;
}

/* Blocks */

/* Takes a free block for the share, or NULL. */
static struct sl_dpdk_block *next_block(struct sl_dpdk_store *store, enum sl_dpdk_share share)
{
    const bool is_stranger = share == SL_DPDK_SHARE_STRANGER;
    struct sl_dpdk_block *block = store->free;
    if (store->free_count <= (share == SL_DPDK_SHARE_HEAD ? 0 : BLOCKS_HEAD) ||
        (is_stranger && store->stranger_count == BLOCKS_STRANGER)) {
        return NULL;
    }
    store->free = block->next;
    store->free_count--;
    block->used = 0;
    block->of_stranger = is_stranger;
    store->stranger_count += is_stranger ? 1 : 0;
    return block;
}

uint8_t *sl_dpdk_store_get(struct sl_dpdk_store *store, uint32_t bytes, enum sl_dpdk_share share,
                           struct sl_dpdk_block **out)
{
    struct sl_dpdk_block **current =
        share == SL_DPDK_SHARE_STRANGER ? &store->strangers : &store->current;
    const uint32_t padded = (uint32_t)sl_bytes_pad8(bytes);
    if (*current == NULL || BLOCK_BYTES - (*current)->used < padded) {
        struct sl_dpdk_block *next = next_block(store, share);
        if (next == NULL) {
            return NULL;
        }
        *current = next;
    }
    struct sl_dpdk_block *block = *current;
    uint8_t *at = block->memory + block->used;
    block->used += padded;
    block->refs++;
    *out = block;
    return at;
}

void sl_dpdk_block_put(struct sl_dpdk_block *block)
{
    if (--block->refs > 0) {
        return;
    }
    if (block == block->store->current || block == block->store->strangers) {
        block->used = 0;
    } else {
        put_free(block->store, block);
    }
}

/* Parked packets */

static struct sl_dpdk_parked *get_parked(struct sl_dpdk_store *store)
{
    struct sl_dpdk_parked *parked = store->parked_free;
    if (parked == NULL) {
        return &store->parked[store->parked_fresh++];
    }
    store->parked_free = parked->next;
    return parked;
}

static const uint8_t *copy_body(struct sl_dpdk_store *store, const struct sl_dpdk_parked *parked,
                                const struct sl_dpdk_parsed *parsed)
{
    sl_assert(store->copies != NULL);
    sl_assert(parsed->body_bytes <= store->copy_bytes);
    uint8_t *copy = store->copies + (size_t)(parked - store->parked) * store->copy_bytes;
    return memcpy(copy, parsed->body, parsed->body_bytes);
}

struct sl_dpdk_parked *sl_dpdk_park(struct sl_dpdk *dpdk, struct sl_dpdk_netif *netif,
                                    const struct sl_dpdk_packet *packet,
                                    const struct sl_dpdk_parsed *parsed, bool of_stranger)
{
    struct sl_dpdk_store *store = dpdk->store;
    uint32_t *waiting = &store->waiting[netif - dpdk->netifs];
    uint32_t *strangers = &store->strangers_waiting[netif - dpdk->netifs];
    if (*waiting == waiting_max(netif) ||
        (of_stranger && *strangers >= waiting_max(netif) / STRANGER_PART)) {
        return NULL;
    }
    ++*waiting;
    *strangers += of_stranger ? 1 : 0;
    struct sl_dpdk_parked *parked = get_parked(store);
    parked->of_stranger = of_stranger;
    parked->netif = netif;
    parked->packet = *packet;
    parked->body = packet->token != NULL ? parsed->body : copy_body(store, parked, parsed);
    parked->offset = parsed->header.offset;
    parked->bytes = parsed->body_bytes;
    return parked;
}

void sl_dpdk_unpark(struct sl_dpdk *dpdk, struct sl_dpdk_parked *parked)
{
    struct sl_dpdk_netif *netif = parked->netif;
    if (parked->packet.token != NULL) {
        netif->port->ops->release(netif->port, &parked->packet, 1);
    }
    dpdk->store->waiting[netif - dpdk->netifs]--;
    dpdk->store->strangers_waiting[netif - dpdk->netifs] -= parked->of_stranger ? 1 : 0;
    parked->next = dpdk->store->parked_free;
    dpdk->store->parked_free = parked;
}
