/* What shards know of their clients' writes, as a snapshot says it, or a server that was restored
 * from one: held against the rows of the same moment. A write whose effect is there is known, so
 * that it is not carried out again when it comes again; and one that is known was carried out. One
 * thread. Allocates. */
#ifndef SL_TESTS_SIM_WINDOWS_H
#define SL_TESTS_SIM_WINDOWS_H

#include "ps/server/request.h"
#include "ps/server/state.h"
#include "tests/sim/oracle.h"

/* One client's, on one shard. */
struct sl_sim_window {
    uint32_t shard;
    uint64_t client_id;
    uint64_t last_write_id, partial_id; /* as in struct sl_snapshot_session */
    uint32_t partial_sections;
    uint32_t failed_first, failed_count; /* in `failed` */
};

/* Zeroed: empty. */
struct sl_sim_windows {
    struct sl_sim_window *items;
    uint32_t count, capacity;
    uint64_t *failed; /* ids of writes that have failed, as the last ones of their client's */
    uint32_t failed_count, failed_capacity;
};

void sl_sim_windows_fini(struct sl_sim_windows *windows);

/* Those of a block of sessions; of all sessions of a server. False: the block holds something
 * else. */
bool sl_sim_windows_of_block(struct sl_sim_windows *windows, uint32_t shard,
                             const struct sl_snapshot_block *block);
void sl_sim_windows_of_server(struct sl_sim_windows *windows, const struct sl_server *server);

/* Whether the unit's effect is there: in rows, or buffered. */
void sl_sim_windows_check(const struct sl_sim_windows *windows, struct sl_sim_oracle *oracle,
                          const char *who, const struct sl_sim_unit *unit, bool is_there);

#endif
