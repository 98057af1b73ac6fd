/* The sessions of a server at one moment, while they change. */

#include "ps/server/session_snapshot.h"
#include "stepped.h"
#include "tests/support/unit.h"

#define MANY     400
#define FAILURES 300 /* of some: more than are remembered */

static struct sl_snapshot_builder blocks;

static void begin(struct stepped_two *world, size_t bytes_max, bool for_backup)
{
    sl_snapshot_builder_begin(&blocks, bytes_max, 64U << 10);
    blocks.heads_done = true;
    sl_server_session_snapshot_begin(world->stepped.server, &blocks, for_backup);
}

static void take(struct sl_snapshot_block **saved)
{
    struct sl_snapshot_block *block;
    while ((block = sl_snapshot_builder_take(&blocks)) != NULL) {
        block->next = *saved;
        *saved = block;
    }
}

static void forget(struct sl_snapshot_block **saved)
{
    while (*saved != NULL) {
        struct sl_snapshot_block *block = *saved;
        *saved = block->next;
        sl_snapshot_builder_put(&blocks, block);
    }
    while (blocks.spare != NULL) {
        sl_snapshot_builder_clean(&blocks);
    }
    assert_int_equal(blocks.bytes, 0);
}

/* Client 1 + i. */
static struct sl_server_session *client(struct stepped_two *world, uint32_t i)
{
    return sl_server_session_find(world->stepped.server, 1 + i);
}

static void come(struct stepped_two *world, uint32_t i)
{
    const struct sl_message_hello hello = {
        .role = i % 2 == 0 ? SL_MESSAGE_ROLE_WORKER : SL_MESSAGE_ROLE_CLIENT,
        .client_id = 1 + i,
        .task_index = i % 2 == 0 ? i / 2 : 0,
    };
    struct sl_server_session *session;
    assert_int_equal(sl_server_session_restore(world->stepped.server, &hello, &session), 0);
}

/* Something becomes of the client, by `what`. */
static void change(struct stepped_two *world, uint32_t i, uint32_t what)
{
    struct sl_server_session *session = client(world, i);
    const struct sl_message_expired lost = {
        .role = SL_MESSAGE_ROLE_WORKER, .task_index = i / 2, .client_id = 1 + i};
    if (session == NULL) {
        return;
    }
    switch (what % 5) {
    case 0:
        sl_server_session_arrived(session, session->id_max + 1);
        break;
    case 1:
        sl_server_session_wrote(session, session->last_write_id + 1);
        break;
    case 2:
        sl_server_session_failed(session, session->id_max + what, SL_ERR_DEADLINE);
        break;
    case 3:
        sl_server_session_confirm(session);
        break;
    default:
        if (i % 2 == 0) {
            sl_server_on_expired(world->stepped.server, &lost);
        }
    }
}

static uint64_t failure_of(uint32_t i, uint32_t number)
{
    return 1000 + (uint64_t)i * FAILURES + number;
}

static void fill(struct stepped_two *world)
{
    for (uint32_t i = 0; i < MANY; i++) {
        come(world, i);
        sl_server_session_arrived(client(world, i), 10 + i);
        sl_server_session_wrote(client(world, i), 5 + i);
        for (uint32_t number = 0; i % 7 == 0 && number < FAILURES; number++) {
            sl_server_session_failed(client(world, i), failure_of(i, number), SL_ERR_PROTOCOL);
        }
        if (i % 7 == 0) { /* one is told of again */
            sl_server_session_failed(client(world, i), failure_of(i, FAILURES / 2),
                                     SL_ERR_PROTOCOL);
        }
    }
}

/* The last ones, in order, but for the one that was told of again. */
static void expect_failures(const struct sl_snapshot_session *session, uint32_t i)
{
    assert_int_equal(session->failure_count, i % 7 == 0 ? SL_SNAPSHOT_FAILURES : 0);
    uint32_t number = FAILURES - SL_SNAPSHOT_FAILURES;
    for (uint32_t k = 0; k < session->failure_count; k++) {
        const bool is_last = k + 1 == session->failure_count;
        number += number == FAILURES / 2;
        const uint64_t id = failure_of(i, is_last ? FAILURES / 2 : number++);
        assert_true(session->failures[k].id == id);
        assert_int_equal(session->failures[k].err, SL_ERR_PROTOCOL);
    }
}

/* Each of them once, as fill has left it. */
static void expect_all(const struct sl_snapshot_block *saved)
{
    bool seen[MANY] = {false};
    uint32_t count = 0;
    for (const struct sl_snapshot_block *block = saved; block != NULL; block = block->next) {
        struct sl_bytes cursor = sl_snapshot_records(block);
        struct sl_snapshot_session session;
        while (cursor.left > 0) {
            assert_true(sl_snapshot_take_session(&cursor, &session));
            const uint32_t i = (uint32_t)session.client_id - 1;
            assert_in_range(i, 0, MANY - 1);
            assert_false(seen[i]);
            seen[i] = true;
            count++;
            assert_int_equal(session.id_max, 10 + i);
            assert_int_equal(session.last_write_id, 5 + i);
            assert_false(session.heard);
            expect_failures(&session, i);
        }
    }
    assert_int_equal(count, MANY);
}

/* Whatever becomes of clients between the slices, and who comes. */
TWO_CASE(server_session_snapshot__is_of_one_moment)
{
    struct sl_snapshot_block *saved = NULL;
    fill(world);
    begin(world, (size_t)64 << 20, false);
    uint32_t random = 1, slices = 0;
    bool is_over = false;
    while (!is_over) {
        for (uint32_t k = 0; k < 5; k++) {
            random = random * 1103515245U + 12345U;
            change(world, random / 65536 % MANY, random / 512 % 128);
        }
        come(world, MANY + slices);
        uint32_t spent = 0;
        is_over = sl_server_session_snapshot_run(world->stepped.server, 8, &spent);
        assert_in_range(spent, 0, 8 + 64);
        take(&saved);
        slices++;
    }
    assert_true(slices > 50);
    expect_all(saved);
    forget(&saved);
}

/* The walk waits while nobody takes what it has put; and what is given up leaves nothing behind. */
TWO_CASE(server_session_snapshot__waits_and_is_given_up)
{
    struct sl_server *server = world->stepped.server;
    fill(world);
    for (uint32_t i = 0; i < MANY; i++) {
        for (uint32_t number = 0; number < FAILURES; number++) {
            sl_server_session_failed(client(world, i), failure_of(i, number), SL_ERR_PROTOCOL);
        }
    }
    begin(world, (size_t)512 << 10, false);
    uint32_t spent = 0, before;
    do {
        before = spent;
        assert_false(sl_server_session_snapshot_run(server, spent + 64, &spent));
    } while (spent > before);
    assert_in_range(spent, 1, MANY / 2 * SL_SNAPSHOT_FAILURES / 16);
    sl_server_session_snapshot_end(server);
    assert_int_equal(blocks.open_bytes, 0);
    sl_server_session_wrote(client(world, 0), 1000);
    assert_int_equal(blocks.open_bytes, 0);
    struct sl_snapshot_block *saved = NULL;
    take(&saved);
    forget(&saved);
    begin(world, (size_t)64 << 20, true);
    for (spent = 0; !sl_server_session_snapshot_run(server, spent + 64, &spent);) {
        take(&saved);
    }
    take(&saved);
    forget(&saved);
}
