#include "ps/server/slow_requests.h"

#include <string.h>

#include "ps/server/request.h"
#include "ps/shard/state.h"

static void slow_requests_record(struct sl_server *server,
                                 const struct sl_server_slow_request *request)
{
    struct sl_server_slow_requests *slow = &server->slow;
    struct sl_server_slow_request *to = &slow->requests[slow->count % SL_SERVER_SLOW_REQUESTS];
    *to = *request;
    if (server->shard != NULL && request->section.op != SL_REQUEST_TICK) {
        const struct sl_shard_table *table = server->shard->tables[request->section.table_id];
        if (table != NULL) {
            memcpy(to->table, table->spec.name, sizeof to->table);
        }
    }
    slow->count++;
}

static bool is_slow(const struct sl_server *server, uint64_t total_ns)
{
    const uint64_t threshold_ns = server->options.slow_request_ns;
    return threshold_ns != 0 && total_ns >= threshold_ns;
}

void sl_server_slow_requests_end(const struct sl_server_request *request)
{
    struct sl_server *server = request->server;
    struct sl_server_timing timing = request->timing;
    const uint64_t now_ns = sl_server_now_ns(server);
    if (timing.arrived_ns == 0 || !is_slow(server, now_ns - timing.arrived_ns)) {
        return;
    }
    sl_server_timing_enter(&timing, timing.phase, now_ns);
    struct sl_server_slow_request slow = {
        .ended_ns = now_ns,
        .total_ns = now_ns - timing.arrived_ns,
        .client = request->work.caller,
        .section = request->work.main,
    };
    memcpy(slow.ns, timing.ns, sizeof slow.ns);
    slow_requests_record(server, &slow);
}

void sl_server_slow_requests_end_turn(struct sl_server *server, uint64_t now_ns)
{
    struct sl_server_slow_requests *slow = &server->slow;
    if (slow->section.cost == 0) {
        return;
    }
    const uint64_t total_ns = now_ns - sl_server_now_ns(server);
    if (is_slow(server, total_ns)) {
        const struct sl_server_slow_request request = {
            .ended_ns = now_ns,
            .total_ns = total_ns,
            .ns = {[SL_REQUEST_PHASE_ITERATION] = total_ns},
            .client = slow->client,
            .section = slow->section,
        };
        slow_requests_record(server, &request);
    }
    slow->section.cost = 0;
}
