#include "core/etcd_url.h"

#include <string.h>

#include "core/endpoint.h"

static int parse_server(const char *text, size_t length, struct sl_etcd_url *out,
                        struct sl_reason *why)
{
    struct sl_endpoint endpoint;
    if (out->server_count == SL_ETCD_URL_SERVERS_MAX) {
        return sl_reason_fail(why, SL_ERR_INVALID, "more than %d endpoints",
                              SL_ETCD_URL_SERVERS_MAX);
    }
    char *server = out->servers[out->server_count];
    if (length == 0 || length >= sizeof out->servers[0]) {
        return sl_reason_fail(why, SL_ERR_INVALID, "an endpoint is missing or too long");
    }
    memcpy(server, text, length);
    server[length] = '\0';
    if (strstr(server, "://") != NULL || strpbrk(server, "@ ") != NULL ||
        sl_endpoint_parse(server, &endpoint, NULL) != 0 || endpoint.port == 0) {
        return sl_reason_fail(why, SL_ERR_INVALID, "an endpoint is not host:port");
    }
    out->server_count++;
    return 0;
}

/* text: "/prefix", or "". */
static int parse_prefix(const char *text, struct sl_etcd_url *out, struct sl_reason *why)
{
    static const char ACCEPTS[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "._-/";
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] == '/') {
        length--;
    }
    if (length >= sizeof out->prefix || strspn(text, ACCEPTS) < length) {
        return sl_reason_fail(why, SL_ERR_INVALID,
                              "the prefix has more than %d characters, or others than letters, "
                              "digits, '.', '_', '-' and '/'",
                              SL_ETCD_URL_PREFIX_BYTES - 1);
    }
    memcpy(out->prefix, text, length);
    out->prefix[length] = '\0';
    return 0;
}

int sl_etcd_url_parse(const char *text, struct sl_etcd_url *out, struct sl_reason *why)
{
    static const char PLAIN[] = "etcd://", TLS[] = "etcds://";
    out->tls = strncmp(text, TLS, sizeof TLS - 1) == 0;
    if (out->tls) {
        text += sizeof TLS - 1;
    } else if (strncmp(text, PLAIN, sizeof PLAIN - 1) == 0) {
        text += sizeof PLAIN - 1;
    } else if (strstr(text, "://") != NULL) {
        return sl_reason_fail(why, SL_ERR_INVALID, "unknown scheme");
    }
    const char *const end = text + strcspn(text, "/");
    int err = 0;
    out->server_count = 0;
    for (const char *at = text; err == 0 && at <= end;) {
        const size_t length = strcspn(at, ",;/");
        err = parse_server(at, length, out, why);
        at += length + 1;
    }
    return err != 0 ? err : parse_prefix(end, out, why);
}
