/* Staging buffers hold private copies of short payloads for delivery. A buffer is filled from the
 * front and reused when its last message is released. Also defines the other kinds of message
 * tokens. Owner reactor. */
#ifndef SL_NET_SHM_STAGING_H
#define SL_NET_SHM_STAGING_H

#include <stdbool.h>
#include <stdint.h>

enum sl_shm_token_kind {
    SL_SHM_TOKEN_EMPTY, /* for messages without a payload; nothing to free */
    SL_SHM_TOKEN_BUFFER,
    SL_SHM_TOKEN_HEAP,
    SL_SHM_TOKEN_LOAN /* struct sl_shm_loan: read in the peer's memory */
};

struct sl_shm_token {
    enum sl_shm_token_kind kind;
};

struct sl_shm_buffer {
    struct sl_shm_token token;
    uint32_t used, refs;
    struct sl_shm_buffer *next; /* while free */
    uint8_t *memory;
};

/* Copy of a long payload that its receiver wanted in place, but that is not aligned. */
struct sl_shm_heap {
    struct sl_shm_token token;
    struct sl_shm_heap *prev, *next;
    _Alignas(64) uint8_t payload[];
};

struct sl_shm_staging {
    uint8_t *memory;
    struct sl_shm_buffer *buffers, *free, *current;
    uint32_t buffer_bytes, buffer_count;
    struct sl_shm_heap *heaps;
    struct sl_shm_token empty;
};

/* buffer_bytes is increased to hold any short payload. Errors: NO_MEMORY. */
int sl_shm_staging_init(struct sl_shm_staging *staging, uint32_t buffer_count,
                        uint32_t buffer_bytes);
void sl_shm_staging_fini(struct sl_shm_staging *staging);

/* Returns memory for `bytes` <= SL_LIMIT_INLINE_PAYLOAD_BYTES, aligned to 64, and its token; NULL
 * if all buffers are in use. */
uint8_t *sl_shm_staging_get(struct sl_shm_staging *staging, uint32_t bytes,
                            struct sl_shm_token **token);

/* Whether sl_shm_staging_get would succeed. */
bool sl_shm_staging_has(const struct sl_shm_staging *staging, uint32_t bytes);

/* Allocates memory for a long payload; NULL without memory. */
uint8_t *sl_shm_staging_get_heap(struct sl_shm_staging *staging, uint32_t bytes,
                                 struct sl_shm_token **token);

/* Releases a token of any kind but LOAN. */
void sl_shm_staging_put(struct sl_shm_staging *staging, struct sl_shm_token *token);

#endif
