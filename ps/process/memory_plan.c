#include "ps/process/memory_plan.h"

#include <stdio.h>

#include "core/assert.h"
#include "core/limits.h"
#include "core/log.h"
#include "net/outbox.h"

#define KIB                   ((size_t)1 << 10)
#define MIB                   ((size_t)1 << 20)

/* Per process: program and libraries (10 MiB of files), heap, stacks, the coordinator;
 * LIBRARIES_BYTES: those of RDMA or DPDK. */
#define PROCESS_BYTES         (24 * MIB)
#define LIBRARIES_BYTES       (32 * MIB)
#define COORDINATOR_LOG_LEAST (8 * MIB)
#define COORDINATOR_LOG_MOST  (256 * MIB)

/* Per server, for any limit: 2.6 MiB when idle; 17 MiB of working memory for a push with the most
 * keys; the rest is for the heap, including log entries. */
#define SERVER_BYTES          (24 * MIB)
#define CHECKPOINT_BYTES      (4 * MIB) /* of its thread: two blocks, and one to read back */
#define TABLES_LEAST          (16 * MIB)
#define STAGING_LEAST         (8 * MIB)
#define STAGING_MOST          (256 * MIB)

/* Per reactor, for any limit. */
#define RECEIVE_BYTES         (2 * MIB) /* receive buffers are rounded up to a huge page */
#define LOCAL_BYTES           (1 * MIB) /* the least outbox exceeds a quarter of the least buffers */
#define FAST_BYTES            (16 * MIB) /* RDMA or DPDK blocks */

/* Per connection: its transport, and the sessions of connected and disconnected clients. */
#define TCP_BYTES             (34 * KIB)
#define SHM_BYTES             (36 * KIB)
#define FAST_CONN_BYTES       (68 * KIB)
#define TLS_BYTES             (300 * KIB) /* struct sl_tcp_tls and OpenSSL's memory */
#define SESSION_BYTES         (5 * KIB)
#define SESSIONS_AWAY         3U /* per connection with replicas; else one */

#define RECEIVE_BUFFER        (32 * KIB)
#define STAGED_FRAME          (17 * KIB) /* beside each TCP receive buffer */
#define WAITING_BYTES         640        /* struct sl_server_request and its index */

/* A pool has between `least` and `most` units. It grows by `share` 64ths of the memory beyond the
 * least limit. */
struct pool {
    size_t least, most, unit_bytes;
    uint32_t share;
};

/* Pools of a server, then those of a reactor. */
enum pool_index {
    LOG,
    SNAPSHOT,
    BUFFERS,
    KEPT,
    UNPLACED,
    CONNECTIONS,
    RECEIVE,
    WAITING,
    POOLS,
    REACTOR_POOLS = BUFFERS
};
#define SHARES 64

static size_t writer_bytes(const struct sl_memory_plan_options *options)
{
    const uint32_t level = options->checkpoint_level;
    const size_t packer = level <= 6   ? 4 * MIB
                          : level <= 9 ? 13 * MIB
                                       : 18 * MIB; /* for 1 MiB blocks */
    return options->has_checkpoints ? CHECKPOINT_BYTES + packer : 0;
}

static void list_pools(const struct sl_memory_plan_options *options, struct pool pools[POOLS])
{
    const bool takes_snapshots =
        options->has_checkpoints || options->has_snapshots || options->replicas > 0;
    const size_t sessions = SESSION_BYTES * (options->replicas > 0 ? 1 + SESSIONS_AWAY : 2);
    const size_t connection = TCP_BYTES + sessions + (options->transports.has_shm ? SHM_BYTES : 0) +
                              (options->transports.has_bypass ? FAST_CONN_BYTES : 0) +
                              (options->transports.has_tls ? TLS_BYTES : 0);
    const size_t receive =
        RECEIVE_BUFFER + STAGED_FRAME + (options->transports.has_shm ? RECEIVE_BUFFER : 0);
    pools[BUFFERS] = (struct pool){32 * MIB / 4096, 256 * MIB / 4096, 4096, 8};
    pools[BUFFERS].unit_bytes += options->transports.has_shm ? pools[BUFFERS].unit_bytes / 2 : 0;
    pools[KEPT] = (struct pool){2 * MIB, 256 * MIB, 1, 2};
    pools[LOG] = options->replicas > 0 ? (struct pool){SL_OUTBOX_MEMORY_BYTES_MIN, 16 * MIB, 1, 1}
                                       : (struct pool){0};
    pools[SNAPSHOT] = takes_snapshots ? (struct pool){16 * MIB, 128 * MIB, 1, 1} : (struct pool){0};
    pools[UNPLACED] = (struct pool){8 * MIB, 256 * MIB, 1, 2};
    pools[CONNECTIONS] = (struct pool){128, SL_LIMIT_CONNECTIONS, connection, 3};
    pools[RECEIVE] = (struct pool){64, 256, receive, 1};
    pools[WAITING] = (struct pool){4096, 65536, WAITING_BYTES, 1};
}

static size_t pool_size(const struct pool *pool, size_t surplus)
{
    const size_t more =
        pool->unit_bytes == 0 ? 0 : surplus / SHARES * pool->share / pool->unit_bytes;
    return more < pool->most - pool->least ? pool->least + more : pool->most;
}

static size_t process_least(const struct sl_memory_plan_options *options)
{
    return PROCESS_BYTES + (options->transports.has_bypass ? LIBRARIES_BYTES : 0) +
           (options->has_metastore ? COORDINATOR_LOG_LEAST : 0);
}

static size_t memory_plan_server_count(const struct sl_memory_plan_options *options)
{
    return (size_t)options->shards * (1 + options->replicas);
}

/* Returns how many servers or reactors have such a pool. */
static size_t holder_count(const struct sl_memory_plan_options *options, int pool)
{
    return pool < REACTOR_POOLS ? memory_plan_server_count(options) : options->reactors;
}

size_t sl_memory_plan_least(const struct sl_memory_plan_options *options)
{
    sl_assert(options->reactors > 0);
    sl_assert(options->shards >= options->reactors);
    sl_assert(options->shards <= SL_LIMIT_REACTORS);
    sl_assert(options->replicas <= 1);
    struct pool pools[POOLS];
    const size_t server = SERVER_BYTES + TABLES_LEAST + writer_bytes(options);
    const size_t reactor = RECEIVE_BYTES + SL_OUTBOX_MEMORY_BYTES_MIN +
                           (options->transports.has_shm ? LOCAL_BYTES : 0) +
                           (options->transports.has_bypass ? FAST_BYTES : 0);
    size_t bytes = process_least(options) + server * memory_plan_server_count(options) +
                   reactor * options->reactors;
    list_pools(options, pools);
    for (int i = 0; i < POOLS; i++) {
        bytes += pools[i].least * pools[i].unit_bytes * holder_count(options, i);
    }
    return (bytes + MIB - 1) / MIB * MIB;
}

/* Formats a size as "31M" or "31". */
static const char *size_text(size_t bytes, char text[static 32])
{
    static const char suffixes[] = "\0KMGT";
    uint32_t power = 0;
    while (power < 4 && bytes > 0 && bytes % 1024 == 0) {
        bytes /= 1024;
        power++;
    }
    (void)snprintf(text, 32, power == 0 ? "%zu" : "%zu%c", bytes, suffixes[power]);
    return text;
}

static uint32_t power_of_two_below(size_t number)
{
    uint32_t power = 1;
    while (power <= number / 2) {
        power *= 2;
    }
    return power;
}

/* Tables get all memory that the pools do not take. */
static void divide(const struct sl_memory_plan_options *options, size_t surplus,
                   struct sl_memory_plan *out)
{
    struct pool pools[POOLS];
    size_t sizes[POOLS];
    size_t left = surplus;
    list_pools(options, pools);
    for (int i = 0; i < POOLS; i++) {
        const size_t count = holder_count(options, i);
        sizes[i] = pool_size(&pools[i], surplus / count);
        left -= (sizes[i] - pools[i].least) * pools[i].unit_bytes * count;
    }
    out->buffer_bytes = sizes[BUFFERS] * 4096;
    out->kept_bytes = sizes[KEPT];
    out->log_bytes = sizes[LOG];
    out->snapshot_bytes = sizes[SNAPSHOT];
    out->unplaced_bytes = sizes[UNPLACED];
    out->connections = (uint32_t)sizes[CONNECTIONS];
    out->receive = power_of_two_below(sizes[RECEIVE]);
    out->waiting = (uint32_t)sizes[WAITING];
    out->tables_bytes = TABLES_LEAST + left / memory_plan_server_count(options);
    out->rest_bytes = SERVER_BYTES + writer_bytes(options) + out->log_bytes + out->snapshot_bytes;
    out->staging_bytes = out->tables_bytes / 4;
    out->staging_bytes = out->staging_bytes < STAGING_LEAST  ? STAGING_LEAST
                         : out->staging_bytes > STAGING_MOST ? STAGING_MOST
                                                             : out->staging_bytes;
}

size_t sl_memory_plan_tables(const struct sl_memory_plan *plan, uint32_t planned, uint32_t count)
{
    if (count <= planned) {
        return plan->tables_bytes;
    }
    const size_t all = plan->tables_bytes * planned;
    const size_t rest = plan->rest_bytes * (count - planned);
    const size_t each = all > rest ? (all - rest) / count : 0;
    return each < TABLES_LEAST ? 0 : each;
}

int sl_memory_plan_make(const struct sl_memory_plan_options *options, struct sl_memory_plan *out,
                        struct sl_reason *reason)
{
    const size_t least = sl_memory_plan_least(options);
    *out = (struct sl_memory_plan){0};
    if (options->limit_bytes == 0) {
        return 0;
    }
    if (options->limit_bytes < least) {
        char limit_text[32], shards_text[32] = "";
        if (options->shards > options->reactors) {
            (void)snprintf(shards_text, sizeof shards_text, " of %u shards", options->shards);
        }
        char least_text[32];
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "--memory-limit %s is too small for %u reactor%s%s%s: accepts 0, "
                              "for none, or at least %s",
                              size_text(options->limit_bytes, limit_text), options->reactors,
                              sl_log_plural(options->reactors), shards_text,
                              options->replicas > 0 ? " with replicas" : "",
                              size_text(least, least_text));
    }
    size_t surplus = options->limit_bytes - least;
    if (options->has_metastore) {
        const size_t more = surplus / SHARES;
        const size_t room = COORDINATOR_LOG_MOST - COORDINATOR_LOG_LEAST;
        out->coordinator_log_bytes = COORDINATOR_LOG_LEAST + (more < room ? more : room);
        surplus -= more;
    }
    divide(options, surplus, out);
    return 0;
}
