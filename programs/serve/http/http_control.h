/* Routes about the gateway itself: what it is and whether it is ready, metrics, settings of the log
 * and of traces, regions of shared memory. Owner: the reactor of the gateway. */
#ifndef SL_SERVE_HTTP_CONTROL_H
#define SL_SERVE_HTTP_CONTROL_H

#include "programs/serve/http/serve_call.h"

void sl_http_control_run_server(struct sl_serve_call *call);
void sl_http_control_run_live(struct sl_serve_call *call);
void sl_http_control_run_ready(struct sl_serve_call *call);
void sl_http_control_run_metrics(struct sl_serve_call *call);

/* There are no traces: settings that ask for one are refused. */
void sl_http_control_run_trace(struct sl_serve_call *call);
void sl_http_control_run_trace_set(struct sl_serve_call *call);

/* The lowest level of log lines, as the protocol has it: a switch for each. */
void sl_http_control_run_log(struct sl_serve_call *call);
void sl_http_control_run_log_set(struct sl_serve_call *call);

void sl_http_control_run_region_status(struct sl_serve_call *call);
void sl_http_control_run_region_add(struct sl_serve_call *call);
void sl_http_control_run_region_remove(struct sl_serve_call *call);

/* Regions on a GPU: there are none. */
void sl_http_control_run_cuda_status(struct sl_serve_call *call);
void sl_http_control_run_cuda_add(struct sl_serve_call *call);
void sl_http_control_run_cuda_remove(struct sl_serve_call *call);

#endif
