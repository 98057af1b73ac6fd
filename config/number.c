#include "config/number.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/clock.h"

bool sl_number_parse_bool(const char *text, bool *out)
{
    const bool is_true = strcmp(text, "1") == 0 || strcasecmp(text, "true") == 0;
    if (!is_true && strcmp(text, "0") != 0 && strcasecmp(text, "false") != 0) {
        return false;
    }
    *out = is_true;
    return true;
}

/* Parses digits and returns the text behind them; NULL: there are none, or too many. */
static const char *parse_digits(const char *text, uint64_t *out)
{
    uint64_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        const uint64_t digit = (uint64_t)*at - '0';
        if (value > (UINT64_MAX - digit) / 10) {
            return NULL;
        }
        value = value * 10 + digit;
    }
    *out = value;
    return at == text ? NULL : at;
}

bool sl_number_parse_u64(const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
    uint64_t value;
    const char *end = parse_digits(text, &value);
    if (end == NULL || *end != '\0' || value < least || value > most) {
        return false;
    }
    *out = value;
    return true;
}

bool sl_number_parse_u32(const char *text, uint32_t least, uint32_t most, uint32_t *out)
{
    uint64_t value;
    if (!sl_number_parse_u64(text, least, most, &value)) {
        return false;
    }
    *out = (uint32_t)value;
    return true;
}

/* Parses digits and one of the suffixes, each with its factor. */
static bool parse_scaled(const char *text, const char *const *suffixes, const uint64_t *factors,
                         uint32_t count, uint64_t *out)
{
    uint64_t value;
    const char *end = parse_digits(text, &value);
    for (uint32_t i = 0; end != NULL && i < count; i++) {
        if (strcmp(end, suffixes[i]) == 0 && value <= UINT64_MAX / factors[i]) {
            *out = value * factors[i];
            return true;
        }
    }
    return false;
}

bool sl_number_parse_size(const char *text, size_t *out)
{
    static const char *const suffixes[] = {"", "K", "M", "G", "T"};
    static const uint64_t factors[] = {1, 1U << 10, 1U << 20, 1U << 30, 1ULL << 40};
    return parse_scaled(text, suffixes, factors, 5, out);
}

static const char *const units[] = {"h", "m", "s", "ms", ""};
static const uint64_t unit_ns[] = {3600 * SL_CLOCK_NS_PER_S, 60 * SL_CLOCK_NS_PER_S,
                                   SL_CLOCK_NS_PER_S, SL_CLOCK_NS_PER_MS, SL_CLOCK_NS_PER_S};

bool sl_number_parse_duration(const char *text, uint64_t *out)
{
    return parse_scaled(text, units, unit_ns, 5, out);
}

void sl_number_format_duration(uint64_t ns, char text[SL_NUMBER_DURATION_BYTES])
{
    uint32_t unit = ns == 0 ? 4 : 0;
    while (unit < 3 && ns % unit_ns[unit] != 0) {
        unit++;
    }
    (void)snprintf(text, SL_NUMBER_DURATION_BYTES, "%" PRIu64 "%s", ns / unit_ns[unit],
                   units[unit]);
}
