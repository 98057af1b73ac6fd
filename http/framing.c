#include "http/framing.h"

#include <string.h>
#include <strings.h>

void sl_http_framing_take(struct sl_http_framing *framing, const char *name, const char *value)
{
    if (value != NULL && strcasecmp(name, "Content-Length") == 0) {
        framing->has_two_lengths |= framing->length != NULL && strcmp(framing->length, value) != 0;
        framing->length = value;
    }
    framing->is_chunked |= strcasecmp(name, "Transfer-Encoding") == 0;
}

bool sl_http_framing_is_clear(const struct sl_http_framing *framing)
{
    return !framing->has_two_lengths && !(framing->is_chunked && framing->length != NULL);
}
