/* Retired address ranges: of memory that a peer exported and withdrew. The upper layer may still
 * have pointers there. So a range stays mapped to zeros until the connection ends, or until newly
 * imported memory takes it (best fit). Adjacent ranges are joined, so buffers of many sizes reuse
 * the same addresses. Owner reactor. */
#ifndef SL_NET_SHM_RETIRED_RANGES_H
#define SL_NET_SHM_RETIRED_RANGES_H

#include "net/shm/state.h"

/* Keeps the address range of withdrawn memory, which is unmapped in place. Errors: NO_MEMORY,
 * TOO_LARGE. */
int sl_shm_retired_ranges_add(struct sl_shm_imported_memory *imported,
                              const struct sl_shared *placeholder);

/* Moves newly imported memory to a retired range, if one fits. */
void sl_shm_retired_ranges_reuse(struct sl_shm_imported_memory *imported, struct sl_shared *fresh);
void sl_shm_retired_ranges_drop(struct sl_shm_imported_memory *imported);

#endif
