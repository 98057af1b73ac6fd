#include "net/store/address.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/endpoint.h"

#define ACCEPTED                                                                                   \
    "accepted are P2PHANDSHAKE, etcd://host:port,host:port/prefix, etcds:// for TLS, "             \
    "host:port for etcd, http://host:port/path and https://"

/* The server of a URL without a scheme, "host:port" before a slash. */
static int store_address_parse_server(const char *url, struct sl_endpoint *out)
{
    char server[SL_LIMIT_ENDPOINT_BYTES];
    const size_t length = strcspn(url, "/");
    if (length >= sizeof server) {
        return SL_ERR_INVALID;
    }
    memcpy(server, url, length);
    server[length] = '\0';
    return sl_endpoint_parse(server, out, NULL);
}

static int parse_http(const char *text, struct sl_metastore_address *out, struct sl_reason *why)
{
    struct sl_endpoint server;
    for (const char *byte = text; *byte != '\0'; byte++) {
        if (*byte <= 0x20 || *byte == 0x7f || strchr("?#@", *byte) != NULL) {
            return sl_reason_fail(why, SL_ERR_INVALID,
                                  "the URL has a space, a control character, '?', '#' or '@'");
        }
    }
    if (strlen(text) >= sizeof out->url) {
        return sl_reason_fail(why, SL_ERR_INVALID, "the URL is too long");
    }
    memcpy(out->url, text, strlen(text) + 1);
    return store_address_parse_server(strstr(text, "//") + 2, &server) == 0 && server.port != 0
               ? 0
               : sl_reason_fail(why, SL_ERR_INVALID, "a server is not host:port");
}

int sl_metastore_address_parse(const char *text, struct sl_metastore_address *out,
                               struct sl_reason *reason)
{
    struct sl_metastore_address address = {.kind = SL_METASTORE_ADDRESS_NONE};
    struct sl_reason why;
    int err = 0;
    if (strncmp(text, "http://", 7) == 0 || strncmp(text, "https://", 8) == 0) {
        address.kind = SL_METASTORE_ADDRESS_HTTP;
        err = parse_http(text, &address, &why);
    } else if (strcasecmp(text, "P2PHANDSHAKE") != 0) {
        address.kind = SL_METASTORE_ADDRESS_ETCD;
        err = sl_etcd_url_parse(text, &address.etcd, &why);
    }
    if (err != 0) {
        return sl_reason_fail(reason, err, "\"%.200s\": %s; " ACCEPTED, text, why.text);
    }
    *out = address;
    return 0;
}

bool sl_metastore_address_key(const struct sl_metastore_address *address, const char *room,
                              const char *name, char key[SL_METASTORE_KEY_BYTES])
{
    const char *prefix = address->etcd.prefix; /* "/jobs/a" */
    const bool has_prefix = prefix[0] != '\0';
    const int length = snprintf(key, SL_METASTORE_KEY_BYTES, "%s%s%s%s",
                                has_prefix ? prefix + 1 : "", has_prefix ? "/" : "", room, name);
    return length < SL_METASTORE_KEY_BYTES;
}

bool sl_metastore_address_is_loopback(const struct sl_metastore_address *address)
{
    const bool is_http = address->kind == SL_METASTORE_ADDRESS_HTTP;
    const char *server = is_http ? strstr(address->url, "//") + 2 : address->etcd.servers[0];
    struct sl_endpoint endpoint;
    return store_address_parse_server(server, &endpoint) == 0 && sl_endpoint_is_loopback(&endpoint);
}
