#include "net/http/framing.h"

#include <microhttpd.h>
#include <string.h>
#include <strings.h>

struct framing {
    const char *length;
    bool has_two_lengths, is_chunked;
};

static enum MHD_Result take_header(void *ctx, enum MHD_ValueKind kind, const char *name,
                                   const char *value)
{
    struct framing *framing = ctx;
    if (value != NULL && strcasecmp(name, "Content-Length") == 0) {
        framing->has_two_lengths |= framing->length != NULL && strcmp(framing->length, value) != 0;
        framing->length = value;
    }
    framing->is_chunked |= strcasecmp(name, "Transfer-Encoding") == 0;
    return MHD_YES;
}

bool sl_http_framing_is_clear(struct MHD_Connection *connection)
{
    struct framing framing = {NULL, false, false};
    (void)MHD_get_connection_values(connection, MHD_HEADER_KIND, take_header, &framing);
    return !framing.has_two_lengths && !(framing.is_chunked && framing.length != NULL);
}
