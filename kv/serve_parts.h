/* Parts of serve.c's reading of what was said. Before start. */
#ifndef SL_KV_SERVE_PARTS_H
#define SL_KV_SERVE_PARTS_H

#include <stddef.h>

struct sl_checkpoint_settings;
struct sl_etcd_options;
struct sl_process_options;
struct sl_security;
struct sl_cluster_store_settings;

/* Whether this program can serve by the data endpoint's transport. Errors: UNSUPPORTED, with
 * reason.
 */
int sl_serve_parts_check_data(const struct sl_process_options *options, char *reason,
                              size_t reason_bytes);

/* How the store is reached: what `security` points to outlives it. */
void sl_serve_parts_store(const struct sl_cluster_store_settings *settings,
                          const struct sl_security *security, struct sl_etcd_options *out);

/* Makes and checks the checkpoint folder, and takes it for this ps where its task index is known
 * before it joins: until *lock is closed, if it is set. Errors: INVALID, IN_USE, with reason. */
int sl_serve_parts_take_folder(const struct sl_checkpoint_settings *checkpoint,
                               const struct sl_process_options *options, int *lock, char *reason,
                               size_t reason_bytes);

/* Whether the memory limit suffices for the other options. Errors: INVALID, with reason. */
int sl_serve_parts_check_memory(const struct sl_process_options *options, char *reason,
                                size_t reason_bytes);

/* Warns where there are more reactors than cores. */
void sl_serve_parts_warn_cores(const struct sl_process_options *options);

#endif
