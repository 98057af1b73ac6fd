/* One-sided operations, for every transport that has them: node 1 connects to node 0, and each
 * reads and writes memory of the other. */
#include <string.h>

#include "conformance.h"
#include "core/hash.h"
#include "net/transport_rma.h"

#define MEMORY_BYTES (12U << 20)
#define LOCAL_AT     (6U << 20) /* of operations of this side, behind what peers use */
#define OPS_MAX      1200
#define GUARD        64U
#define GUARD_BYTE   0xa7

/* One node with its memory, which the other may read and write, and its operations. */
struct side {
    struct node *node;
    struct peer *peer;
    struct sl_shared memory;
    unsigned access;
    uint64_t key;
    struct sl_transport_rma_token token;
    struct sl_transport_rma_op ops[OPS_MAX];
    int errs[OPS_MAX]; /* 1: not completed */
    uint32_t op_count, posted;
    atomic_uint added, removed, completed;
    atomic_int removed_err;
};

static struct side sides[2];

static void on_added(void *ctx, uint64_t key, const struct sl_transport_rma_token *token, int err)
{
    struct side *side = ctx;
    sl_assert(err == 0);
    sl_assert(key == side->key);
    side->token = *token;
    side->added++;
}

static void on_removed(void *ctx, uint64_t key, int err)
{
    struct side *side = ctx;
    sl_assert(key == side->key);
    side->removed_err = err;
    side->removed++;
}

static void post_rest(struct side *side)
{
    if (side->peer->conn != NULL && side->posted < side->op_count) {
        side->node->calling = true;
        side->posted += sl_transport_rma_post(side->peer->conn, side->ops + side->posted,
                                              side->op_count - side->posted);
        side->node->calling = false;
    }
}

/* In order, and not inside post. */
static void on_completed(void *ctx, struct sl_conn *conn, void *cookie, int err)
{
    struct side *side = ctx;
    sl_assert(!side->node->calling);
    sl_assert(conn == side->peer->conn);
    sl_assert(cookie == &side->errs[side->completed]);
    *(int *)cookie = err;
    side->completed++;
    post_rest(side);
}

static const struct sl_transport_rma_events events = {
    .region_added = on_added, .region_removed = on_removed, .completed = on_completed};

static void open_rma(struct node *node, void *ctx)
{
    sl_assert(sl_transport_rma_open(node->transport, &events, ctx) == 0);
}

static void add_region(struct node *node, void *ctx)
{
    struct side *side = ctx;
    sl_assert(sl_transport_rma_region_add(node->transport, side->key, side->memory.base,
                                          side->memory.bytes, side->access) == 0);
}

static void remove_region(struct node *node, void *ctx)
{
    sl_transport_rma_region_remove(node->transport, ((struct side *)ctx)->key);
}

static void admit(struct node *node, void *ctx)
{
    sl_assert(sl_transport_rma_admit(((struct side *)ctx)->peer->conn) == 0);
    sl_assert(sl_transport_rma_admit(((struct side *)ctx)->peer->conn) == 0); /* idempotent */
}

static void post(struct node *node, void *ctx)
{
    post_rest(ctx);
}

struct setup {
    bool is_stranger; /* node 1 is not admitted */
    unsigned access;
};

static struct world *open_with(struct setup setup)
{
    if (conformance_target->ops->rma == NULL) {
        skip();
    }
    /* Over shared memory a side that waits for a processor would be given up, and still write. */
    const bool maps = (conformance_target->ops->capabilities & SL_TRANSPORT_MAPS_MEMORY) != 0;
    struct world *world = maps ? world_open_with_frozen_clock(2, NULL) : world_open(2, NULL);
    for (uint32_t i = 0; i < 2; i++) {
        struct side *side = &sides[i];
        memset(side, 0, sizeof *side);
        side->node = &world->nodes[i];
        side->key = 0x1234567890abcdefULL + i;
        side->access =
            i == 0 ? setup.access : SL_TRANSPORT_RMA_PEERS_READ | SL_TRANSPORT_RMA_PEERS_WRITE;
        const bool is_written = (side->access & SL_TRANSPORT_RMA_PEERS_WRITE) != 0;
        assert_int_equal(sl_shared_create("rma", MEMORY_BYTES,
                                          is_written ? SL_SHARED_WRITE : SL_SHARED_READ,
                                          &side->memory),
                         0);
        memset(side->memory.base, GUARD_BYTE, MEMORY_BYTES);
        node_run(side->node, open_rma, side);
        node_run(side->node, add_region, side);
        WAIT_UNTIL(side->added == 1);
    }
    sides[1].peer = peer_connect(&world->nodes[1], &world->nodes[0].bound);
    sides[0].peer = node_peer(&world->nodes[0], 0);
    WAIT_UNTIL(sides[0].peer->open && sides[1].peer->open);
    for (uint32_t i = 0; i < 2; i++) {
        if (i == 1 || !setup.is_stranger) {
            node_run(sides[i].node, admit, &sides[i]);
        }
    }
    return world;
}

static struct world *open_both(void)
{
    return open_with(
        (struct setup){.access = SL_TRANSPORT_RMA_PEERS_READ | SL_TRANSPORT_RMA_PEERS_WRITE});
}

/* Transports have no memory of an address that another case may use. */
static void close_both(struct world *world)
{
    world_close(world);
    for (uint32_t i = 0; i < 2; i++) {
        sl_shared_destroy(&sides[i].memory);
    }
}

#define RMA_CASE(name, opened)                                                                     \
    static void name##_between(struct side *target, struct side *initiator);                       \
    SL_CASE(name)                                                                                  \
    {                                                                                              \
        struct world *world = opened;                                                              \
        name##_between(&sides[0], &sides[1]);                                                      \
        close_both(world);                                                                         \
    }                                                                                              \
    static void name##_between(struct side *target, struct side *initiator)

static struct side *other(const struct side *side)
{
    return side == &sides[0] ? &sides[1] : &sides[0];
}

/* Adds an operation on the peer's memory. */
static void add(struct side *side, enum sl_transport_rma_kind kind, uint64_t offset, void *local,
                uint32_t bytes)
{
    sl_assert(side->op_count < OPS_MAX);
    side->errs[side->op_count] = 1;
    side->ops[side->op_count] = (struct sl_transport_rma_op){.kind = kind,
                                                             .bytes = bytes,
                                                             .local = local,
                                                             .token = &other(side)->token,
                                                             .offset = offset,
                                                             .cookie = &side->errs[side->op_count]};
    side->op_count++;
}

/* Posts the added operations. */
static void begin(struct side *side)
{
    node_run(side->node, post, side);
}

static void forget(struct node *node, void *ctx)
{
    struct side *side = ctx;
    side->op_count = side->posted = 0;
    side->completed = 0;
}

/* Waits for all of them, or the end of the connection; then forgets them. Returns whether all
 * succeeded. */
static bool finish(struct side *side)
{
    WAIT_UNTIL(side->completed == side->op_count || side->peer->closed == 1);
    bool is_good = side->completed == side->op_count;
    for (uint32_t i = 0; i < side->completed; i++) {
        is_good = is_good && side->errs[i] == 0;
    }
    if (side->peer->closed == 0) {
        node_run(side->node, forget, side);
    }
    return is_good;
}

static bool run(struct side *side)
{
    begin(side);
    return finish(side);
}

static bool is_all(const uint8_t *at, uint8_t byte, size_t bytes)
{
    return bytes == 0 || (at[0] == byte && memcmp(at, at + 1, bytes - 1) == 0);
}

/* Writes and reads back `bytes`; no other byte changes, here or there. */
static void transfer(uint32_t number, uint32_t bytes, uint32_t local_shift, uint32_t remote_shift)
{
    struct side *target = &sides[0], *initiator = &sides[1];
    const uint64_t offset = GUARD + remote_shift;
    uint8_t *local = initiator->memory.base + LOCAL_AT + GUARD + local_shift;
    uint8_t *remote = target->memory.base + offset;
    const uint8_t *content = content_of(number, bytes);
    memcpy(local, content, bytes);
    memset(local - GUARD, GUARD_BYTE, GUARD);
    memset(local + bytes, GUARD_BYTE, GUARD);
    memset(remote - GUARD, GUARD_BYTE, bytes + 2 * GUARD);
    add(initiator, SL_TRANSPORT_RMA_WRITE, offset, local, bytes);
    add(initiator, SL_TRANSPORT_RMA_FLUSH, 0, NULL, 0);
    assert_true(run(initiator));
    assert_memory_equal(remote, content, bytes);
    assert_true(is_all(remote - GUARD, GUARD_BYTE, GUARD));
    assert_true(is_all(remote + bytes, GUARD_BYTE, GUARD));
    memset(local, 0, bytes);
    add(initiator, SL_TRANSPORT_RMA_READ, offset, local, bytes);
    assert_true(run(initiator));
    assert_memory_equal(local, content, bytes);
    assert_true(is_all(local - GUARD, GUARD_BYTE, GUARD));
    assert_true(is_all(local + bytes, GUARD_BYTE, GUARD));
}

RMA_CASE(rma__every_alignment, open_both())
{
    static const uint32_t sizes[] = {1, 2, 3, 7, 8, 9, 63, 64, 65, 200};
    for (uint32_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (uint32_t shift = 0; shift < 8; shift++) {
            transfer(i, sizes[i], shift, (shift * 3 + i) % 8);
        }
    }
}

RMA_CASE(rma__sizes_up_to_the_limit, open_both())
{
    static const uint32_t sizes[] = {4095,   4096,           4097,     65536,
                                     262145, (1U << 20) + 3, 3U << 20, SL_TRANSPORT_RMA_BYTES_MAX};
    for (uint32_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        transfer(i, sizes[i], i % 5, i * 7 % 64);
    }
}

/* 64 MiB in flight between the same memory: many more operations than a queue holds. */
RMA_CASE(rma__many_mebibytes, open_both())
{
    const uint32_t bytes = 256U << 10, count = many(256, 64), places = LOCAL_AT / bytes;
    const uint8_t *content = content_of(1, LOCAL_AT / 2);
    memcpy(initiator->memory.base + LOCAL_AT, content, LOCAL_AT / 2);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t from = i % (places / 2), to = i % places;
        add(initiator, SL_TRANSPORT_RMA_WRITE, (uint64_t)to * bytes,
            initiator->memory.base + LOCAL_AT + (size_t)from * bytes, bytes);
    }
    add(initiator, SL_TRANSPORT_RMA_FLUSH, 0, NULL, 0);
    assert_true(run(initiator));
    assert_memory_equal(target->memory.base, content, LOCAL_AT / 2);
    assert_memory_equal(target->memory.base + LOCAL_AT / 2, content, LOCAL_AT / 2);
    assert_true(is_all(target->memory.base + LOCAL_AT, GUARD_BYTE, MEMORY_BYTES - LOCAL_AT));
}

/* Both sides write into the lower third of the other's memory, and read its second third; frames
 * pass meanwhile. */
RMA_CASE(rma__both_directions, open_both())
{
    const uint32_t slot = 9000, count = many(500, 200), frames = 40;
    uint64_t seed = 4711;
    uint32_t sizes[40], written[2][500];
    for (uint32_t i = 0; i < frames; i++) {
        sizes[i] = i % 10 == 5 ? 100000 : i * 37;
    }
    for (uint32_t k = 0; k < 2; k++) {
        memcpy(sides[k].memory.base + LOCAL_AT, content_of(k, 2U << 20), 2U << 20);
        for (uint32_t i = 0; i < count; i++) {
            written[k][i] = 1 + (uint32_t)(sl_hash_random(&seed) % (2 * slot / 3));
            add(&sides[k], SL_TRANSPORT_RMA_WRITE, (uint64_t)i * slot,
                sides[k].memory.base + LOCAL_AT + i * 3, written[k][i]);
            add(&sides[k], SL_TRANSPORT_RMA_READ, LOCAL_AT + i,
                sides[k].memory.base + LOCAL_AT + (4U << 20) + i, 1);
        }
        add(&sides[k], SL_TRANSPORT_RMA_FLUSH, 0, NULL, 0);
    }
    begin(target);
    begin(initiator);
    peer_send_from_test(initiator->peer, sizes, frames);
    peer_send_from_test(target->peer, sizes, frames);
    assert_true(finish(target));
    assert_true(finish(initiator));
    WAIT_UNTIL(target->peer->received == frames && initiator->peer->received == frames);
    for (uint32_t k = 0; k < 2; k++) {
        const uint8_t *theirs = sides[1 - k].memory.base;
        for (uint32_t i = 0; i < count; i++) {
            const uint8_t *at = theirs + (size_t)i * slot;
            assert_memory_equal(at, sides[k].memory.base + LOCAL_AT + i * 3, written[k][i]);
            assert_true(is_all(at + written[k][i], GUARD_BYTE, slot - written[k][i]));
        }
        assert_memory_equal(sides[k].memory.base + LOCAL_AT + (4U << 20), theirs + LOCAL_AT, count);
    }
}

/* Posts one operation that must fail: with one of the errors, or with the connection. Nothing is
 * written at the target. */
static void expect_refused(struct side *side, const struct sl_transport_rma_op *op, int err)
{
    add(side, op->kind, op->offset, side->memory.base + LOCAL_AT, op->bytes);
    if (op->token != NULL) {
        side->ops[0].token = op->token;
    }
    memset(side->memory.base + LOCAL_AT, 0x11, 4096);
    begin(side);
    WAIT_UNTIL(side->completed == 1 || side->peer->closed == 1);
    assert_true(side->peer->closed == 1 || side->errs[0] == err);
    if (side->peer->closed == 0) {
        node_run(side->node, forget, side);
    }
    assert_true(is_all(other(side)->memory.base, GUARD_BYTE, MEMORY_BYTES));
}

static void expect_all_good(struct side *side)
{
    if (side->peer->closed == 0) {
        add(side, SL_TRANSPORT_RMA_READ, 5, side->memory.base + LOCAL_AT, 100);
        assert_true(run(side));
        assert_true(is_all(side->memory.base + LOCAL_AT, GUARD_BYTE, 100));
    }
}

RMA_CASE(rma__beyond_the_region, open_both())
{
    static const struct sl_transport_rma_op ops[] = {
        {.kind = SL_TRANSPORT_RMA_WRITE, .offset = MEMORY_BYTES - 99, .bytes = 100},
        {.kind = SL_TRANSPORT_RMA_READ, .offset = MEMORY_BYTES, .bytes = 1},
        {.kind = SL_TRANSPORT_RMA_WRITE, .offset = UINT64_MAX - 3, .bytes = 8},
        {.kind = SL_TRANSPORT_RMA_READ, .offset = 1ULL << 40, .bytes = 4096}};
    for (uint32_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        expect_refused(initiator, &ops[i], SL_ERR_INVALID);
        assert_int_equal(initiator->peer->closed, 0);
    }
    expect_all_good(initiator);
}

RMA_CASE(rma__beyond_the_region_with_a_false_token, open_both())
{
    struct sl_transport_rma_token token = target->token;
    token.bytes = UINT64_MAX;
    expect_refused(initiator,
                   &(struct sl_transport_rma_op){.kind = SL_TRANSPORT_RMA_WRITE,
                                                 .offset = MEMORY_BYTES - 99,
                                                 .bytes = 100,
                                                 .token = &token},
                   SL_ERR_INVALID);
    expect_all_good(initiator);
}

RMA_CASE(rma__write_to_memory_that_peers_read,
         open_with((struct setup){.access = SL_TRANSPORT_RMA_PEERS_READ}))
{
    const struct sl_transport_rma_op op = {.kind = SL_TRANSPORT_RMA_WRITE, .bytes = 100};
    expect_refused(initiator, &op, SL_ERR_REFUSED);
    assert_int_equal(initiator->peer->closed, 0);
    expect_all_good(initiator);
}

RMA_CASE(rma__write_with_a_false_token,
         open_with((struct setup){.access = SL_TRANSPORT_RMA_PEERS_READ}))
{
    struct sl_transport_rma_token token = target->token;
    token.access |= SL_TRANSPORT_RMA_PEERS_WRITE;
    const struct sl_transport_rma_op op = {
        .kind = SL_TRANSPORT_RMA_WRITE, .bytes = 100, .token = &token};
    expect_refused(initiator, &op, SL_ERR_REFUSED);
    expect_all_good(initiator);
}

RMA_CASE(rma__unknown_token, open_both())
{
    struct sl_transport_rma_token token = target->token;
    token.name ^= 1ULL << 36;
    token.remote_key ^= 0xff00;
    const struct sl_transport_rma_op op = {
        .kind = SL_TRANSPORT_RMA_WRITE, .bytes = 100, .token = &token};
    expect_refused(initiator, &op, SL_ERR_NOT_FOUND);
    expect_all_good(initiator);
}

RMA_CASE(rma__not_admitted, open_with((struct setup){.is_stranger = true,
                                                     .access = SL_TRANSPORT_RMA_PEERS_READ |
                                                               SL_TRANSPORT_RMA_PEERS_WRITE}))
{
    const struct sl_transport_rma_op op = {.kind = SL_TRANSPORT_RMA_WRITE, .bytes = 100};
    expect_refused(initiator, &op, SL_ERR_NOT_FOUND);
}

static void add_local(struct node *node, void *ctx)
{
    struct side *side = ctx;
    side->key += 100;
    sl_assert(sl_transport_rma_region_add(node->transport, side->key - 100, side->memory.base,
                                          side->memory.bytes, side->access) == SL_ERR_EXISTS);
    sl_assert(sl_transport_rma_region_add(node->transport, side->key, side->memory.base, 4096,
                                          SL_TRANSPORT_RMA_LOCAL) == 0);
    sl_assert(sl_transport_rma_region_add(node->transport, 7, side->memory.base, side->memory.bytes,
                                          SL_TRANSPORT_RMA_PEERS_WRITE) == SL_ERR_UNSUPPORTED);
}

/* No peer reaches memory that is there for this side's operations, whatever its token says. */
RMA_CASE(rma__local_memory, open_both())
{
    node_run(target->node, add_local, target);
    WAIT_UNTIL(target->added == 2);
    struct sl_transport_rma_token token = target->token;
    token.access = SL_TRANSPORT_RMA_PEERS_READ | SL_TRANSPORT_RMA_PEERS_WRITE;
    const struct sl_transport_rma_op op = {
        .kind = SL_TRANSPORT_RMA_WRITE, .bytes = 100, .token = &token};
    expect_refused(initiator, &op, SL_ERR_NOT_FOUND);
    node_run(target->node, remove_region, target);
    WAIT_UNTIL(target->removed == 1);
    assert_int_equal(target->removed_err, 0);
}

static void add_writes(struct side *side, uint32_t count, uint32_t bytes)
{
    for (uint32_t i = 0; i < count; i++) {
        add(side, SL_TRANSPORT_RMA_WRITE, (uint64_t)(i % 8) * bytes, side->memory.base + LOCAL_AT,
            bytes);
    }
}

/* The region goes in the middle of operations: they fail or the connection ends, and from then on
 * no byte of the memory changes. */
RMA_CASE(rma__removed_while_in_use, open_both())
{
    memset(initiator->memory.base + LOCAL_AT, 0x11, 65536);
    add_writes(initiator, OPS_MAX, 65536);
    begin(initiator);
    WAIT_UNTIL(initiator->completed > 20);
    node_run(target->node, remove_region, target);
    WAIT_UNTIL(target->removed == 1);
    assert_int_equal(target->removed_err, 0);
    memset(target->memory.base, GUARD_BYTE, MEMORY_BYTES);
    WAIT_UNTIL(initiator->completed == OPS_MAX || initiator->peer->closed == 1);
    for (uint32_t i = 0; i < initiator->completed; i++) {
        assert_true(initiator->errs[i] == 0 || initiator->errs[i] == SL_ERR_NOT_FOUND);
    }
    (void)finish(initiator);
    if (initiator->peer->closed == 0) {
        const struct sl_transport_rma_op op = {.kind = SL_TRANSPORT_RMA_WRITE, .bytes = 100};
        expect_refused(initiator, &op, SL_ERR_NOT_FOUND);
    }
    assert_true(is_all(target->memory.base, GUARD_BYTE, MEMORY_BYTES));
}

/* After `closed` of the side that disconnects nothing is written, and nothing is reported. */
static void disconnect_in_the_middle(struct side *leaver)
{
    struct side *target = &sides[0], *initiator = &sides[1];
    memset(initiator->memory.base + LOCAL_AT, 0x11, 65536);
    add_writes(initiator, OPS_MAX, 65536);
    add_writes(target, OPS_MAX, 65536);
    begin(target);
    begin(initiator);
    WAIT_UNTIL(initiator->completed > 20);
    peer_disconnect_from_test(leaver->peer);
    WAIT_UNTIL(leaver->peer->closed == 1);
    memset(target->memory.base, GUARD_BYTE, MEMORY_BYTES);
    const uint32_t completed = initiator->completed;
    WAIT_UNTIL(other(leaver)->peer->closed == 1);
    if (leaver == initiator) {
        assert_int_equal(initiator->completed, completed);
    }
    assert_true(is_all(target->memory.base, GUARD_BYTE, MEMORY_BYTES));
    node_run(target->node, remove_region, target);
    WAIT_UNTIL(target->removed == 1);
    assert_int_equal(target->removed_err, 0);
}

RMA_CASE(rma__initiator_disconnects, open_both())
{
    disconnect_in_the_middle(initiator);
}

RMA_CASE(rma__target_disconnects, open_both())
{
    disconnect_in_the_middle(target);
}

static void post_and_disconnect(struct node *node, void *ctx)
{
    struct side *side = ctx;
    post_rest(side);
    sl_transport_disconnect(side->peer->conn);
    sl_assert(sl_transport_rma_post(side->peer->conn, side->ops, 1) == 0);
}

RMA_CASE(rma__posted_and_disconnected, open_both())
{
    add_writes(initiator, 10, 65536);
    node_run(initiator->node, post_and_disconnect, initiator);
    WAIT_UNTIL(initiator->peer->closed == 1 && target->peer->closed == 1);
    assert_int_equal(initiator->peer->close_err, SL_OK);
}

/* With faults on purpose */

static struct world *open_faulty(struct sl_faults faults)
{
    if (conformance_target->faulty == NULL || conformance_target->ops->rma == NULL) {
        skip();
    }
    conformance_target->faulty->faults = faults;
    return open_both();
}

/* Each operation is reported once. Those that fail have no effect, the others are done. */
RMA_CASE(rma__some_fail, open_faulty((struct sl_faults){.seed = 2, .late = 100, .fail = 200}))
{
    const uint32_t slot = 4000, count = 1000;
    const uint8_t *content = content_of(1, count * slot);
    uint32_t failed = 0;
    memcpy(initiator->memory.base + LOCAL_AT, content, (size_t)count * slot);
    for (uint32_t i = 0; i < count; i++) {
        add(initiator, SL_TRANSPORT_RMA_WRITE, (uint64_t)i * slot,
            initiator->memory.base + LOCAL_AT + (size_t)i * slot, slot - 1);
    }
    begin(initiator);
    WAIT_UNTIL(initiator->completed == count);
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *at = target->memory.base + (size_t)i * slot;
        if (initiator->errs[i] == 0) {
            assert_memory_equal(at, content + (size_t)i * slot, slot - 1);
        } else {
            assert_int_equal(initiator->errs[i], SL_ERR_INVALID);
            assert_true(is_all(at, GUARD_BYTE, slot - 1));
            failed++;
        }
        assert_int_equal(at[slot - 1], GUARD_BYTE);
    }
    assert_int_equal(failed, conformance_target->faulty->failed_count);
    assert_true(failed > 0);
}

/* The connection ends within operations: each is reported at most once, and none has an effect
 * afterwards. */
RMA_CASE(rma__cut_in_the_middle, open_faulty((struct sl_faults){.seed = 3, .late = 100, .cut = 20}))
{
    memset(initiator->memory.base + LOCAL_AT, 0x11, 65536);
    add_writes(initiator, OPS_MAX, 65536);
    begin(initiator);
    WAIT_UNTIL(initiator->peer->closed == 1 && target->peer->closed == 1);
    assert_int_equal(initiator->peer->close_err, SL_ERR_IO);
    assert_int_equal(target->peer->close_err, SL_ERR_CLOSED);
    const uint32_t completed = initiator->completed;
    memset(target->memory.base, GUARD_BYTE, MEMORY_BYTES);
    memset(initiator->memory.base, GUARD_BYTE, MEMORY_BYTES);
    node_run(target->node, remove_region, target);
    WAIT_UNTIL(target->removed == 1);
    assert_int_equal(target->removed_err, 0);
    assert_int_equal(initiator->completed, completed);
    assert_true(is_all(target->memory.base, GUARD_BYTE, MEMORY_BYTES));
    assert_true(is_all(initiator->memory.base, GUARD_BYTE, MEMORY_BYTES));
}

const char conformance_rma_cases;
