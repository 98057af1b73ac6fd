/* Environment variables, by StarServer's names: read once, before start, with errors that name the
 * variable, its value and what it accepts. */
#ifndef SL_CONFIG_ENV_H
#define SL_CONFIG_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/log.h"

struct sl_env {
    uint32_t ps_reactors;        /* NETWORK_PS_CORE_NUMBER; default min(16, available cores) */
    uint32_t worker_reactors;    /* NETWORK_WORKER_CORE_NUMBER; likewise; 0: no thread */
    bool ps_polling;             /* PS_ENABLE_POLLING; default false */
    bool worker_polling;         /* WORKER_ENABLE_POLLING; default false */
    bool ps_pin;                 /* not PS_DISABLE_PIN_CORES, which defaults to true */
    bool worker_pin;             /* not WORKER_DISABLE_PIN_CORES, likewise */
    enum sl_log_level log_level; /* STARLING_LOG: debug, info, warn, error, off; default info */
    bool shm;                    /* STARLING_SHM: through shared memory where possible; true */
    bool rdma;                   /* STARLING_RDMA: by RDMA where a ps has both ways; true */
    char congestion_control[16]; /* STARLING_TCP_CONGESTION, such as "cubic"; "": the system's */
};

/* core_count: cores available to this process. Numbers up to SL_LIMIT_REACTORS; booleans 0, 1,
 * true, false in any case. On error writes "NAME=value: accepts ..." into reason. Errors: INVALID.
 */
int sl_env_read(uint32_t core_count, struct sl_env *out, char *reason, size_t reason_bytes);

/* The same rules for one boolean or number, for flags that share them. */
bool sl_env_parse_bool(const char *text, bool *out);
bool sl_env_parse_u32(const char *text, uint32_t least, uint32_t most, uint32_t *out);
bool sl_env_parse_u64(const char *text, uint64_t least, uint64_t most, uint64_t *out);

#endif
