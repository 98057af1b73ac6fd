#include "metastore/etcd.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/clock.h"
#include "metastore/etcd_json.h"

#define TOKEN_BYTES    4096
#define CONNECT_MS     1000
#define ATTEMPT_MS_MIN 200
#define PAUSE_MS       100 /* before the next round, after all servers failed */
#define STATUS_OK      200

struct body {
    char *bytes;
    size_t count, max;
    bool is_too_large;
};

struct sl_etcd {
    struct sl_etcd_options options;
    CURL *curl;
    struct curl_slist *headers; /* with the token, if any */
    struct body body;           /* of the last answer; memory is reused */
    uint32_t server;            /* last one tried */
    char token[TOKEN_BYTES];    /* "": none */
    char error[CURL_ERROR_SIZE];
    uint64_t deadline_ns;
};

/* One exchange */

static size_t on_body(char *from, size_t size, size_t count, void *ctx)
{
    struct body *body = ctx;
    size_t bytes = size * count;
    if (bytes > SL_ETCD_BODY_BYTES_MAX - body->count) {
        body->is_too_large = true;
        return 0;
    }
    if (body->count + bytes > body->max) {
        size_t max = 2 * (body->count + bytes);
        char *grown = realloc(body->bytes, max);
        if (grown == NULL) {
            return 0;
        }
        body->bytes = grown;
        body->max = max;
    }
    memcpy(body->bytes + body->count, from, bytes);
    body->count += bytes;
    return bytes;
}

static uint64_t left_ms(const struct sl_etcd *etcd)
{
    uint64_t now_ns = sl_clock_now_ns(sl_clock_system());
    return now_ns < etcd->deadline_ns ? (etcd->deadline_ns - now_ns) / SL_CLOCK_NS_PER_MS : 0;
}

/* Rebuilds the headers after a change of the token. */
static int set_headers(struct sl_etcd *etcd)
{
    curl_slist_free_all(etcd->headers);
    etcd->headers = curl_slist_append(NULL, "Content-Type: application/json");
    char line[TOKEN_BYTES + 32];
    (void)snprintf(line, sizeof line, "Authorization: %s", etcd->token);
    struct curl_slist *last = etcd->headers;
    if (last != NULL && etcd->token[0] != '\0') {
        last = curl_slist_append(etcd->headers, line);
    }
    (void)curl_easy_setopt(etcd->curl, CURLOPT_HTTPHEADER, etcd->headers);
    return last == NULL ? SL_ERR_NO_MEMORY : 0;
}

/* Sends a request to one server. Returns the HTTP status; the body is in etcd->body. Errors, with a
 * reason in etcd->error: DEADLINE, IO, TOO_LARGE. */
static int exchange(struct sl_etcd *etcd, uint32_t server, const char *path, const char *request,
                    uint64_t timeout_ms, long *status)
{
    char url[SL_LIMIT_ENDPOINT_BYTES + 64];
    (void)snprintf(url, sizeof url, "http%s://%s%s", etcd->options.tls ? "s" : "",
                   etcd->options.servers[server], path);
    CURL *curl = etcd->curl;
    etcd->body.count = 0;
    etcd->body.is_too_large = false;
    etcd->error[0] = '\0';
    (void)curl_easy_setopt(curl, CURLOPT_URL, url);
    (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(request));
    (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request);
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
    CURLcode code = curl_easy_perform(curl);
    if (code == CURLE_OK) {
        (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, status);
        return 0;
    }
    if (etcd->body.is_too_large) {
        (void)snprintf(etcd->error, sizeof etcd->error, "its answer has no end");
        return SL_ERR_TOO_LARGE;
    }
    if (etcd->error[0] == '\0') {
        (void)snprintf(etcd->error, sizeof etcd->error, "%s", curl_easy_strerror(code));
    }
    return code == CURLE_OPERATION_TIMEDOUT ? SL_ERR_DEADLINE : SL_ERR_IO;
}

/* One server */

/* Result of trying one server. */
enum outcome { ANSWERED, TRY_ANOTHER };

static uint64_t attempt_ms(const struct sl_etcd *etcd, const struct sl_metastore_request *ask)
{
    uint64_t third_ms = ask->timeout_ns / SL_CLOCK_NS_PER_MS / 3;
    uint64_t most_ms = left_ms(etcd);
    uint64_t wish_ms = third_ms < ATTEMPT_MS_MIN ? ATTEMPT_MS_MIN : third_ms;
    uint64_t out_ms = wish_ms < most_ms ? wish_ms : most_ms;
    return out_ms == 0 ? 1 : out_ms; /* for curl, 0 means no timeout */
}

static void fail_at(const struct sl_etcd *etcd, uint32_t server, struct sl_metastore_answer *answer,
                    int err, const char *why)
{
    sl_metastore_answer_fail(answer, err, "%s: %s", etcd->options.servers[server], why);
}

/* Gets a token. Returns false with the error in the answer. */
static bool login(struct sl_etcd *etcd, uint32_t server, struct sl_metastore_request *ask)
{
    struct sl_metastore_answer *answer = &ask->answer;
    etcd->token[0] = '\0';
    char *request;
    if (sl_etcd_json_login(etcd->options.user, etcd->options.password, &request) != 0 ||
        set_headers(etcd) != 0) {
        fail_at(etcd, server, answer, SL_ERR_NO_MEMORY, "no memory to say who we are");
        return false;
    }
    long status = 0;
    int err =
        exchange(etcd, server, "/v3/auth/authenticate", request, attempt_ms(etcd, ask), &status);
    explicit_bzero(request, strlen(request));
    free(request);
    if (err != 0) {
        fail_at(etcd, server, answer, err, etcd->error);
    } else if (status != STATUS_OK) {
        (void)sl_etcd_json_failure(status, etcd->body.bytes, etcd->body.count, answer);
        answer->err = SL_ERR_REFUSED;
    } else if (sl_etcd_json_token(etcd->body.bytes, etcd->body.count, etcd->token,
                                  sizeof etcd->token) != 0) {
        fail_at(etcd, server, answer, SL_ERR_PROTOCOL, "it gives no token");
    } else if (set_headers(etcd) != 0) {
        fail_at(etcd, server, answer, SL_ERR_NO_MEMORY, "no memory to say who we are");
    } else {
        return true;
    }
    return false;
}

/* Requests one page from one server. */
static enum outcome ask_page(struct sl_etcd *etcd, uint32_t server,
                             struct sl_metastore_request *ask, const char *path,
                             const char *request, bool *more)
{
    struct sl_metastore_answer *answer = &ask->answer;
    bool has_user = etcd->options.user[0] != '\0';
    for (uint32_t round = 0;; round++) {
        if (has_user && etcd->token[0] == '\0' && !login(etcd, server, ask)) {
            return answer->err == SL_ERR_REFUSED ? ANSWERED : TRY_ANOTHER;
        }
        long status = 0;
        int err = exchange(etcd, server, path, request, attempt_ms(etcd, ask), &status);
        if (err != 0) {
            fail_at(etcd, server, answer, err, etcd->error);
            return err == SL_ERR_TOO_LARGE ? ANSWERED : TRY_ANOTHER;
        }
        const char *body = etcd->body.count == 0 ? "" : etcd->body.bytes;
        if (status == STATUS_OK) {
            answer->err = sl_etcd_json_answer(ask, body, etcd->body.count, answer, more);
            return ANSWERED;
        }
        enum sl_etcd_json_remedy remedy =
            sl_etcd_json_failure(status, body, etcd->body.count, answer);
        if (remedy == SL_ETCD_JSON_ELSEWHERE) {
            return TRY_ANOTHER;
        }
        etcd->token[0] = '\0';
        if (remedy != SL_ETCD_JSON_AUTHENTICATE || !has_user || round > 0) {
            return ANSWERED;
        }
    }
}

/* All servers */

static void pause_a_while(void)
{
    const struct timespec pause = {.tv_nsec = PAUSE_MS * (long)SL_CLOCK_NS_PER_MS};
    (void)nanosleep(&pause, NULL);
}

/* Requests one page from the servers in turn, until one answers. */
static void ask_all(struct sl_etcd *etcd, struct sl_metastore_request *ask, const char *after,
                    bool *more)
{
    const char *path;
    char *request;
    *more = false;
    if (sl_etcd_json_request(ask, after, &path, &request) != 0) {
        sl_metastore_answer_fail(&ask->answer, SL_ERR_NO_MEMORY, "no memory for a request");
        return;
    }
    const uint32_t count = etcd->options.server_count;
    for (uint32_t attempt = 0; attempt == 0 || left_ms(etcd) > ATTEMPT_MS_MIN; attempt++) {
        uint32_t server = (etcd->server + (attempt == 0 ? 0 : 1)) % count;
        etcd->server = server;
        if (ask_page(etcd, server, ask, path, request, more) == ANSWERED) {
            break;
        }
        if ((attempt + 1) % count == 0 && left_ms(etcd) > PAUSE_MS) {
            pause_a_while();
        }
    }
    free(request);
}

static size_t bytes_of(const struct sl_metastore_answer *answer)
{
    size_t bytes = 0;
    for (size_t i = 0; i < answer->item_count; i++) {
        bytes += answer->pairs[i].value_bytes + sizeof answer->pairs[i];
    }
    return bytes;
}

void sl_etcd_perform(struct sl_etcd *etcd, struct sl_metastore_request *ask)
{
    struct sl_metastore_answer *answer = &ask->answer;
    etcd->deadline_ns = sl_clock_now_ns(sl_clock_system()) + ask->timeout_ns;
    char after[SL_METASTORE_KEY_BYTES];
    bool more = false;
    ask_all(etcd, ask, NULL, &more);
    while (answer->err == 0 && more) {
        memcpy(after, answer->pairs[answer->item_count - 1].key, sizeof after);
        ask_all(etcd, ask, after, &more);
        if (answer->err == 0 && (bytes_of(answer) > SL_ETCD_READ_BYTES_MAX ||
                                 strcmp(answer->pairs[answer->item_count - 1].key, after) <= 0)) {
            fail_at(etcd, etcd->server, answer, SL_ERR_TOO_LARGE, "its answer has no end");
        }
    }
    bool has_ended = ask->kind == SL_METASTORE_LEASE_REVOKE && answer->err == SL_ERR_NOT_FOUND;
    if (has_ended) {
        answer->err = 0;
    }
}

/* Create and destroy */

static void set_options(struct sl_etcd *etcd)
{
    CURL *curl = etcd->curl;
    const struct sl_etcd_options *options = &etcd->options;
    (void)curl_easy_setopt(curl, CURLOPT_POST, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_PROXY, ""); /* ignores http_proxy */
    (void)curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    (void)curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, options->tls ? "https" : "http");
    (void)curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    (void)curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, etcd->error);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, &etcd->body);
    if (options->tls && options->authority != NULL) {
        (void)curl_easy_setopt(curl, CURLOPT_CAINFO, options->authority);
    }
    if (options->tls && options->certificate != NULL) {
        (void)curl_easy_setopt(curl, CURLOPT_SSLCERT, options->certificate);
        (void)curl_easy_setopt(curl, CURLOPT_SSLKEY, options->key);
    }
}

int sl_etcd_create(const struct sl_etcd_options *options, struct sl_etcd **out)
{
    sl_assert(options->server_count > 0);
    sl_assert(options->server_count <= SL_ETCD_SERVERS_MAX);
    struct sl_etcd *etcd = calloc(1, sizeof *etcd);
    if (etcd == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    etcd->options = *options;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK ||
        (etcd->curl = curl_easy_init()) == NULL) {
        free(etcd);
        return SL_ERR_NO_MEMORY;
    }
    set_options(etcd);
    if (set_headers(etcd) != 0) {
        sl_etcd_destroy(&etcd);
        return SL_ERR_NO_MEMORY;
    }
    *out = etcd;
    return 0;
}

void sl_etcd_destroy(struct sl_etcd **etcd)
{
    struct sl_etcd *gone = *etcd;
    *etcd = NULL;
    curl_slist_free_all(gone->headers);
    curl_easy_cleanup(gone->curl);
    free(gone->body.bytes);
    explicit_bzero(gone, sizeof *gone);
    free(gone);
}
