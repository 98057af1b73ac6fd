/* The ports that the other tests rely on. */
#include <string.h>

#include "net/dpdk/port.h"
#include "tests/support/unit.h"
#include "tests/support/wire_port.h"

#define FRAME 60U

struct fixture {
    struct sl_clock clock;
    uint64_t now_ns;
    struct sl_wire *wire;
    struct sl_wire_host *hosts[2];
    struct sl_wire_device *devices[2];
    struct sl_reactor *reactors[2];
    struct sl_dpdk_port *ports[2];
};

static uint64_t now_ns(void *ctx)
{
    return ((const struct fixture *)ctx)->now_ns;
}

static void set_up(struct fixture *f, const struct sl_wire_device_options *options,
                   uint64_t delay_ns)
{
    *f = (struct fixture){.now_ns = SL_CLOCK_NS_PER_S};
    f->clock = (struct sl_clock){.now_ns = now_ns, .ctx = f};
    f->wire = sl_wire_create(&(struct sl_wire_options){.clock = &f->clock, .delay_ns = delay_ns});
    for (uint32_t i = 0; i < 2; i++) {
        struct sl_wire_device_options device = *options;
        device.address = i == 0 ? "10.0.0.1" : "10.0.0.2";
        const struct sl_reactor_options reactor = {
            .name = "r", .core = -1, .stepped = true, .clock = &f->clock, .seed = 1};
        f->hosts[i] = sl_wire_host_add(f->wire);
        f->devices[i] = sl_wire_device_add(f->hosts[i], &device);
        assert_int_equal(sl_reactor_create(&reactor, &f->reactors[i]), 0);
        struct sl_dpdk_medium *medium = sl_wire_host_medium(f->hosts[i]);
        assert_int_equal(medium->ops->open(medium->ctx, f->reactors[i], &f->ports[i], 1), 1);
    }
}

static void tear_down(struct fixture *f)
{
    for (uint32_t i = 0; i < 2; i++) {
        f->ports[i]->ops->close(&f->ports[i]);
        sl_wire_host_remove(&f->hosts[i]);
        sl_reactor_destroy(&f->reactors[i]);
    }
    sl_wire_destroy(&f->wire);
}

/* From port 0 to port 1, or to everybody. */
static struct sl_dpdk_packet make(struct fixture *f, bool to_all, uint16_t queue, uint8_t content)
{
    struct sl_dpdk_packet packet;
    assert_int_equal(f->ports[0]->ops->reserve(f->ports[0], &packet, 1), 1);
    memset(packet.bytes, content, FRAME);
    memcpy(packet.bytes, sl_wire_device_mac(f->devices[1]), 6);
    memcpy(packet.bytes + 6, sl_wire_device_mac(f->devices[0]), 6);
    if (to_all) {
        memset(packet.bytes, 0xff, 6);
    }
    packet.length = FRAME;
    packet.queue = queue;
    return packet;
}

static bool send_one(struct fixture *f, bool to_all, uint16_t queue, uint8_t content)
{
    struct sl_dpdk_packet packet = make(f, to_all, queue, content);
    if (f->ports[0]->ops->send(f->ports[0], &packet, 1) == 1) {
        return true;
    }
    f->ports[0]->ops->release(f->ports[0], &packet, 1);
    return false;
}

/* What comes to a port; 0: nothing. */
static uint8_t receive_one(struct fixture *f, uint32_t port, uint16_t *queue)
{
    struct sl_dpdk_packet packet;
    if (f->ports[port]->ops->receive(f->ports[port], &packet, 1) == 0) {
        return 0;
    }
    assert_int_equal(packet.length, FRAME);
    uint8_t content = packet.bytes[FRAME - 1];
    *queue = packet.queue;
    f->ports[port]->ops->release(f->ports[port], &packet, 1);
    return content;
}

SL_CASE(send__arrives_by_the_queue_that_it_left_by)
{
    struct fixture f;
    set_up(&f, &(struct sl_wire_device_options){.queues = 4}, 0);
    uint16_t queue;
    for (uint16_t i = 0; i < 4; i++) {
        assert_true(send_one(&f, i % 2 == 1, i, (uint8_t)(7 + i)));
        assert_int_equal(receive_one(&f, 1, &queue), 7 + i);
        assert_int_equal(queue, i);
        assert_int_equal(receive_one(&f, 1, &queue), 0);
        assert_int_equal(receive_one(&f, 0, &queue), 0);
    }
    tear_down(&f);
}

SL_CASE(send__into_a_full_queue)
{
    for (uint32_t drops = 0; drops < 2; drops++) {
        struct fixture f;
        set_up(&f, &(struct sl_wire_device_options){.queue_packets = 3, .drops = drops != 0}, 0);
        uint16_t queue;
        for (uint8_t i = 1; i <= 4; i++) {
            assert_int_equal(send_one(&f, false, 0, i), i <= 3 || drops != 0);
        }
        struct sl_dpdk_port_stats stats;
        f.ports[1]->ops->stats(f.ports[1], &stats);
        assert_int_equal(stats.dropped, drops);
        for (uint8_t i = 1; i <= 3; i++) {
            assert_int_equal(receive_one(&f, 1, &queue), i);
        }
        assert_int_equal(receive_one(&f, 1, &queue), 0);
        tear_down(&f);
    }
}

SL_CASE(send__takes_its_time)
{
    struct fixture f;
    set_up(&f, &(struct sl_wire_device_options){0}, 500);
    uint16_t queue;
    assert_int_equal(sl_wire_next_ns(f.wire), SL_CLOCK_NEVER);
    assert_true(send_one(&f, false, 0, 9));
    assert_int_equal(sl_wire_next_ns(f.wire), f.now_ns + 500);
    assert_true(f.ports[1]->ops->arm(f.ports[1]));
    f.now_ns += 499;
    assert_int_equal(receive_one(&f, 1, &queue), 0);
    f.now_ns += 1;
    assert_false(f.ports[1]->ops->arm(f.ports[1]));
    assert_int_equal(receive_one(&f, 1, &queue), 9);
    tear_down(&f);
}

/* What lies elsewhere is read after send has returned, and the sender is told when. */
SL_CASE(send__gathers_late)
{
    struct fixture f;
    set_up(&f, &(struct sl_wire_device_options){.tx_gather = true}, 0);
    uint8_t memory[100] = {0};
    uint32_t pending = 1;
    uint16_t queue;
    assert_int_equal(f.ports[0]->ops->memory_register(f.ports[0], memory, sizeof memory), 0);
    struct sl_dpdk_packet packet = make(&f, false, 0, 1);
    packet.length = FRAME - 20;
    packet.tail = memory + 10;
    packet.tail_length = 20;
    packet.pending = &pending;
    assert_int_equal(f.ports[0]->ops->send(f.ports[0], &packet, 1), 1);
    assert_int_equal(pending, 1);
    memory[29] = 55;
    assert_int_equal(receive_one(&f, 0, &queue), 0); /* it goes on with any call */
    assert_int_equal(pending, 0);
    assert_int_equal(receive_one(&f, 1, &queue), 55);
    f.ports[0]->ops->memory_unregister(f.ports[0], memory);
    tear_down(&f);
}

static bool lose_sevens(void *ctx, const uint8_t *bytes, uint32_t length)
{
    ++*(uint32_t *)ctx;
    return bytes[length - 1] != 7;
}

SL_CASE(tap__sees_and_loses)
{
    struct fixture f;
    set_up(&f, &(struct sl_wire_device_options){0}, 0);
    uint32_t received = 0;
    uint16_t queue;
    sl_wire_set_tap(f.wire, lose_sevens, &received);
    assert_true(send_one(&f, false, 0, 7));
    assert_true(send_one(&f, false, 0, 8));
    assert_int_equal(receive_one(&f, 1, &queue), 8);
    assert_int_equal(received, 2);
    sl_wire_device_set_down(f.devices[1], true);
    assert_true(send_one(&f, false, 0, 8));
    assert_int_equal(receive_one(&f, 1, &queue), 0);
    tear_down(&f);
}

/* No more are lent than were promised: the rest waits in the queue. */
SL_CASE(receive__lends_so_many)
{
    struct fixture f;
    set_up(&f, &(struct sl_wire_device_options){.packets = 2}, 0);
    struct sl_dpdk_packet packets[4];
    for (uint8_t i = 1; i <= 3; i++) {
        assert_true(send_one(&f, false, 0, i));
    }
    assert_int_equal(f.ports[1]->ops->receive(f.ports[1], packets, 4), 2);
    assert_int_equal(sl_wire_device_held(f.devices[1]), 2);
    f.ports[1]->ops->release(f.ports[1], packets, 1);
    assert_int_equal(f.ports[1]->ops->receive(f.ports[1], packets, 4), 1);
    assert_int_equal(packets[0].bytes[FRAME - 1], 3);
    f.ports[1]->ops->release(f.ports[1], packets, 2);
    tear_down(&f);
}
