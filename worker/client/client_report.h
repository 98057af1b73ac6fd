/* Reports of a worker to the coordinator, once a second, if it wants them (net/session/report.h).
 * Reactor of client_io 0. */
#ifndef SL_WORKER_CLIENT_CLIENT_REPORT_H
#define SL_WORKER_CLIENT_CLIENT_REPORT_H

#include "worker/client/client_io.h"

/* Starts or stops the reports. */
void sl_client_report_start(struct sl_client_io *io, bool wanted);

/* Sends a last report, if the coordinator wants them, and stops. Before the session is closed. */
void sl_client_report_last(struct sl_client_io *io);

/* Sets HOST:PORT of the program's HTTP server, for the reports. The text outlives the client. Any
 * thread. */
void sl_client_report_http(struct sl_client *client, const char *http);

#endif
