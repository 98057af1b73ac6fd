/* The start of a kv, for a place in the job that no server of this process has. */
#ifndef SL_WORKER_KV_KV_H
#define SL_WORKER_KV_KV_H

#include <starling_kv.h>

/* As sl_kv_create, beside a process of the job (SL_MESSAGE_BESIDE_...) if it is not 0, with these
 * variables. */
int sl_kv_join(const struct sl_kv_options *options, const char *const *variables, uint32_t beside,
               struct sl_kv **out);

#endif
