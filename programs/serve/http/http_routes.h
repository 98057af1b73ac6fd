/* The Open Inference Protocol, version 2, over HTTP: the front end of a gateway. Beside its paths:
 * /metrics, for Prometheus. Owner: the reactor of the gateway.
 *
 * A model is ready if a worker can open it. A request has until Starling-Timeout-Ms (1 to
 * 3,600,000; default 1,000) after its head to be answered. `load` waits until all bytes of a model
 * are in the pool of a host, and `unload` makes this gateway refuse the model until `load`; its
 * bytes leave pools when others need the memory. */
#ifndef SL_SERVE_HTTP_ROUTES_H
#define SL_SERVE_HTTP_ROUTES_H

#include "net/http/server.h"
#include "programs/serve/gateway/gateway.h"

#define SL_SERVE_HTTP_CONNECTIONS_MAX 1024

struct sl_serve_http_routes;

/* Listens. On the reactor, which the gateway has too. Errors: those of sl_http_server_create. */
int sl_serve_http_routes_create(struct sl_reactor *reactor, struct sl_serve_gateway *gateway,
                                const struct sl_http_listen *listen,
                                struct sl_serve_http_routes **out, struct sl_reason *reason);

/* Ends all connections, and cancels requests. On the reactor, before sl_serve_gateway_stop. Nulls
 * *routes. */
void sl_serve_http_routes_destroy(struct sl_serve_http_routes **routes);

/* For the port, and to drain. */
struct sl_http_server *sl_serve_http_routes_server(struct sl_serve_http_routes *routes);

#endif
