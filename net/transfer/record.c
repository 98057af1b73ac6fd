#include "net/transfer/record.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
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
static int transfer_record_read_text(const json_t *root, const char *member, char *to, size_t bytes,
                                     struct sl_reason *reason)
{
    const json_t *value = json_object_get(root, member);
    if (!json_is_string(value)) {
        return sl_reason_fail(reason, SL_ERR_PROTOCOL, "\"%s\" is %s", member,
                              value == NULL ? "missing" : "no string");
    }
    const char *text = json_string_value(value);
    const size_t length = json_string_length(value);
    if (length == 0 || length >= bytes || strlen(text) != length || !is_printable(text)) {
        return sl_reason_fail(reason, SL_ERR_PROTOCOL,
                              "\"%s\" has not 1 to %zu printable characters", member, bytes - 1);
    }
    memcpy(to, text, length + 1);
    return 0;
}

static int read_port(const json_t *root, uint16_t *port, struct sl_reason *reason)
{
    const json_t *value = json_object_get(root, "rpc_port");
    if (!json_is_integer(value)) {
        return sl_reason_fail(reason, SL_ERR_PROTOCOL, "\"rpc_port\" is %s",
                              value == NULL ? "missing" : "no integer");
    }
    const json_int_t number = json_integer_value(value);
    if (number < 1 || number > UINT16_MAX) {
        return sl_reason_fail(reason, SL_ERR_PROTOCOL,
                              "\"rpc_port\" is not from 1 to 65535: %" JSON_INTEGER_FORMAT, number);
    }
    *port = (uint16_t)number;
    return 0;
}

static int read_incarnation(const json_t *root, uint64_t *incarnation, struct sl_reason *reason)
{
    char text[17];
    const int err = transfer_record_read_text(root, "incarnation", text, sizeof text, reason);
    if (err != 0) {
        return err;
    }
    *incarnation = strtoull(text, NULL, 16);
    return text[strspn(text, "0123456789abcdef")] == '\0' && *incarnation != 0
               ? 0
               : sl_reason_fail(reason, SL_ERR_PROTOCOL,
                                "\"incarnation\" is no positive hexadecimal number");
}

static int read_time(const json_t *root, int64_t *written_s, struct sl_reason *reason)
{
    char text[32];
    const int err = transfer_record_read_text(root, "timestamp", text, sizeof text, reason);
    if (err != 0) {
        return err;
    }
    struct tm calendar = {0};
    const char *end = strptime(text, TIME_FORMAT, &calendar);
    *written_s = end == NULL ? -1 : (int64_t)timegm(&calendar);
    return end != NULL && *end == '\0' && *written_s >= 0
               ? 0
               : sl_reason_fail(reason, SL_ERR_PROTOCOL,
                                "\"timestamp\" is no time such as 2026-11-23T03:00:00Z");
}

static int read_members(const json_t *root, const char *name, struct sl_transfer_record *record,
                        struct sl_reason *reason)
{
    char protocol[sizeof record->name];
    int err = transfer_record_read_text(root, "protocol", protocol, sizeof protocol, reason);
    if (err == 0 && strcmp(protocol, PROTOCOL_NAME) != 0) {
        err = sl_reason_fail(reason, SL_ERR_PROTOCOL,
                             "\"protocol\" is not \"" PROTOCOL_NAME "\" but \"%s\"", protocol);
    }
    err = err != 0
              ? err
              : transfer_record_read_text(root, "name", record->name, sizeof record->name, reason);
    if (err == 0 && strcmp(record->name, name) != 0) {
        err = sl_reason_fail(reason, SL_ERR_PROTOCOL, "\"name\" is that of another segment, \"%s\"",
                             record->name);
    }
    err = err != 0 ? err
                   : transfer_record_read_text(root, "ip_or_host_name", record->host,
                                               sizeof record->host, reason);
    err = err != 0 ? err : read_port(root, &record->port, reason);
    err = err != 0 ? err : read_incarnation(root, &record->incarnation, reason);
    return err != 0 ? err : read_time(root, &record->written_s, reason);
}

int sl_transfer_record_decode(const char *text, size_t bytes, const char *name,
                              struct sl_transfer_record *out, struct sl_reason *reason)
{
    if (bytes > SL_TRANSFER_RECORD_BYTES_MAX) {
        return sl_reason_fail(reason, SL_ERR_TOO_LARGE, "%zu bytes, more than %u", bytes,
                              SL_TRANSFER_RECORD_BYTES_MAX);
    }
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL && json_error_code(&error) == json_error_out_of_memory) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "out of memory");
    }
    struct sl_transfer_record record = {0};
    const int err =
        root == NULL           ? sl_reason_fail(reason, SL_ERR_PROTOCOL, "no JSON: %s", error.text)
        : json_is_object(root) ? read_members(root, name, &record, reason)
                               : sl_reason_fail(reason, SL_ERR_PROTOCOL, "no JSON object");
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
