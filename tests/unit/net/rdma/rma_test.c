/* Registration of regions, and operations as work requests. */
#include "net/rdma/rma.h"

#include <string.h>

#include "net/rdma/conn_table.h"
#include "net/rdma/rma_memory.h"
#include "net/rdma/wake.h"
#include "tests/support/unit.h"
#include "tests/unit/net/rdma/wire.h"

#define MEMORY_BYTES   (64U << 10)
#define BOTH           (SL_TRANSPORT_RMA_PEERS_READ | SL_TRANSPORT_RMA_PEERS_WRITE)
#define BOTH_AT_DEVICE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

static struct rdma_wire wire;
static _Alignas(4096) uint8_t memory[2][MEMORY_BYTES];
static struct sl_transport_rma_token tokens[4]; /* by key */
static uint32_t added, removed, completed;
static int added_err, errs[1024];

static void on_added(void *ctx, uint64_t key, const struct sl_transport_rma_token *token, int err)
{
    tokens[key] = *token;
    added_err = err;
    added++;
}

static void on_removed(void *ctx, uint64_t key, int err)
{
    assert_int_equal(err, 0);
    removed++;
}

static void on_completed(void *ctx, struct sl_conn *conn, void *cookie, int err)
{
    assert_int_equal((uintptr_t)cookie, completed); /* in order */
    errs[completed++] = err;
}

static const struct sl_transport_rma_events events = {
    .region_added = on_added, .region_removed = on_removed, .completed = on_completed};

static void set_up(void)
{
    rdma_wire_init(&wire);
    wire.fake.rdma.base.rma_events = &events;
    added = removed = completed = 0;
    added_err = 0;
    memset(memory, 0, sizeof memory);
}

static void tear_down(void)
{
    wire.fake.rdma.base.is_closing = true;
    sl_rdma_rma_memory_close(&wire.fake.rdma);
    rdma_wire_fini(&wire);
}

#define CASE(name) SL_CASE_WITH(name, set_up(), tear_down())

static int add(uint64_t key, void *base, unsigned access)
{
    return sl_rdma_rma_ops.region_add(&wire.fake.rdma.base, key, base, MEMORY_BYTES, access);
}

/* The stepped reactor runs the offload's job in a later turn. */
static void pass_turns(void)
{
    for (uint32_t i = 0; i < 10; i++) {
        rdma_fake_sleep(&wire.fake, 1);
    }
}

/* The next look at all devices. */
static void sweep(void)
{
    sl_rdma_wake_sweep(&wire.fake.rdma);
    rdma_fake_sleep(&wire.fake, wire.fake.rdma.base.peer_timeout_ms);
    pass_turns();
}

/* Key 0: memory of this side; key 1: memory that peers may read and write. */
static void add_both(void)
{
    assert_int_equal(add(0, memory[0], SL_TRANSPORT_RMA_LOCAL), 0);
    assert_int_equal(add(1, memory[1], BOTH), 0);
    assert_int_equal(added, 0);
    pass_turns();
    assert_int_equal(added, 2);
}

static bool post(uint32_t number, enum sl_transport_rma_kind kind, uint64_t offset, void *local,
                 uint32_t bytes)
{
    const struct sl_transport_rma_op op = {.kind = kind,
                                           .bytes = bytes,
                                           .local = local,
                                           .token = &tokens[1],
                                           .offset = offset,
                                           .cookie = (void *)(uintptr_t)number};
    return sl_rdma_rma_ops.post(&wire.ends[0].conn->base, &op, 1) == 1;
}

static void settle(void)
{
    for (uint32_t i = 0; i < 20; i++) {
        rdma_wire_settle(&wire);
        sl_rdma_rma_report(wire.ends[0].conn);
    }
}

static int access_of(uint64_t key)
{
    const struct rdma_fake_region *region = rdma_fake_region_of(&wire.fake, tokens[key].remote_key);
    assert_non_null(region);
    return region->access;
}

CASE(region_add__with_exactly_the_given_access)
{
    wire.fake.nic.caps.relaxed_order = true;
    assert_int_equal(add(0, memory[0], SL_TRANSPORT_RMA_PEERS_READ), 0);
    assert_int_equal(add(1, memory[1], BOTH), 0);
    assert_int_equal(add(2, memory[1], SL_TRANSPORT_RMA_LOCAL), 0);
    pass_turns();
    assert_int_equal(added, 3);
    assert_int_equal(access_of(0),
                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING);
    assert_int_equal(access_of(1), BOTH_AT_DEVICE);
    assert_int_equal(access_of(2), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
    assert_int_equal(tokens[1].name, (uintptr_t)memory[1]);
    assert_int_equal(tokens[1].bytes, MEMORY_BYTES);
    assert_int_equal(tokens[1].access, BOTH);
}

CASE(region_add__the_key_is_in_use)
{
    assert_int_equal(add(1, memory[0], BOTH), 0);
    assert_int_equal(add(1, memory[1], BOTH), SL_ERR_EXISTS);
    pass_turns();
    assert_int_equal(added, 1);
}

CASE(region_add__no_memory_can_be_locked)
{
    wire.fake.live_bytes_max = wire.fake.live_bytes + 1;
    assert_int_equal(add(1, memory[0], BOTH), 0);
    pass_turns();
    assert_int_equal(added, 1);
    assert_int_equal(added_err, SL_ERR_NO_MEMORY);
    assert_int_equal(add(1, memory[0], BOTH), SL_ERR_EXISTS);
    sweep(); /* a failure is reported once */
    assert_int_equal(added, 1);
    wire.fake.live_bytes_max = 0;
    sweep();
    assert_int_equal(added, 2);
    assert_int_equal(added_err, 0);
    assert_int_equal(access_of(1), BOTH_AT_DEVICE);
    sweep();
    assert_int_equal(added, 2);
}

CASE(region_add__while_the_device_is_away)
{
    wire.fake.nic.gone = true;
    assert_int_equal(add(1, memory[0], BOTH), 0);
    assert_int_equal(add(2, memory[1], BOTH), 0);
    pass_turns();
    assert_int_equal(added, 2);
    assert_int_equal(added_err, SL_ERR_IO);
    sl_rdma_rma_ops.region_remove(&wire.fake.rdma.base, 2);
    pass_turns();
    assert_int_equal(removed, 1);
    wire.fake.nic.gone = false;
    sl_rdma_rma_memory_pin_again(&wire.fake.nic);
    pass_turns();
    assert_int_equal(added, 3);
    assert_int_equal(added_err, 0);
    assert_int_equal(access_of(1), BOTH_AT_DEVICE);
}

/* The token is of no use any more; a later one is. */
CASE(region__is_not_registered_again_at_once)
{
    add_both();
    wire.fake.nic.gone = true;
    sl_rdma_rma_memory_unpin(&wire.fake.nic);
    wire.fake.nic.gone = false;
    wire.fake.live_bytes_max = wire.fake.live_bytes + 1;
    sl_rdma_rma_memory_pin_again(&wire.fake.nic);
    pass_turns();
    assert_int_equal(added, 4);
    assert_int_equal(added_err, SL_ERR_NO_MEMORY);
    wire.fake.live_bytes_max = 0;
    sweep();
    assert_int_equal(added, 6);
    assert_int_equal(added_err, 0);
    assert_int_equal(access_of(1), BOTH_AT_DEVICE);
}

CASE(region_remove__the_key_is_of_no_use)
{
    add_both();
    const uint32_t key = tokens[1].remote_key;
    sl_rdma_rma_ops.region_remove(&wire.fake.rdma.base, 1);
    assert_int_equal(removed, 0);
    pass_turns();
    assert_int_equal(removed, 1);
    assert_null(rdma_fake_region_of(&wire.fake, key));
}

CASE(post__write_flush_read)
{
    add_both();
    memset(memory[0], 7, 1000);
    assert_true(post(0, SL_TRANSPORT_RMA_WRITE, 5, memory[0] + 1, 999));
    assert_true(post(1, SL_TRANSPORT_RMA_FLUSH, 0, NULL, 0));
    assert_true(post(2, SL_TRANSPORT_RMA_READ, 5, memory[0] + 4096, 999));
    assert_int_equal(completed, 0);
    rdma_wire_turn(&wire);
    const struct rdma_wire_request *requests = wire.ends[0].requests;
    assert_int_equal(requests[0].opcode, IBV_WR_RDMA_WRITE);
    assert_int_equal(requests[0].remote_at, (uintptr_t)memory[1] + 5);
    assert_int_equal(requests[1].opcode, IBV_WR_RDMA_READ);
    assert_int_equal(requests[1].bytes, 8);
    assert_true((requests[2].flags & IBV_SEND_SIGNALED) != 0);
    assert_true((requests[0].flags & IBV_SEND_SIGNALED) == 0);
    settle();
    assert_int_equal(completed, 3);
    assert_int_equal(errs[0] | errs[1] | errs[2], 0);
    assert_memory_equal(memory[0] + 1, memory[1] + 5, 999);
    assert_memory_equal(memory[0] + 1, memory[0] + 4096, 999);
}

/* Refused operations are reported in their turn, and nothing is sent for them. */
CASE(post__refused_ones_in_order)
{
    static uint8_t elsewhere[64];
    add_both();
    assert_true(post(0, SL_TRANSPORT_RMA_WRITE, 0, elsewhere, 64));
    assert_true(post(1, SL_TRANSPORT_RMA_WRITE, 0, memory[0], 64));
    assert_true(post(2, SL_TRANSPORT_RMA_WRITE, MEMORY_BYTES - 63, memory[0], 64));
    assert_true(post(3, SL_TRANSPORT_RMA_READ, 0, memory[0] + MEMORY_BYTES - 63, 64));
    tokens[1].access = SL_TRANSPORT_RMA_PEERS_READ;
    assert_true(post(4, SL_TRANSPORT_RMA_WRITE, 0, memory[0], 64));
    rdma_wire_turn(&wire);
    assert_int_equal(wire.ends[0].posted, 1);
    settle();
    assert_int_equal(completed, 5);
    assert_int_equal(errs[0], SL_ERR_INVALID);
    assert_int_equal(errs[1], 0);
    assert_int_equal(errs[2], SL_ERR_INVALID);
    assert_int_equal(errs[3], SL_ERR_INVALID);
    assert_int_equal(errs[4], SL_ERR_REFUSED);
}

/* A full queue takes fewer; half of the send queue is left to packets; every 32nd is signalled. */
CASE(post__more_than_the_queue_holds)
{
    add_both();
    uint32_t taken = 0;
    while (post(taken, SL_TRANSPORT_RMA_WRITE, 0, memory[0], 64)) {
        taken++;
    }
    assert_int_equal(taken, SL_LIMIT_TRANSFER_SLICES);
    rdma_wire_turn(&wire);
    assert_int_equal(wire.ends[0].posted, SL_RDMA_SENDS / 2);
    uint32_t signalled = 0;
    for (uint32_t i = 0; i < wire.ends[0].posted; i++) {
        signalled += (wire.ends[0].requests[i].flags & IBV_SEND_SIGNALED) != 0;
    }
    assert_in_range(signalled, 2, 4);
    settle();
    assert_int_equal(completed, taken);
}

int main(void)
{
    return sl_unit_run("rma", __FILE__);
}
