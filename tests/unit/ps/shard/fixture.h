/* A shard with one table of each kind of consistency, and requests to it in one call, for the tests
 * of who waits for whom. Assertions inside are CMocka's. */
#ifndef SL_TESTS_UNIT_PS_SHARD_FIXTURE_H
#define SL_TESTS_UNIT_PS_SHARD_FIXTURE_H

#include "ps/shard/shard.h"
#include "tests/support/shard_request.h"
#include "tests/support/unit.h"

#define DIM     2
#define WORKERS 3 /* worker_count of every table but ASP */
#define NOBODY  UINT32_MAX

#define BSP     0
#define SSP     1 /* staleness 2 */
#define ASP     2
#define DENSE   3 /* BSP, 3000 elements */

struct fixture {
    struct sl_shard *shard;
    struct shard_request request;
    _Alignas(8) uint8_t reply[SL_LIMIT_FRAME_PAYLOAD_BYTES];
    struct sl_reason reason;
    struct sl_shard_request work; /* of the last request */
};

/* A case with a shard. */
void fixture_setup(struct fixture *f);
void fixture_teardown(struct fixture *f);
#define CASE(name) SL_CASE_USING(name, struct fixture, f, fixture_setup, fixture_teardown)

/* A new shard in f->shard, with the tables. */
void fixture_make(struct fixture *f, size_t push_buffer_bytes_max);

void fixture_commit(struct fixture *f);

/* Takes f->request in; worker NOBODY: a client without a clock. */
void fixture_begin(struct fixture *f, uint32_t worker);

/* Goes on with f->work: DONE, PARKED, an error, or AGAIN when something is to be committed. */
int fixture_go_on(struct fixture *f);

/* Both. */
int fixture_run(struct fixture *f, uint32_t worker);

int fixture_tick(struct fixture *f, uint32_t worker, uint32_t clock);
int fixture_push(struct fixture *f, uint32_t worker, uint32_t clock, uint16_t table, uint64_t key,
                 float value);
/* Every worker, 0 to WORKERS - 1; DONE is asserted. */
void fixture_tick_all(struct fixture *f, uint32_t clock);
void fixture_push_all(struct fixture *f, uint32_t clock, uint16_t table, uint64_t key, float value);

/* f->request: a push that is far too long for one slice, of 1 in the first column of the keys 0 to
 * LONG_KEYS - 1. */
#define LONG_KEYS 5000
void fixture_long(struct fixture *f, uint8_t op, uint16_t table, uint32_t clock);

/* *out: the row's first column. */
int fixture_pull(struct fixture *f, uint32_t worker, uint32_t clock, uint16_t table, uint64_t key,
                 float *out);
/* What a client without a clock sees. */
float fixture_peek(struct fixture *f, uint16_t table, uint64_t key);

#endif
