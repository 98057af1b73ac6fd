/* Private memory that short payloads are copied to before they are delivered: buffers that are
 * filled from the front, one payload behind the other, and begun anew when the last message in them
 * was released. Also what else a message's token can be. Owner reactor. */
#ifndef SL_NET_SHM_STAGING_H
#define SL_NET_SHM_STAGING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sl_shm_token_kind {
    SL_SHM_TOKEN_EMPTY,  /* of messages without a payload; nothing to give back */
    SL_SHM_TOKEN_BUFFER, /* struct sl_shm_buffer */
    SL_SHM_TOKEN_HEAP,   /* struct sl_shm_heap */
    SL_SHM_TOKEN_LOAN    /* struct sl_shm_loan: the peer's memory */
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

/* A long payload that its receiver wanted in place, and that lies in two. */
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

/* buffer_bytes is rounded up to what holds any short payload. Errors: NO_MEMORY. */
int sl_shm_staging_init(struct sl_shm_staging *staging, uint32_t buffer_count,
                        uint32_t buffer_bytes);
void sl_shm_staging_fini(struct sl_shm_staging *staging);

/* Memory for `bytes` <= SL_LIMIT_INLINE_PAYLOAD_BYTES, aligned to 64, and its token; NULL when all
 * buffers are in use. */
uint8_t *sl_shm_staging_get(struct sl_shm_staging *staging, uint32_t bytes,
                            struct sl_shm_token **token);

/* Whether get would find some. */
bool sl_shm_staging_has(const struct sl_shm_staging *staging, uint32_t bytes);

/* Memory of its own for a long payload; NULL without memory. */
uint8_t *sl_shm_staging_get_heap(struct sl_shm_staging *staging, uint32_t bytes,
                                 struct sl_shm_token **token);

/* Of any kind but CLAIM. */
void sl_shm_staging_put(struct sl_shm_staging *staging, struct sl_shm_token *token);

#endif
