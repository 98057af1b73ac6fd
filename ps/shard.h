/* A shard: the tables that one reactor owns, the workers' clocks, and what a request does to them.
 * Pure: a request and the state give a reply and a new state; no I/O, no clock, no thread. The
 * server feeds it bytes and sends what it made. Owner reactor.
 *
 * Work is sliced: sl_shard_run visits at most `key_budget` keys (or 1024 dense elements each
 * counted as 16 keys) and says whether it is done. A request's sections run in order; a section
 * that must wait for other workers' clocks (BSP, SSP) parks the request, and the rest of that
 * connection's requests may go on.
 *
 * Consistency, by clock. Worker w's clock is the number of iterations that it has ticked; the floor
 * is the least over the workers of the table. A pull of clock c is admitted when
 *     ASP: always;  BSP: floor >= c;  SSP(s): floor + s >= c.
 * In BSP a push of clock c is kept aside and applied when the floor passes c: step by step, within
 * a step worker by worker, and within a worker in the order of arrival, so that the result does not
 * depend on timing. Clients without a clock never wait; their pushes apply at once. */
#ifndef SL_PS_SHARD_H
#define SL_PS_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/bytes.h"
#include "core/err.h"
#include "net/control/message.h"
#include "net/wire/request.h"

struct sl_shard;

struct sl_shard_options {
    uint32_t index, count;    /* this shard among all of the cluster: core/partition.h */
    size_t memory_bytes_max;  /* of all tables; 0: no limit */
    size_t staging_bytes_max; /* of BSP pushes kept aside; 0: 256 MiB */
};

int sl_shard_create(const struct sl_shard_options *options, struct sl_shard **out);
void sl_shard_destroy(struct sl_shard **shard);

/* Creates the table or checks it. Errors: INVALID, EXISTS (another specification, or another name
 * under this id; reason says in what), NO_MEMORY. */
int sl_shard_table_open(struct sl_shard *shard, uint32_t table_id, const struct sl_table_spec *spec,
                        char *reason, size_t reason_bytes);

/* Who asks. */
struct sl_shard_caller {
    bool has_clock;
    uint32_t worker; /* task index, when it has a clock */
};

/* A request in progress; caller's storage. The request's bytes must stay where they are until it is
 * done; after parking too. */
struct sl_shard_work {
    struct sl_bytes cursor; /* stands on the next section */
    struct sl_shard_caller caller;
    struct sl_request_prefix prefix;
    uint32_t sections_left;
    bool in_section; /* view is valid and partly done */
    struct sl_request_view view;
    uint64_t done;        /* keys or elements of the section done so far */
    uint64_t reply_done;  /* bytes of the reply written so far */
    uint64_t reply_bytes; /* in all */
    uint32_t parked_on;   /* table id that it waits for */
    uint8_t phase;        /* of a section: shard.c */
};

/* Checks the whole request against the tables (every section's shape, ownership of dense ranges)
 * before anything is changed, and computes the reply's size. payload is aligned to 8. Errors:
 * PROTOCOL, NOT_FOUND (table), WRONG_SHARD, TOO_LARGE (reply over a frame's limit); reason says
 * which section and why. */
int sl_shard_begin(struct sl_shard *shard, const struct sl_shard_caller *caller,
                   const uint8_t *payload, size_t payload_bytes, struct sl_shard_work *out,
                   char *reason, size_t reason_bytes);

enum sl_shard_result {
    SL_SHARD_DONE,   /* reply[work->reply_bytes] is complete */
    SL_SHARD_AGAIN,  /* the budget is used up: call again */
    SL_SHARD_PARKED, /* waits for clocks: call again after sl_shard_clock_moved says so */
};

/* Goes on with the request; reply is room for work->reply_bytes, the same memory in every call.
 * Returns an sl_shard_result, or an error (negative): NO_MEMORY, WRONG_SHARD (a key; what came
 * before it in the request has been done). *keys_spent: of the budget. */
int sl_shard_run(struct sl_shard *shard, struct sl_shard_work *work, uint8_t *reply,
                 uint32_t key_budget, uint32_t *keys_spent, char *reason, size_t reason_bytes);

/* True once after each advance of a floor: parked requests may be admitted now, look at them. */
bool sl_shard_clock_moved(struct sl_shard *shard);

/* BSP pushes that became due are applied in slices too: while this is true, sl_shard_commit must be
 * called, and no request may run in between. Returns keys spent. */
bool sl_shard_commit_due(const struct sl_shard *shard);
uint32_t sl_shard_commit(struct sl_shard *shard, uint32_t key_budget);

/* The floor over all workers whose clocks this shard has heard of, for the reply's header; 0 before
 * every worker of the largest worker_count has ticked. */
uint32_t sl_shard_clock_floor(const struct sl_shard *shard);

/* A worker that is gone for good counts no more, as if it had ticked SL_REQUEST_CLOCK_FINISHED. */
void sl_shard_worker_left(struct sl_shard *shard, uint32_t worker);

/* Fills tables and table_count (sl_message_fini frees them). Errors: NO_MEMORY. */
int sl_shard_stats(const struct sl_shard *shard, struct sl_message_stats *out);

#endif
