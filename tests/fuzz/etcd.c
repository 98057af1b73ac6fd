/* Answers of an etcd: whatever a server says, over HTTP to the client or as JSON to what reads it,
 * is an error with a reason, or an answer that keeps what net/store/metastore.h promises. The
 * input: what is asked, and the answers, one an exchange: what kind of one, and its bytes. */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/log.h"
#include "net/store/etcd.h"
#include "net/store/etcd_json.h"
#include "tests/fuzz/input.h"

#define ANSWERS_MAX 8
#define REQUEST_MAX (64U << 10)
/* So short that a server is tried once and not waited for. */
#define TIMEOUT     (100 * SL_CLOCK_NS_PER_MS)

#define KEY         "/j/state/"

static struct server {
    int listener;
    uint16_t port;
    struct sl_bytes *input; /* of the answers that are left */
} server;

static void start_listening(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    server.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sl_assert(server.listener >= 0);
    sl_assert(bind(server.listener, (struct sockaddr *)&address, bytes) == 0);
    sl_assert(listen(server.listener, 64) == 0);
    sl_assert(getsockname(server.listener, (struct sockaddr *)&address, &bytes) == 0);
    server.port = ntohs(address.sin_port);
}

/* To the end of its JSON. */
static bool read_request(int fd)
{
    static char request[REQUEST_MAX];
    size_t used = 0;
    while (used == 0 || request[used - 1] != '}') {
        ssize_t got =
            used == sizeof request ? 0 : recv(fd, request + used, sizeof request - used, 0);
        if (got <= 0) {
            return false;
        }
        used += (size_t)got;
    }
    return true;
}

/* Raw, or with a head that fits. */
static void say(int fd, struct sl_bytes *input)
{
    static const int STATUSES[] = {200, 200, 200, 200, 400, 401, 503};
    const uint8_t how = sl_bytes_u8(input);
    struct sl_bytes piece = fuzz_input_piece(input, UINT16_MAX);
    char head[128];
    int length = 0;
    if (how % 8 < 7) {
        length = snprintf(head, sizeof head, "HTTP/1.1 %d x\r\nContent-Length: %zu\r\n\r\n",
                          STATUSES[how % 8], piece.left);
    }
    (void)send(fd, head, (size_t)length, MSG_NOSIGNAL);
    (void)send(fd, piece.next, piece.left, MSG_NOSIGNAL);
}

/* Answers until the listener is shut down. libFuzzer's timer may interrupt a call. */
static void *serve(void *ctx)
{
    int fd;
    while ((fd = accept(server.listener, NULL, NULL)) >= 0 || errno == EINTR) {
        if (fd < 0) {
            continue;
        }
        for (uint32_t i = 0; i < ANSWERS_MAX && read_request(fd); i++) {
            say(fd, server.input);
        }
        (void)close(fd);
    }
    return NULL;
}

static void stop_serving(pthread_t thread)
{
    sl_assert(shutdown(server.listener, SHUT_RDWR) == 0);
    sl_assert(pthread_join(thread, NULL) == 0);
    (void)close(server.listener);
}

static struct sl_metastore_change changes[1] = {{.key = KEY "job", .removes = true}};

static struct sl_metastore_request ask_of(uint8_t what)
{
    struct sl_metastore_request ask = {
        .kind = (enum sl_metastore_kind)(SL_METASTORE_LEASE_GRANT + what % 5),
        .timeout_ns = TIMEOUT,
        .ttl_s = 5,
        .lease = 7,
        .is_prefix = (what & 8) != 0,
        .guard = (enum sl_metastore_guard)(what / 16 % 3),
        .revision = 3,
        .changes = changes,
        .change_count = 1,
    };
    (void)snprintf(ask.key, sizeof ask.key, "%s", KEY);
    return ask;
}

static void check(const struct sl_metastore_request *ask)
{
    const struct sl_metastore_answer *answer = &ask->answer;
    sl_assert(answer->err <= 0);
    sl_assert(answer->err == 0 || answer->reason[0] != '\0');
    if (answer->err == 0) {
        sl_assert(ask->kind != SL_METASTORE_LEASE_GRANT ||
                  (answer->lease != 0 && answer->ttl_s != 0));
        sl_assert(ask->kind != SL_METASTORE_LEASE_RENEW || answer->ttl_s != 0);
        sl_assert(!answer->held || (ask->kind == SL_METASTORE_WRITE && answer->revision != 0));
    }
    for (size_t i = 0; i < answer->item_count && answer->err == 0; i++) {
        const struct sl_metastore_item *pair = &answer->pairs[i];
        sl_assert(strncmp(pair->key, KEY, strlen(KEY)) == 0);
        sl_assert(ask->is_prefix || ask->kind != SL_METASTORE_READ || strcmp(pair->key, KEY) == 0);
        sl_assert(pair->value_bytes <= SL_METASTORE_VALUE_BYTES_MAX);
        sl_assert(pair->value[pair->value_bytes] == '\0');
        sl_assert(pair->created != 0);
    }
}

/* By the client. */
static void ask_over_http(struct sl_metastore_request *ask, bool has_user, struct sl_bytes *input)
{
    start_listening();
    server.input = input;
    pthread_t thread;
    sl_assert(pthread_create(&thread, NULL, serve, NULL) == 0);
    struct sl_metastore_address address = {.etcd.server_count = 1};
    (void)snprintf(address.etcd.servers[0], sizeof address.etcd.servers[0], "127.0.0.1:%u",
                   server.port);
    (void)snprintf(address.user, sizeof address.user, "%s", has_user ? "root" : "");
    struct sl_etcd *etcd;
    sl_assert(sl_etcd_create(&address, &etcd) == 0);
    sl_etcd_perform(etcd, ask);
    sl_etcd_destroy(&etcd);
    stop_serving(thread);
    check(ask);
}

/* Without a client: page by page. */
static void ask_in_json(struct sl_metastore_request *ask, struct sl_bytes *input)
{
    bool more = true;
    while (more && ask->answer.err == 0) {
        struct sl_bytes piece = fuzz_input_piece(input, UINT16_MAX);
        const size_t before = ask->answer.item_count;
        ask->answer.err =
            sl_etcd_json_answer(ask, (const char *)piece.next, piece.left, &ask->answer, &more);
        sl_assert(!more || ask->answer.item_count > before);
    }
    check(ask);
}

static void refuse_in_json(uint8_t how, struct sl_bytes *input)
{
    struct sl_metastore_answer answer = {0};
    char token[64];
    struct sl_bytes piece = fuzz_input_piece(input, UINT16_MAX);
    const char *text = (const char *)piece.next;
    (void)sl_etcd_json_failure(how % 2 == 0 ? 400 : 503, text, piece.left, &answer);
    sl_assert(answer.err < 0);
    sl_assert(answer.reason[0] != '\0');
    if (sl_etcd_json_token(text, piece.left, token, sizeof token) == 0) {
        sl_assert(strlen(token) > 0);
        sl_assert(strpbrk(token, "\r\n") == NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    sl_log_setup(SL_LOG_OFF, "fuzz");
    struct sl_bytes input = sl_bytes_over(bytes, byte_count);
    const uint8_t how = sl_bytes_u8(&input);
    struct sl_metastore_request ask = ask_of(sl_bytes_u8(&input));
    if (how % 4 == 0) {
        ask_over_http(&ask, (how & 4) != 0, &input);
    } else if (how % 4 == 1) {
        refuse_in_json(how / 4, &input);
    } else {
        ask_in_json(&ask, &input);
    }
    sl_metastore_answer_fini(&ask.answer);
    return 0;
}
