/* The state of a server, by concern. Owner reactor. */
#ifndef SL_PS_SERVER_STATE_H
#define SL_PS_SERVER_STATE_H

#include "core/hash.h"
#include "core/log.h"
#include "ps/server/conn.h"
#include "ps/server/drain.h"
#include "ps/server/hooks.h"
#include "ps/server/host.h"
#include "ps/server/metrics.h"
#include "ps/server/pull_batch.h"
#include "ps/server/scheduler.h"
#include "ps/server/server.h"
#include "ps/server/session.h"
#include "ps/server/slow_requests.h"
#include "ps/server/table_drop.h"

/* Host of the coordinator, if elsewhere; "": unknown. */
struct sl_server_leader {
    char name[SL_MESSAGE_NAME_BYTES];
    char endpoint[SL_LIMIT_ENDPOINT_BYTES];
};

struct sl_server {
    struct sl_server_options options;
    struct sl_server_host *host;
    struct sl_server *next_of_host;
    uint32_t place;          /* of its channel in each connection of the host */
    struct sl_list channels; /* with a session */
    struct sl_server_sessions sessions;
    uint64_t lease_ns; /* of a session */

    struct sl_shard *shard; /* NULL until the cluster's numbering is known */
    struct sl_server_pull_batch pulls;
    struct sl_server_scheduler scheduler;
    uint32_t payload_bytes_max; /* of a request */
    struct {
        /* Operations that may have changed a table, except rows created by pulls. */
        uint64_t count;
        bool are_fenced; /* no more writes */
    } writes;

    struct sl_server_role role;
    struct sl_replication *replica;          /* of ps/replication; NULL: no replicas */
    struct sl_server_checkpoint *checkpoint; /* NULL: no checkpoints */
    struct {
        struct sl_server_restore *progress; /* NULL: none */
        bool is_done;                       /* the shard started from a checkpoint */
    } restore;
    struct sl_server_table_drop drops;
    bool is_open; /* clients are welcomed once there is a shard */
    struct sl_server_drain drain;
    struct {
        struct sl_timer timer;
        void (*run)(void *ctx);
        void *ctx;
    } retired; /* of sl_server_retire */

    struct {
        struct sl_server_cells *used; /* of the options, or own */
        struct sl_server_cells own;
        uint64_t hot_halved_ns; /* when the counts of hot keys were halved */
    } cells;
    struct sl_server_turn_counts turn;
    struct sl_server_slow_requests slow;

    struct {
        struct sl_timer timer;
        struct sl_server_leader leader;
    } coordinator;
    struct {
        struct sl_log_limit limit;
        uint64_t out_of_memory_ns, not_finite_ns; /* last line about a refused request; 0: none */
    } logged;
};

static inline struct sl_timer_wheel *sl_server_timers(const struct sl_server *server)
{
    return sl_reactor_timers(server->options.reactor);
}

static inline uint64_t sl_server_now_ns(const struct sl_server *server)
{
    return sl_reactor_now_ns(server->options.reactor);
}

/* Memory was freed: requests that wait for it may try again. */
static inline void sl_server_unblock(struct sl_server *server)
{
    sl_server_host_unblock(server->host);
}

/* Returns true when all runnable requests wait for memory. */
static inline bool sl_server_is_blocked(const struct sl_server *server)
{
    return server->scheduler.blocked_at == server->host->freed_count;
}

static inline bool sl_server_drains(const struct sl_server *server)
{
    return server->drain.stage != SL_SERVER_RUNS;
}

/* Returns the name of the next copy of the shard (struct sl_shard_options); never 0. */
static inline uint64_t sl_server_next_copy(const struct sl_server *server)
{
    const uint64_t last = server->options.shard.copy;
    return sl_hash_key(last + server->options.incarnation + server->options.shard.index) | 1;
}

/* Charges work to the turn's budget. */
static inline void sl_server_spend(struct sl_server *server, uint32_t cost)
{
    uint32_t *left = &server->host->budget_left;
    *left -= cost < *left ? cost : *left;
}

/* Logs a line about a peer, rate-limited. */
void sl_server_log(struct sl_server *server, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
