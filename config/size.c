#include "config/size.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int sl_size_parse(const char *name, const char *text, size_t *out, char *reason,
                  size_t reason_bytes)
{
    static const char suffixes[] = "KMGT";
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    unsigned shift = 0;
    const char *suffix = *end == '\0' ? NULL : strchr(suffixes, *end);
    if (suffix != NULL) {
        shift = 10 * (unsigned)(suffix - suffixes + 1);
        end++;
    }
    bool is_number = text[0] >= '0' && text[0] <= '9' && errno == 0 && *end == '\0';
    if (!is_number || number > (SIZE_MAX >> shift)) {
        (void)snprintf(reason, reason_bytes,
                       "%s %s: accepts a number of bytes, such as 0, 500M or 64G", name, text);
        return SL_ERR_INVALID;
    }
    *out = (size_t)number << shift;
    return 0;
}
