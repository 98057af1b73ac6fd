/* Helpers of serve.c: they check and convert settings before the process starts. */
#ifndef SL_KV_SERVE_PARTS_H
#define SL_KV_SERVE_PARTS_H

#include <stddef.h>

struct sl_checkpoint_settings;
struct sl_etcd_options;
struct sl_process_options;
struct sl_security;
struct sl_cluster_store_settings;

/* Checks that this program has the transport of the data endpoint. Errors: UNSUPPORTED, with
 * reason. */
int sl_serve_parts_check_data(const struct sl_process_options *options, char *reason,
                              size_t reason_bytes);

/* Fills the connection options of the cluster store. `security` must outlive *out. */
void sl_serve_parts_store(const struct sl_cluster_store_settings *settings,
                          const struct sl_security *security, struct sl_etcd_options *out);

/* Creates and checks the checkpoint directory. Locks it if the task index is known before the
 * process joins: *lock, if set, is a descriptor to close. Errors: INVALID, IN_USE, with reason. */
int sl_serve_parts_take_folder(const struct sl_checkpoint_settings *checkpoint,
                               const struct sl_process_options *options, int *lock, char *reason,
                               size_t reason_bytes);

/* Checks that the memory limit suffices for the other options. Errors: INVALID, with reason. */
int sl_serve_parts_check_memory(const struct sl_process_options *options, char *reason,
                                size_t reason_bytes);

/* Logs a warning if there are more reactors than cores. */
void sl_serve_parts_warn_cores(const struct sl_process_options *options);

#endif
