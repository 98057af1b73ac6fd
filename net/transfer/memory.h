/* Registered memory: checks, and changes of the reactors' tables. The functions of the public API
 * are in memory.c; these are for the engine's start and end. */
#ifndef SL_NET_TRANSFER_MEMORY_H
#define SL_NET_TRANSFER_MEMORY_H

#include "core/shared.h"
#include "net/transfer/engine.h"

/* One registered range. Owned by the engine. */
struct sl_transfer_registration {
    char location[SL_TRANSFER_LOCATION_BYTES];
    struct sl_shared shared;             /* of memory_create; else its base is NULL */
    bool is_changing;                    /* a register or unregister is in progress */
    struct sl_transfer_region regions[]; /* one for each reactor */
};

/* Errors: NO_MEMORY. */
int sl_transfer_memory_init(struct sl_transfer *transfer);

/* The reactors have stopped. */
void sl_transfer_memory_fini(struct sl_transfer *transfer);

#endif
