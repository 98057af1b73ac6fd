#include "core/endpoint.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/assert.h"
#include "core/endpoint_device.h"

/* Ensures that sl_endpoint_format fits SL_LIMIT_ENDPOINT_BYTES. */
#define HOST_BYTES_MAX (SL_LIMIT_ENDPOINT_BYTES - sizeof "rdma://[]:65535")

/* Bounds the quoted part of a bad text. */
#define QUOTE          "\"%.80s\""

static const char *const schemes[] = {
    [SL_ENDPOINT_TCP] = "tcp",
    [SL_ENDPOINT_SHM] = "shm",
    [SL_ENDPOINT_RDMA] = "rdma",
    [SL_ENDPOINT_DPDK] = "dpdk",
};

static int parse_scheme(const char *text, enum sl_endpoint_scheme *out, const char **rest,
                        struct sl_reason *reason)
{
    const char *end = strstr(text, "://");
    if (end == NULL) {
        *out = SL_ENDPOINT_TCP;
        *rest = text;
        return 0;
    }
    const size_t length = (size_t)(end - text);
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        if (strlen(schemes[i]) == length && strncasecmp(text, schemes[i], length) == 0) {
            *out = (enum sl_endpoint_scheme)i;
            *rest = end + strlen("://");
            return 0;
        }
    }
    return sl_reason_fail(
        reason, SL_ERR_INVALID,
        QUOTE ": unknown scheme; accepted are tcp://, shm://, rdma:// and dpdk://", text);
}

static bool parse_port(const char *text, uint16_t *out)
{
    uint32_t value = 0;
    const size_t digits = strlen(text);
    if (digits == 0 || digits > 5) {
        return false;
    }
    for (size_t i = 0; i < digits; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return false;
        }
        value = value * 10 + (uint32_t)(text[i] - '0');
    }
    if (value > UINT16_MAX) {
        return false;
    }
    *out = (uint16_t)value;
    return true;
}

/* Accepts an IPv6 address with an optional zone ("fe80::1%eth0"). */
static bool is_ipv6(const char *host)
{
    char address[INET6_ADDRSTRLEN];
    const size_t length = strcspn(host, "%");
    if (length >= sizeof address || (host[length] == '%' && host[length + 1] == '\0')) {
        return false;
    }
    memcpy(address, host, length);
    address[length] = '\0';
    struct in6_addr ignored;
    return inet_pton(AF_INET6, address, &ignored) == 1;
}

/* Accepts a name or an IPv4 address; text of only digits and dots must be an address. */
static bool is_name_or_ipv4(const char *host)
{
    bool numeric = true;
    for (const char *at = host; *at != '\0'; at++) {
        if (!isalnum((unsigned char)*at) && strchr("-._", *at) == NULL) {
            return false;
        }
        numeric = numeric && (isdigit((unsigned char)*at) || *at == '.');
    }
    struct in_addr ignored;
    return !numeric || inet_pton(AF_INET, host, &ignored) == 1;
}

/* "host:port" split, the host without brackets. */
struct split {
    const char *host;
    size_t host_bytes;
    const char *port;
    bool bracketed;
};

static const char *split_host_port(const char *text, struct split *out)
{
    if (text[0] == '[') {
        const char *close = strchr(text, ']');
        if (close == NULL || close[1] != ':') {
            return "expected [IPv6]:port";
        }
        *out = (struct split){text + 1, (size_t)(close - text - 1), close + 2, true};
        return NULL;
    }
    const char *colon = strrchr(text, ':');
    if (colon == NULL) {
        return "the port is missing; expected host:port";
    }
    if (strchr(text, ':') != colon) {
        return "more than one colon; an IPv6 address is written in brackets, [::1]:5555";
    }
    *out = (struct split){text, (size_t)(colon - text), colon + 1, false};
    return NULL;
}

/* Returns NULL and fills *out, or the error as a sentence. */
static const char *parse_host_port(const char *text, struct sl_endpoint *out)
{
    struct split split;
    const char *wrong = split_host_port(text, &split);
    if (wrong != NULL) {
        return wrong;
    }
    if (split.host_bytes == 0) {
        return "the host is empty; to listen on every interface say 0.0.0.0 or [::]";
    }
    if (split.host_bytes > HOST_BYTES_MAX) {
        return "the host is longer than 240 bytes";
    }
    memcpy(out->host, split.host, split.host_bytes);
    out->host[split.host_bytes] = '\0';
    if (split.bracketed && !is_ipv6(out->host)) {
        return "what stands in brackets is not an IPv6 address";
    }
    if (!split.bracketed && !is_name_or_ipv4(out->host)) {
        return "the host is neither a name nor an IPv4 address";
    }
    if (!parse_port(split.port, &out->port)) {
        return "the port is not a number from 0 to 65535";
    }
    return NULL;
}

/* Keeps the whole text for the listener, which opens the device. */
static int parse_device(const char *text, struct sl_endpoint *out, struct sl_reason *reason)
{
    struct sl_endpoint_device device;
    int err = sl_endpoint_device_parse(text, true, &device, reason);
    if (err == 0) {
        out->port = device.port;
        memcpy(out->host, device.host, sizeof device.host);
        memcpy(out->device, text, strlen(text) + 1);
    }
    return err;
}

int sl_endpoint_parse(const char *text, struct sl_endpoint *out, struct sl_reason *reason)
{
    _Static_assert(HOST_BYTES_MAX == 240, "an error text names it");
    sl_assert(text != NULL);
    struct sl_endpoint parsed = {0};
    const char *rest;
    int err = parse_scheme(text, &parsed.scheme, &rest, reason);
    if (err != 0) {
        return err;
    }
    const bool has_query = strchr(rest, '?') != NULL;
    if (has_query && parsed.scheme == SL_ENDPOINT_DPDK) {
        err = parse_device(rest, &parsed, reason);
        *out = err == 0 ? parsed : *out;
        return err;
    }
    const char *wrong =
        has_query ? "only dpdk:// takes a device, and ? behind it" : parse_host_port(rest, &parsed);
    if (wrong != NULL) {
        return sl_reason_fail(reason, SL_ERR_INVALID, QUOTE ": %s", text, wrong);
    }
    *out = parsed;
    return 0;
}

const char *sl_endpoint_scheme_name(enum sl_endpoint_scheme scheme)
{
    static const char *const names[] = {
        [SL_ENDPOINT_TCP] = "TCP",
        [SL_ENDPOINT_SHM] = "shared memory",
        [SL_ENDPOINT_RDMA] = "RDMA",
        [SL_ENDPOINT_DPDK] = "DPDK",
    };
    return names[scheme];
}

void sl_endpoint_format(const struct sl_endpoint *endpoint, char *text, size_t text_bytes)
{
    const bool ipv6 = strchr(endpoint->host, ':') != NULL;
    snprintf(text, text_bytes, "%s://%s%s%s:%u", schemes[endpoint->scheme], ipv6 ? "[" : "",
             endpoint->host, ipv6 ? "]" : "", (unsigned)endpoint->port);
}

bool sl_endpoint_same(const struct sl_endpoint *a, const struct sl_endpoint *b)
{
    sl_assert(a != NULL);
    sl_assert(b != NULL);
    return a->scheme == b->scheme && a->port == b->port && strcmp(a->host, b->host) == 0;
}

int sl_endpoint_resolve(const struct sl_endpoint *endpoint, bool passive,
                        struct sockaddr_storage *out, socklen_t *out_bytes,
                        struct sl_reason *reason)
{
    char port[8];
    snprintf(port, sizeof port, "%u", (unsigned)endpoint->port);
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
        .ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0),
    };
    struct addrinfo *found;
    const int failure = getaddrinfo(endpoint->host, port, &hints, &found);
    if (failure != 0) {
        return sl_reason_fail(reason, SL_ERR_NOT_FOUND, "cannot resolve host \"%s\": %s",
                              endpoint->host, gai_strerror(failure));
    }
    *out = (struct sockaddr_storage){0};
    memcpy(out, found->ai_addr, found->ai_addrlen);
    *out_bytes = found->ai_addrlen;
    freeaddrinfo(found);
    return 0;
}

int sl_endpoint_from_sockaddr(const struct sockaddr_storage *address, struct sl_endpoint *out)
{
    struct sl_endpoint parsed = {.scheme = SL_ENDPOINT_TCP};
    socklen_t bytes;
    if (address->ss_family == AF_INET) {
        bytes = sizeof(struct sockaddr_in);
        parsed.port = ntohs(((const struct sockaddr_in *)address)->sin_port);
    } else if (address->ss_family == AF_INET6) {
        bytes = sizeof(struct sockaddr_in6);
        parsed.port = ntohs(((const struct sockaddr_in6 *)address)->sin6_port);
    } else {
        return SL_ERR_INVALID;
    }
    if (getnameinfo((const struct sockaddr *)address, bytes, parsed.host, sizeof parsed.host, NULL,
                    0, NI_NUMERICHOST) != 0) {
        return SL_ERR_INVALID;
    }
    *out = parsed;
    return 0;
}

bool sl_endpoint_is_loopback(const struct sl_endpoint *endpoint)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, endpoint->host, &v4) == 1) {
        return (ntohl(v4.s_addr) >> 24) == 127;
    }
    if (inet_pton(AF_INET6, endpoint->host, &v6) == 1) {
        return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
    }
    return strcasecmp(endpoint->host, "localhost") == 0;
}

bool sl_endpoint_is_any(const struct sl_endpoint *endpoint)
{
    struct in_addr v4;
    struct in6_addr v6;
    return (inet_pton(AF_INET, endpoint->host, &v4) == 1 && v4.s_addr == htonl(INADDR_ANY)) ||
           (inet_pton(AF_INET6, endpoint->host, &v6) == 1 && IN6_IS_ADDR_UNSPECIFIED(&v6));
}
