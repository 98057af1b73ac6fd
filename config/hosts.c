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

int sl_hosts_parse_control(const char *text, struct sl_endpoint *out, struct sl_reason *reason)
{
    struct sl_endpoint parsed;
    int err = sl_endpoint_parse(text, &parsed, reason);
    if (err != 0) {
        return err;
    }
    if (parsed.scheme != SL_ENDPOINT_TCP) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "\"%.80s\": a control endpoint is tcp; another scheme belongs after "
                              "the = of a line in the endpoint map",
                              text);
    }
    if (parsed.port == 0) {
        return sl_reason_fail(
            reason, SL_ERR_INVALID,
            "\"%.80s\": port 0 could not be found by the peers; accepted are 1 to 65535", text);
    }
    *out = parsed;
    return 0;
}

int sl_hosts_append(struct sl_hosts *hosts, const char *text, const char *source,
                    struct sl_reason *reason)
{
    struct sl_reason why;
    struct sl_endpoint endpoint;
    int err = sl_hosts_parse_control(text, &endpoint, &why);
    if (err != 0) {
        return sl_reason_fail(reason, err, "%s, item %u: %s", source, hosts->count, why.text);
    }
    for (uint32_t i = 0; i < hosts->count; i++) {
        if (sl_hosts_same(&hosts->items[i], &endpoint)) {
            return sl_reason_fail(reason, SL_ERR_INVALID, "%s: items %u and %u are both \"%.80s\"",
                                  source, i, hosts->count, text);
        }
    }
    if (hosts->count == SL_LIMIT_PS) {
        return sl_reason_fail(reason, SL_ERR_TOO_LARGE, "%s: more than %d hosts", source,
                              SL_LIMIT_PS);
    }
    if (hosts->items == NULL) {
        hosts->items = calloc(SL_LIMIT_PS, sizeof *hosts->items);
    }
    if (hosts->items == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "%s: out of memory", source);
    }
    hosts->items[hosts->count] = endpoint;
    hosts->count++;
    return 0;
}

/* Copies the first item of *list and advances *list after its comma; NULL after the last. An item
 * that does not fit is truncated: it is longer than any host, so it is refused. */
static void hosts_take_item(const char **list, char *item, size_t item_bytes)
{
    const size_t length = strcspn(*list, ",");
    const size_t copied = length < item_bytes ? length : item_bytes - 1;
    memcpy(item, *list, copied);
    item[copied] = '\0';
    *list = (*list)[length] == ',' ? *list + length + 1 : NULL;
}

int sl_hosts_append_list(struct sl_hosts *hosts, const char *list, const char *source,
                         struct sl_reason *reason)
{
    while (list != NULL) {
        char item[SL_LIMIT_ENDPOINT_BYTES * 2];
        hosts_take_item(&list, item, sizeof item);
        int err = sl_hosts_append(hosts, item, source, reason);
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

int sl_hosts_check_worker(const char *text, const char *source, struct sl_reason *reason)
{
    struct sl_reason why;
    char with_port[SL_LIMIT_ENDPOINT_BYTES * 2 + 8];
    struct sl_endpoint endpoint;
    if (sl_endpoint_parse(text, &endpoint, &why) == 0) {
        return 0;
    }
    const bool has_port = strchr(text, ':') != NULL && text[strlen(text) - 1] != ']';
    snprintf(with_port, sizeof with_port, "%s:0", text);
    if (!has_port && sl_endpoint_parse(with_port, &endpoint, NULL) == 0) {
        return 0;
    }
    if (has_port) {
        sl_reason_set(reason, "%s: %s", source, why.text);
    } else {
        sl_reason_set(reason,
                      "%s: \"%.80s\" is neither a name nor an address; expected host or host:port",
                      source, text);
    }
    return SL_ERR_INVALID;
}

int sl_hosts_count_workers(const char *list, const char *source, uint32_t *out,
                           struct sl_reason *reason)
{
    uint32_t count = 0;
    while (list != NULL) {
        char item[SL_LIMIT_ENDPOINT_BYTES * 2];
        hosts_take_item(&list, item, sizeof item);
        int err = sl_hosts_check_worker(item, source, reason);
        if (err != 0) {
            return err;
        }
        if (count == SL_LIMIT_WORKERS) {
            return sl_reason_fail(reason, SL_ERR_TOO_LARGE, "%s: more than %d workers", source,
                                  SL_LIMIT_WORKERS);
        }
        count++;
    }
    *out = count;
    return 0;
}
