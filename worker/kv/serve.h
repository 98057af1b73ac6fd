/* A server or the scheduler on threads of a program, as other files of this room see it. */
#ifndef SL_WORKER_KV_SERVE_H
#define SL_WORKER_KV_SERVE_H

#include <starling_kv.h>

/* Reads DMLC_ROLE, of the variables (struct sl_kv_server_options) or the environment. Errors: as
 * sl_kv_role. Any thread. */
int sl_serve_role_of(const char *const *variables, enum sl_kv_role *out);

/* Returns SL_KV_SERVER or SL_KV_SCHEDULER. Any thread. */
enum sl_kv_role sl_serve_role(const struct sl_kv_server *server);

/* Returns the variables of its options, to NULL; they live as long as the server. Any thread. */
const char *const *sl_serve_variables(const struct sl_kv_server *server);

#endif
