#include "core/endpoint_device.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>

#define MTU_LEAST  576U
#define MTU_MOST   9600U
#define QUEUE_MOST 1024U

#define FORM       "DEVICE[,ARGUMENTS]?addr=A[/PREFIX][&gateway=G][&mtu=N][&queues=N]"

/* State of a parse; `wrong` is the first error. */
struct parser {
    struct sl_endpoint_device *out;
    bool with_port;
    bool has_port;
    const char *wrong;
};

static bool endpoint_device_copy(char *to, size_t to_bytes, const char *from, size_t bytes)
{
    if (bytes >= to_bytes) {
        return false;
    }
    memcpy(to, from, bytes);
    to[bytes] = '\0';
    return true;
}

/* Values */

static bool endpoint_device_parse_number(const char *text, uint32_t most, uint32_t *out)
{
    uint32_t value = 0;
    if (*text == '\0') {
        return false;
    }
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9') {
            return false;
        }
        value = value * 10 + (uint32_t)(*text - '0');
        if (value > most) {
            return false;
        }
    }
    *out = value;
    return true;
}

/* Accepts the address of one host: neither unspecified, multicast nor broadcast. *bits: the length
 * of an address of its family. */
static bool endpoint_device_parse_address(const char *text, uint32_t *bits)
{
    struct in6_addr six;
    struct in_addr four;
    if (inet_pton(AF_INET, text, &four) == 1) {
        *bits = 32;
        return four.s_addr != htonl(INADDR_ANY) && !IN_MULTICAST(ntohl(four.s_addr)) &&
               four.s_addr != htonl(INADDR_BROADCAST);
    }
    *bits = 128;
    return inet_pton(AF_INET6, text, &six) == 1 && !IN6_IS_ADDR_UNSPECIFIED(&six) &&
           !IN6_IS_ADDR_MULTICAST(&six) && !IN6_IS_ADDR_V4MAPPED(&six);
}

static const char *take_addr(struct parser *parser, const char *value)
{
    struct sl_endpoint_device *out = parser->out;
    const char *slash = strchr(value, '/');
    uint32_t bits, prefix;
    if (out->address[0] != '\0') {
        return "addr is given twice";
    }
    if (!endpoint_device_copy(out->host, sizeof out->host, value, strcspn(value, "/")) ||
        !endpoint_device_parse_address(out->host, &bits)) {
        return "addr is not the IPv4 or IPv6 address of one host, such as 10.0.0.1/24";
    }
    if (slash != NULL &&
        (!endpoint_device_parse_number(slash + 1, bits, &prefix) ||
         !endpoint_device_copy(out->address, sizeof out->address, value, strlen(value)))) {
        return bits == 32 ? "the prefix of addr is not a number from 0 to 32"
                          : "the prefix of addr is not a number from 0 to 128";
    }
    memcpy(out->address, value, strlen(value) + 1); /* fits: a host alone, or copied above */
    return NULL;
}

static const char *take_gateway(struct parser *parser, const char *value)
{
    struct sl_endpoint_device *out = parser->out;
    uint32_t bits;
    if (out->gateway[0] != '\0') {
        return "gateway is given twice";
    }
    return endpoint_device_copy(out->gateway, sizeof out->gateway, value, strlen(value)) &&
                   endpoint_device_parse_address(out->gateway, &bits)
               ? NULL
               : "gateway is not the IPv4 or IPv6 address of one host";
}

static const char *take_mtu(struct parser *parser, const char *value)
{
    uint32_t number;
    if (parser->out->mtu != 0) {
        return "mtu is given twice";
    }
    if (!endpoint_device_parse_number(value, MTU_MOST, &number) || number < MTU_LEAST) {
        return "mtu is not a number from 576 to 9600";
    }
    parser->out->mtu = (uint16_t)number;
    return NULL;
}

static const char *take_queues(struct parser *parser, const char *value)
{
    uint32_t number;
    if (parser->out->queues != 0) {
        return "queues is given twice";
    }
    if (!endpoint_device_parse_number(value, QUEUE_MOST, &number) || number == 0) {
        return "queues is not a number from 1 to 1024";
    }
    parser->out->queues = (uint16_t)number;
    return NULL;
}

static const char *endpoint_device_take_port(struct parser *parser, const char *value)
{
    uint32_t number;
    if (!parser->with_port) {
        return "port is for endpoints, dpdk://DEVICE?addr=A&port=P; accepted here are addr, "
               "gateway, "
               "mtu and queues";
    }
    if (parser->has_port) {
        return "port is given twice";
    }
    if (!endpoint_device_parse_number(value, UINT16_MAX, &number)) {
        return "port is not a number from 0 to 65535";
    }
    parser->out->port = (uint16_t)number;
    parser->has_port = true;
    return NULL;
}

/* Parts */

static const struct {
    const char *name;
    const char *(*take)(struct parser *parser, const char *value);
} keys[] = {
    {"addr", take_addr},     {"gateway", take_gateway},           {"mtu", take_mtu},
    {"queues", take_queues}, {"port", endpoint_device_take_port},
};

/* "name=value" */
static const char *take_pair(struct parser *parser, const char *pair, size_t bytes)
{
    char text[SL_LIMIT_ENDPOINT_BYTES];
    (void)endpoint_device_copy(text, sizeof text, pair, bytes); /* bounded by the caller */
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const size_t length = strlen(keys[i].name);
        if (strncmp(text, keys[i].name, length) == 0 && text[length] == '=') {
            return keys[i].take(parser, text + length + 1);
        }
    }
    return parser->with_port ? "after ? and & accepted are addr=, port=, gateway=, mtu= and queues="
                             : "after ? and & accepted are addr=, gateway=, mtu= and queues=";
}

static const char *take_query(struct parser *parser, const char *query)
{
    const char *wrong = NULL;
    for (const char *at = query; wrong == NULL; at++) {
        const size_t bytes = strcspn(at, "&");
        wrong = take_pair(parser, at, bytes);
        at += bytes;
        if (*at == '\0') {
            break;
        }
    }
    return wrong;
}

/* "DEVICE" or "DEVICE,ARGUMENTS" */
static const char *take_name(struct parser *parser, const char *text, size_t bytes)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:._@-";
    struct sl_endpoint_device *out = parser->out;
    const char *comma = memchr(text, ',', bytes);
    const size_t name_bytes = comma == NULL ? bytes : (size_t)(comma - text);
    if (name_bytes == 0 || text[0] == '-') {
        return "the device is missing; expected " FORM;
    }
    if (!endpoint_device_copy(out->name, sizeof out->name, text, name_bytes) ||
        strspn(out->name, letters) != name_bytes) {
        return "the device is not a name of DPDK's, such as 0000:3b:00.0 or net_memif0";
    }
    if (comma == NULL) {
        return NULL;
    }
    (void)endpoint_device_copy(out->arguments, sizeof out->arguments, comma + 1,
                               bytes - name_bytes - 1);
    for (const char *at = out->arguments; *at != '\0'; at++) {
        if (!isgraph((unsigned char)*at)) {
            return "the device's arguments have a blank in them, or what cannot be printed";
        }
    }
    return out->arguments[0] != '\0' ? NULL
                                     : "the device's arguments, after the comma, are missing";
}

static const char *check(const struct parser *parser)
{
    const struct sl_endpoint_device *out = parser->out;
    if (out->address[0] == '\0') {
        return "addr is missing; expected " FORM;
    }
    if (parser->with_port && !parser->has_port) {
        return "port is missing; expected dpdk://DEVICE?addr=A[/PREFIX]&port=P";
    }
    const bool is_six = strchr(out->host, ':') != NULL;
    return out->gateway[0] != '\0' && (strchr(out->gateway, ':') != NULL) != is_six
               ? "gateway and addr are not both IPv4, or both IPv6"
               : NULL;
}

int sl_endpoint_device_parse(const char *text, bool with_port, struct sl_endpoint_device *out,
                             struct sl_reason *reason)
{
    struct sl_endpoint_device parsed = {.mtu = 0};
    struct parser parser = {.out = &parsed, .with_port = with_port};
    const char *query = strchr(text, '?');
    const char *wrong = NULL;
    if (strlen(text) >= SL_LIMIT_ENDPOINT_BYTES) {
        wrong = "longer than 255 bytes";
    } else if (query == NULL) {
        wrong = "addr is missing; expected " FORM;
    } else {
        wrong = take_name(&parser, text, (size_t)(query - text));
    }
    wrong = wrong == NULL ? take_query(&parser, query + 1) : wrong;
    wrong = wrong == NULL ? check(&parser) : wrong;
    if (wrong != NULL) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "\"%.120s\": %s", text, wrong);
    }
    *out = parsed;
    return 0;
}

int sl_endpoint_device_next(const char **text, struct sl_endpoint_device *out,
                            struct sl_reason *reason)
{
    char one[SL_LIMIT_ENDPOINT_BYTES];
    const char *at = *text + strspn(*text, "; \t\n");
    const size_t bytes = strcspn(at, ";");
    if (*at == '\0') {
        return 0;
    }
    if (!endpoint_device_copy(one, sizeof one, at, bytes)) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "\"%.120s\": longer than 255 bytes", at);
    }
    int err = sl_endpoint_device_parse(one, false, out, reason);
    *text = at + bytes;
    return err != 0 ? err : 1;
}
