#include "config/env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/assert.h"
#include "core/limits.h"

#define REACTORS_DEFAULT_MAX 16

bool sl_env_parse_bool(const char *text, bool *out)
{
    if (strcmp(text, "1") == 0 || strcasecmp(text, "true") == 0) {
        *out = true;
        return true;
    }
    if (strcmp(text, "0") == 0 || strcasecmp(text, "false") == 0) {
        *out = false;
        return true;
    }
    return false;
}

bool sl_env_parse_u64(const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
    if (text[0] == '\0') {
        return false;
    }
    uint64_t value = 0;
    for (const char *at = text; *at != '\0'; at++) {
        const uint64_t digit = (uint64_t)*at - '0';
        if (digit > 9 || value > (UINT64_MAX - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
    }
    if (value < least || value > most) {
        return false;
    }
    *out = value;
    return true;
}

bool sl_env_parse_u32(const char *text, uint32_t least, uint32_t most, uint32_t *out)
{
    uint64_t value;
    if (!sl_env_parse_u64(text, least, most, &value)) {
        return false;
    }
    *out = (uint32_t)value;
    return true;
}

struct reader {
    char *reason;
    size_t reason_bytes;
};

static int refuse(const struct reader *reader, const char *name, const char *value,
                  const char *accepted)
{
    snprintf(reader->reason, reader->reason_bytes, "%s=%.80s: accepts %s", name, value, accepted);
    return SL_ERR_INVALID;
}

/* The read functions leave *out unchanged if the variable is not set. */
static int read_bool(const struct reader *reader, const char *name, bool *out)
{
    const char *value = getenv(name);
    if (value == NULL || sl_env_parse_bool(value, out)) {
        return 0;
    }
    return refuse(reader, name, value, "0, 1, true or false");
}

static int read_reactors(const struct reader *reader, const char *name, uint32_t least,
                         uint32_t *out)
{
    const char *value = getenv(name);
    if (value == NULL || sl_env_parse_u32(value, least, SL_LIMIT_REACTORS, out)) {
        return 0;
    }
    char accepted[64];
    snprintf(accepted, sizeof accepted, "a number from %u to %d", least, SL_LIMIT_REACTORS);
    return refuse(reader, name, value, accepted);
}

static int read_log_level(const struct reader *reader, const char *name, enum sl_log_level *out)
{
    const char *value = getenv(name);
    if (value == NULL || sl_log_parse_level(value, out)) {
        return 0;
    }
    return refuse(reader, name, value, "debug, info, warn, error or off");
}

/* Checks the form of the name only: the kernel checks the name when a socket uses it. */
static int read_congestion_control(const struct reader *reader, const char *name,
                                   char out[static sizeof((struct sl_env *)0)->congestion_control])
{
    const size_t room = sizeof((struct sl_env *)0)->congestion_control;
    const char *value = getenv(name);
    if (value == NULL) {
        return 0;
    }
    const size_t length = strlen(value);
    if (length >= room || strspn(value, "abcdefghijklmnopqrstuvwxyz0123456789_-") != length) {
        return refuse(reader, name, value,
                      "a name of net.ipv4.tcp_available_congestion_control, such as cubic");
    }
    memcpy(out, value, length + 1);
    return 0;
}

int sl_env_read(uint32_t core_count, struct sl_env *out, char *reason, size_t reason_bytes)
{
    sl_assert(core_count > 0);
    const struct reader reader = {.reason = reason, .reason_bytes = reason_bytes};
    const uint32_t reactors = core_count < REACTORS_DEFAULT_MAX ? core_count : REACTORS_DEFAULT_MAX;
    struct sl_env env = {
        .ps_reactors = reactors,
        .worker_reactors = reactors,
        .log_level = SL_LOG_INFO,
        .shm = true,
        .rdma = true,
    };
    bool ps_unpinned = true, worker_unpinned = true;
    int err = read_reactors(&reader, "NETWORK_PS_CORE_NUMBER", 1, &env.ps_reactors);
    if (err == 0) {
        err = read_reactors(&reader, "NETWORK_WORKER_CORE_NUMBER", 0, &env.worker_reactors);
    }
    if (err == 0) {
        err = read_bool(&reader, "PS_ENABLE_POLLING", &env.ps_polling);
    }
    if (err == 0) {
        err = read_bool(&reader, "WORKER_ENABLE_POLLING", &env.worker_polling);
    }
    if (err == 0) {
        err = read_bool(&reader, "PS_DISABLE_PIN_CORES", &ps_unpinned);
    }
    if (err == 0) {
        err = read_bool(&reader, "WORKER_DISABLE_PIN_CORES", &worker_unpinned);
    }
    if (err == 0) {
        err = read_log_level(&reader, "STARLING_LOG", &env.log_level);
    }
    if (err == 0) {
        err = read_bool(&reader, "STARLING_SHM", &env.shm);
    }
    if (err == 0) {
        err = read_bool(&reader, "STARLING_RDMA", &env.rdma);
    }
    if (err == 0) {
        err = read_congestion_control(&reader, "STARLING_TCP_CONGESTION", env.congestion_control);
    }
    if (err != 0) {
        return err;
    }
    env.ps_pin = !ps_unpinned;
    env.worker_pin = !worker_unpinned;
    *out = env;
    return 0;
}
