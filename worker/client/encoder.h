/* Private to encode.c and its encode_*.c files, one per family of operations: the encoder of one
 * shard, with its open request. The step's thread. */
#ifndef SL_WORKER_CLIENT_ENCODER_H
#define SL_WORKER_CLIENT_ENCODER_H

#include "core/bytes.h"
#include "core/limits.h"
#include "net/wire/request.h"
#include "worker/client/encode.h"

#define SL_ENCODER_PREFIX_BYTES  sizeof(struct sl_request_prefix)
#define SL_ENCODER_SECTION_BYTES sizeof(struct sl_request_section)

struct sl_encoder {
    const struct sl_encode_plan *plan;
    struct sl_encode_list *list;
    uint32_t shard;
    uint32_t clock;      /* of the current operation */
    uint64_t step_bytes; /* batched: bytes of all operations if none is split */

    struct sl_request *request; /* NULL: none is open */
    uint8_t *base;
    struct sl_bytes_writer writer;
    struct sl_request_prefix prefix;
    uint64_t main_size; /* keys and elements of the largest section */
    struct sl_read **reads_end;
    uint32_t read_count;
};

/* Keys of one operation on one shard, or some of them. */
struct sl_encoder_rows {
    const uint64_t *keys;
    const uint32_t *labels; /* as in struct sl_route; NULL: first_label + i */
    uint32_t first_label;
    uint32_t count;
};

/* Keys of a KV operation by index, and their values: `count` from `start` on. For a chunk of one
 * array: the values of the chunk. */
struct sl_encoder_arrays {
    uint32_t key, key_count;
    uint64_t start, count;
};

struct sl_encoder_range {
    uint64_t start, count;
};

static inline bool sl_encoder_pulls(const struct sl_operation *operation)
{
    return operation->values != NULL;
}

static inline bool sl_encoder_pushes(const struct sl_operation *operation)
{
    return operation->gradients != NULL;
}

/* The open request */

/* Opens a request; none may be open. `bytes`: upper bound of what the current operation still
 * needs, with section headers. Errors: NO_MEMORY. */
int sl_encoder_open(struct sl_encoder *encoder, uint64_t bytes);

/* Appends the open request, if any, to the list. */
void sl_encoder_close(struct sl_encoder *encoder);

/* Payload bytes left for a section with its header, and for its reply, in the open request or else
 * in a new one. 0: no section fits. */
static inline uint64_t sl_encoder_section_room(const struct sl_encoder *encoder)
{
    if (encoder->request == NULL) {
        return encoder->plan->payload_bytes_max - SL_ENCODER_PREFIX_BYTES;
    }
    return encoder->prefix.section_count == SL_LIMIT_REQUEST_SECTIONS ? 0 : encoder->writer.left;
}

static inline uint64_t sl_encoder_reply_room(const struct sl_encoder *encoder)
{
    uint64_t used = encoder->request == NULL ? 0 : encoder->request->reply_bytes;
    return encoder->plan->payload_bytes_max - used;
}

/* Adds the header of a section; its op, table, command and precisions are the operation's, unless
 * that is NULL (a tick). */
void sl_encoder_put_section(struct sl_encoder *encoder, const struct sl_operation *operation,
                            struct sl_request_section section);

/* Reserves an array in the section's body, its padding zeroed. */
void *sl_encoder_put_array(struct sl_encoder *encoder, uint64_t bytes);

/* Errors: NO_MEMORY. */
int sl_encoder_add_read(struct sl_encoder *encoder, struct sl_read read);

/* Operations. Errors: NO_MEMORY */

int sl_encode_rows(struct sl_encoder *encoder, const struct sl_operation *operation,
                   struct sl_encoder_rows rows);
int sl_encode_bags(struct sl_encoder *encoder, struct sl_operation *operation,
                   struct sl_encoder_rows rows);
int sl_encode_dense(struct sl_encoder *encoder, const struct sl_operation *operation,
                    struct sl_encoder_range range);

int sl_encode_scan(struct sl_encoder *encoder, const struct sl_operation *operation);

int sl_encode_kv(struct sl_encoder *encoder, const struct sl_operation *operation,
                 struct sl_encoder_arrays arrays);

/* Find the parts of the shards that the operation touches. Errors: NO_MEMORY. */
int sl_encode_kv_route(const struct sl_encode_plan *plan, struct sl_operation *operation);
int sl_encode_dense_route(const struct sl_encode_plan *plan, struct sl_operation *operation);

/* Payload bytes of a section with these arrays, and of its reply. */
uint64_t sl_encode_kv_bytes(const struct sl_operation *operation,
                            const struct sl_encoder_arrays *arrays);
uint64_t sl_encode_kv_reply_bytes(const struct sl_operation *operation,
                                  const struct sl_encoder_arrays *arrays);

/* Payload bytes of a section with this many keys, bags or elements. */
uint64_t sl_encode_rows_bytes(const struct sl_operation *operation, uint64_t count);
uint64_t sl_encode_rows_reply_bytes(const struct sl_operation *operation, uint64_t count);
uint64_t sl_encode_bags_bytes(uint64_t key_count, uint64_t bag_count);
uint64_t sl_encode_scan_reply_bytes(const struct sl_operation *operation);
uint64_t sl_encode_dense_bytes(const struct sl_operation *operation, uint64_t count);

#endif
