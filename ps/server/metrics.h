/* The cells of a server: requests by operation, their times and waits, its queues and memory.
 * Requests that are answered in the turn in which they arrive are added once at the end of the
 * turn. Owner reactor, except that any thread reads the cells. */
#ifndef SL_PS_SERVER_METRICS_H
#define SL_PS_SERVER_METRICS_H

#include "core/metrics.h"
#include "net/transport_metrics.h"
#include "ps/server/slow_requests.h"

enum sl_server_failure_kind {
    SL_SERVER_FAILURE_NO_MEMORY,
    SL_SERVER_FAILURE_DEADLINE,
    SL_SERVER_FAILURE_NOT_FOUND,
    SL_SERVER_FAILURE_WRONG_SHARD,
    SL_SERVER_FAILURE_PROTOCOL,
    SL_SERVER_FAILURE_CANCELLED,
    SL_SERVER_FAILURE_OTHER, /* also an application handler's */
    SL_SERVER_FAILURES
};

enum {
    SL_SERVER_TRANSPORT_FIRST,
    SL_SERVER_TRANSPORT_SHM,
    SL_SERVER_TRANSPORT_BYPASS,
    SL_SERVER_TRANSPORTS
};

struct sl_server_cells {
    /* By the kind of the most expensive section: begun; times of those answered without an error */
    struct sl_cell requests[SL_REQUEST_KINDS];
    struct sl_cell_histogram request_time[SL_REQUEST_KINDS];
    struct sl_cell_histogram wait_time[SL_REQUEST_PHASE_WORK]; /* by phase */
    struct sl_cell failures[SL_SERVER_FAILURES];
    struct sl_cell not_finite;     /* of the failures, those for a value that is not finite */
    struct sl_cell entries;        /* of the primary's log, executed as its backup */
    struct sl_cell queued, parked; /* requests in memory; of these, the ones that wait for clocks */
    struct sl_cell rows_created, rows_erased;
    struct sl_cell memory_bytes; /* of tables */
    struct sl_cell send_buffer_bytes;
    struct sl_transport_cells transports[SL_SERVER_TRANSPORTS];
};

/* A request that was queued and is answered in this turn. */
struct sl_server_late {
    uint64_t arrived_ns;
    enum sl_request_kind op;
};

/* Counts of this turn that are not in the cells yet. */
struct sl_server_turn_counts {
    bool has_requests;                  /* some began, or were answered */
    uint32_t at_once[SL_REQUEST_KINDS]; /* arrived and answered in this turn */
    uint32_t late_count;
    struct sl_server_late late[32];
    uint64_t gauges_ns; /* when the gauges were set */
};

/* detail: such as shard="3". Any thread. */
struct sl_metrics_source sl_server_metrics_source(const struct sl_server_cells *cells,
                                                  const char *detail);

/* A queued request is being answered. */
void sl_server_metrics_answered(const struct sl_server_request *request);

/* A request failed. */
void sl_server_metrics_failed(struct sl_server_cells *cells, int err);

/* Sets the gauges. At the end of turns they are set once a millisecond; the reactor must not sleep
 * before they are set again. */
void sl_server_metrics_set_gauges(struct sl_server *server);

/* Adds the turn to the cells. Returns the time, if a request began or was answered in it; else 0.
 */
uint64_t sl_server_metrics_end_turn(struct sl_server *server);

/* Returns the number of requests begun and of entries executed. */
uint64_t sl_server_metrics_requests(const struct sl_server *server);

#endif
