/* Batches of an engine. Each submission is a struct sl_transfer_batch of its own. Thread rules:
 * base.h. */
#ifndef SL_COMPAT_MOONCAKE_BATCH_H
#define SL_COMPAT_MOONCAKE_BATCH_H

#include "compat/mooncake/base.h"

/* Waits until no submission runs, at most until the time `until_ms`. False: one does. */
bool sl_mooncake_batch_wait_all(struct sl_mooncake_engine *engine, uint64_t until_ms);

/* The engine's struct sl_transfer is gone. */
void sl_mooncake_batch_free_all(struct sl_mooncake_engine *engine);

#endif
