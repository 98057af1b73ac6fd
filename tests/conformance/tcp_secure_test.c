/* Who is let in, and what becomes of a connection that somebody meddles with. */
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "authority.h"
#include "core/log.h"
#include "middle.h"
#include "secure_raw.h"
#include "tcp.h"

static void expect_closed(struct peer *peer, int err)
{
    WAIT_UNTIL(peer->closed == 1);
    assert_int_equal(peer->close_err, err);
}

/* A world of its own files; NULL: in the clear. */
static struct world *open_with(const struct sl_transport_tls *files)
{
    struct sl_transport_options options = {.tls = files};
    struct world *world = world_open(2, &options);
    node_set_policy(&world->nodes[0], (struct policy){.echo = true});
    return world;
}

static struct world *open_as(enum authority_who who)
{
    return open_with(authority_files(who));
}

/* Somebody who should get in does, and an answer too. */
static void expect_served(struct world *server, struct world *clients)
{
    struct peer *client = peer_connect(&clients->nodes[1], &server->nodes[0].bound);
    uint32_t sizes[] = {100, 70000};
    peer_send_from_test(client, sizes, 2);
    WAIT_UNTIL(client->received == 2);
}

/* The client ends with `err`, and nobody above the server has heard of it. */
static void expect_turned_away(const struct sl_transport_tls *server_files,
                               const struct sl_transport_tls *client_files, int err)
{
    struct world *server = open_with(server_files);
    struct world *clients = open_with(client_files);
    struct peer *client = peer_connect(&clients->nodes[1], &server->nodes[0].bound);
    uint32_t size = 100;
    peer_send_from_test(client, &size, 1);
    expect_closed(client, err);
    assert_int_equal(client->received, 0);
    assert_int_equal(server->nodes[0].peer_count, 0);
    if (server_files != NULL) {
        expect_served(server, server);
    }
    world_close(clients);
    world_close(server);
}

SL_CASE(authority__of_the_client_is_unknown)
{
    expect_turned_away(authority_files(AUTHORITY_NODE), authority_files(AUTHORITY_IMPOSTOR),
                       SL_ERR_REFUSED);
}

SL_CASE(authority__of_the_server_is_unknown)
{
    expect_turned_away(authority_files(AUTHORITY_NODE), authority_files(AUTHORITY_STRANGER),
                       SL_ERR_REFUSED);
}

/* The client is what everybody is; it is the server that is not. */
static void turned_away_by_client(enum authority_who server_who)
{
    struct world *server = open_as(server_who);
    struct world *clients = open_as(AUTHORITY_NODE);
    struct peer *client = peer_connect(&clients->nodes[1], &server->nodes[0].bound);
    expect_closed(client, SL_ERR_REFUSED);
    assert_false(client->open);
    assert_int_equal(server->nodes[0].peer_count, 0);
    world_close(clients);
    world_close(server);
}

SL_CASE(certificate__of_the_server_has_expired)
{
    turned_away_by_client(AUTHORITY_EXPIRED);
}

SL_CASE(certificate__of_the_client_has_expired)
{
    expect_turned_away(authority_files(AUTHORITY_NODE), authority_files(AUTHORITY_EXPIRED),
                       SL_ERR_REFUSED);
}

SL_CASE(certificate__names_another_host)
{
    turned_away_by_client(AUTHORITY_ELSEWHERE);
}

/* What the client was told to expect counts, and not where it connects to. */
SL_CASE(certificate__names_what_is_expected)
{
    struct world *server = open_as(AUTHORITY_ELSEWHERE);
    struct sl_transport_tls expecting = *authority_files(AUTHORITY_NODE);
    expecting.peer_name = "elsewhere.example";
    struct world *right = open_with(&expecting);
    expect_served(server, right);
    expecting.peer_name = "nowhere.example";
    struct world *wrong = open_with(&expecting);
    struct peer *client = peer_connect(&wrong->nodes[1], &server->nodes[0].bound);
    expect_closed(client, SL_ERR_REFUSED);
    world_close(wrong);
    world_close(right);
    world_close(server);
}

/* The address that is connected to was looked up from a name: that is what counts. */
SL_CASE(certificate__names_the_host_that_was_looked_up)
{
    struct world *server = open_as(AUTHORITY_ELSEWHERE);
    struct world *clients = open_as(AUTHORITY_NODE);
    struct sl_endpoint *bound = &server->nodes[0].bound;
    snprintf(bound->name, sizeof bound->name, "elsewhere.example");
    expect_served(server, clients);
    snprintf(bound->name, sizeof bound->name, "nowhere.example");
    expect_closed(peer_connect(&clients->nodes[1], bound), SL_ERR_REFUSED);
    world_close(clients);
    world_close(server);
}

/* A client's own certificate need not name anything. */
SL_CASE(certificate__of_a_client_needs_no_name)
{
    struct world *server = open_as(AUTHORITY_NODE);
    struct world *clients = open_as(AUTHORITY_ELSEWHERE);
    expect_served(server, clients);
    world_close(clients);
    world_close(server);
}

static void raw_turned_away(struct secure_raw_manner manner)
{
    struct world *server = open_as(AUTHORITY_NODE);
    int fd = secure_raw_open(&server->nodes[0].bound, &manner);
    char byte;
    if (fd >= 0) { /* a client hears only later that its certificate is not accepted */
        assert_true(recv(fd, &byte, 1, 0) <= 0);
        close(fd);
    }
    assert_int_equal(server->nodes[0].peer_count, 0);
    expect_served(server, server);
    world_close(server);
}

SL_CASE(certificate__missing)
{
    raw_turned_away((struct secure_raw_manner){0});
}

SL_CASE(version__older)
{
    raw_turned_away((struct secure_raw_manner){.files = authority_files(AUTHORITY_NODE),
                                               .version_max = TLS1_2_VERSION});
}

SL_CASE(clear__client_to_a_secure_server)
{
    struct world *server = open_as(AUTHORITY_NODE);
    struct world *clients = open_with(NULL);
    struct peer *client = peer_connect(&clients->nodes[1], &server->nodes[0].bound);
    uint32_t size = 100;
    peer_send_from_test(client, &size, 1);
    expect_closed(client, SL_ERR_CLOSED);
    assert_int_equal(client->received, 0);
    assert_int_equal(server->nodes[0].peer_count, 0);
    world_close(clients);
    world_close(server);
}

SL_CASE(clear__server_to_a_secure_client)
{
    struct world *server = open_with(NULL);
    struct world *clients = open_as(AUTHORITY_NODE);
    struct peer *client = peer_connect(&clients->nodes[1], &server->nodes[0].bound);
    expect_closed(client, SL_ERR_REFUSED);
    assert_false(client->open);
    assert_int_equal(node_peer(&server->nodes[0], 0)->received, 0);
    world_close(clients);
    world_close(server);
}

/* Each byte that it sends is good, but they are too few. */
SL_CASE(handshake__stalls)
{
    static const size_t cuts[] = {0, 3, 5, 100};
    uint8_t hello[200] = {0x16, 3, 1, 1, 0, 1, 0, 0, 0xfc, 3, 3};
    struct sl_transport_options options = {.tls = authority_files(AUTHORITY_NODE)};
    struct world *world = world_open_with_frozen_clock(2, &options);
    node_set_policy(&world->nodes[0], (struct policy){.echo = true});
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        int fd = tcp_connect_raw(&world->nodes[0].bound);
        assert_true(fd >= 0);
        if (cuts[i] > 0) {
            assert_int_equal(send(fd, hello, cuts[i], MSG_NOSIGNAL), cuts[i]);
        }
        uint8_t byte;
        uint64_t deadline_ns = 0;
        while (recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && !wait_expired(&deadline_ns)) {
            world_pass(world, 2500);
        }
        assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), 0);
        close(fd);
    }
    expect_served(world, world);
    assert_int_equal(world->nodes[0].peer_count, 1);
    world_close(world);
}

/* A bit is turned over in what the one side sends: nothing that was changed is delivered (the peers
 * compare every byte), and both ends hear that it is over. */
static void tamper(bool to_client, int64_t at)
{
    struct world *world = open_as(AUTHORITY_NODE);
    struct middle middle;
    middle_start(&middle, &world->nodes[0].bound, (struct middle_plan){to_client, at, -1});
    struct peer *client = peer_connect(&world->nodes[1], &middle.endpoint);
    uint32_t sizes[] = {100, 64, 20000, 5, 150000, 16000};
    peer_send_from_test(client, sizes, 6);
    WAIT_UNTIL(client->closed == 1);
    assert_int_not_equal(client->close_err, SL_OK);
    assert_true(client->received < 6);
    middle_stop(&middle);
    assert_true(middle.meddled);
    WAIT_UNTIL(world->nodes[0].closed_count == world->nodes[0].open_count);
    world_close(world);
}

SL_CASE(tamper__in_the_handshake)
{
    tamper(false, 60);
    tamper(true, 400);
}

SL_CASE(tamper__in_the_frames)
{
    tamper(false, 3000);
    tamper(false, 100000);
    tamper(true, 3000);
    tamper(true, 100000);
}

/* The end, where nobody said that it was. */
SL_CASE(cut__is_no_orderly_end)
{
    static const bool directions[] = {false, true};
    for (int i = 0; i < 2; i++) {
        struct world *world = open_as(AUTHORITY_NODE);
        struct middle middle;
        middle_start(&middle, &world->nodes[0].bound,
                     (struct middle_plan){directions[i], -1, 100000});
        struct peer *client = peer_connect(&world->nodes[1], &middle.endpoint);
        uint32_t sizes[] = {100, 64, 300000};
        peer_send_from_test(client, sizes, 2);
        WAIT_UNTIL(client->received == 2);
        peer_send_from_test(client, sizes + 2, 1);
        expect_closed(client, SL_ERR_IO);
        expect_closed(node_peer(&world->nodes[0], 0), SL_ERR_IO);
        assert_int_equal(client->received, 2);
        middle_stop(&middle);
        world_close(world);
    }
}

WORLD_CASE(keys__renewed_by_the_peer, open_as(AUTHORITY_NODE))
{
    struct secure_raw_manner manner = {.files = authority_files(AUTHORITY_NODE),
                                       .renews_keys = true};
    int fd = secure_raw_open(&world->nodes[0].bound, &manner);
    uint8_t frame[FRAME_BYTES(3000)], answer[FRAME_BYTES(3000)];
    for (uint32_t i = 1; i <= 20; i++) {
        raw_make_frame(frame, i, 3000);
        raw_write(fd, frame, sizeof frame);
        raw_read(fd, answer, sizeof answer);
        assert_memory_equal(answer, frame, sizeof frame);
    }
    close(fd);
    expect_closed(node_peer(&world->nodes[0], 0), SL_ERR_CLOSED);
}

static void expect_invalid(struct world *world, struct sl_transport_tls files)
{
    const struct sl_transport_options options = {.tls = &files};
    assert_int_equal(node_open(&world->nodes[0], &options), SL_ERR_INVALID);
}

WORLD_CASE(open__files_that_are_not_good, open_with(NULL))
{
    const struct sl_transport_tls *good = authority_files(AUTHORITY_NODE);
    const char *certificate = good->certificate, *key = good->key, *authority = good->authority;
    const char *gone = "/nonexistent/node.pem";
    expect_invalid(world, (struct sl_transport_tls){gone, key, authority, NULL});
    expect_invalid(world, (struct sl_transport_tls){certificate, gone, authority, NULL});
    expect_invalid(world, (struct sl_transport_tls){certificate, key, gone, NULL});
    expect_invalid(world, (struct sl_transport_tls){certificate, key, NULL, NULL});
    expect_invalid(world, (struct sl_transport_tls){NULL, key, authority, NULL});
    expect_invalid(world, (struct sl_transport_tls){key, key, authority, NULL});
    expect_invalid(world, (struct sl_transport_tls){certificate, certificate, authority, NULL});
    expect_invalid(world, (struct sl_transport_tls){certificate, key, key, NULL});
    const char *pipe = authority_path("pipe");
    assert_int_equal(mkfifo(pipe, S_IRUSR | S_IWUSR), 0);
    expect_invalid(world, (struct sl_transport_tls){pipe, key, authority, NULL});
    expect_invalid(world, (struct sl_transport_tls){certificate, pipe, authority, NULL});
    expect_invalid(world, (struct sl_transport_tls){certificate, key, pipe, NULL});
    const struct sl_transport_tls *other = authority_files(AUTHORITY_EXPIRED);
    expect_invalid(world, (struct sl_transport_tls){certificate, other->key, authority, NULL});
    assert_int_equal(chmod(other->key, S_IRUSR | S_IROTH), 0);
    expect_invalid(world,
                   (struct sl_transport_tls){other->certificate, other->key, authority, NULL});
    assert_int_equal(chmod(other->key, S_IRUSR), 0);
    const struct sl_transport_options options = {.tls = other};
    assert_int_equal(node_open(&world->nodes[0], &options), 0);
}

int main(void)
{
    sl_log_setup(SL_LOG_OFF, "tcp secure");
    authority_make();
    struct conformance_target target = {
        .name = "tcp secure",
        .ops = sl_builtin_find(SL_ENDPOINT_TCP),
        .endpoint = "127.0.0.1:0",
    };
    conformance_target = &target;
    int failed = sl_unit_run("tcp secure", __FILE__);
    secure_raw_join();
    return failed;
}
