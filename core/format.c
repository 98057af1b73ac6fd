#include "core/format.h"

#include <string.h>

bool sl_format_add(char *text, size_t bytes, const char *separator, const char *format, ...)
{
    const size_t used = strlen(text), begin = used > 0 ? used + strlen(separator) : 0;
    if (begin >= bytes) {
        return false;
    }
    va_list arguments;
    va_start(arguments, format);
    memcpy(text + used, separator, begin - used);
    const int count = vsnprintf(text + begin, bytes - begin, format, arguments);
    va_end(arguments);
    return count >= 0 && (size_t)count < bytes - begin;
}
