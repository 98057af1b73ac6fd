#include "compat/mooncake/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compat/mooncake/batch.h"

#define ALL_ACCESS (SL_TRANSFER_PEERS_READ | SL_TRANSFER_PEERS_WRITE)

/* Bytes from base to end. */
struct span {
    uint64_t base, end;
};

static void *pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

/* Whether this process can read the byte. Memory of a GPU is not mapped for processors. */
static bool is_readable(int pipe_end, uint64_t address)
{
    return write(pipe_end, pointer(address), 1) == 1;
}

static bool is_mapped(struct span span)
{
    int ends[2];
    if (pipe(ends) != 0) {
        return true; /* then the engine finds out */
    }
    const bool is = is_readable(ends[1], span.base) && is_readable(ends[1], span.end - 1);
    (void)close(ends[0]);
    (void)close(ends[1]);
    return is;
}

/* Unions of claims, under the lock of memory */

/* Grows the span until no claim overlaps it in part. Returns how many claims are within. */
static uint32_t grow(const struct sl_mooncake_engine *engine, struct span *span)
{
    uint32_t within = 0, before;
    do {
        before = within;
        within = 0;
        for (uint32_t i = 0; i < engine->memory.count; i++) {
            const struct sl_mooncake_claim *claim = &engine->memory.claims[i];
            if (claim->base < span->end && span->base < claim->end) {
                span->base = claim->base < span->base ? claim->base : span->base;
                span->end = claim->end > span->end ? claim->end : span->end;
                within++;
            }
        }
    } while (within != before);
    return within;
}

/* Finds the unions of the claims within a span, which none crosses: up to `room`. Returns how many.
 */
static uint32_t find_unions(const struct sl_mooncake_engine *engine, struct span within,
                            struct span *unions, uint32_t room)
{
    uint32_t count = 0;
    bool is_found = true;
    while (is_found && count < room) {
        struct span next = {.base = UINT64_MAX};
        for (uint32_t i = 0; i < engine->memory.count; i++) {
            const struct sl_mooncake_claim *claim = &engine->memory.claims[i];
            if (claim->base >= within.base && claim->base < within.end && claim->base < next.base) {
                next = (struct span){.base = claim->base, .end = claim->end};
            }
        }
        is_found = next.base != UINT64_MAX;
        if (is_found) {
            (void)grow(engine, &next);
            unions[count++] = next;
            within.base = next.end;
        }
    }
    return count;
}

static bool is_same(const struct span *unions, uint32_t count, struct span span)
{
    return count == 1 && unions[0].base == span.base && unions[0].end == span.end;
}

/* Ranges of the struct sl_transfer */

static int add_range(struct sl_mooncake_engine *engine, struct span span, const char *location,
                     unsigned access, const char *function)
{
    const struct sl_transfer_memory memory = {.base = pointer(span.base),
                                              .bytes = span.end - span.base,
                                              .location = location,
                                              .access = access};
    return sl_transfer_register(engine->transfer, &memory, 1) == 0
               ? 0
               : sl_mooncake_fail(SL_MOONCAKE_INVALID, function, "%s", sl_transfer_last_error());
}

static int remove_range(struct sl_mooncake_engine *engine, struct span span, const char *function)
{
    void *const base = pointer(span.base);
    return sl_transfer_unregister(engine->transfer, &base, 1, SL_MOONCAKE_WAIT_MS) == 0
               ? 0
               : sl_mooncake_fail(SL_MOONCAKE_INVALID, function, "%s", sl_transfer_last_error());
}

/* New ranges in the place of old ones, which no batch of this engine may use meanwhile. */
static int replace(struct sl_mooncake_engine *engine, const struct span *old, uint32_t old_count,
                   const struct span *new, uint32_t new_count, unsigned access,
                   const char *function)
{
    if (!sl_mooncake_batch_wait_all(engine, sl_mooncake_now_ms() + SL_MOONCAKE_WAIT_MS)) {
        return sl_mooncake_fail(SL_MOONCAKE_BUSY, function,
                                "the memory overlaps registered memory, and transfers run: try "
                                "again when they have ended");
    }
    int result = 0;
    for (uint32_t i = 0; result == 0 && i < old_count; i++) {
        result = remove_range(engine, old[i], function);
    }
    for (uint32_t i = 0; result == 0 && i < new_count; i++) {
        result = add_range(engine, new[i], NULL, access, function);
    }
    return result;
}

/* Claims */

static int add_claim(struct sl_mooncake_engine *engine, struct span span, unsigned access)
{
    struct sl_mooncake_claim *larger =
        realloc(engine->memory.claims, (engine->memory.count + 1) * sizeof *larger);
    if (larger == NULL) {
        return SL_MOONCAKE_INVALID;
    }
    larger[engine->memory.count++] =
        (struct sl_mooncake_claim){.base = span.base, .end = span.end, .access = access};
    engine->memory.claims = larger;
    return 0;
}

static void remove_claim(struct sl_mooncake_engine *engine, uint32_t index)
{
    struct sl_mooncake_claim *claim = &engine->memory.claims[index];
    engine->memory.count--;
    memmove(claim, claim + 1, (engine->memory.count - index) * sizeof *claim);
}

static bool has_other_access(const struct sl_mooncake_engine *engine, struct span span,
                             unsigned access)
{
    bool has = false;
    for (uint32_t i = 0; i < engine->memory.count; i++) {
        const struct sl_mooncake_claim *claim = &engine->memory.claims[i];
        has = has || (claim->base < span.end && span.base < claim->end && claim->access != access);
    }
    return has;
}

/* Under the lock of memory. */
static int claim_range(struct sl_mooncake_engine *engine, struct span span, const char *location,
                       unsigned access, const char *function)
{
    struct span merged = span;
    const uint32_t within = grow(engine, &merged);
    struct span *old = calloc(within + 1, sizeof *old);
    if (old == NULL || add_claim(engine, span, access) != 0) {
        free(old);
        return sl_mooncake_fail(SL_MOONCAKE_INVALID, function, "out of memory");
    }
    engine->memory.count--; /* without the new one */
    const uint32_t old_count = find_unions(engine, merged, old, within);
    int result = 0;
    if (within == 0) {
        result = add_range(engine, span, location, access, function);
    } else if (has_other_access(engine, merged, access)) {
        result = sl_mooncake_fail(SL_MOONCAKE_INVALID, function,
                                  "memory at %p overlaps memory registered with another "
                                  "remote_accessible",
                                  pointer(span.base));
    } else if (!is_same(old, old_count, merged)) {
        result = replace(engine, old, old_count, &merged, 1, access, function);
    }
    engine->memory.count += result == 0 ? 1 : 0;
    free(old);
    return result;
}

static int release_claim(struct sl_mooncake_engine *engine, uint32_t index, const char *function)
{
    const struct sl_mooncake_claim gone = engine->memory.claims[index];
    struct span whole = {.base = gone.base, .end = gone.end};
    const uint32_t within = grow(engine, &whole);
    struct span *left = calloc(within, sizeof *left);
    if (left == NULL) {
        return sl_mooncake_fail(SL_MOONCAKE_INVALID, function, "out of memory");
    }
    remove_claim(engine, index);
    const uint32_t left_count = find_unions(engine, whole, left, within);
    int result = 0;
    if (left_count == 0) {
        result = remove_range(engine, whole, function);
    } else if (!is_same(left, left_count, whole)) {
        result = replace(engine, &whole, 1, left, left_count, gone.access, function);
    }
    if (result != 0) { /* there is room for it */
        (void)add_claim(engine, (struct span){.base = gone.base, .end = gone.end}, gone.access);
    }
    free(left);
    return result;
}

/* Mooncake's functions */

static int check(const void *addr, size_t length, const char *location, const char *function)
{
    const uint64_t base = (uintptr_t)addr;
    if (addr == NULL || length == 0 || length > UINT64_MAX - base) {
        return sl_mooncake_fail(SL_MOONCAKE_INVALID, function,
                                "memory at %p of %zu bytes is no range", addr, length);
    }
    const bool is_host =
        location == NULL || strcmp(location, "*") == 0 || strncmp(location, "cpu:", 4) == 0;
    if (!is_host || !is_mapped((struct span){.base = base, .end = base + length})) {
        return sl_mooncake_fail(
            SL_MOONCAKE_INVALID, function,
            "memory at %p of %zu bytes is not memory of the host (location %s): "
            "memory of a GPU is not supported",
            addr, length, location != NULL ? location : "*");
    }
    return 0;
}

int registerLocalMemory(transfer_engine_t handle, void *addr, size_t length, const char *location,
                        int remote_accessible)
{
    struct sl_mooncake_engine *engine = sl_mooncake_engine(handle, __func__);
    int result = engine != NULL ? check(addr, length, location, __func__) : SL_MOONCAKE_INVALID;
    if (result == 0) {
        const uint64_t base = (uintptr_t)addr;
        pthread_mutex_lock(&engine->memory.lock);
        result = claim_range(engine, (struct span){.base = base, .end = base + length}, location,
                             remote_accessible != 0 ? ALL_ACCESS : SL_TRANSFER_LOCAL, __func__);
        pthread_mutex_unlock(&engine->memory.lock);
    }
    return result;
}

int unregisterLocalMemory(transfer_engine_t handle, void *addr)
{
    struct sl_mooncake_engine *engine = sl_mooncake_engine(handle, __func__);
    if (engine == NULL) {
        return SL_MOONCAKE_INVALID;
    }
    pthread_mutex_lock(&engine->memory.lock);
    uint32_t index = engine->memory.count;
    while (index > 0 && engine->memory.claims[index - 1].base != (uintptr_t)addr) {
        index--;
    }
    const int result = index > 0 ? release_claim(engine, index - 1, __func__)
                                 : sl_mooncake_fail(SL_MOONCAKE_NOT_REGISTERED, __func__,
                                                    "no registered memory begins at %p", addr);
    pthread_mutex_unlock(&engine->memory.lock);
    return result;
}

int registerLocalMemoryBatch(transfer_engine_t handle, buffer_entry_t *buffer_list,
                             size_t buffer_len, const char *location)
{
    if (sl_mooncake_engine(handle, __func__) == NULL || (buffer_list == NULL && buffer_len > 0)) {
        return SL_MOONCAKE_INVALID;
    }
    int result = 0;
    size_t count = 0;
    while (result == 0 && count < buffer_len) {
        result = registerLocalMemory(handle, buffer_list[count].addr, buffer_list[count].length,
                                     location, 1);
        count += result == 0 ? 1 : 0;
    }
    while (result != 0 && count > 0) {
        (void)unregisterLocalMemory(handle, buffer_list[--count].addr);
    }
    return result;
}

int unregisterLocalMemoryBatch(transfer_engine_t handle, void **addr_list, size_t addr_len)
{
    if (sl_mooncake_engine(handle, __func__) == NULL || (addr_list == NULL && addr_len > 0)) {
        return SL_MOONCAKE_INVALID;
    }
    int result = 0;
    for (size_t i = 0; i < addr_len; i++) {
        const int one = unregisterLocalMemory(handle, addr_list[i]);
        result = result != 0 ? result : one;
    }
    return result;
}
