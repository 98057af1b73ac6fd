#include "net/store/etcd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/assert.h"
#include "core/backoff.h"
#include "core/clock.h"
#include "core/hash.h"
#include "net/http/client.h"
#include "net/store/etcd_json.h"

#define TOKEN_BYTES    4096
#define ATTEMPT_MS_MIN 200
/* Before the next round, after all servers failed. */
#define PAUSE_NS       (100 * SL_CLOCK_NS_PER_MS)
#define PAUSE_MAX_NS   (500 * SL_CLOCK_NS_PER_MS)
#define CONNECT_MS     1000 /* then the next server is asked */
#define STATUS_OK      200

struct sl_etcd {
    struct sl_metastore_address address;
    struct sl_http_client *http;
    uint32_t server;         /* last one tried */
    char token[TOKEN_BYTES]; /* "": none */
    uint64_t deadline_ns;
    uint64_t random; /* state of sl_hash_random */
};

static uint64_t left_ms(const struct sl_etcd *etcd)
{
    uint64_t now_ns = sl_clock_now_ns(sl_clock_system());
    return now_ns < etcd->deadline_ns ? (etcd->deadline_ns - now_ns) / SL_CLOCK_NS_PER_MS : 0;
}

/* Sends a request to one server. Errors: those of sl_http_client_exchange. */
static int exchange(struct sl_etcd *etcd, uint32_t server, const char *path, const char *body,
                    uint64_t timeout_ms, struct sl_http_answer *answer)
{
    char url[SL_LIMIT_ENDPOINT_BYTES + 64];
    (void)snprintf(url, sizeof url, "http%s://%s%s", etcd->address.etcd.tls ? "s" : "",
                   etcd->address.etcd.servers[server], path);
    const struct sl_http_request request = {.method = SL_HTTP_POST,
                                            .url = url,
                                            .body = body,
                                            .body_bytes = strlen(body),
                                            .authorization = etcd->token,
                                            .timeout_ms = timeout_ms};
    return sl_http_client_exchange(etcd->http, &request, answer);
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
    return out_ms == 0 ? 1 : out_ms;
}

static void fail_at(const struct sl_etcd *etcd, uint32_t server, struct sl_metastore_answer *answer,
                    int err, const char *why)
{
    sl_metastore_answer_fail(answer, err, "%s: %s", etcd->address.etcd.servers[server], why);
}

/* Gets a token. Returns false with the error in the answer. */
static bool login(struct sl_etcd *etcd, uint32_t server, struct sl_metastore_request *ask)
{
    struct sl_metastore_answer *answer = &ask->answer;
    etcd->token[0] = '\0';
    char *request;
    if (sl_etcd_json_login(etcd->address.user, etcd->address.password, &request) != 0) {
        fail_at(etcd, server, answer, SL_ERR_NO_MEMORY, "no memory to say who we are");
        return false;
    }
    struct sl_http_answer got;
    int err = exchange(etcd, server, "/v3/auth/authenticate", request, attempt_ms(etcd, ask), &got);
    explicit_bzero(request, strlen(request));
    free(request);
    if (err != 0) {
        fail_at(etcd, server, answer, err, sl_http_client_error(etcd->http));
    } else if (got.status != STATUS_OK) {
        const enum sl_etcd_json_remedy remedy =
            sl_etcd_json_failure(got.status, got.body, got.body_bytes, answer);
        answer->err = remedy == SL_ETCD_JSON_ELSEWHERE ? answer->err : SL_ERR_REFUSED;
    } else if (sl_etcd_json_token(got.body, got.body_bytes, etcd->token, sizeof etcd->token) != 0) {
        fail_at(etcd, server, answer, SL_ERR_PROTOCOL, "it gives no token");
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
    bool has_user = etcd->address.user[0] != '\0';
    for (uint32_t round = 0;; round++) {
        if (has_user && etcd->token[0] == '\0' && !login(etcd, server, ask)) {
            return answer->err == SL_ERR_REFUSED ? ANSWERED : TRY_ANOTHER;
        }
        struct sl_http_answer got;
        int err = exchange(etcd, server, path, request, attempt_ms(etcd, ask), &got);
        if (err != 0) {
            fail_at(etcd, server, answer, err, sl_http_client_error(etcd->http));
            return err == SL_ERR_TOO_LARGE ? ANSWERED : TRY_ANOTHER;
        }
        if (got.status == STATUS_OK) {
            answer->err = sl_etcd_json_answer(ask, got.body, got.body_bytes, answer, more);
            return ANSWERED;
        }
        enum sl_etcd_json_remedy remedy =
            sl_etcd_json_failure(got.status, got.body, got.body_bytes, answer);
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
    const uint32_t count = etcd->address.etcd.server_count;
    struct sl_backoff backoff = {.least_ns = PAUSE_NS, .most_ns = PAUSE_MAX_NS};
    for (uint32_t attempt = 0; attempt == 0 || left_ms(etcd) > ATTEMPT_MS_MIN; attempt++) {
        uint32_t server = (etcd->server + (attempt == 0 ? 0 : 1)) % count;
        etcd->server = server;
        if (ask_page(etcd, server, ask, path, request, more) == ANSWERED) {
            break;
        }
        if ((attempt + 1) % count != 0) {
            continue; /* the next server at once */
        }
        const uint64_t pause_ns = sl_backoff_next(&backoff, sl_hash_random(&etcd->random));
        if (left_ms(etcd) > pause_ns / SL_CLOCK_NS_PER_MS) {
            (void)nanosleep(&(struct timespec){.tv_nsec = (long)pause_ns}, NULL);
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
        if (left_ms(etcd) == 0) {
            fail_at(etcd, etcd->server, answer, SL_ERR_DEADLINE, "its answer takes too long");
            break;
        }
        memcpy(after, answer->pairs[answer->item_count - 1].key, sizeof after);
        ask_all(etcd, ask, after, &more);
        if (answer->err == 0 && bytes_of(answer) > SL_ETCD_READ_BYTES_MAX) {
            fail_at(etcd, etcd->server, answer, SL_ERR_TOO_LARGE, "its answer has no end");
        }
    }
    bool has_ended = ask->kind == SL_METASTORE_LEASE_REVOKE && answer->err == SL_ERR_NOT_FOUND;
    if (has_ended) {
        answer->err = 0;
    }
}

/* Create and destroy */

int sl_etcd_create(const struct sl_metastore_address *address, struct sl_etcd **out)
{
    sl_assert(address->etcd.server_count > 0);
    sl_assert(address->etcd.server_count <= SL_ETCD_URL_SERVERS_MAX);
    struct sl_etcd *etcd = calloc(1, sizeof *etcd);
    if (etcd == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    etcd->address = *address;
    etcd->random = sl_clock_now_ns(sl_clock_system());
    const struct sl_http_client_options http = {.tls = address->etcd.tls,
                                                .authority = address->authority,
                                                .certificate = address->certificate,
                                                .key = address->key,
                                                .body_bytes_max = SL_ETCD_BODY_BYTES_MAX,
                                                .connect_ms = CONNECT_MS};
    int err = sl_http_client_create(&http, &etcd->http);
    if (err != 0) {
        free(etcd);
        return err;
    }
    *out = etcd;
    return 0;
}

void sl_etcd_destroy(struct sl_etcd **etcd)
{
    struct sl_etcd *gone = *etcd;
    *etcd = NULL;
    sl_http_client_destroy(&gone->http);
    explicit_bzero(gone, sizeof *gone);
    free(gone);
}
