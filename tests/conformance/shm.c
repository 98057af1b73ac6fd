#include "shm.h"

#include "core/log.h"

int shm_run(const char *name, bool polling)
{
    sl_log_setup(SL_LOG_OFF, name); /* a peer that is turned away is no news here */
    struct conformance_target target = {
        .name = name,
        .ops = sl_builtin_find(SL_ENDPOINT_SHM),
        .endpoint = "shm://conformance:0",
        .polling = polling,
        .shakes_hands = true,
    };
    return conformance_run(&target) == 0 ? 0 : 1;
}
