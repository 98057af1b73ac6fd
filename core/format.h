/* Formatted texts in arrays of characters; a longer text is cut. */
#ifndef SL_CORE_FORMAT_H
#define SL_CORE_FORMAT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Writes the arguments behind `format`, the last parameter of a variadic function, to an array of
 * characters. */
#define SL_FORMAT(array, format)                                                                   \
    do {                                                                                           \
        va_list arguments_;                                                                        \
        va_start(arguments_, format);                                                              \
        (void)vsnprintf((array), sizeof(array), format, arguments_);                               \
        va_end(arguments_);                                                                        \
    } while (0)

/* Appends to the text in text[bytes], behind the separator unless the text is empty. False: it was
 * cut. */
bool sl_format_add(char *text, size_t bytes, const char *separator, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
