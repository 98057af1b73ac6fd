/* Numbers, booleans, sizes and durations as text, for flags and variables. Pure. */
#ifndef SL_CONFIG_NUMBER_H
#define SL_CONFIG_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Each parser returns false, and leaves *out, if the text is invalid or out of range. */

/* 0, 1, true or false, case-insensitive. */
bool sl_number_parse_bool(const char *text, bool *out);

/* Decimal digits only. */
bool sl_number_parse_u32(const char *text, uint32_t least, uint32_t most, uint32_t *out);
bool sl_number_parse_u64(const char *text, uint64_t least, uint64_t most, uint64_t *out);

/* Bytes: digits, then K, M, G or T (powers of 1024), such as 64G. */
bool sl_number_parse_size(const char *text, size_t *out);

/* Nanoseconds: digits, then ms, s, m or h; s if there is no unit. */
bool sl_number_parse_duration(const char *text, uint64_t *out);

/* Writes a duration in the largest unit that is exact, such as 1500ms, 2s, 10m or 1h. */
#define SL_NUMBER_DURATION_BYTES 32
void sl_number_format_duration(uint64_t ns, char text[SL_NUMBER_DURATION_BYTES]);

#endif
