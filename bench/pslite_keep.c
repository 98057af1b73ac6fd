#include "bench/pslite_keep.h"

#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/hash.h"
#include "core/limits.h"

#define SLOTS_FIRST     128 /* a power of two */
#define ALIGNMENT_BYTES 4096

/* What is kept of a key. */
struct array {
    uint64_t key;
    uint8_t *bytes; /* NULL: the slot is free */
    uint64_t byte_count;
    uint64_t kept; /* bytes from the first on that have come */
};

/* Of one server: open addressing, at most half of the slots taken. */
struct store {
    struct array *slots;
    uint32_t slot_count, used;
};

struct sl_bench_pslite_keep {
    struct store stores[SL_LIMIT_SHARDS];
};

/* ---- Arrays by key --------------------------------------------------------------------------- */

/* The key's slot, or the free one where it would be. */
static struct array *slot_of(const struct store *store, uint64_t key)
{
    const uint32_t mask = store->slot_count - 1;
    uint32_t at = (uint32_t)sl_hash_key(key) & mask;
    while (store->slots[at].bytes != NULL && store->slots[at].key != key) {
        at = (at + 1) & mask;
    }
    return &store->slots[at];
}

static struct array *find(const struct store *store, uint64_t key)
{
    struct array *array = store->slot_count == 0 ? NULL : slot_of(store, key);
    return array == NULL || array->bytes == NULL ? NULL : array;
}

static int make_room(struct store *store)
{
    if (2 * (store->used + 1) <= store->slot_count) {
        return 0;
    }
    struct store larger = {.slot_count =
                               store->slot_count == 0 ? SLOTS_FIRST : 2 * store->slot_count,
                           .used = store->used};
    larger.slots = calloc(larger.slot_count, sizeof *larger.slots);
    if (larger.slots == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < store->slot_count; i++) {
        if (store->slots[i].bytes != NULL) {
            *slot_of(&larger, store->slots[i].key) = store->slots[i];
        }
    }
    free(store->slots);
    *store = larger;
    return 0;
}

static int add(struct store *store, uint64_t key, uint64_t byte_count, struct array **out)
{
    const int err = make_room(store);
    const uint64_t rounded = (byte_count + ALIGNMENT_BYTES - 1) / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
    uint8_t *bytes = err != 0 ? NULL : aligned_alloc(ALIGNMENT_BYTES, rounded);
    if (bytes == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    struct array *array = slot_of(store, key);
    *array = (struct array){.key = key, .bytes = bytes, .byte_count = byte_count};
    store->used++;
    *out = array;
    return 0;
}

/* ---- Requests -------------------------------------------------------------------------------- */

/* Where the values of one key of a request belong in the key's array, in bytes. */
struct span {
    uint64_t start, bytes, whole;
};

static struct span span_of(const struct sl_kv_request *request, uint32_t index)
{
    const uint64_t width = request->value_bytes;
    const uint64_t count =
        request->lens != NULL ? request->lens[index] : request->value_count / request->key_count;
    struct span span = {.bytes = count * width, .whole = count * width};
    if (request->array_length != 0) {
        span.start = request->chunk_start * width;
        span.whole = request->array_length * width;
    }
    return span;
}

static int keep_push(struct array *array, const struct span *span, const uint8_t *values)
{
    if (array->byte_count != span->whole) {
        return SL_ERR_INVALID;
    }
    if (span->start == array->kept && span->bytes > 0 && array->kept < array->byte_count) {
        memcpy(array->bytes + span->start, values, span->bytes);
        array->kept += span->bytes;
    }
    return 0;
}

/* What is kept is not changed any more, nor freed: that of one key is sent from where it lies. */
static int answer_pull(const struct array *array, const struct span *span,
                       const struct sl_kv_request *request, uint8_t *values)
{
    if (array->byte_count != span->whole) {
        return SL_ERR_INVALID;
    }
    if (span->start + span->bytes > array->kept) {
        return SL_ERR_NOT_FOUND;
    }
    if (request->key_count == 1 && span->start % 8 == 0) {
        *request->reply = array->bytes + span->start;
    } else {
        memcpy(values, array->bytes + span->start, span->bytes);
    }
    return 0;
}

static int handle(void *ctx, const struct sl_kv_request *request)
{
    struct sl_bench_pslite_keep *keep = ctx;
    sl_assert(request->server < SL_LIMIT_SHARDS);
    struct store *store = &keep->stores[request->server];
    const uint8_t *push = request->push;
    uint8_t *pull = request->pull;
    uint64_t at = 0;
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < request->key_count; i++) {
        const struct span span = span_of(request, i);
        struct array *array = find(store, request->keys[i]);
        if (array == NULL && push != NULL) {
            err = add(store, request->keys[i], span.whole, &array);
        }
        if (array == NULL) {
            return err != 0 ? err : SL_ERR_NOT_FOUND;
        }
        if (push != NULL) {
            err = keep_push(array, &span, push + at);
        }
        if (err == 0 && pull != NULL) {
            err = answer_pull(array, &span, request, pull + at);
        }
        at += span.bytes;
    }
    return err;
}

/* ---- The whole ------------------------------------------------------------------------------- */

int sl_bench_pslite_keep_create(struct sl_bench_pslite_keep **out)
{
    struct sl_bench_pslite_keep *keep = calloc(1, sizeof *keep);
    if (keep == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    *out = keep;
    return 0;
}

void sl_bench_pslite_keep_destroy(struct sl_bench_pslite_keep **keep)
{
    struct sl_bench_pslite_keep *old = *keep;
    *keep = NULL;
    if (old == NULL) {
        return;
    }
    for (uint32_t i = 0; i < SL_LIMIT_SHARDS; i++) {
        struct store *store = &old->stores[i];
        for (uint32_t slot = 0; slot < store->slot_count; slot++) {
            free(store->slots[slot].bytes);
        }
        free(store->slots);
    }
    free(old);
}

struct sl_kv_handler sl_bench_pslite_keep_handler(struct sl_bench_pslite_keep *keep)
{
    return (struct sl_kv_handler){.handle = handle, .ctx = keep};
}
