#include "net/transfer/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/assert.h"
#include "net/transfer/error.h"
#include "net/transfer/region.h"
#include "net/transfer/target.h"

#define ACCESS_ALL    (SL_TRANSFER_PEERS_READ | SL_TRANSFER_PEERS_WRITE)
#define NUMA_NODE_MAX 63

static void registration_free(struct sl_transfer_registration *registration)
{
    sl_shared_destroy(&registration->shared);
    free(registration);
}

/* Checks of one range */

/* "cpu:N", N the node of the first page; touches that page. */
static int find_node(const void *base, char location[SL_TRANSFER_LOCATION_BYTES])
{
    int node = 0;
    /* Fails where the kernel has no NUMA: then everything is on node 0. */
    if (syscall(SYS_get_mempolicy, &node, NULL, 0UL, base, MPOL_F_NODE | MPOL_F_ADDR) != 0 &&
        errno == EFAULT) {
        return sl_transfer_fail(SL_ERR_INVALID, "memory at %p is not mapped", base);
    }
    (void)snprintf(location, SL_TRANSFER_LOCATION_BYTES, "cpu:%d", node);
    return 0;
}

static int take_location(const struct sl_transfer_memory *memory,
                         char location[SL_TRANSFER_LOCATION_BYTES])
{
    const char *text = memory->location;
    if (text == NULL || strcmp(text, "*") == 0) {
        return find_node(memory->base, location);
    }
    if (strncmp(text, "cuda:", 5) == 0) {
        return sl_transfer_fail(SL_ERR_UNSUPPORTED,
                                "location %s: memory of a GPU is not supported; register memory of "
                                "the host",
                                text);
    }
    const size_t digits = strncmp(text, "cpu:", 4) == 0 ? strspn(text + 4, "0123456789") : 0;
    if (digits == 0 || digits > 4 || text[4 + digits] != '\0') {
        return sl_transfer_fail(SL_ERR_INVALID,
                                "location \"%.64s\": accepted are \"cpu:N\", N a NUMA node, and "
                                "\"*\"",
                                text);
    }
    (void)snprintf(location, SL_TRANSFER_LOCATION_BYTES, "%s", text);
    return 0;
}

static int check_range(const struct sl_transfer_memory *memory)
{
    const uint64_t base = (uintptr_t)memory->base;
    if (base == 0 || memory->bytes == 0 || memory->bytes > UINT64_MAX - base) {
        return sl_transfer_fail(SL_ERR_INVALID, "memory at %p of %zu bytes is no range",
                                memory->base, memory->bytes);
    }
    if ((memory->access & ~(unsigned)ACCESS_ALL) != 0) {
        return sl_transfer_fail(SL_ERR_INVALID, "access %#x has unknown bits", memory->access);
    }
    return 0;
}

static int registration_create(const struct sl_transfer *transfer,
                               const struct sl_transfer_memory *memory,
                               struct sl_transfer_registration **out)
{
    char location[SL_TRANSFER_LOCATION_BYTES];
    int err = check_range(memory);
    err = err != 0 ? err : take_location(memory, location);
    if (err != 0) {
        return err;
    }
    const uint32_t reactor_count = transfer->settings.reactors.count;
    const uint32_t device_count = transfer->settings.endpoint_count;
    struct sl_transfer_registration *made =
        calloc(1, sizeof *made + reactor_count * (sizeof made->regions[0] +
                                                  device_count * sizeof(struct sl_transfer_offer)));
    if (made == NULL) {
        return sl_transfer_fail(SL_ERR_NO_MEMORY, "no memory to register %zu bytes", memory->bytes);
    }
    struct sl_transfer_offer *offers =
        (struct sl_transfer_offer *)(void *)&made->regions[reactor_count];
    const uint32_t preferred = sl_transfer_settings_preferred(&transfer->settings, location);
    const uint64_t key = sl_transfer_setup_random(&transfer->setup);
    made->is_changing = true;
    memcpy(made->location, location, sizeof made->location);
    for (uint32_t i = 0; i < reactor_count; i++) {
        made->regions[i].location = made->location;
        made->regions[i].preferred = preferred;
        made->regions[i].offers = &offers[i * device_count];
        made->regions[i].memory = (struct sl_rma_memory){
            .key = key,
            .base = memory->base,
            .bytes = memory->bytes,
            .peers_read = (memory->access & SL_TRANSFER_PEERS_READ) != 0,
            .peers_write = (memory->access & SL_TRANSFER_PEERS_WRITE) != 0,
        };
    }
    *out = made;
    return 0;
}

/* The table of the engine, under its lock */

static struct sl_transfer_registration *registration_of(struct sl_transfer_region *region)
{
    return SL_CONTAINER_OF(region, struct sl_transfer_registration, regions);
}

static int table_add(struct sl_transfer_table *table, struct sl_transfer_registration *added)
{
    const struct sl_rma_memory *memory = &added->regions[0].memory;
    const struct sl_transfer_region *other =
        sl_transfer_table_overlapping(table, memory->base, memory->bytes);
    if (table->count == SL_LIMIT_TRANSFER_BUFFERS) {
        return sl_transfer_fail(SL_ERR_TOO_LARGE, "more than %d ranges are registered",
                                SL_LIMIT_TRANSFER_BUFFERS);
    }
    if (other != NULL) {
        return sl_transfer_fail(SL_ERR_EXISTS,
                                "memory at %p of %" PRIu64
                                " bytes overlaps registered memory at %p of %" PRIu64 " bytes",
                                (void *)memory->base, memory->bytes, (void *)other->memory.base,
                                other->memory.bytes);
    }
    sl_transfer_table_add(table, &added->regions[0]);
    return 0;
}

/* Adds the ranges, in which a change begins: all or none. */
static int add_to_table(struct sl_transfer *transfer, struct sl_transfer_registration *const *items,
                        uint32_t count)
{
    int err = 0;
    sl_port_set_lock(transfer->ports);
    for (uint32_t i = 0; err == 0 && i < count; i++) {
        err = table_add(transfer->registered, items[i]);
        for (uint32_t undo = 0; err != 0 && undo < i; undo++) {
            sl_transfer_table_remove(transfer->registered, &items[undo]->regions[0]);
        }
    }
    sl_port_set_unlock(transfer->ports);
    return err;
}

/* Finds the range that begins at `base`, and begins to change it. */
static int begin_change(const struct sl_transfer *transfer, const void *base, bool is_created,
                        struct sl_transfer_registration **out)
{
    struct sl_transfer_region *region = sl_transfer_table_at(transfer->registered, base, 1);
    struct sl_transfer_registration *found =
        region != NULL && region->memory.base == base ? registration_of(region) : NULL;
    if (found == NULL || (found->shared.base != NULL) != is_created) {
        return sl_transfer_fail(SL_ERR_NOT_FOUND, "no memory %s begins at %p",
                                is_created ? "of sl_transfer_memory_create" : "registered here",
                                base);
    }
    if (found->is_changing) {
        return sl_transfer_fail(SL_ERR_INVALID, "memory at %p is being registered or unregistered",
                                base);
    }
    found->is_changing = true;
    *out = found;
    return 0;
}

static int find_in_table(struct sl_transfer *transfer, void *const *bases, uint32_t count,
                         bool is_created, struct sl_transfer_registration **items)
{
    int err = 0;
    sl_port_set_lock(transfer->ports);
    for (uint32_t i = 0; err == 0 && i < count; i++) {
        err = begin_change(transfer, bases[i], is_created, &items[i]);
        for (uint32_t undo = 0; err != 0 && undo < i; undo++) {
            items[undo]->is_changing = false;
        }
    }
    sl_port_set_unlock(transfer->ports);
    return err;
}

/* The change is over: the ranges stay, or they are freed. */
static void end_change(struct sl_transfer *transfer, struct sl_transfer_registration *const *items,
                       uint32_t count, bool stays)
{
    sl_port_set_lock(transfer->ports);
    for (uint32_t i = 0; i < count; i++) {
        items[i]->is_changing = false;
        if (!stays) {
            sl_transfer_table_remove(transfer->registered, &items[i]->regions[0]);
        }
    }
    sl_port_set_unlock(transfer->ports);
    for (uint32_t i = 0; i < count && !stays; i++) {
        registration_free(items[i]);
    }
}

/* Changes of the reactors' tables */

/* Ranges that are added, or removed, at one reactor after the other. */
struct change {
    struct sl_transfer_call call;
    struct sl_transfer_registration *const *items;
    uint32_t count;
    bool is_added;
    struct sl_list_link link; /* of io->changes */
    struct sl_timer timer;    /* of removals */
    uint64_t deadline_ns;
    bool has_closed; /* the connections that use the memory */
};

static void transfer_memory_end(struct sl_transfer_io *io, struct change *change, int err)
{
    sl_list_remove(&change->link);
    sl_reactor_disarm(io->reactor, &change->timer);
    if (io->index == 0 && change->is_added) {
        sl_transfer_target_added(io, change->items, change->count);
    }
    sl_transfer_io_answer(&change->call, err, "memory is still used by connections of peers");
}

/* Whether connections use the ranges, or devices are adding or removing them. */
static bool is_busy(const struct change *change, uint32_t index)
{
    for (uint32_t i = 0; i < change->count; i++) {
        const struct sl_transfer_region *region = &change->items[i]->regions[index];
        if (region->memory.uses > 0 || region->pending_count > 0) {
            return true;
        }
    }
    return false;
}

/* Work of a reactor: some memory has come to rest, or has to. */
static bool transfer_memory_look(struct sl_transfer_work *work)
{
    struct sl_transfer_io *io = SL_CONTAINER_OF(work, struct sl_transfer_io, change_work);
    SL_LIST_EACH (struct change, change, link, &io->changes) {
        if (!is_busy(change, io->index)) {
            transfer_memory_end(io, change, 0);
        }
    }
    return false;
}

static void wait_for_rest(struct sl_transfer_io *io, struct change *change)
{
    sl_list_append(&io->changes, &change->link);
    sl_transfer_io_wake(io, &io->change_work);
}

static void transfer_memory_add_all(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    struct change *change = SL_CONTAINER_OF(call, struct change, call);
    for (uint32_t i = 0; i < change->count; i++) {
        struct sl_transfer_region *region = &change->items[i]->regions[io->index];
        sl_transfer_table_add(io->table, region);
        sl_transfer_region_add(io, region);
    }
    change->is_added = true;
    wait_for_rest(io, change);
}

static void remove_all(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    const struct change *change = SL_CONTAINER_OF(call, struct change, call);
    if (io->index == 0) {
        sl_transfer_target_gone(io, change->items, change->count);
    }
    for (uint32_t i = 0; i < change->count; i++) {
        struct sl_transfer_region *region = &change->items[i]->regions[io->index];
        sl_transfer_region_remove(io, region);
        sl_transfer_table_remove(io->table, region);
    }
    sl_transfer_io_answer(call, 0, "removed");
}

static void removal_late(struct sl_timer *timer, uint64_t now_ns)
{
    struct change *change = SL_CONTAINER_OF(timer, struct change, timer);
    struct sl_transfer_io *io = change->call.io;
    if (change->has_closed) {
        transfer_memory_end(io, change, SL_ERR_DEADLINE);
        return;
    }
    change->has_closed = true;
    sl_reactor_arm(io->reactor, timer,
                   change->deadline_ns > now_ns ? change->deadline_ns - now_ns : 0);
    for (uint32_t i = 0; i < change->count; i++) {
        sl_transfer_target_close_users(io, &change->items[i]->regions[io->index].memory);
    }
}

static void wait_until_unused(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    struct change *change = SL_CONTAINER_OF(call, struct change, call);
    const uint64_t now_ns = sl_reactor_now_ns(io->reactor);
    change->timer.run = removal_late;
    sl_reactor_arm(io->reactor, &change->timer,
                   change->deadline_ns > now_ns ? (change->deadline_ns - now_ns) / 2 : 0);
    wait_for_rest(io, change);
}

/* The first reactor last: it announces added memory, which by then all of them know. */
static int change_all(struct sl_transfer *transfer,
                      void (*run)(struct sl_transfer_io *io, struct sl_transfer_call *call),
                      struct sl_transfer_registration *const *items, uint32_t count,
                      uint64_t deadline_ns)
{
    int err = 0;
    for (uint32_t i = transfer->settings.reactors.count; err == 0 && i-- > 0;) {
        struct change change = {
            .call = {.run = run}, .items = items, .count = count, .deadline_ns = deadline_ns};
        err = sl_transfer_io_call(&transfer->ios[i], &change.call);
    }
    return err;
}

/* Registering */

static int transfer_memory_compare(const void *a, const void *b)
{
    const uint8_t *x = (*(struct sl_transfer_registration *const *)a)->regions[0].memory.base;
    const uint8_t *y = (*(struct sl_transfer_registration *const *)b)->regions[0].memory.base;
    return x < y ? -1 : x > y;
}

/* shared: of memory_create, which creates one range; else NULL. */
static int register_all(struct sl_transfer *transfer, const struct sl_transfer_memory *memory,
                        uint32_t count, const struct sl_shared *shared)
{
    struct sl_transfer_registration **items =
        calloc(count, sizeof(struct sl_transfer_registration *));
    uint32_t made = 0;
    struct sl_port *port; /* first: once the list has the ranges, nothing fails */
    int err = sl_transfer_io_port(transfer, &port);
    if (err == 0 && items == NULL) {
        err = sl_transfer_fail(SL_ERR_NO_MEMORY, "out of memory");
    }
    while (err == 0 && made < count) {
        err = registration_create(transfer, &memory[made], &items[made]);
        made += err == 0 ? 1 : 0;
    }
    if (err == 0) {
        qsort(items, count, sizeof(struct sl_transfer_registration *), transfer_memory_compare);
        items[0]->shared = shared != NULL ? *shared : (struct sl_shared){0};
        err = add_to_table(transfer, items, count);
    }
    if (err == 0) {
        err = change_all(transfer, transfer_memory_add_all, items, count, 0);
        end_change(transfer, items, count, true);
    } else {
        for (uint32_t i = 0; i < made; i++) {
            free(items[i]);
        }
    }
    free(items);
    return err;
}

int sl_transfer_register(struct sl_transfer *transfer, const struct sl_transfer_memory *memory,
                         uint32_t count)
{
    sl_assert(transfer != NULL);
    sl_assert(memory != NULL || count == 0);
    if (count == 0 || count > SL_LIMIT_TRANSFER_BUFFERS) {
        return sl_transfer_fail(count == 0 ? SL_ERR_INVALID : SL_ERR_TOO_LARGE,
                                "count %u is not in 1 to %d", count, SL_LIMIT_TRANSFER_BUFFERS);
    }
    int err = register_all(transfer, memory, count, NULL);
    return err != 0 ? err : sl_transfer_succeed();
}

/* Unregistering */

static int unregister_all(struct sl_transfer *transfer, void *const *bases, uint32_t count,
                          bool is_created, uint32_t timeout_ms)
{
    int err = sl_transfer_settings_check_timeout(timeout_ms);
    if (err != 0 || count == 0) {
        return err;
    }
    struct sl_transfer_registration **items =
        calloc(count, sizeof(struct sl_transfer_registration *));
    if (items == NULL) {
        return sl_transfer_fail(SL_ERR_NO_MEMORY, "out of memory");
    }
    err = find_in_table(transfer, bases, count, is_created, items);
    if (err != 0) {
        free(items);
        return err;
    }
    const uint64_t deadline_ns =
        sl_clock_now_ns(sl_reactor_clock(transfer->reactors[0])) + timeout_ms * SL_CLOCK_NS_PER_MS;
    /* All reactors refuse peers before this waits for one of them. */
    err = change_all(transfer, remove_all, items, count, deadline_ns);
    err = err != 0 ? err : change_all(transfer, wait_until_unused, items, count, deadline_ns);
    end_change(transfer, items, count, err != 0);
    free(items);
    return err != 0 ? err : sl_transfer_succeed();
}

int sl_transfer_unregister(struct sl_transfer *transfer, void *const *bases, uint32_t count,
                           uint32_t timeout_ms)
{
    sl_assert(transfer != NULL);
    sl_assert(bases != NULL || count == 0);
    return unregister_all(transfer, bases, count, false, timeout_ms);
}

/* Memory of the engine */

static int map(size_t bytes, int numa_node, unsigned access, struct sl_shared *out)
{
    const bool is_written = (access & SL_TRANSFER_PEERS_WRITE) != 0;
    if (sl_shared_create("starling-transfer", bytes, is_written ? SL_SHARED_WRITE : SL_SHARED_READ,
                         out) != 0) {
        return sl_transfer_fail(SL_ERR_NO_MEMORY, "no memory for %zu bytes", bytes);
    }
    (void)madvise(out->base, out->bytes, MADV_HUGEPAGE); /* where the system allows it */
    const unsigned long nodes = numa_node >= 0 ? 1UL << numa_node : 0;
    if (numa_node >= 0 &&
        syscall(SYS_mbind, out->base, out->bytes, MPOL_PREFERRED, &nodes,
                (unsigned long)NUMA_NODE_MAX + 1, 0) != 0 &&
        errno == EINVAL) {
        sl_shared_destroy(out);
        return sl_transfer_fail(SL_ERR_INVALID, "numa_node %d: there is no such node", numa_node);
    }
    return 0;
}

int sl_transfer_memory_create(struct sl_transfer *transfer, size_t bytes, int numa_node,
                              unsigned access, void **out)
{
    sl_assert(transfer != NULL);
    sl_assert(out != NULL);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (bytes == 0 || bytes > SIZE_MAX - page || numa_node < -1 || numa_node > NUMA_NODE_MAX) {
        return sl_transfer_fail(SL_ERR_INVALID,
                                "%zu bytes on numa_node %d: accepts 1 byte or more "
                                "on nodes -1 to %d",
                                bytes, numa_node, NUMA_NODE_MAX);
    }
    struct sl_shared shared;
    int err = map(bytes, numa_node, access, &shared);
    if (err != 0) {
        return err;
    }
    const struct sl_transfer_memory memory = {
        .base = shared.base, .bytes = shared.bytes, .access = access};
    err = register_all(transfer, &memory, 1, &shared);
    if (err != 0) {
        sl_shared_destroy(&shared);
        return err;
    }
    *out = shared.base;
    return sl_transfer_succeed();
}

int sl_transfer_memory_free(struct sl_transfer *transfer, void **memory, uint32_t timeout_ms)
{
    sl_assert(transfer != NULL);
    sl_assert(memory != NULL);
    int err = unregister_all(transfer, memory, 1, true, timeout_ms);
    if (err == 0) {
        *memory = NULL;
    }
    return err;
}

/* Start and end */

int sl_transfer_memory_init(struct sl_transfer *transfer)
{
    transfer->registered = calloc(1, sizeof *transfer->registered);
    for (uint32_t i = 0; i < transfer->settings.reactors.count; i++) {
        transfer->ios[i].change_work.run = transfer_memory_look;
    }
    return transfer->registered != NULL ? 0 : SL_ERR_NO_MEMORY;
}

void sl_transfer_memory_fini(struct sl_transfer *transfer)
{
    for (uint32_t i = 0; transfer->registered != NULL && i < transfer->registered->count; i++) {
        registration_free(registration_of(transfer->registered->by_address[i]));
    }
    free(transfer->registered);
}
