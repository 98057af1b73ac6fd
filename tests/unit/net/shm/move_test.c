/* A connection over shared memory that is handed over to a reactor which has no memory for it. Both
 * reactors are the test's, which gives them turns. */

#include <stdio.h>
#include <unistd.h>

#include "core/log.h"
#include "net/shm/shm.h"
#include "tests/support/unit.h"

#define TURNS_MAX 20000

/* realloc gives nothing. The linker puts it before the real one. */
static bool refuses;

void *__real_realloc(void *memory, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes)
{
    return refuses ? NULL : __real_realloc(memory, bytes);
}

/* Whoever has a connection, and what it has seen of it. */
struct owner {
    struct sl_transport *next; /* what comes is handed over to there */
    struct owner *next_owner;
    uint32_t opened, received, closed;
    int err;
};

struct world {
    struct sl_reactor *reactors[2];
    struct sl_transport *transports[2];
    struct owner client, accepter, owner; /* on reactor 0, 0 and 1 */
};

static void on_open(void *ctx, struct sl_conn *conn)
{
    ((struct owner *)ctx)->opened++;
}

static void *on_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    fail();
    return NULL;
}

static void on_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
}

static void on_writable(void *ctx, struct sl_conn *conn)
{
}

static void on_received(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message)
{
    struct owner *owner = ctx;
    owner->received++;
    sl_transport_release(conn, message);
    if (owner->next != NULL) {
        assert_int_equal(
            sl_transport_migrate(conn, owner->next, conn->events, owner->next_owner, NULL), 0);
    }
}

static void on_closed(void *ctx, struct sl_conn *conn, int err)
{
    struct owner *owner = ctx;
    owner->closed++;
    owner->err = err;
}

static const struct sl_transport_events events = {
    .accepted = on_open,
    .connected = on_open,
    .sink = on_sink,
    .received = on_received,
    .sent = on_sent,
    .writable = on_writable,
    .closed = on_closed,
};

static void turns_until(struct world *world, const uint32_t *count)
{
    for (uint32_t turn = 0; *count == 0 && turn < TURNS_MAX; turn++) {
        (void)sl_reactor_drive_once(world->reactors[0]);
        (void)sl_reactor_drive_once(world->reactors[1]);
    }
    assert_int_equal(*count, 1);
}

static void begin(struct world *world)
{
    struct sl_endpoint endpoint = {.scheme = SL_ENDPOINT_SHM}, bound;
    struct sl_conn *conn;
    *world = (struct world){0};
    (void)snprintf(endpoint.host, sizeof endpoint.host, "move-%d", (int)getpid());
    for (uint32_t i = 0; i < 2; i++) {
        const struct sl_reactor_options options = {.name = "test", .index = i, .core = -1};
        assert_int_equal(sl_reactor_create(&options, &world->reactors[i]), 0);
    }
    assert_int_equal(sl_reactor_connect(world->reactors, 2), 0);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(sl_reactor_attach(world->reactors[i]), 0);
        assert_int_equal(
            sl_transport_open(&sl_shm_ops, world->reactors[i], NULL, &world->transports[i]), 0);
    }
    world->accepter.next = world->transports[1];
    world->accepter.next_owner = &world->owner;
    assert_int_equal(
        sl_transport_listen(world->transports[0], &endpoint, &events, &world->accepter, &bound), 0);
    assert_int_equal(
        sl_transport_connect(world->transports[0], &bound, 0, &events, &world->client, NULL, &conn),
        0);
    turns_until(world, &world->client.opened);
    uint8_t head[SL_FRAME_HEADER_BYTES];
    sl_frame_encode(&(struct sl_frame){.type = SL_FRAME_REQUEST, .request_id = 1}, head);
    const struct sl_transport_frame frame = {.head = head, .head_bytes = sizeof head};
    assert_int_equal(sl_transport_send_burst(conn, &frame, 1), 1);
    while (world->accepter.received == 0) {
        (void)sl_reactor_drive_once(world->reactors[0]);
    }
}

static void end(struct world *world)
{
    for (uint32_t i = 0; i < 2; i++) {
        sl_transport_close(&world->transports[i]);
    }
    for (uint32_t i = 0; i < 2; i++) {
        sl_reactor_detach(world->reactors[i]);
        sl_reactor_destroy(&world->reactors[i]);
    }
}

/* Its owner, and the peer, are told that it has ended, not left to wait for nothing. */
SL_CASE(shm_move__without_memory_is_told)
{
    struct world world;
    begin(&world);
    refuses = true;
    turns_until(&world, &world.owner.closed);
    refuses = false;
    assert_int_equal(world.owner.err, SL_ERR_NO_MEMORY);
    assert_int_equal(world.owner.opened, 0);
    turns_until(&world, &world.client.closed);
    assert_int_equal(world.client.err, SL_ERR_CLOSED);
    assert_int_equal(world.accepter.closed, 0);
    end(&world);
    assert_int_equal(world.owner.closed, 1);
}

SL_UNIT_SETUP()
{
    sl_log_setup(SL_LOG_OFF, "test");
}
