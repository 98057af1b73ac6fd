#include "tools/top/format.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <wchar.h>
#include <wctype.h>

#define TIME_MAX 253402300799.0 /* the end of the year 9999 */

static void write_time(double unix_seconds, char *text)
{
    const time_t seconds = (time_t)fmin(fmax(unix_seconds, 0), TIME_MAX);
    struct tm local;
    (void)localtime_r(&seconds, &local);
    (void)strftime(text, SL_FORMAT_BYTES, "%H:%M:%S", &local);
}

static void write_number(double value, enum sl_format format, char *text)
{
    static const struct {
        double factor, base;
        const char *units[6];
    } scales[] = {[SL_FORMAT_COUNT] = {1, 1000, {"", "k", "M", "G", "T"}},
                  [SL_FORMAT_SIZE] = {1, 1024, {"", "K", "M", "G", "T"}},
                  [SL_FORMAT_MICROS] = {1, 1000, {"us", "ms", "s"}},
                  [SL_FORMAT_SECONDS] = {1, 60, {"s", "m", "h"}},
                  [SL_FORMAT_PERCENT] = {100, HUGE_VAL, {"%"}}};
    const char *const *unit = scales[format].units;
    value *= scales[format].factor;
    while (fabs(value) >= scales[format].base && unit[1] != NULL) {
        value /= scales[format].base;
        unit++;
    }
    const bool is_whole = value == floor(value) || fabs(value) >= 100;
    const int digits = is_whole ? 0 : fabs(value) >= 10 || format == SL_FORMAT_SECONDS ? 1 : 2;
    (void)snprintf(text, SL_FORMAT_BYTES, "%.*f%s", digits, value, *unit);
}

static void write_printable(const char *from, char *text)
{
    mbstate_t state = {0};
    size_t left = strlen(from), used = 0;
    while (left > 0 && used + MB_LEN_MAX < SL_FORMAT_BYTES) {
        wchar_t character;
        size_t bytes = mbrtowc(&character, from, left, &state);
        if (bytes > left || bytes == 0 || !iswprint((wint_t)character) || wcwidth(character) != 1) {
            state = (mbstate_t){0};
            bytes = bytes > left || bytes == 0 ? 1 : bytes;
            text[used++] = '?';
        } else {
            memcpy(text + used, from, bytes);
            used += bytes;
        }
        from += bytes;
        left -= bytes;
    }
    text[used] = '\0';
}

void sl_format_value(const json_t *value, enum sl_format format, char text[SL_FORMAT_BYTES])
{
    if (json_is_string(value)) {
        write_printable(json_string_value(value), text);
    } else if (json_is_boolean(value)) {
        (void)snprintf(text, SL_FORMAT_BYTES, "%s", json_is_true(value) ? "yes" : "no");
    } else if (!json_is_number(value)) {
        (void)snprintf(text, SL_FORMAT_BYTES, "-");
    } else if (format == SL_FORMAT_TEXT) {
        (void)snprintf(text, SL_FORMAT_BYTES, "%.15g", json_number_value(value));
    } else if (format == SL_FORMAT_TIME) {
        write_time(json_number_value(value), text);
    } else {
        write_number(json_number_value(value), format, text);
    }
}

int sl_format_width(const char *text)
{
    return (int)mbstowcs(NULL, text, 0); /* each of one column */
}

void sl_format_clip(char *text, int width)
{
    while (sl_format_width(text) > width) {
        size_t end = strlen(text) - 1;
        while (end > 0 && ((unsigned char)text[end] & 0xc0) == 0x80) {
            end--; /* within a character of UTF-8 */
        }
        text[end] = '\0';
    }
}
