/* Formats the arguments of a variadic function. */
#ifndef SL_CORE_FORMAT_H
#define SL_CORE_FORMAT_H

#include <stdarg.h>
#include <stdio.h>

/* Writes the arguments behind `format`, the function's last parameter, to an array of characters;
 * a longer text is cut. */
#define SL_FORMAT(array, format)                                                                   \
    do {                                                                                           \
        va_list arguments_;                                                                        \
        va_start(arguments_, format);                                                              \
        (void)vsnprintf((array), sizeof(array), format, arguments_);                               \
        va_end(arguments_);                                                                        \
    } while (0)

#endif
