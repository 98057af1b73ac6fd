#include "programs/top/source.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/secret.h"
#include "net/http/client.h"

#define BODY_BYTES_MAX   (16u << 20)
#define CONNECT_MS       2000
#define TIMEOUT_MS       4000
#define URL_BYTES        512
#define REDIRECTIONS_MAX 3

struct sl_source {
    struct sl_http_client *http;
    char given[URL_BYTES];                       /* "http://HOST:PORT" */
    char base[URL_BYTES];                        /* that of the coordinator, after a redirection */
    char authorization[SL_SECRET_BYTES_MAX + 8]; /* value of the header; "": none */
};

/* Writes scheme, host and port of an URL. false: it is none, or too long. */
static bool take_base(const char *url, char base[URL_BYTES])
{
    const char *scheme = strstr(url, "://") != NULL ? "" : "http://";
    if (snprintf(base, URL_BYTES, "%s%s", scheme, url) >= URL_BYTES - 32 ||
        (strncmp(base, "http://", 7) != 0 && strncmp(base, "https://", 8) != 0)) {
        return false;
    }
    char *host = strstr(base, "://") + 3;
    host[strcspn(host, "/?#")] = '\0';
    return host[0] != '\0';
}

int sl_source_create(const struct sl_source_options *options, struct sl_source **out,
                     struct sl_reason *reason)
{
    struct sl_source *source = calloc(1, sizeof *source);
    if (source == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory");
    }
    int err = 0;
    struct sl_secret token = {0};
    if (!take_base(options->url, source->given)) {
        err = sl_reason_fail(reason, SL_ERR_INVALID,
                             "%.200s: not an URL such as http://127.0.0.1:9480", options->url);
    } else if (options->token_file != NULL) {
        err = sl_secret_read(options->token_file, &token, reason);
    }
    if (token.byte_count > 0) {
        (void)snprintf(source->authorization, sizeof source->authorization, "Bearer %.*s",
                       (int)token.byte_count, (const char *)token.bytes);
    }
    explicit_bzero(&token, sizeof token);
    const struct sl_http_client_options http = {.tls = strncmp(source->given, "https:", 6) == 0,
                                                .authority = options->authority,
                                                .body_bytes_max = BODY_BYTES_MAX,
                                                .connect_ms = CONNECT_MS};
    if (err == 0 && sl_http_client_create(&http, &source->http) != 0) {
        err = sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory");
    }
    if (err != 0) {
        sl_source_destroy(&source);
        return err;
    }
    memcpy(source->base, source->given, sizeof source->base);
    *out = source;
    return 0;
}

void sl_source_destroy(struct sl_source **source)
{
    if (*source != NULL) {
        if ((*source)->http != NULL) {
            sl_http_client_destroy(&(*source)->http);
        }
        explicit_bzero((*source)->authorization, sizeof(*source)->authorization);
        free(*source);
        *source = NULL;
    }
}

int sl_source_get(struct sl_source *source, const char *path, json_t **out,
                  struct sl_reason *reason)
{
    struct sl_http_answer answer = {0};
    int hops = 0;
    do {
        char url[URL_BYTES + 32];
        (void)snprintf(url, sizeof url, "%s/api/%s", source->base, path);
        const struct sl_http_request request = {.method = SL_HTTP_GET,
                                                .url = url,
                                                .authorization = source->authorization,
                                                .timeout_ms = TIMEOUT_MS};
        const int err = sl_http_client_exchange(source->http, &request, &answer);
        if (err != 0) {
            return sl_reason_fail(reason, err,
                                  "%s: %s; is this the address that the ready line of "
                                  "starling-ps names after http?",
                                  source->base, sl_http_client_error(source->http));
        }
    } while (answer.redirection != NULL && hops++ < REDIRECTIONS_MAX &&
             take_base(answer.redirection, source->base));
    json_t *json = json_loadb(answer.body, answer.body_bytes, 0, NULL);
    if (answer.status == 200 && json_is_object(json)) {
        *out = json;
        return 0;
    }
    const char *why = json_string_value(json_object_get(json, "error"));
    sl_reason_set(reason, "%s/api/%s: status %ld, %.300s%s", source->base, path, answer.status,
                  why != NULL ? why : "and no state of a Starling job",
                  answer.status == 401 ? "; give --http-token-file" : "");
    json_decref(json);
    return SL_ERR_INVALID;
}

int sl_source_fetch(struct sl_source *source, json_t **out, struct sl_reason *reason)
{
    json_t *cluster = NULL, *slow = NULL, *hot = NULL;
    int err = sl_source_get(source, "cluster", &cluster, reason);
    err = err != 0 ? err : sl_source_get(source, "slow", &slow, reason);
    err = err != 0 ? err : sl_source_get(source, "hot", &hot, reason);
    if (err == 0) {
        *out = json_pack("{s:o, s:o, s:o}", "cluster", cluster, "slow", slow, "hot", hot);
        return *out != NULL ? 0 : sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory");
    }
    json_decref(cluster);
    json_decref(slow);
    memcpy(source->base, source->given, URL_BYTES); /* which knows a new coordinator */
    sl_reason_make_printable(reason->text, strlen(reason->text));
    return err;
}

int sl_source_read(const char *path, json_t **out, struct sl_reason *reason)
{
    json_error_t error;
    json_t *json = json_load_file(path, 0, &error);
    if (json == NULL) {
        sl_reason_set(reason, "%s: %s", path, error.text);
    } else if (!json_is_object(json_object_get(json, "cluster"))) {
        sl_reason_set(reason, "%s: not a state that the live page or starling-top --json wrote",
                      path);
    } else {
        *out = json;
        return 0;
    }
    json_decref(json);
    sl_reason_make_printable(reason->text, strlen(reason->text));
    return SL_ERR_INVALID;
}
