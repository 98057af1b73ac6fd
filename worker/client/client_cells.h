/* The counters of a client (core/cell.h). A client_io's are written by its reactor, a thread
 * context's by its application thread; any thread reads them. client_metrics.c names them. */
#ifndef SL_WORKER_CLIENT_CLIENT_CELLS_H
#define SL_WORKER_CLIENT_CLIENT_CELLS_H

#include "core/cell.h"
#include "net/wire/request.h"

#define SL_CLIENT_IO_SCHEMES 4 /* of enum sl_endpoint_scheme */

struct sl_client_io_cells {
    struct sl_cell requests[SL_REQUEST_KINDS]; /* sent, retransmitted ones too */
    struct sl_cell replies, failures, reconnects;
    struct sl_cell in_flight;
    struct sl_cell clock;                         /* highest of its shards: iterations ticked */
    struct sl_cell is_open[SL_CLIENT_IO_SCHEMES]; /* 1: a transport of the scheme was opened */
    struct sl_cell_histogram request_time;        /* from sending to the reply */
    struct sl_cell_histogram credit_wait;         /* in the queue of a connection */
};

struct sl_thread_ctx_cells {
    struct sl_cell_histogram step_time; /* from submit until the last reply is here */
};

#endif
