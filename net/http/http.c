#include "net/http/http.h"

#include <errno.h>
#include <jansson.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/err.h"

#define BACKLOG 1024

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

int sl_http_listen(const struct sl_endpoint *endpoint, const char *what, struct sl_reason *reason)
{
    const int one = 1;
    struct sockaddr_storage address;
    socklen_t bytes;
    struct sl_reason why;
    int err = sl_endpoint_resolve(endpoint, true, &address, &bytes, &why);
    if (err != 0) {
        return sl_reason_fail(reason, err, "%s: %.1024s", what, why.text);
    }
    const int fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        bind(fd, (const struct sockaddr *)&address, bytes) != 0 || listen(fd, BACKLOG) != 0) {
        const int cause = errno;
        (void)(fd < 0 ? 0 : close(fd));
        return sl_reason_fail(reason, sl_err_from_errno(cause), "%s: %s", what, strerror(cause));
    }
    return fd;
}

char *sl_http_format_error(struct sl_reason *error)
{
    json_t *text = json_string(error->text);
    if (text == NULL) { /* not UTF-8: a name of the caller */
        sl_reason_make_printable(error->text, strlen(error->text));
        text = json_string(error->text);
    }
    json_t *object = json_pack("{s:o}", "error", text);
    char *body = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    return body;
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
