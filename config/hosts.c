#include "config/hosts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/limits.h"

bool sl_hosts_same(const struct sl_endpoint *a, const struct sl_endpoint *b)
{
    return a->port == b->port && strcasecmp(a->host, b->host) == 0;
}

int sl_hosts_parse_control(const char *text, struct sl_endpoint *out, char *reason,
                           size_t reason_bytes)
{
    struct sl_endpoint parsed;
    int err = sl_endpoint_parse(text, &parsed, reason, reason_bytes);
    if (err != 0) {
        return err;
    }
    if (parsed.scheme != SL_ENDPOINT_TCP) {
        snprintf(reason, reason_bytes,
                 "\"%.80s\": a control endpoint is tcp; another scheme belongs after the = of a "
                 "line in the endpoint map",
                 text);
        return SL_ERR_INVALID;
    }
    if (parsed.port == 0) {
        snprintf(reason, reason_bytes,
                 "\"%.80s\": port 0 could not be found by the peers; accepted are 1 to 65535",
                 text);
        return SL_ERR_INVALID;
    }
    *out = parsed;
    return 0;
}

int sl_hosts_append(struct sl_hosts *hosts, const char *text, const char *source, char *reason,
                    size_t reason_bytes)
{
    char why[256];
    struct sl_endpoint endpoint;
    int err = sl_hosts_parse_control(text, &endpoint, why, sizeof why);
    if (err != 0) {
        snprintf(reason, reason_bytes, "%s, item %u: %s", source, hosts->count, why);
        return err;
    }
    for (uint32_t i = 0; i < hosts->count; i++) {
        if (sl_hosts_same(&hosts->items[i], &endpoint)) {
            snprintf(reason, reason_bytes, "%s: items %u and %u are both \"%.80s\"", source, i,
                     hosts->count, text);
            return SL_ERR_INVALID;
        }
    }
    if (hosts->count == SL_LIMIT_PS) {
        snprintf(reason, reason_bytes, "%s: more than %d hosts", source, SL_LIMIT_PS);
        return SL_ERR_TOO_LARGE;
    }
    if (hosts->items == NULL) {
        hosts->items = calloc(SL_LIMIT_PS, sizeof *hosts->items);
    }
    if (hosts->items == NULL) {
        snprintf(reason, reason_bytes, "%s: out of memory", source);
        return SL_ERR_NO_MEMORY;
    }
    hosts->items[hosts->count] = endpoint;
    hosts->count++;
    return 0;
}

/* Copies the first item of *list and advances *list after its comma; NULL after the last. An item
 * that does not fit is truncated: it is longer than any host, so it is refused. */
static void take_item(const char **list, char *item, size_t item_bytes)
{
    const size_t length = strcspn(*list, ",");
    const size_t copied = length < item_bytes ? length : item_bytes - 1;
    memcpy(item, *list, copied);
    item[copied] = '\0';
    *list = (*list)[length] == ',' ? *list + length + 1 : NULL;
}

int sl_hosts_append_list(struct sl_hosts *hosts, const char *list, const char *source, char *reason,
                         size_t reason_bytes)
{
    while (list != NULL) {
        char item[SL_LIMIT_ENDPOINT_BYTES * 2];
        take_item(&list, item, sizeof item);
        int err = sl_hosts_append(hosts, item, source, reason, reason_bytes);
        if (err != 0) {
            return err;
        }
    }
    return 0;
}

void sl_hosts_fini(struct sl_hosts *hosts)
{
    free(hosts->items);
    *hosts = (struct sl_hosts){0};
}

int sl_hosts_check_worker(const char *text, const char *source, char *reason, size_t reason_bytes)
{
    char why[256], with_port[SL_LIMIT_ENDPOINT_BYTES * 2 + 8];
    struct sl_endpoint endpoint;
    if (sl_endpoint_parse(text, &endpoint, why, sizeof why) == 0) {
        return 0;
    }
    const bool has_port = strchr(text, ':') != NULL && text[strlen(text) - 1] != ']';
    snprintf(with_port, sizeof with_port, "%s:0", text);
    if (!has_port && sl_endpoint_parse(with_port, &endpoint, NULL, 0) == 0) {
        return 0;
    }
    if (has_port) {
        snprintf(reason, reason_bytes, "%s: %s", source, why);
    } else {
        snprintf(reason, reason_bytes,
                 "%s: \"%.80s\" is neither a name nor an address; expected host or host:port",
                 source, text);
    }
    return SL_ERR_INVALID;
}

int sl_hosts_count_workers(const char *list, const char *source, uint32_t *out, char *reason,
                           size_t reason_bytes)
{
    uint32_t count = 0;
    while (list != NULL) {
        char item[SL_LIMIT_ENDPOINT_BYTES * 2];
        take_item(&list, item, sizeof item);
        int err = sl_hosts_check_worker(item, source, reason, reason_bytes);
        if (err != 0) {
            return err;
        }
        if (count == SL_LIMIT_WORKERS) {
            snprintf(reason, reason_bytes, "%s: more than %d workers", source, SL_LIMIT_WORKERS);
            return SL_ERR_TOO_LARGE;
        }
        count++;
    }
    *out = count;
    return 0;
}
