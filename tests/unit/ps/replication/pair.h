/* A shard and its backup, in two servers of one reactor: the first is the primary of shard 0, the
 * one behind it has the backup. The test says what the coordinator says. */
#ifndef SL_TESTS_UNIT_PS_REPLICATION_PAIR_H
#define SL_TESTS_UNIT_PS_REPLICATION_PAIR_H

#include "ps/replication/state.h"
#include "ps/server/request.h"
#include "tests/support/unit.h"
#include "tests/unit/ps/server/stepped.h"

#define ASP 1 /* the table that tests open */

struct pair {
    struct stepped stepped;
    struct stepped_peer peer, other;
    struct sl_replication_options replication;
    struct sl_server *backup;
    uint32_t in_sync_count, failed_count;
    uint64_t epoch; /* that was said last */
    int err;        /* for which the process shall end */
};

void pair_setup(struct pair *pair);
void pair_teardown(struct pair *pair);

#define PAIR_CASE(name) SL_CASE_USING(name, struct pair, pair, pair_setup, pair_teardown)

void turns(struct pair *pair, uint32_t count);

/* The coordinator's word to one of the two. */
void tell(struct pair *pair, struct sl_server *server, uint64_t epoch, bool is_primary,
          bool has_backup);

/* Both are in sync, and a client has joined; worker UINT32_MAX: without a clock. */
void begin(struct pair *pair, uint32_t worker);

/* A backup begins in the second epoch, when there is something already. */
void begin_later(struct pair *pair);

#endif
