/* Registered memory of an engine. Every registration is a claim on a range of bytes. Claims that
 * overlap share one range of the struct sl_transfer, which is their union. Thread rules: base.h.
 */
#ifndef SL_COMPAT_MOONCAKE_MEMORY_H
#define SL_COMPAT_MOONCAKE_MEMORY_H

#include "compat/mooncake/base.h"

struct sl_mooncake_claim {
    uint64_t base, end; /* addresses */
    unsigned access;    /* sl_transfer_access */
};

#endif
