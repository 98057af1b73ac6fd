/* Environment variables with StarServer's names, read once. Errors name the variable, its value and
 * what is accepted. Before start. */
#ifndef SL_CONFIG_ENV_H
#define SL_CONFIG_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/log.h"

struct sl_env {
    uint32_t ps_reactors;        /* NETWORK_PS_CORE_NUMBER; default min(16, available cores) */
    uint32_t worker_reactors;    /* NETWORK_WORKER_CORE_NUMBER; same default; 0: no thread */
    bool ps_polling;             /* PS_ENABLE_POLLING; default false */
    bool worker_polling;         /* WORKER_ENABLE_POLLING; default false */
    bool ps_pin;                 /* not PS_DISABLE_PIN_CORES, default true */
    bool worker_pin;             /* not WORKER_DISABLE_PIN_CORES, default true */
    enum sl_log_level log_level; /* STARLING_LOG: debug, info, warn, error, off; default info */
    bool shm;                    /* STARLING_SHM: use shared memory if possible; default true */
    bool rdma;                   /* STARLING_RDMA: use RDMA if a ps offers it; default true */
    char congestion_control[16]; /* STARLING_TCP_CONGESTION, such as "cubic"; "": system default */
};

/* core_count: cores available to this process. Numbers up to SL_LIMIT_REACTORS; booleans 0, 1,
 * true, false, case-insensitive. reason: "NAME=value: accepts ...". Errors: INVALID. */
int sl_env_read(uint32_t core_count, struct sl_env *out, char *reason, size_t reason_bytes);

/* Parse one boolean or number by the same rules, for flags. False: invalid. */
bool sl_env_parse_bool(const char *text, bool *out);
bool sl_env_parse_u32(const char *text, uint32_t least, uint32_t most, uint32_t *out);
bool sl_env_parse_u64(const char *text, uint64_t least, uint64_t most, uint64_t *out);

#endif
