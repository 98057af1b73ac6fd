/* Readers of views (reactor/view.h) in a simulated cluster, in the seeds whose plan has them: they
 * ask every server and the coordinator for views while all goes on, and look at what they get. */
#ifndef SL_TESTS_SIM_VIEWS_H
#define SL_TESTS_SIM_VIEWS_H

#include "ps/coordinator/view.h"
#include "ps/server/view.h"
#include "tests/sim/oracle.h"
#include "tests/sim/process.h"

#define SL_SIM_VIEWS_SLOW_NS SL_CLOCK_NS_PER_MS /* requests that take as long are slow */

struct sl_sim_cluster;
struct sl_sim_ps;
struct sl_process_hosted;
struct sl_view;

/* The view of one shard, or of the coordinator, and what its reader holds. */
struct sl_sim_view {
    struct sl_sim_view *next;
    const struct sl_process_hosted *hosted; /* NULL: of the coordinator */
    struct sl_view *view;
    bool is_asked;
    uint64_t turns_asked; /* of the reactor, when the reader asked */
    uint64_t digest;      /* of what it holds */
    bool served;          /* what it held before was of a primary */
    uint64_t epoch;       /* of the server that was there when the reader looked last */
    uint32_t looks;       /* since another epoch was seen: from 2 on, of the same server */
    uint64_t slow_count;
    struct sl_message_table_stats tables[SL_SIM_TABLES_MAX]; /* of a primary */
    bool members[16]; /* workers that the coordinator had when the reader asked, by task */
};

struct sl_sim_views {
    struct sl_sim_view coordinator;
    struct sl_sim_view *shards; /* a list: added when they are first seen */
};

/* A ps has started, or was killed and its servers are gone. */
void sl_sim_views_init(struct sl_sim_ps *ps);
void sl_sim_views_fini(struct sl_sim_ps *ps);

/* Every reader looks, and asks for the next view. Returns when to look again. */
uint64_t sl_sim_views_look(struct sl_sim_cluster *cluster);

/* Nothing goes on any more: one more view of everything, which shows what there is. */
void sl_sim_views_final(struct sl_sim_cluster *cluster);

#endif
