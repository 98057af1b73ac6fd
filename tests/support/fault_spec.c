/* Faults as a user writes them. */
#include <stdio.h>
#include <string.h>

#include "tests/support/fault_port.h"

#define NUMBER_MAX 1000000U /* of microseconds, of milliseconds */
#define DIGITS_MAX 6U       /* behind the point of a share */

enum key { LOSS, REORDER, DUPLICATE, CORRUPT, TRUNCATE, BLACKOUT, SHORT, DELAY, DARK, SEED, KEYS };

static const struct {
    const char *name;
    bool is_share;
} keys[KEYS] = {
    [LOSS] = {"loss", true},           [REORDER] = {"reorder", true},
    [DUPLICATE] = {"duplicate", true}, [CORRUPT] = {"corrupt", true},
    [TRUNCATE] = {"truncate", true},   [BLACKOUT] = {"blackout", true},
    [SHORT] = {"short", true},         [DELAY] = {"delay_us", false},
    [DARK] = {"blackout_ms", false},   [SEED] = {"seed", false},
};

static enum key find_key(const char *name, size_t bytes)
{
    uint32_t key = 0;
    while (key < KEYS &&
           (strlen(keys[key].name) != bytes || memcmp(keys[key].name, name, bytes) != 0)) {
        key++;
    }
    return (enum key)key;
}

/* Digits from *at on, as many as there are; false: more than a u64 holds. */
static bool read_digits(const char **at, const char *end, uint64_t *value)
{
    while (*at < end && **at >= '0' && **at <= '9') {
        const uint64_t digit = (uint64_t)(**at - '0');
        if (*value > (UINT64_MAX - digit) / 10) {
            return false;
        }
        *value = *value * 10 + digit;
        ++*at;
    }
    return true;
}

/* "0.01" in millionths. */
static bool read_share(const char *at, const char *end, uint64_t *share)
{
    const char *begin = at;
    *share = 0;
    if (!read_digits(&at, end, share) || at == begin || *share > 1) {
        return false;
    }
    const char *point = at;
    if (at < end && *at == '.') {
        at++;
        if (!read_digits(&at, end, share) || at == point + 1) {
            return false;
        }
    }
    const size_t digits = at > point ? (size_t)(at - point - 1) : 0;
    if (at != end || digits > DIGITS_MAX) {
        return false;
    }
    for (size_t i = digits; i < DIGITS_MAX; i++) {
        *share *= 10;
    }
    return *share <= SL_DPDK_FAULT_SHARES;
}

static bool read_number(const char *at, const char *end, uint64_t max, uint64_t *value)
{
    const char *begin = at;
    *value = 0;
    return read_digits(&at, end, value) && at == end && at > begin && *value <= max;
}

/* One "name=value". */
static bool read_one(const char *at, const char *end, uint64_t values[KEYS], uint32_t *seen)
{
    const char *equals = memchr(at, '=', (size_t)(end - at));
    const enum key key = equals != NULL ? find_key(at, (size_t)(equals - at)) : KEYS;
    if (key == KEYS || (*seen & 1U << key) != 0) {
        return false;
    }
    *seen |= 1U << key;
    const char *value = equals + 1;
    if (keys[key].is_share) {
        return read_share(value, end, &values[key]);
    }
    return read_number(value, end, key == SEED ? UINT64_MAX : NUMBER_MAX, &values[key]);
}

int sl_dpdk_faults_parse(const char *text, struct sl_dpdk_faults *out, char *why, size_t why_bytes)
{
    uint64_t values[KEYS] = {[DELAY] = 100, [DARK] = 50, [SEED] = 1};
    uint64_t shares = 0;
    uint32_t seen = 0;
    const char *at = text, *end = text;
    for (; *end != '\0'; at = end + 1) {
        end = at + strcspn(at, ",");
        if (!read_one(at, end, values, &seen)) {
            (void)snprintf(why, why_bytes,
                           "'%.*s': accepted are loss, reorder, duplicate, corrupt, truncate, "
                           "blackout and short, each a share of 0 to 1 with at most six digits "
                           "behind the point, delay_us, blackout_ms and seed, each once, with "
                           "commas between: loss=0.01,reorder=0.02,seed=7",
                           (int)(end - at), at);
            return SL_ERR_INVALID;
        }
    }
    for (uint32_t key = LOSS; key <= BLACKOUT; key++) {
        shares += values[key];
    }
    if (shares > SL_DPDK_FAULT_SHARES) {
        (void)snprintf(why, why_bytes, "the shares of packets are more than 1 together");
        return SL_ERR_INVALID;
    }
    *out = (struct sl_dpdk_faults){
        .loss = (uint32_t)values[LOSS],
        .reorder = (uint32_t)values[REORDER],
        .duplicate = (uint32_t)values[DUPLICATE],
        .corrupt = (uint32_t)values[CORRUPT],
        .truncate = (uint32_t)values[TRUNCATE],
        .blackout = (uint32_t)values[BLACKOUT],
        .shorten = (uint32_t)values[SHORT],
        .delay_us_max = (uint32_t)values[DELAY],
        .blackout_ms = (uint32_t)values[DARK],
        .seed = values[SEED],
    };
    return 0;
}
