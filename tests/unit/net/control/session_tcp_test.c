/* Sessions over io_uring TCP, with a reactor's thread and ring: what the loop transport's tests say
 * of every order of events holds on a real one. */

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "core/list.h"
#include "core/log.h"
#include "net/control/session.h"
#include "tests/support/localhost.h"
#include "tests/support/unit.h"

#define WAIT_S     20
#define TABLES     1000 /* in the counters: longer than what is received inline */
#define LISTEN_NS  (300 * SL_CLOCK_NS_PER_MS)
#define TIMEOUT_NS (WAIT_S * SL_CLOCK_NS_PER_S)

/* Everything is on one reactor: a session, and an acceptor that answers it. */
struct fixture {
    struct sl_reactor *reactor;
    struct sl_transport *transport;
    struct sl_outbox outbox;
    struct sl_outbox_queue acceptor_queue;
    struct sl_session *session;
    struct sl_endpoint target;
    struct sl_timer listen_later;
    bool listens;

    sem_t done; /* posted once; what is below is the main thread's afterwards */
    int answer_err;
    uint32_t table_count;
    bool goodbye;
    int closed_err;
    char reason[2048];
};

static void on_accepted(void *ctx, struct sl_conn *conn)
{
}

static void *on_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    sl_transport_disconnect(conn); /* the session sends nothing long */
    return NULL;
}

static void answer(struct fixture *fixture, struct sl_conn *conn, const struct sl_message *message)
{
    size_t bytes = sl_message_encoded_bytes(message);
    uint8_t *room = sl_outbox_reserve(&fixture->outbox, (uint32_t)bytes);
    sl_assert(room != NULL);
    sl_message_encode(message, room + SL_FRAME_HEADER_BYTES);
    struct sl_frame frame = {
        .type = SL_FRAME_CONTROL, .payload_bytes = (uint32_t)bytes, .flags = SL_FRAME_CHECKSUM};
    sl_outbox_commit(&fixture->outbox, conn, &fixture->acceptor_queue, &frame, NULL, 0, NULL, NULL);
}

static void on_received(void *ctx, struct sl_conn *conn, const struct sl_transport_message *frame)
{
    struct fixture *fixture = ctx;
    struct sl_message message;
    int err = sl_message_decode(frame->payload, frame->header.payload_bytes, &message);
    sl_assert(err == SL_OK);
    sl_transport_release(conn, frame);
    if (message.kind == SL_MESSAGE_HELLO) {
        struct sl_message welcome = {.kind = SL_MESSAGE_WELCOME,
                                     .id = message.id,
                                     .welcome.protocol_version = SL_FRAME_PROTOCOL_VERSION};
        answer(fixture, conn, &welcome);
    } else if (message.kind == SL_MESSAGE_STATS_GET) {
        struct sl_message stats = {.kind = SL_MESSAGE_STATS, .id = message.id};
        stats.stats.table_count = TABLES;
        stats.stats.tables = calloc(TABLES, sizeof *stats.stats.tables);
        for (int i = 0; i < TABLES; i++) {
            snprintf(stats.stats.tables[i].name, SL_TABLE_NAME_BYTES, "a table of number %d", i);
        }
        answer(fixture, conn, &stats);
        sl_message_fini(&stats);
    } else {
        fixture->goodbye = message.kind == SL_MESSAGE_GOODBYE;
    }
}

static void on_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    sl_outbox_sent(&((struct fixture *)ctx)->outbox, cookie);
}

static void on_writable(void *ctx, struct sl_conn *conn)
{
    struct fixture *fixture = ctx;
    sl_outbox_writable(&fixture->outbox, conn, &fixture->acceptor_queue);
}

static void on_gone(void *ctx, struct sl_conn *conn, int err)
{
    struct fixture *fixture = ctx;
    sl_outbox_closed(&fixture->outbox, conn, &fixture->acceptor_queue);
    if (fixture->goodbye) {
        sem_post(&fixture->done);
    }
}

static const struct sl_transport_events acceptor_events = {
    .accepted = on_accepted,
    .sink = on_sink,
    .received = on_received,
    .sent = on_sent,
    .writable = on_writable,
    .closed = on_gone,
};

static void on_answer(void *ctx, const struct sl_message *message, int err, const char *reason)
{
    struct fixture *fixture = ctx;
    fixture->answer_err = err;
    fixture->table_count = message != NULL ? message->stats.table_count : 0;
    sl_session_close(&fixture->session);
}

static void on_welcomed(void *ctx, struct sl_session *session,
                        const struct sl_message_welcome *welcome)
{
    struct sl_message request = {.kind = SL_MESSAGE_STATS_GET};
    sl_session_request(session, &request, TIMEOUT_NS, on_answer, ctx);
}

static void on_closed(void *ctx, struct sl_session *session, int err, const char *reason)
{
    struct fixture *fixture = ctx;
    fixture->closed_err = err;
    snprintf(fixture->reason, sizeof fixture->reason, "%s", reason);
    sem_post(&fixture->done);
}

static const struct sl_session_events session_events = {
    .welcomed = on_welcomed,
    .closed = on_closed,
};

static void listen_now(struct sl_timer *timer, uint64_t now_ns)
{
    struct fixture *fixture = SL_CONTAINER_OF(timer, struct fixture, listen_later);
    struct sl_endpoint bound;
    int err = sl_transport_listen(fixture->transport, &fixture->target, &acceptor_events, fixture,
                                  &bound);
    sl_assert(err == SL_OK);
}

static int on_start(void *ctx)
{
    struct fixture *fixture = ctx;
    int err = sl_outbox_init(&fixture->outbox, SL_OUTBOX_MEMORY_BYTES_MIN, false);
    sl_assert(err == SL_OK);
    err = sl_transport_open(sl_builtin_find(SL_ENDPOINT_TCP), fixture->reactor, NULL,
                            &fixture->transport);
    if (err != SL_OK) {
        return err;
    }
    if (fixture->listens) {
        fixture->listen_later.run = listen_now;
        sl_timer_arm(sl_reactor_timers(fixture->reactor), &fixture->listen_later,
                     sl_reactor_now_ns(fixture->reactor) + LISTEN_NS);
    }
    struct sl_session_options options = {
        .transport = fixture->transport,
        .outbox = &fixture->outbox,
        .endpoint = fixture->target,
        .hello = {.purpose = SL_MESSAGE_PURPOSE_CONTROL, .role = SL_MESSAGE_ROLE_CLIENT},
        .events = &session_events,
        .ctx = fixture,
        .peer_name = "coordinator",
        .start_timeout_ns = TIMEOUT_NS,
    };
    snprintf(options.endpoint.host, sizeof options.endpoint.host, "localhost");
    return sl_session_open(&options, &fixture->session);
}

static void on_stop(void *ctx)
{
    struct fixture *fixture = ctx;
    sl_session_close(&fixture->session);
    sl_transport_close(&fixture->transport);
    sl_outbox_fini(&fixture->outbox);
}

static void run_until_done(struct fixture *fixture)
{
    sl_log_setup(SL_LOG_OFF, "test");
    sem_init(&fixture->done, 0, 0);
    struct sl_reactor_options options = {.name = "test", .core = -1};
    assert_int_equal(sl_reactor_create(&options, &fixture->reactor), SL_OK);
    sl_reactor_on_stop(fixture->reactor, on_stop, fixture);
    assert_int_equal(sl_reactor_start(fixture->reactor, on_start, fixture), SL_OK);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 2 * WAIT_S;
    int rc;
    do {
        rc = sem_timedwait(&fixture->done, &until);
    } while (rc != 0 && errno == EINTR);
    sl_reactor_stop(fixture->reactor);
    sl_reactor_join(fixture->reactor);
    sl_reactor_destroy(&fixture->reactor);
    sem_destroy(&fixture->done);
    assert_int_equal(rc, 0);
}

/* A socket of 127.0.0.1 that is bound to a free port; *port: which. While it does not listen, who
 * connects is refused, and another socket may still take the port to listen on. */
static int bind_free(uint16_t *port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)), 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    assert_int_equal(bind(fd, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

static struct fixture fixture_at(uint16_t port, bool listens)
{
    struct fixture fixture = {.listens = listens,
                              .target = {.scheme = SL_ENDPOINT_TCP, .port = port}};
    snprintf(fixture.target.host, sizeof fixture.target.host, "127.0.0.1");
    return fixture;
}

SL_CASE(session_open__over_tcp_waits_for_the_listener)
{
    SKIP_WITHOUT_LOCALHOST();
    uint16_t port;
    int holder = bind_free(&port);
    struct fixture fixture = fixture_at(port, true);
    run_until_done(&fixture);
    close(holder);
    assert_string_equal(fixture.reason, "");
    assert_int_equal(fixture.answer_err, SL_OK);
    assert_int_equal(fixture.table_count, TABLES);
    assert_true(fixture.goodbye);
}

/* Takes one connection and says what an HTTP server would. */
static void *serve_http(void *ctx)
{
    int listener = *(const int *)ctx;
    int fd = accept(listener, NULL, NULL);
    if (fd >= 0) {
        static const char text[] = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
        (void)send(fd, text, sizeof text - 1, MSG_NOSIGNAL);
        char drain[256];
        while (recv(fd, drain, sizeof drain, 0) > 0) {
        }
        close(fd);
    }
    return NULL;
}

SL_CASE(session_open__over_tcp_gives_up_on_other_protocols)
{
    SKIP_WITHOUT_LOCALHOST();
    uint16_t port;
    int listener = bind_free(&port);
    assert_int_equal(listen(listener, 1), 0);
    pthread_t server;
    assert_int_equal(pthread_create(&server, NULL, serve_http, &listener), 0);
    struct fixture fixture = fixture_at(port, false);
    run_until_done(&fixture);
    pthread_join(server, NULL);
    close(listener);
    assert_int_equal(fixture.closed_err, SL_ERR_PROTOCOL);
    assert_non_null(strstr(fixture.reason, "coordinator (tcp://localhost:"));
    assert_non_null(strstr(fixture.reason, "does not speak Starling's protocol"));
}
