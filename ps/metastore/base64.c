#include "ps/metastore/base64.h"

#include <stdbool.h>

static const char ALPHABET[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void sl_base64_encode(const uint8_t *from, size_t bytes, char *to)
{
    for (size_t i = 0; i < bytes; i += 3) {
        size_t left = bytes - i;
        uint32_t group = (uint32_t)from[i] << 16;
        group |= left > 1 ? (uint32_t)from[i + 1] << 8 : 0;
        group |= left > 2 ? from[i + 2] : 0;
        *to++ = ALPHABET[group >> 18];
        *to++ = ALPHABET[(group >> 12) & 63];
        *to++ = left > 1 ? ALPHABET[(group >> 6) & 63] : '=';
        *to++ = left > 2 ? ALPHABET[group & 63] : '=';
    }
    *to = '\0';
}

/* Returns 64 for characters outside the alphabet. */
static uint32_t value_of(char c)
{
    if (c >= 'A' && c <= 'Z') {
        return (uint32_t)(c - 'A');
    }
    if (c >= 'a' && c <= 'z') {
        return (uint32_t)(c - 'a') + 26;
    }
    if (c >= '0' && c <= '9') {
        return (uint32_t)(c - '0') + 52;
    }
    return c == '+' ? 62 : c == '/' ? 63 : 64;
}

/* Only the last group may have padding. */
static uint32_t padding_of(const char *group, bool is_last)
{
    if (!is_last || group[3] != '=') {
        return 0;
    }
    return group[2] == '=' ? 2 : 1;
}

int sl_base64_decode(const char *from, size_t length, uint8_t *to, size_t *bytes_out)
{
    if (length % 4 != 0) {
        return SL_ERR_PROTOCOL;
    }
    size_t bytes = 0;
    for (size_t i = 0; i < length; i += 4) {
        const uint32_t padding = padding_of(from + i, i + 4 == length);
        uint32_t group = 0;
        for (uint32_t k = 0; k < 4; k++) {
            uint32_t value = k >= 4 - padding ? 0 : value_of(from[i + k]);
            if (value == 64) {
                return SL_ERR_PROTOCOL;
            }
            group = group << 6 | value;
        }
        if ((group & ((1U << 8 * padding) - 1)) != 0) {
            return SL_ERR_PROTOCOL;
        }
        for (uint32_t k = 0; k < 3 - padding; k++) {
            to[bytes++] = (uint8_t)(group >> (16 - 8 * k));
        }
    }
    *bytes_out = bytes;
    return 0;
}
