/* Parts of serve.c's reading of what was said. Before start. */
#ifndef SL_KV_SERVE_PARTS_H
#define SL_KV_SERVE_PARTS_H

#include <stddef.h>

struct sl_etcd_options;
struct sl_process_options;
struct sl_security;
struct sl_store_choice;

/* Whether this program can serve by the data endpoint's transport. Errors: UNSUPPORTED, with
 * reason.
 */
int sl_serve_parts_check_data(const struct sl_process_options *options, char *reason,
                              size_t reason_bytes);

/* How the store is reached: what `security` points to outlives it. */
void sl_serve_parts_store(const struct sl_store_choice *choice, const struct sl_security *security,
                          struct sl_etcd_options *out);

#endif
