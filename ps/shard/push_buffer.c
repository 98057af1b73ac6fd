#include "ps/shard/push_buffer.h"

#include <assert.h>
#include <sys/mman.h>

#include "core/assert.h"

#define ALIGNMENT  SL_SHARD_PUSH_BUFFER_ALIGNMENT
#define PAGE_BYTES 4096
#define LOOKS      128 /* calls that release a whole unused ring; 0.2 ms each for 256 MiB */

/* Every entry, and the gap at the ring's end, has room for a header. */
static_assert(sizeof(struct sl_shard_buffered_push) == ALIGNMENT,
              "an entry's header fits the alignment");

static size_t push_buffer_align(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

int sl_shard_push_buffer_init(struct sl_shard_push_buffer *push_buffer, size_t bytes_max)
{
    bytes_max = push_buffer_align(bytes_max, PAGE_BYTES);
    void *base = mmap(NULL, bytes_max, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        return SL_ERR_NO_MEMORY;
    }
    *push_buffer = (struct sl_shard_push_buffer){.base = base, .bytes_max = bytes_max};
    return 0;
}

void sl_shard_push_buffer_fini(struct sl_shard_push_buffer *push_buffer)
{
    if (push_buffer->base != NULL) {
        (void)munmap(push_buffer->base, push_buffer->bytes_max);
    }
    *push_buffer = (struct sl_shard_push_buffer){0};
}

static struct sl_shard_buffered_push *push_buffer_entry_at(struct sl_shard_push_buffer *push_buffer,
                                                           size_t offset)
{
    return (struct sl_shard_buffered_push *)(void *)(push_buffer->base + offset);
}

/* Allocates contiguous bytes; skips the end of the ring if they do not fit there. NULL: full. */
static struct sl_shard_buffered_push *take(struct sl_shard_push_buffer *push_buffer, size_t bytes)
{
    if (push_buffer->entry_count == 0) {
        push_buffer->head = push_buffer->tail = 0;
    }
    bool wrapped = push_buffer->entry_count > 0 && push_buffer->head <= push_buffer->tail;
    size_t end = wrapped ? push_buffer->tail : push_buffer->bytes_max;
    if (bytes > end - push_buffer->head) {
        if (wrapped || bytes > push_buffer->tail) {
            return NULL;
        }
        if (push_buffer->head < push_buffer->bytes_max) {
            *push_buffer_entry_at(push_buffer, push_buffer->head) = (struct sl_shard_buffered_push){
                .bytes = push_buffer->bytes_max - push_buffer->head,
                .freed = true,
            };
            push_buffer->entry_count++;
        }
        push_buffer->head = 0;
    }
    struct sl_shard_buffered_push *entry = push_buffer_entry_at(push_buffer, push_buffer->head);
    push_buffer->head += bytes;
    push_buffer->entry_count++;
    push_buffer->touched =
        push_buffer->head > push_buffer->touched ? push_buffer->head : push_buffer->touched;
    sl_warm_note(&push_buffer->warm, push_buffer->head);
    return entry;
}

struct sl_shard_buffered_push *sl_shard_push_buffer_get(struct sl_shard_push_buffer *push_buffer,
                                                        uint32_t record_count, uint64_t float_count)
{
    if (float_count > push_buffer->bytes_max / sizeof(float)) {
        return NULL;
    }
    size_t records_bytes = push_buffer_align(record_count * sizeof(uint32_t), ALIGNMENT);
    size_t bytes =
        push_buffer_align(ALIGNMENT + records_bytes + float_count * sizeof(float), ALIGNMENT);
    struct sl_shard_buffered_push *entry = take(push_buffer, bytes);
    if (entry == NULL) {
        return NULL;
    }
    *entry = (struct sl_shard_buffered_push){
        .bytes = bytes,
        .gradients = (float *)(void *)((uint8_t *)entry->records + records_bytes),
        .rate = 1,
    };
    return entry;
}

void sl_shard_push_buffer_trim(struct sl_shard_push_buffer *push_buffer,
                               struct sl_shard_buffered_push *entry, uint64_t float_count)
{
    uint8_t *end = (uint8_t *)(entry->gradients + float_count);
    size_t bytes = push_buffer_align((size_t)(end - (uint8_t *)entry), ALIGNMENT);
    sl_assert(bytes <= entry->bytes);
    if ((uint8_t *)entry + entry->bytes == push_buffer->base + push_buffer->head) {
        push_buffer->head -= entry->bytes - bytes;
        entry->bytes = bytes;
    }
}

bool sl_shard_push_buffer_give_back(struct sl_shard_push_buffer *push_buffer)
{
    const size_t used = push_buffer->entry_count == 0 ? 0 : push_buffer->touched;
    const size_t level = sl_warm_look(&push_buffer->warm, used, push_buffer->bytes_max / LOOKS);
    const size_t kept = push_buffer_align(level, PAGE_BYTES);
    if (push_buffer->touched > kept) {
        (void)madvise(push_buffer->base + kept,
                      push_buffer_align(push_buffer->touched, PAGE_BYTES) - kept, MADV_DONTNEED);
        push_buffer->touched = kept;
    }
    return push_buffer->touched > 0;
}

void sl_shard_push_buffer_put(struct sl_shard_push_buffer *push_buffer,
                              struct sl_shard_buffered_push *entry)
{
    sl_assert(!entry->freed);
    entry->freed = true;
    while (push_buffer->entry_count > 0 &&
           push_buffer_entry_at(push_buffer, push_buffer->tail)->freed) {
        push_buffer->tail += push_buffer_entry_at(push_buffer, push_buffer->tail)->bytes;
        push_buffer->entry_count--;
        if (push_buffer->tail == push_buffer->bytes_max) {
            push_buffer->tail = 0;
        }
    }
}
