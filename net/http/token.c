#include "net/http/token.h"

#include <string.h>

enum sl_http_caller sl_http_check_token(const struct sl_secret *token, const char *authorization)
{
    static const char bearer[] = "Bearer ";
    if (token->byte_count == 0) {
        return SL_HTTP_CALLER_KNOWN;
    }
    if (authorization == NULL || strncasecmp(authorization, bearer, sizeof bearer - 1) != 0) {
        return SL_HTTP_CALLER_NO_TOKEN;
    }
    const char *shown = authorization + sizeof bearer - 1;
    const size_t bytes = strlen(shown);
    unsigned differences = bytes != token->byte_count;
    for (size_t i = 0; i < bytes; i++) {
        differences |= (unsigned)(uint8_t)shown[i] ^ token->bytes[i % token->byte_count];
    }
    return differences == 0 ? SL_HTTP_CALLER_KNOWN : SL_HTTP_CALLER_WRONG_TOKEN;
}
