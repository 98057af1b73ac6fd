#include "net/http/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/err.h"

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

int sl_http_read_pem(const char *path, char **out, struct sl_reason *reason)
{
    char *text = calloc(1, SL_HTTP_PEM_BYTES_MAX);
    FILE *file = text != NULL ? fopen(path, "re") : NULL;
    const size_t bytes = file != NULL ? fread(text, 1, SL_HTTP_PEM_BYTES_MAX, file) : 0;
    if (file != NULL) {
        (void)fclose(file);
    }
    if (bytes == 0 || bytes == SL_HTTP_PEM_BYTES_MAX) {
        sl_http_erase_pem(&text);
        return sl_reason_fail(reason, SL_ERR_IO, "%s cannot be read, is empty, or is too long",
                              path);
    }
    *out = text;
    return 0;
}

void sl_http_erase_pem(char **pem)
{
    if (*pem != NULL) {
        explicit_bzero(*pem, SL_HTTP_PEM_BYTES_MAX);
        free(*pem);
        *pem = NULL;
    }
}
