#include "net/store/http_metadata.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "net/http/client.h"

#define STATUS_NOT_FOUND 404
#define URL_BYTES        (SL_METASTORE_URL_BYTES + 8 + 3 * SL_METASTORE_KEY_BYTES)

struct sl_http_metadata {
    struct sl_metastore_address address;
    struct sl_http_client *http;
};

/* Writes URL?key=KEY. Every character of the key that may have a meaning in a URL is escaped. */
static void make_url(const struct sl_http_metadata *store, const char *key, char url[URL_BYTES])
{
    char *at = url + snprintf(url, SL_METASTORE_URL_BYTES + 5, "%s?key=", store->address.url);
    for (; *key != '\0'; key++) {
        const unsigned char byte = (unsigned char)*key;
        const bool is_plain = isalnum(byte) || strchr("-._~", byte) != NULL;
        at += snprintf(at, 4, is_plain ? "%c" : "%%%02X", byte);
    }
}

/* Why HTTP cannot do it; NULL: it can. */
static const char *unsupported(const struct sl_metastore_request *ask)
{
    if (ask->kind != SL_METASTORE_READ && ask->kind != SL_METASTORE_WRITE) {
        return "an HTTP store has no leases";
    }
    if (ask->kind == SL_METASTORE_READ) {
        return ask->is_prefix ? "an HTTP store cannot list keys" : NULL;
    }
    return ask->guard != SL_METASTORE_ALWAYS ? "an HTTP store cannot compare"
           : ask->change_count != 1          ? "an HTTP store changes one key at a time"
           : ask->changes[0].lease != 0      ? "an HTTP store has no leases"
           : ask->changes[0].is_prefix       ? "an HTTP store cannot list keys"
                                             : NULL;
}

static void http_metadata_fail(const struct sl_http_metadata *store,
                               struct sl_metastore_answer *answer, int err, const char *why)
{
    sl_metastore_answer_fail(answer, err, "%.120s: %s", store->address.url, why);
}

static void add_item(const struct sl_http_metadata *store, const struct sl_http_answer *got,
                     struct sl_metastore_request *ask)
{
    struct sl_metastore_item *item = sl_metastore_answer_add(&ask->answer, got->body_bytes);
    if (item == NULL) {
        http_metadata_fail(store, &ask->answer, SL_ERR_NO_MEMORY, "no memory for its answer");
        return;
    }
    memcpy(item->key, ask->key, sizeof item->key);
    memcpy(item->value, got->body, got->body_bytes);
}

void sl_http_metadata_perform(struct sl_http_metadata *store, struct sl_metastore_request *ask)
{
    struct sl_metastore_answer *answer = &ask->answer;
    const char *why = unsupported(ask);
    if (why != NULL) {
        http_metadata_fail(store, answer, SL_ERR_UNSUPPORTED, why);
        return;
    }
    const bool reads = ask->kind == SL_METASTORE_READ;
    const bool removes = !reads && ask->changes[0].removes;
    const uint64_t timeout_ms = ask->timeout_ns / SL_CLOCK_NS_PER_MS;
    char url[URL_BYTES];
    make_url(store, reads ? ask->key : ask->changes[0].key, url);
    struct sl_http_request request = {.method = reads     ? SL_HTTP_GET
                                                : removes ? SL_HTTP_DELETE
                                                          : SL_HTTP_PUT,
                                      .url = url,
                                      .timeout_ms = timeout_ms == 0 ? 1 : timeout_ms};
    if (request.method == SL_HTTP_PUT) {
        request.body = (const char *)ask->changes[0].value;
        request.body_bytes = ask->changes[0].value_bytes;
    }
    struct sl_http_answer got;
    int err = sl_http_client_exchange(store->http, &request, &got);
    if (err != 0) {
        http_metadata_fail(store, answer, err, sl_http_client_error(store->http));
    } else if (got.status / 100 == 2) {
        answer->held = !reads;
        if (reads) {
            add_item(store, &got, ask);
        }
    } else if (got.status == STATUS_NOT_FOUND && (reads || removes)) {
        answer->held = removes;
    } else {
        char text[64];
        (void)snprintf(text, sizeof text, "it answers with status %ld", got.status);
        http_metadata_fail(store, answer,
                           got.status >= 500                        ? SL_ERR_IO
                           : got.status == 401 || got.status == 403 ? SL_ERR_REFUSED
                                                                    : SL_ERR_PROTOCOL,
                           text);
    }
}

int sl_http_metadata_create(const struct sl_metastore_address *address,
                            struct sl_http_metadata **out)
{
    struct sl_http_metadata *store = calloc(1, sizeof *store);
    if (store == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    store->address = *address;
    const struct sl_http_client_options http = {.tls = strncmp(address->url, "https:", 6) == 0,
                                                .authority = address->authority,
                                                .certificate = address->certificate,
                                                .key = address->key,
                                                .body_bytes_max = SL_METASTORE_VALUE_BYTES_MAX};
    int err = sl_http_client_create(&http, &store->http);
    if (err != 0) {
        free(store);
        return err;
    }
    *out = store;
    return 0;
}

void sl_http_metadata_destroy(struct sl_http_metadata **store)
{
    struct sl_http_metadata *gone = *store;
    *store = NULL;
    sl_http_client_destroy(&gone->http);
    free(gone);
}
