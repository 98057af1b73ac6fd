#include "tests/sim/windows.h"

#include <inttypes.h>
#include <stdlib.h>

#include "core/assert.h"
#include "ps/snapshot/block.h"

void sl_sim_windows_fini(struct sl_sim_windows *windows)
{
    free(windows->items);
    free(windows->failed);
    *windows = (struct sl_sim_windows){0};
}

static void add(struct sl_sim_windows *windows, const struct sl_sim_window *window)
{
    if (windows->count == windows->capacity) {
        windows->capacity = windows->capacity == 0 ? 16 : 2 * windows->capacity;
        windows->items = realloc(windows->items, windows->capacity * sizeof *windows->items);
        sl_assert(windows->items != NULL);
    }
    windows->items[windows->count] = *window;
    windows->items[windows->count++].failed_first = windows->failed_count;
}

/* To the window that was added last. */
static void add_failed(struct sl_sim_windows *windows, uint64_t id)
{
    if (windows->failed_count == windows->failed_capacity) {
        windows->failed_capacity =
            windows->failed_capacity == 0 ? 16 : 2 * windows->failed_capacity;
        windows->failed =
            realloc(windows->failed, windows->failed_capacity * sizeof *windows->failed);
        sl_assert(windows->failed != NULL);
    }
    windows->failed[windows->failed_count++] = id;
    windows->items[windows->count - 1].failed_count++;
}

bool sl_sim_windows_of_block(struct sl_sim_windows *windows, uint32_t shard,
                             const struct sl_snapshot_block *block)
{
    struct sl_bytes cursor = sl_snapshot_records(block);
    struct sl_snapshot_session session;
    for (uint32_t i = 0; i < block->count; i++) {
        if (!sl_snapshot_take_session(&cursor, &session)) {
            return false;
        }
        const struct sl_sim_window window = {.shard = shard,
                                             .client_id = session.client_id,
                                             .last_write_id = session.last_write_id,
                                             .partial_id = session.partial_id,
                                             .partial_sections = session.partial_sections};
        add(windows, &window);
        for (uint32_t k = 0; k < session.failure_count; k++) {
            add_failed(windows, session.failures[k].id);
        }
    }
    return cursor.left == 0;
}

void sl_sim_windows_of_server(struct sl_sim_windows *windows, const struct sl_server *server)
{
    for (uint32_t i = 0; i < SL_SERVER_SESSION_BUCKETS; i++) {
        for (const struct sl_server_session *at = server->sessions.buckets[i]; at != NULL;
             at = at->next) {
            const struct sl_sim_window window = {.shard = server->options.shard.index,
                                                 .client_id = at->client_id,
                                                 .last_write_id = at->last_write_id,
                                                 .partial_id = at->begun_id,
                                                 .partial_sections = at->begun_sections};
            add(windows, &window);
            for (uint32_t k = 0; k < at->failure_count; k++) {
                add_failed(windows, at->failures[k].id);
            }
        }
    }
}

static const struct sl_sim_window *find(const struct sl_sim_windows *windows, uint32_t shard,
                                        uint64_t client_id)
{
    for (uint32_t i = 0; i < windows->count; i++) {
        const struct sl_sim_window *window = &windows->items[i];
        if (window->shard == shard && window->client_id == client_id) {
            return window;
        }
    }
    return NULL;
}

/* As a server would have it that gets the request again: it was carried out, and is not again. */
static bool is_done(const struct sl_sim_window *window, const struct sl_sim_unit *unit)
{
    return window != NULL &&
           (unit->request_id <= window->last_write_id ||
            (unit->request_id == window->partial_id && unit->section < window->partial_sections));
}

/* A request that fails behind its first sections leaves their effect, and fails again. Of one that
 * was acknowledged nobody says so. */
static bool has_failed(const struct sl_sim_windows *windows, const struct sl_sim_window *window,
                       const struct sl_sim_unit *unit)
{
    const uint32_t count = window == NULL || unit->acked ? 0 : window->failed_count;
    uint32_t i = 0;
    while (i < count && windows->failed[window->failed_first + i] != unit->request_id) {
        i++;
    }
    return i < count;
}

/* The ps has loaded a checkpoint with the first sections of a request that it had answered since:
 * its client does not send that again, and has gone on with the next. */
static bool is_superseded(const struct sl_sim_oracle *oracle, const struct sl_sim_window *window,
                          const struct sl_sim_unit *unit)
{
    return window != NULL && unit->acked && unit->epoch_begun < oracle->shards[unit->shard].epoch &&
           unit->request_id < window->partial_id;
}

/* Ids below the last write's are also of requests that have failed, or never came. And BSP drops
 * what it has buffered of a worker that has gone. */
static bool is_surely_done(const struct sl_sim_oracle *oracle, const struct sl_sim_window *window,
                           const struct sl_sim_unit *unit)
{
    const struct sl_sim_instance *instance = &oracle->instances[unit->instance];
    const bool stages = oracle->tables[unit->table].spec.consistency.mode == SL_CONSISTENCY_BSP;
    if (!is_done(window, unit) || (stages && (instance->is_gone || instance->tainted))) {
        return false;
    }
    return unit->request_id >= window->last_write_id ||
           (unit->acked && unit->fate == SL_SIM_FATE_SURE);
}

void sl_sim_windows_check(const struct sl_sim_windows *windows, struct sl_sim_oracle *oracle,
                          const char *who, const struct sl_sim_unit *unit, bool is_there)
{
    const struct sl_sim_instance *instance = &oracle->instances[unit->instance];
    const struct sl_sim_window *window = find(windows, unit->shard, instance->client_id);
    /* A client that has gone, or was believed lost, may be forgotten, or begin anew. */
    const bool must = is_there && !instance->is_gone && !instance->tainted;
    const bool is_known = is_done(window, unit) || has_failed(windows, window, unit) ||
                          is_superseded(oracle, window, unit);
    if (unit->request_id == 0) { /* it was not sent, or in several requests */
        return;
    }
    if (must ? !is_known : !is_there && is_surely_done(oracle, window, unit)) {
        sl_sim_fail(&oracle->breach, "one cut",
                    "%s: worker/%d's push of iteration %u to t%u on shard %u, section %u of "
                    "request %" PRIu64 ", is %s; %s, %" PRIu64 " is its last write, of "
                    "%" PRIu64 " %u sections are done, and %u have failed",
                    who, (int)instance->task, unit->clock, unit->table, unit->shard, unit->section,
                    unit->request_id, is_there ? "there" : "not there",
                    window != NULL ? "its client is known" : "its client is not known",
                    window != NULL ? window->last_write_id : 0,
                    window != NULL ? window->partial_id : 0,
                    window != NULL ? window->partial_sections : 0,
                    window != NULL ? window->failed_count : 0);
    }
}
