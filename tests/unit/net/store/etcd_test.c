/* The client against servers that misbehave, which this program plays, and against a real etcd,
 * which it starts where there is one. */
#include <stdio.h>
#include <string.h>

#include <openssl/evp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.h"
#include "net/store/etcd.h"
#include "real_etcd.h"
#include "tests/support/patience.h"
#include "tests/support/unit.h"

/* A machine that is busy may take long. */
#define TIMEOUT SL_TEST_PATIENCE_NS

enum behaviour { SAYS, SAYS_WITHOUT_END, LISTS_WITHOUT_END, IS_SILENT, CLOSES };

struct server {
    enum behaviour behaviour;
    const char *says;
    int listener, stop[2];
    uint16_t port;
    uint32_t asked; /* read after the thread has ended */
    pthread_t thread;
};

static void say_without_end(int fd)
{
    static const char HEAD[] = "HTTP/1.1 200 OK\r\n\r\n";
    static char block[65536];
    memset(block, ' ', sizeof block);
    ssize_t sent = send(fd, HEAD, sizeof HEAD - 1, MSG_NOSIGNAL);
    while (sent > 0) {
        sent = send(fd, block, sizeof block, MSG_NOSIGNAL);
    }
}

/* A page of one key, each time a higher one, and more to come. */
static void list_without_end(int fd, uint32_t number)
{
    char key[8], text[16], body[128], answer[256];
    (void)snprintf(key, sizeof key, "k%05u", number % 100000);
    (void)EVP_EncodeBlock((unsigned char *)text, (const unsigned char *)key, 6);
    const int bytes = snprintf(body, sizeof body,
                               "{\"kvs\":[{\"key\":\"%s\",\"create_revision\":\"1\"}],"
                               "\"more\":true}",
                               text);
    (void)snprintf(answer, sizeof answer,
                   "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", bytes,
                   body);
    (void)send(fd, answer, strlen(answer), MSG_NOSIGNAL);
}

/* All of it, to the end of its JSON: what is not read makes `close` take back what was said. */
static bool read_request(const struct server *server, int fd)
{
    char request[4096];
    size_t used = 0;
    struct pollfd fds[] = {{.fd = fd, .events = POLLIN}, {.fd = server->stop[0], .events = POLLIN}};
    while (used == 0 || request[used - 1] != '}') {
        (void)poll(fds, 2, -1);
        ssize_t got = fds[0].revents == 0 ? 0 : recv(fd, request + used, sizeof request - used, 0);
        if (got <= 0) {
            return false;
        }
        used += (size_t)got;
    }
    return true;
}

static void serve_one(struct server *server, int fd)
{
    if (read_request(server, fd)) {
        server->asked++;
        if (server->behaviour == SAYS) {
            (void)send(fd, server->says, strlen(server->says), MSG_NOSIGNAL);
        } else if (server->behaviour == SAYS_WITHOUT_END) {
            say_without_end(fd);
        } else if (server->behaviour == LISTS_WITHOUT_END) {
            list_without_end(fd, server->asked);
        } else if (server->behaviour == IS_SILENT) {
            struct pollfd stop = {.fd = server->stop[0], .events = POLLIN};
            (void)poll(&stop, 1, -1);
        }
    }
    (void)close(fd);
}

static void *serve(void *ctx)
{
    struct server *server = ctx;
    struct pollfd fds[] = {{.fd = server->listener, .events = POLLIN},
                           {.fd = server->stop[0], .events = POLLIN}};
    while (poll(fds, 2, -1) > 0 && fds[1].revents == 0) {
        int fd = accept(server->listener, NULL, NULL);
        if (fd >= 0) {
            serve_one(server, fd);
        }
    }
    return NULL;
}

static void server_start(struct server *server, enum behaviour behaviour, const char *says)
{
    *server = (struct server){.behaviour = behaviour, .says = says};
    server->listener = real_etcd_listen(&server->port);
    assert_int_equal(pipe(server->stop), 0);
    assert_int_equal(pthread_create(&server->thread, NULL, serve, server), 0);
}

static void server_stop(struct server *server)
{
    assert_int_equal(write(server->stop[1], "x", 1), 1);
    assert_int_equal(pthread_join(server->thread, NULL), 0);
    (void)close(server->listener);
    (void)close(server->stop[0]);
    (void)close(server->stop[1]);
}

static struct sl_etcd *client_of(const uint16_t *ports, uint32_t count)
{
    struct sl_metastore_address address = {.etcd.server_count = count};
    for (uint32_t i = 0; i < count; i++) {
        (void)snprintf(address.etcd.servers[i], sizeof address.etcd.servers[i], "127.0.0.1:%u",
                       ports[i]);
    }
    struct sl_etcd *etcd;
    assert_int_equal(sl_etcd_create(&address, &etcd), 0);
    return etcd;
}

static struct sl_metastore_request ask_of(enum sl_metastore_kind kind, const char *key)
{
    struct sl_metastore_request ask = {.kind = kind, .timeout_ns = TIMEOUT};
    (void)snprintf(ask.key, sizeof ask.key, "%s", key);
    return ask;
}

static int ask_one(enum behaviour behaviour, const char *says, struct sl_metastore_request *ask)
{
    struct server server;
    server_start(&server, behaviour, says);
    struct sl_etcd *etcd = client_of(&server.port, 1);
    sl_etcd_perform(etcd, ask);
    sl_etcd_destroy(&etcd);
    server_stop(&server);
    int err = ask->answer.err;
    assert_true(server.asked > 0 || err == SL_ERR_DEADLINE);
    assert_int_equal(err == 0, ask->answer.reason[0] == '\0');
    sl_metastore_answer_fini(&ask->answer);
    return err;
}

SL_CASE(perform__servers_that_misbehave)
{
    static const struct {
        enum behaviour behaviour;
        const char *says;
        int err;
    } CASES[] = {
        {SAYS, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", 0},
        {SAYS, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n[1,2]", SL_ERR_PROTOCOL},
        {SAYS, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", SL_ERR_PROTOCOL},
        {SAYS, "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
         SL_ERR_PROTOCOL},
        {SAYS, "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", SL_ERR_IO},
        {SAYS, "no HTTP at all\r\n\r\n", SL_ERR_IO},
        {SAYS, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", SL_ERR_IO},
        {CLOSES, NULL, SL_ERR_IO},
        {IS_SILENT, NULL, SL_ERR_IO},
        {SAYS_WITHOUT_END, NULL, SL_ERR_TOO_LARGE},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct sl_metastore_request ask = ask_of(SL_METASTORE_READ, "k");
        ask.timeout_ns = CASES[i].err != SL_ERR_IO ? TIMEOUT : 500 * SL_CLOCK_NS_PER_MS;
        int err = ask_one(CASES[i].behaviour, CASES[i].says, &ask);
        /* Out of reach: the last attempt of several says how. */
        err = err == SL_ERR_DEADLINE ? SL_ERR_IO : err;
        if (err != CASES[i].err) {
            print_error("case %zu: %d\n", i, err);
        }
        assert_int_equal(err, CASES[i].err);
    }
}

/* The silent one is left, and what answers is asked first from then on. */
SL_CASE(perform__another_server)
{
    struct server servers[3];
    server_start(&servers[0], IS_SILENT, NULL);
    server_start(&servers[1], SAYS, "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n");
    server_start(&servers[2], SAYS, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
    uint16_t ports[] = {servers[0].port, servers[1].port, servers[2].port};
    struct sl_etcd *etcd = client_of(ports, 3);
    for (uint32_t i = 0; i < 4; i++) {
        struct sl_metastore_request ask = ask_of(SL_METASTORE_READ, "k");
        ask.timeout_ns = 12 * SL_CLOCK_NS_PER_S; /* a third of it for the silent one */
        sl_etcd_perform(etcd, &ask);
        assert_int_equal(ask.answer.err, 0);
    }
    sl_etcd_destroy(&etcd);
    for (uint32_t i = 0; i < 3; i++) {
        server_stop(&servers[i]);
    }
    assert_int_equal(servers[0].asked, 1);
    assert_int_equal(servers[1].asked, 1);
    assert_int_equal(servers[2].asked, 4);
}

/* A list without end, of which every page comes at once. */
SL_CASE(perform__ends_a_list_at_its_deadline)
{
    struct sl_metastore_request ask = ask_of(SL_METASTORE_READ, "k");
    ask.is_prefix = true;
    ask.timeout_ns = 300 * SL_CLOCK_NS_PER_MS;
    assert_int_equal(ask_one(LISTS_WITHOUT_END, NULL, &ask), SL_ERR_DEADLINE);
}

/* A server without a leader cannot log in anybody; the next one can. */
SL_CASE(perform__logs_in_at_another_server)
{
    struct server servers[2];
    server_start(&servers[0], SAYS, "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n");
    server_start(&servers[1], SAYS,
                 "HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{\"token\":\"t\"}");
    struct sl_metastore_address address = {.etcd.server_count = 2, .user = "u", .password = "p"};
    for (uint32_t i = 0; i < 2; i++) {
        (void)snprintf(address.etcd.servers[i], sizeof address.etcd.servers[i], "127.0.0.1:%u",
                       servers[i].port);
    }
    struct sl_etcd *etcd;
    assert_int_equal(sl_etcd_create(&address, &etcd), 0);
    struct sl_metastore_request ask = ask_of(SL_METASTORE_READ, "k");
    sl_etcd_perform(etcd, &ask);
    assert_int_equal(ask.answer.err, 0);
    sl_etcd_destroy(&etcd);
    server_stop(&servers[0]);
    server_stop(&servers[1]);
    assert_int_equal(servers[0].asked, 1);
    assert_int_equal(servers[1].asked, 2);
}

static struct real_etcd real_server;
static struct sl_etcd *real; /* NULL: no etcd is installed */

static int real_start(void **state)
{
    if (real_etcd_start(&real_server, NULL)) {
        real = client_of(&real_server.port, 1);
        struct sl_metastore_request ask = ask_of(SL_METASTORE_READ, "k"); /* until it has come up */
        sl_etcd_perform(real, &ask);
        assert_int_equal(ask.answer.err, 0);
    }
    return 0;
}

static int real_end(void **state)
{
    if (real != NULL) {
        sl_etcd_destroy(&real);
        real_etcd_stop(&real_server);
    }
    return 0;
}

SL_UNIT_GROUP(real_start, real_end);

static void perform(struct sl_metastore_request *ask)
{
    if (real == NULL) {
        skip();
    }
    ask->answer = (struct sl_metastore_answer){0};
    sl_etcd_perform(real, ask);
}

SL_CASE(real__writes_compare)
{
    uint8_t value[] = {'v', 0, 255};
    struct sl_metastore_change change = {.key = "w/1", .value = value, .value_bytes = 3};
    struct sl_metastore_request write = ask_of(SL_METASTORE_WRITE, "w/1");
    write.guard = SL_METASTORE_ABSENT;
    write.changes = &change;
    write.change_count = 1;
    perform(&write);
    assert_int_equal(write.answer.err, 0);
    assert_true(write.answer.held);
    const uint64_t created = write.answer.revision;
    perform(&write);
    assert_int_equal(write.answer.err, 0);
    assert_false(write.answer.held);
    assert_int_equal(write.answer.item_count, 1);
    assert_int_equal(write.answer.pairs[0].created, created);
    assert_int_equal(write.answer.pairs[0].value_bytes, 3);
    assert_memory_equal(write.answer.pairs[0].value, value, 3);
    sl_metastore_answer_fini(&write.answer);
    write.guard = SL_METASTORE_CREATED;
    write.revision = created + 1;
    perform(&write);
    assert_false(write.answer.held);
    sl_metastore_answer_fini(&write.answer);
    write.revision = created;
    change.removes = true;
    perform(&write);
    assert_true(write.answer.held);
    perform(&write); /* it is not there any more */
    assert_int_equal(write.answer.err, 0);
    assert_false(write.answer.held);
    assert_int_equal(write.answer.item_count, 0);
}

SL_CASE(real__leases)
{
    struct sl_metastore_request grant = {
        .kind = SL_METASTORE_LEASE_GRANT, .ttl_s = 60, .timeout_ns = TIMEOUT};
    perform(&grant);
    assert_int_equal(grant.answer.err, 0);
    assert_true(grant.answer.ttl_s >= 60);
    const uint64_t lease = grant.answer.lease;
    struct sl_metastore_change change = {.key = "l/1", .lease = lease};
    struct sl_metastore_request write = ask_of(SL_METASTORE_WRITE, "l/1");
    write.changes = &change;
    write.change_count = 1;
    perform(&write);
    assert_true(write.answer.held);
    struct sl_metastore_request keep = {
        .kind = SL_METASTORE_LEASE_RENEW, .lease = lease, .timeout_ns = TIMEOUT};
    perform(&keep);
    assert_int_equal(keep.answer.err, 0);
    assert_true(keep.answer.ttl_s >= 60);
    struct sl_metastore_request read = ask_of(SL_METASTORE_READ, "l/1");
    perform(&read);
    assert_int_equal(read.answer.item_count, 1);
    assert_int_equal(read.answer.pairs[0].lease, lease);
    assert_int_equal(read.answer.pairs[0].value_bytes, 0);
    sl_metastore_answer_fini(&read.answer);
    struct sl_metastore_request revoke = {
        .kind = SL_METASTORE_LEASE_REVOKE, .lease = lease, .timeout_ns = TIMEOUT};
    for (int i = 0; i < 2; i++) { /* again: it has ended */
        perform(&revoke);
        assert_int_equal(revoke.answer.err, 0);
    }
    perform(&read);
    assert_int_equal(read.answer.item_count, 0);
    perform(&keep);
    assert_int_equal(keep.answer.err, SL_ERR_NOT_FOUND);
    perform(&write);
    assert_int_equal(write.answer.err, SL_ERR_NOT_FOUND);
}

/* More pairs than one page has, in order, and none of the neighbours. */
SL_CASE(real__pages)
{
    enum { ROUNDS = 7, EACH = SL_METASTORE_CHANGES_MAX };
    static struct sl_metastore_change changes[EACH];
    uint8_t value[16];
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < EACH; i++) {
            changes[i] = (struct sl_metastore_change){.value = value, .value_bytes = sizeof value};
            (void)snprintf(changes[i].key, sizeof changes[i].key, "p/%05u", round * EACH + i);
        }
        struct sl_metastore_request write = ask_of(SL_METASTORE_WRITE, "p/");
        write.changes = changes;
        write.change_count = EACH;
        perform(&write);
        assert_true(write.answer.held);
    }
    struct sl_metastore_change neighbour = {.key = "p0", .value = value, .value_bytes = 1};
    struct sl_metastore_request write = ask_of(SL_METASTORE_WRITE, "p0");
    write.changes = &neighbour;
    write.change_count = 1;
    perform(&write);
    struct sl_metastore_request read = ask_of(SL_METASTORE_READ, "p/");
    read.is_prefix = true;
    perform(&read);
    assert_int_equal(read.answer.err, 0);
    assert_int_equal(read.answer.item_count, ROUNDS * EACH);
    for (uint32_t i = 0; i < ROUNDS * EACH; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "p/%05u", i);
        assert_string_equal(read.answer.pairs[i].key, key);
    }
    sl_metastore_answer_fini(&read.answer);
    struct sl_metastore_change removal = {.key = "p/", .removes = true, .is_prefix = true};
    write.changes = &removal;
    perform(&write);
    assert_true(write.answer.held);
    perform(&read);
    assert_int_equal(read.answer.item_count, 0);
}
