/* A shard with two KV tables, and requests to them in one call. Assertions inside are CMocka's. */
#ifndef SL_TESTS_UNIT_PS_SHARD_KV_FIXTURE_H
#define SL_TESTS_UNIT_PS_SHARD_KV_FIXTURE_H

#include <starling_kv.h>

#include "ps/shard/shard.h"
#include "tests/support/shard_request.h"

#define FLOATS 0 /* table ids */
#define BYTES  1
#define ROWS   2 /* a sparse one, of dim 4, to which pushes are added */

struct kv_fixture {
    struct sl_shard *shard;
    struct shard_request request;
    _Alignas(8) uint8_t reply[SL_LIMIT_FRAME_PAYLOAD_BYTES];
    struct sl_reason reason;
    struct sl_shard_request work; /* of the last request */
    uint32_t key_budget;          /* of one slice; at first 1000 */
    uint32_t slices;              /* of the last request */
};

/* One shard of one, without limits or a handler. */
void kv_setup(struct kv_fixture *f);
void kv_teardown(struct kv_fixture *f);

/* A new shard in f->shard, with the tables. */
void kv_make(struct kv_fixture *f, const struct sl_shard_options *options);

/* Takes f->request in; 0 or an error. */
int kv_begin(struct kv_fixture *f, struct sl_shard_request *work);

/* Goes on with it until it is done, waits, or fails. */
int kv_go_on(struct kv_fixture *f, struct sl_shard_request *work);

/* A request of one section of whole arrays, into f->request. */
void kv_request(struct kv_fixture *f, uint16_t table, uint8_t op, const uint64_t *keys,
                uint32_t key_count, const uint32_t *lens, const void *values, uint64_t count);

/* Of a piece: `count` values from `start` on, of `whole`. */
void kv_request_piece(struct kv_fixture *f, uint16_t table, uint8_t op, uint64_t key,
                      uint64_t start, uint32_t whole, const void *values, uint64_t count);

/* f->request, from beginning to end, as f->work. */
int kv_run_request(struct kv_fixture *f);

/* kv_request, and that. */
int kv_run(struct kv_fixture *f, uint16_t table, uint8_t op, const uint64_t *keys,
           uint32_t key_count, const uint32_t *lens, const void *values, uint64_t count);

/* What KV_LENGTHS says of one key. */
uint32_t kv_length(struct kv_fixture *f, uint16_t table, uint64_t key);

/* Of a table: sl_shard_stats. */
struct sl_message_table_stats kv_stats(struct kv_fixture *f, uint16_t table);

#endif
