#include "bench/pslite_keep.h"

#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/hash.h"
#include "core/limits.h"

#define BUCKETS         4096 /* a power of two */
#define ALIGNMENT_BYTES 4096

/* Stored value of a key. */
struct array {
    struct array *next; /* of the same bucket */
    uint64_t key, byte_count;
    uint64_t kept;  /* bytes from the first on that have come */
    uint8_t *bytes; /* of a page's alignment */
};

struct sl_bench_pslite_keep {
    struct array **buckets[SL_LIMIT_SHARDS]; /* [BUCKETS] of each server, from its first push on */
};

/* ---- Arrays by key --------------------------------------------------------------------------- */

static struct array *find(struct array **buckets, uint64_t key)
{
    struct array *array = buckets == NULL ? NULL : buckets[sl_hash_key(key) & (BUCKETS - 1)];
    while (array != NULL && array->key != key) {
        array = array->next;
    }
    return array;
}

static int add(struct array ***buckets, uint64_t key, uint64_t byte_count, struct array **out)
{
    const uint64_t rounded = (byte_count + ALIGNMENT_BYTES - 1) / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
    struct array *array = calloc(1, sizeof *array);
    if (*buckets == NULL) {
        *buckets = calloc(BUCKETS, sizeof **buckets);
    }
    if (array == NULL || *buckets == NULL ||
        (array->bytes = aligned_alloc(ALIGNMENT_BYTES, rounded)) == NULL) {
        free(array);
        return SL_ERR_NO_MEMORY;
    }
    struct array **bucket = &(*buckets)[sl_hash_key(key) & (BUCKETS - 1)];
    array->key = key;
    array->byte_count = byte_count;
    array->next = *bucket;
    *bucket = array;
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

/* Stored values are never changed or freed: the value of a single key is sent in place. */
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
    struct array ***buckets = &keep->buckets[request->server];
    const uint8_t *push = request->push;
    uint8_t *pull = request->pull;
    uint64_t at = 0;
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < request->key_count; i++) {
        const struct span span = span_of(request, i);
        struct array *array = find(*buckets, request->keys[i]);
        if (array == NULL && push != NULL) {
            err = add(buckets, request->keys[i], span.whole, &array);
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
        for (uint32_t b = 0; old->buckets[i] != NULL && b < BUCKETS; b++) {
            for (struct array *array = old->buckets[i][b], *next; array != NULL; array = next) {
                next = array->next;
                free(array->bytes);
                free(array);
            }
        }
        free(old->buckets[i]);
    }
    free(old);
}

struct sl_kv_handler sl_bench_pslite_keep_handler(struct sl_bench_pslite_keep *keep)
{
    return (struct sl_kv_handler){.handle = handle, .ctx = keep};
}
