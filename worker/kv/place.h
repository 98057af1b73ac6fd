/* Pulls whose lengths only the servers know (sl_kv_call.place). The first step asks for lengths,
 * with some room for each key. If all arrays fit, their values are copied to the memory that the
 * program names; else a second step pulls them there. The driving thread. */
#ifndef SL_WORKER_KV_PLACE_H
#define SL_WORKER_KV_PLACE_H

#include "worker/kv/engine.h"

/* Adds the operation of the first step. Errors: NO_MEMORY, those of a step. */
int sl_place_begin(struct sl_engine_call *call);

/* The first step is done: names the memory and fills it. Returns true with *batch if a second step
 * has to pull the batch, whose arrays belong to the call. Else sets call->err. */
bool sl_place_next(struct sl_engine_call *call, struct sl_kv_batch *batch);

void sl_place_free(struct sl_engine_call *call);

#endif
