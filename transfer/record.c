#include "transfer/record.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/assert.h"

#define PROTOCOL_NAME "starling"
#define TIME_FORMAT   "%Y-%m-%dT%H:%M:%SZ"

/* Encode */

static json_t *endpoints_json(const char *endpoints)
{
    json_t *list = json_array();
    while (list != NULL && *endpoints != '\0') {
        size_t length = strcspn(endpoints, ",");
        if (json_array_append_new(list, json_stringn(endpoints, length)) != 0) {
            json_decref(list);
            return NULL;
        }
        endpoints += length + (endpoints[length] == ',');
    }
    return list;
}

/* False: `value` is NULL, or no memory. */
static bool set(json_t *root, const char *name, json_t *value)
{
    return json_object_set_new(root, name, value) == 0;
}

static bool set_optional(json_t *root, const struct sl_transfer_record *record)
{
    return (record->software == NULL || set(root, "software", json_string(record->software))) &&
           (record->endpoints == NULL ||
            set(root, "endpoints", endpoints_json(record->endpoints))) &&
           (record->priority_matrix == NULL ||
            set(root, "priority_matrix", json_loads(record->priority_matrix, 0, NULL)));
}

int sl_transfer_record_encode(const struct sl_transfer_record *record, char **text)
{
    sl_assert(record->port > 0);
    sl_assert(record->incarnation > 0);
    char incarnation[17], timestamp[32];
    struct tm calendar;
    const time_t written = (time_t)record->written_s;
    (void)snprintf(incarnation, sizeof incarnation, "%" PRIx64, record->incarnation);
    if (gmtime_r(&written, &calendar) == NULL ||
        strftime(timestamp, sizeof timestamp, TIME_FORMAT, &calendar) == 0) {
        return SL_ERR_INVALID;
    }
    json_t *root = json_pack("{ss ss ss si ss ss}", "name", record->name, "protocol", PROTOCOL_NAME,
                             "ip_or_host_name", record->host, "rpc_port", (int)record->port,
                             "incarnation", incarnation, "timestamp", timestamp);
    if (root == NULL || !set_optional(root, record)) {
        json_decref(root);
        return SL_ERR_INVALID;
    }
    char *out = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    if (out == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    if (strlen(out) > SL_TRANSFER_RECORD_BYTES_MAX) {
        free(out);
        return SL_ERR_TOO_LARGE;
    }
    *text = out;
    return 0;
}

/* Decode */

struct decoder {
    const json_t *root;
    char *reason;
    size_t reason_bytes;
};

static int refuse(const struct decoder *decoder, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static int refuse(const struct decoder *decoder, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(decoder->reason, decoder->reason_bytes, format, args);
    va_end(args);
    return SL_ERR_PROTOCOL;
}

static bool is_printable(const char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text <= 0x20 || (unsigned char)*text >= 0x7f) {
            return false;
        }
    }
    return true;
}

/* Reads a string of 1 to bytes - 1 printable characters. */
static int read_text(const struct decoder *decoder, const char *member, char *to, size_t bytes)
{
    const json_t *value = json_object_get(decoder->root, member);
    if (!json_is_string(value)) {
        return refuse(decoder, "\"%s\" is %s", member, value == NULL ? "missing" : "no string");
    }
    const char *text = json_string_value(value);
    const size_t length = json_string_length(value);
    if (length == 0 || length >= bytes || strlen(text) != length || !is_printable(text)) {
        return refuse(decoder, "\"%s\" has not 1 to %zu printable characters", member, bytes - 1);
    }
    memcpy(to, text, length + 1);
    return 0;
}

static int read_port(const struct decoder *decoder, uint16_t *port)
{
    const json_t *value = json_object_get(decoder->root, "rpc_port");
    if (!json_is_integer(value)) {
        return refuse(decoder, "\"rpc_port\" is %s", value == NULL ? "missing" : "no integer");
    }
    const json_int_t number = json_integer_value(value);
    if (number < 1 || number > UINT16_MAX) {
        return refuse(decoder, "\"rpc_port\" is not from 1 to 65535: %" JSON_INTEGER_FORMAT,
                      number);
    }
    *port = (uint16_t)number;
    return 0;
}

static int read_incarnation(const struct decoder *decoder, uint64_t *incarnation)
{
    char text[17];
    int err = read_text(decoder, "incarnation", text, sizeof text);
    if (err != 0) {
        return err;
    }
    *incarnation = strtoull(text, NULL, 16);
    if (text[strspn(text, "0123456789abcdef")] != '\0' || *incarnation == 0) {
        return refuse(decoder, "\"incarnation\" is no positive hexadecimal number");
    }
    return 0;
}

static int read_time(const struct decoder *decoder, int64_t *written_s)
{
    char text[32];
    int err = read_text(decoder, "timestamp", text, sizeof text);
    if (err != 0) {
        return err;
    }
    struct tm calendar = {0};
    const char *end = strptime(text, TIME_FORMAT, &calendar);
    *written_s = end == NULL ? -1 : (int64_t)timegm(&calendar);
    if (end == NULL || *end != '\0' || *written_s < 0) {
        return refuse(decoder, "\"timestamp\" is no time such as 2026-11-23T03:00:00Z");
    }
    return 0;
}

static int read_members(const struct decoder *decoder, const char *name,
                        struct sl_transfer_record *record)
{
    char protocol[sizeof record->name];
    int err = read_text(decoder, "protocol", protocol, sizeof protocol);
    if (err == 0 && strcmp(protocol, PROTOCOL_NAME) != 0) {
        err = refuse(decoder, "\"protocol\" is not \"" PROTOCOL_NAME "\" but \"%s\"", protocol);
    }
    if (err == 0) {
        err = read_text(decoder, "name", record->name, sizeof record->name);
    }
    if (err == 0 && strcmp(record->name, name) != 0) {
        err = refuse(decoder, "\"name\" is that of another segment, \"%s\"", record->name);
    }
    if (err == 0) {
        err = read_text(decoder, "ip_or_host_name", record->host, sizeof record->host);
    }
    if (err == 0) {
        err = read_port(decoder, &record->port);
    }
    if (err == 0) {
        err = read_incarnation(decoder, &record->incarnation);
    }
    return err != 0 ? err : read_time(decoder, &record->written_s);
}

int sl_transfer_record_decode(const char *text, size_t bytes, const char *name,
                              struct sl_transfer_record *out, char *reason, size_t reason_bytes)
{
    struct decoder decoder = {.reason = reason, .reason_bytes = reason_bytes};
    if (bytes > SL_TRANSFER_RECORD_BYTES_MAX) {
        (void)refuse(&decoder, "%zu bytes, more than %u", bytes, SL_TRANSFER_RECORD_BYTES_MAX);
        return SL_ERR_TOO_LARGE;
    }
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL && json_error_code(&error) == json_error_out_of_memory) {
        return SL_ERR_NO_MEMORY;
    }
    struct sl_transfer_record record = {0};
    decoder.root = root;
    int err = root == NULL           ? refuse(&decoder, "no JSON: %s", error.text)
              : json_is_object(root) ? read_members(&decoder, name, &record)
                                     : refuse(&decoder, "no JSON object");
    json_decref(root);
    if (err == 0) {
        *out = record;
    }
    return err;
}

/* Age */

void sl_transfer_record_age(const struct sl_transfer_record *record, int64_t now_s,
                            char age[SL_TRANSFER_RECORD_AGE_BYTES])
{
    static const struct {
        int64_t seconds;
        const char *name;
    } UNITS[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
    /* The clocks of two hosts differ: a time in the future counts as now. */
    const int64_t seconds = now_s > record->written_s ? now_s - record->written_s : 0;
    size_t unit = 0;
    while (UNITS[unit].seconds > 1 && seconds < 2 * UNITS[unit].seconds) {
        unit++;
    }
    (void)snprintf(age, SL_TRANSFER_RECORD_AGE_BYTES, "written %" PRId64 " %s ago",
                   seconds / UNITS[unit].seconds, UNITS[unit].name);
}
