/* What ps and others say to the scripted coordinator about checkpoints. ps/0 is peer 11 and has
 * shards 0 and 1; ps/1 is peer 12 and has 2 and 3. */
#ifndef SL_TESTS_UNIT_PS_COORDINATOR_CHECKPOINTS_H
#define SL_TESTS_UNIT_PS_COORDINATOR_CHECKPOINTS_H

#include "tests/unit/ps/coordinator/fixture.h"

/* Another coordinator, whose cluster is told. */
void start_with(struct fixture *f, uint64_t interval_ns, uint32_t adds);

void client_joins(struct fixture *f, sl_coordinator_peer peer);
void register_restoring(struct fixture *f, sl_coordinator_peer peer, uint64_t id, uint64_t restore,
                        uint64_t newest, bool serving);

/* Both ps have nothing to begin from; serving: those that serve already. */
void both_register(struct fixture *f, bool first_serving, bool second_serving);

/* Likewise, with the checkpoints that it has whole, and those without a manifest: each "9 7 5". It
 * shall begin from `restore`. */
void register_having(struct fixture *f, sl_coordinator_peer peer, uint64_t id, uint64_t restore,
                     const char *complete, const char *unfinished);
void ask(struct fixture *f, sl_coordinator_peer peer, uint64_t id, uint32_t timeout_ms);

/* Files of these shards, "f<number>-<shard>"; of the shards of peer 11 or 12; why there are none.
 */
void part_of(struct fixture *f, sl_coordinator_peer peer, uint64_t number, uint32_t first_shard,
             uint32_t count);
void part(struct fixture *f, sl_coordinator_peer peer, uint64_t number);
void part_fails(struct fixture *f, sl_coordinator_peer peer, uint64_t number, int err,
                const char *text);
void done(struct fixture *f, sl_coordinator_peer peer, uint64_t number);

/* What both say, from where it was begun to its end; what comes of that is for the caller. */
void make_it(struct fixture *f, uint64_t number);

/* The next two things sent are the text, with id 0, to both ps. */
void expect_of_both(struct fixture *f, const char *text);

#endif
