#include "metastore/address.h"

#include <stdio.h>
#include <string.h>

#include "core/endpoint.h"

#define ACCEPTED                                                                                   \
    "accepted are P2PHANDSHAKE, etcd://host:port,host:port/prefix, etcds:// for TLS, "             \
    "host:port for etcd, http://host:port/path and https://"

struct parser {
    const char *text;
    struct sl_reason *reason;
};

static int refuse(const struct parser *parser, const char *why)
{
    return sl_reason_fail(parser->reason, SL_ERR_INVALID, "\"%.200s\": %s; " ACCEPTED, parser->text,
                          why);
}

/* Skips "scheme://"; false: another scheme. */
static bool skip(const char **text, const char *scheme)
{
    const size_t length = strlen(scheme);
    const bool is_same = strncmp(*text, scheme, length) == 0;
    *text += is_same ? length : 0;
    return is_same;
}

/* Parses "host:port" of this length. Keeps it as written. */
static int parse_server(const struct parser *parser, const char *text, size_t length,
                        struct sl_etcd_options *etcd)
{
    struct sl_reason why;
    struct sl_endpoint endpoint;
    if (etcd->server_count == SL_ETCD_SERVERS_MAX) {
        sl_reason_set(&why, "more than %d servers", SL_ETCD_SERVERS_MAX);
        return refuse(parser, why.text);
    }
    char *server = etcd->servers[etcd->server_count];
    if (length >= sizeof etcd->servers[0]) {
        return refuse(parser, "a server's name is too long");
    }
    memcpy(server, text, length);
    server[length] = '\0';
    if (strpbrk(server, "@ ") != NULL || sl_endpoint_parse(server, &endpoint, &why) != 0 ||
        endpoint.port == 0) {
        return refuse(parser, "a server is not host:port");
    }
    etcd->server_count++;
    return 0;
}

static int parse_etcd(const struct parser *parser, const char *at, struct sl_metastore_address *out)
{
    const char *end = at + strcspn(at, "/");
    int err = 0;
    while (err == 0 && at <= end) {
        const size_t length = strcspn(at, ",/");
        err = parse_server(parser, at, length, &out->etcd);
        at += length + 1;
    }
    if (err != 0 || *end == '\0') {
        return err;
    }
    static const char PLAIN[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "._-/";
    const char *prefix = end + 1;
    size_t length = strlen(prefix);
    while (length > 0 && prefix[length - 1] == '/') {
        length--;
    }
    if (length + 2 > sizeof out->prefix || strspn(prefix, PLAIN) < length) {
        return refuse(parser, "the prefix has more than 126 characters, or others than letters, "
                              "digits, '.', '_', '-' and '/'");
    }
    if (length > 0) {
        (void)snprintf(out->prefix, sizeof out->prefix, "%.*s/", (int)length, prefix);
    }
    return 0;
}

/* at: behind "://". */
static int parse_http(const struct parser *parser, const char *at, struct sl_metastore_address *out)
{
    const size_t length = strcspn(at, "/");
    struct sl_etcd_options server = {0};
    for (const char *byte = at; *byte != '\0'; byte++) {
        if (*byte <= 0x20 || *byte == 0x7f || strchr("?#@", *byte) != NULL) {
            return refuse(parser, "the URL has a space, a control character, '?', '#' or '@'");
        }
    }
    if (strlen(parser->text) >= sizeof out->http.url) {
        return refuse(parser, "the URL is too long");
    }
    (void)snprintf(out->http.url, sizeof out->http.url, "%s", parser->text);
    return parse_server(parser, at, length, &server);
}

int sl_metastore_address_parse(const char *text, struct sl_metastore_address *out,
                               struct sl_reason *reason)
{
    const struct parser parser = {.text = text, .reason = reason};
    struct sl_metastore_address address = {.kind = SL_METASTORE_ADDRESS_NONE};
    const char *at = text;
    int err = 0;
    if (strcmp(text, "P2PHANDSHAKE") == 0) {
        err = 0;
    } else if (skip(&at, "http://") || skip(&at, "https://")) {
        address.kind = SL_METASTORE_ADDRESS_HTTP;
        err = parse_http(&parser, at, &address);
    } else {
        address.etcd.tls = skip(&at, "etcds://");
        const bool has_scheme = address.etcd.tls || skip(&at, "etcd://");
        address.kind = SL_METASTORE_ADDRESS_ETCD;
        err = !has_scheme && strstr(text, "://") != NULL ? refuse(&parser, "unknown scheme")
                                                         : parse_etcd(&parser, at, &address);
    }
    if (err == 0) {
        *out = address;
    }
    return err;
}
