/* Faults as a test writes them. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/fault_port.h"

static bool read_share(const char *value, char **end, uint32_t *share)
{
    const double number = strtod(value, end);
    *share = (uint32_t)(number * SL_DPDK_FAULT_SHARES + 0.5);
    return number >= 0 && number <= 1;
}

/* One "name=value", up to `end`. */
static bool read_one(const char *at, const char *end, struct sl_dpdk_faults *out)
{
    const struct {
        const char *name;
        uint32_t *share; /* NULL: a number */
        uint32_t *number;
    } keys[] = {
        {"loss=", &out->loss, NULL},
        {"reorder=", &out->reorder, NULL},
        {"duplicate=", &out->duplicate, NULL},
        {"corrupt=", &out->corrupt, NULL},
        {"truncate=", &out->truncate, NULL},
        {"blackout=", &out->blackout, NULL},
        {"short=", &out->shorten, NULL},
        {"delay_us=", NULL, &out->delay_us_max},
        {"blackout_ms=", NULL, &out->blackout_ms},
    };
    char *rest = NULL;
    if (strncmp(at, "seed=", 5) == 0) {
        out->seed = strtoull(at + 5, &rest, 10);
        return rest == end;
    }
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *value = at + strlen(keys[i].name);
        if (strncmp(at, keys[i].name, strlen(keys[i].name)) == 0) {
            if (keys[i].share != NULL) {
                return read_share(value, &rest, keys[i].share) && rest == end;
            }
            *keys[i].number = (uint32_t)strtoul(value, &rest, 10);
            return rest == end;
        }
    }
    return false;
}

int sl_dpdk_faults_parse(const char *text, struct sl_dpdk_faults *out, struct sl_reason *why)
{
    struct sl_dpdk_faults faults = {.delay_us_max = 100, .blackout_ms = 50, .seed = 1};
    for (const char *at = text, *end = text; *end != '\0'; at = end + 1) {
        end = at + strcspn(at, ",");
        if (!read_one(at, end, &faults)) {
            return sl_reason_fail(why, SL_ERR_INVALID,
                                  "'%.*s' is none of the faults in fault_port.h", (int)(end - at),
                                  at);
        }
    }
    *out = faults;
    return 0;
}
