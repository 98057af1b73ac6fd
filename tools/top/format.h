/* Format writes values as text of a few columns. Names come from other processes: what a terminal
 * would not print as one character, such as an escape sequence, becomes '?'. Without UTF-8 in the
 * locale, so does all that is not ASCII. Pure, but for the locale. */
#ifndef SL_TOP_FORMAT_H
#define SL_TOP_FORMAT_H

#include <stddef.h>

struct json_t;

#define SL_FORMAT_BYTES 256

enum sl_format {
    SL_FORMAT_TEXT,    /* numbers as they are */
    SL_FORMAT_COUNT,   /* 43.8k */
    SL_FORMAT_SIZE,    /* bytes: 1.58G, of powers of 1024 */
    SL_FORMAT_MICROS,  /* 840us, 1.20ms */
    SL_FORMAT_SECONDS, /* 0.4s, 3.2m, 2h */
    SL_FORMAT_PERCENT, /* 31% of 0.31 */
    SL_FORMAT_TIME,    /* 12:03:05 of unix seconds, local */
};

/* Strings and booleans are the same in every format. NULL, null and lists: "-". */
void sl_format_value(const struct json_t *value, enum sl_format format, char text[SL_FORMAT_BYTES]);

/* Columns of a text that sl_format_value has written. */
int sl_format_width(const char *text);

/* Removes characters at the end until the text has at most `width` columns. */
void sl_format_clip(char *text, int width);

#endif
