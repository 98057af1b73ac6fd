#include "ps/server/metrics.h"

#include "ps/server/request.h"
#include "ps/shard/state.h"

#define GAUGES_NS SL_CLOCK_NS_PER_MS

#define ROW(kind, unit, member, name, labels, help)                                                \
    {                                                                                              \
        name, labels, SL_METRICS_##kind, SL_METRICS_##unit,                                        \
            offsetof(struct sl_server_cells, member), help                                         \
    }
#define OP(op, label)                                                                              \
    ROW(COUNTER, PLAIN, requests[SL_REQUEST_KIND_##op], "requests_total", "op=\"" label "\"",      \
        "Requests of clients, by the operation that costs most."),                                 \
        ROW(HISTOGRAM, NS, request_time[SL_REQUEST_KIND_##op], "request_seconds",                  \
            "op=\"" label "\"", "Time from arrival until the reply was passed to the transport.")
#define WAIT(phase, label)                                                                         \
    ROW(HISTOGRAM, NS, wait_time[SL_REQUEST_PHASE_##phase], "wait_seconds", "for=\"" label "\"",   \
        "Waits of requests that were not answered at once, by what they waited for.")
#define FAILURE(failure, label)                                                                    \
    ROW(COUNTER, PLAIN, failures[SL_SERVER_FAILURE_##failure], "request_failures_total",           \
        "error=\"" label "\"", "Requests answered with an error.")

static const struct sl_metrics_row rows[] = {
    OP(PULL, "pull"),
    OP(PUSH, "push"),
    OP(PUSH_PULL, "push_pull"),
    OP(ASSIGN, "assign"),
    OP(ERASE, "erase"),
    OP(TICK, "tick"),
    WAIT(ITERATION, "iteration"),
    WAIT(CLOCK, "clock"),
    WAIT(MEMORY, "memory"),
    WAIT(BACKUP, "backup"),
    FAILURE(NO_MEMORY, "no_memory"),
    FAILURE(DEADLINE, "deadline"),
    FAILURE(NOT_FOUND, "not_found"),
    FAILURE(WRONG_SHARD, "wrong_shard"),
    FAILURE(PROTOCOL, "protocol"),
    FAILURE(CANCELLED, "cancelled"),
    FAILURE(OTHER, "other"),
    ROW(COUNTER, PLAIN, not_finite, "nonfinite_requests_total", NULL,
        "Requests refused because a value to push or to assign is NaN or infinite."),
    ROW(COUNTER, PLAIN, entries, "replica_entries_executed_total", NULL,
        "Entries of a primary's log that its backup here has executed."),
    ROW(GAUGE, PLAIN, queued, "queued_requests", NULL,
        "Requests in memory: they wait, run, or send their reply."),
    ROW(GAUGE, PLAIN, parked, "parked_requests", NULL, "Requests in memory that wait for clocks."),
    ROW(COUNTER, PLAIN, rows_created, "rows_created_total", NULL,
        "Rows of sparse tables created, by pulls and restores too."),
    ROW(COUNTER, PLAIN, rows_erased, "rows_erased_total", NULL, "Rows of sparse tables erased."),
    ROW(GAUGE, PLAIN, memory_bytes, "memory_bytes", NULL, "Memory of all tables."),
    ROW(GAUGE, PLAIN, send_buffer_bytes, "send_buffer_bytes", NULL,
        "Memory of replies that are not sent yet."),
};

struct sl_metrics_source sl_server_metrics_source(const struct sl_server_cells *cells,
                                                  const char *detail)
{
    return (struct sl_metrics_source){
        .rows = rows, .row_count = sizeof rows / sizeof rows[0], .cells = cells, .detail = detail};
}

void sl_server_metrics_failed(struct sl_server_cells *cells, int err)
{
    static const uint8_t failures[] = {
        [-SL_ERR_NO_MEMORY] = 1 + SL_SERVER_FAILURE_NO_MEMORY,
        [-SL_ERR_DEADLINE] = 1 + SL_SERVER_FAILURE_DEADLINE,
        [-SL_ERR_NOT_FOUND] = 1 + SL_SERVER_FAILURE_NOT_FOUND,
        [-SL_ERR_WRONG_SHARD] = 1 + SL_SERVER_FAILURE_WRONG_SHARD,
        [-SL_ERR_PROTOCOL] = 1 + SL_SERVER_FAILURE_PROTOCOL,
        [-SL_ERR_CANCELLED] = 1 + SL_SERVER_FAILURE_CANCELLED,
    };
    const bool has_name = err <= 0 && err > -(int)sizeof failures && failures[-err] != 0;
    sl_cell_add(&cells->failures[has_name ? failures[-err] - 1 : SL_SERVER_FAILURE_OTHER], 1);
}

/* The waits end now: the phase of a request that is answered may be one of them. */
static void record_waits(struct sl_server_cells *cells, struct sl_server_timing timing,
                         uint64_t now_ns)
{
    sl_server_timing_enter(&timing, timing.phase, now_ns);
    for (uint32_t i = 0; i < SL_REQUEST_PHASE_WORK; i++) {
        if (timing.ns[i] > 0) {
            sl_cell_record(&cells->wait_time[i], timing.ns[i], 1);
        }
    }
}

static void record_late(struct sl_server *server, uint64_t now_ns)
{
    struct sl_server_turn_counts *turn = &server->turn;
    for (uint32_t i = 0; i < turn->late_count; i++) {
        const struct sl_server_late *late = &turn->late[i];
        sl_cell_record(&server->cells.used->request_time[late->op], now_ns - late->arrived_ns, 1);
    }
    turn->late_count = 0;
}

static uint64_t clock_ns(const struct sl_server *server)
{
    return sl_clock_now_ns(sl_reactor_clock(server->options.reactor));
}

void sl_server_metrics_answered(const struct sl_server_request *request)
{
    struct sl_server *server = request->server;
    struct sl_server_turn_counts *turn = &server->turn;
    record_waits(server->cells.used, request->timing, sl_server_now_ns(server));
    if (turn->late_count == sizeof turn->late / sizeof turn->late[0]) {
        record_late(server, clock_ns(server));
    }
    turn->has_requests = true;
    turn->late[turn->late_count++] = (struct sl_server_late){
        .arrived_ns = request->timing.arrived_ns,
        .op = sl_request_kind_of(request->work.main.op),
    };
}

/* Returns whether the server shows the gauges of its host: the first one with a shard does. */
static bool shows_host(const struct sl_server *server)
{
    const struct sl_server *earlier = server->next_of_host;
    return earlier == NULL || earlier->options.transports.only;
}

/* Also sets the counters that others keep. */
void sl_server_metrics_set_gauges(struct sl_server *server)
{
    server->turn.gauges_ns = sl_server_now_ns(server);
    struct sl_server_cells *cells = server->cells.used;
    const struct sl_pool *requests = &server->host->memory.requests;
    const struct sl_shard *shard = server->shard;
    if (shows_host(server)) {
        sl_cell_set(&cells->queued, requests->block_count - requests->free_count);
        sl_cell_set(&cells->send_buffer_bytes, sl_outbox_bytes(&server->host->memory.replies));
    }
    sl_cell_set(&cells->parked, server->scheduler.parked_count);
    if (shard != NULL) {
        sl_cell_set(&cells->rows_created, shard->rows_created);
        sl_cell_set(&cells->rows_erased, shard->rows_erased);
        sl_cell_set(&cells->memory_bytes, shard->memory_bytes);
    }
}

uint64_t sl_server_metrics_end_turn(struct sl_server *server)
{
    struct sl_server_turn_counts *turn = &server->turn;
    const uint64_t begun_ns = sl_server_now_ns(server);
    if (begun_ns - turn->gauges_ns >= GAUGES_NS) {
        sl_server_metrics_set_gauges(server);
    }
    if (!turn->has_requests) {
        return 0;
    }
    turn->has_requests = false;
    const uint64_t now_ns = clock_ns(server);
    record_late(server, now_ns);
    for (uint32_t op = 0; op < SL_REQUEST_KINDS; op++) {
        if (turn->at_once[op] > 0) {
            sl_cell_add(&server->cells.used->requests[op], turn->at_once[op]);
            sl_cell_record(&server->cells.used->request_time[op], now_ns - begun_ns,
                           turn->at_once[op]);
            turn->at_once[op] = 0;
        }
    }
    return now_ns;
}

uint64_t sl_server_metrics_requests(const struct sl_server *server)
{
    uint64_t count = sl_cell_get(&server->cells.used->entries);
    for (uint32_t op = 0; op < SL_REQUEST_KINDS; op++) {
        count += sl_cell_get(&server->cells.used->requests[op]) + server->turn.at_once[op];
    }
    return count;
}
