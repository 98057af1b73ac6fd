/* Each fault happens as often as it is asked for, and nothing else does. The ports within abort at
 * a packet that is given twice, or not given back. */

#include "core/log.h"
#include "net/dpdk/wire.h"
#include "tests/support/fault_port.h"
#include "tests/support/unit.h"
#include "tests/support/wire_port.h"

#define PACKETS   4000U
#define TENTH     100000U /* a share */
#define BODY      100U
#define TURN_NS   (10 * SL_CLOCK_NS_PER_US)
#define LATE_TURN 200U /* after so many turns nothing is late any more */

struct fixture {
    struct sl_clock clock;
    uint64_t now_ns;
    struct sl_wire *wire;
    struct sl_wire_host *hosts[2];
    struct sl_wire_device *devices[2];
    struct sl_reactor *reactors[2];
    struct sl_dpdk_port *ports[2]; /* 0 sends, 1 receives */
    uint8_t came[PACKETS];         /* how often each, unchanged */
    uint32_t received, broken, early, last;
};

static uint64_t now_ns(void *ctx)
{
    return ((const struct fixture *)ctx)->now_ns;
}

#define BOTH 2U /* as `faulty` */

static void set_up(struct fixture *f, const struct sl_dpdk_faults *faults, uint32_t faulty)
{
    sl_log_setup(SL_LOG_OFF, "faults");
    *f = (struct fixture){.now_ns = SL_CLOCK_NS_PER_S};
    f->clock = (struct sl_clock){.now_ns = now_ns, .ctx = f};
    f->wire = sl_wire_create(&(struct sl_wire_options){.clock = &f->clock});
    for (uint32_t i = 0; i < 2; i++) {
        const struct sl_wire_device_options device = {.address = i == 0 ? "10.0.0.1" : "10.0.0.2",
                                                      .queue_packets = 64};
        const struct sl_reactor_options reactor = {
            .name = "r", .core = -1, .stepped = true, .clock = &f->clock, .seed = 1};
        f->hosts[i] = sl_wire_host_add(f->wire);
        f->devices[i] = sl_wire_device_add(f->hosts[i], &device);
        assert_int_equal(sl_reactor_create(&reactor, &f->reactors[i]), 0);
        struct sl_dpdk_medium medium = *sl_wire_host_medium(f->hosts[i]);
        struct sl_dpdk_fault_medium faulty_medium = {.inner = medium, .faults = *faults};
        if (i == faulty || faulty == BOTH) {
            medium = (struct sl_dpdk_medium){.ops = &sl_dpdk_fault_ports, .ctx = &faulty_medium};
        }
        assert_int_equal(medium.ops->open(medium.ctx, f->reactors[i], &f->ports[i], 1), 1);
    }
}

static void tear_down(struct fixture *f)
{
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(sl_wire_device_held(f->devices[i]), 0);
        f->ports[i]->ops->close(&f->ports[i]);
        sl_wire_host_remove(&f->hosts[i]);
        sl_reactor_destroy(&f->reactors[i]);
    }
    sl_wire_destroy(&f->wire);
}

static struct sl_dpdk_address address_of(uint32_t side)
{
    struct sl_dpdk_address address = {.port = 9200};
    address.ip.s6_addr[10] = address.ip.s6_addr[11] = 0xff;
    address.ip.s6_addr[12] = 10;
    address.ip.s6_addr[15] = (uint8_t)(1 + side);
    return address;
}

static uint8_t content_of(uint32_t number, uint32_t at)
{
    return (uint8_t)(number * 31 + at * 7);
}

static struct sl_dpdk_packet make(struct fixture *f, uint32_t number)
{
    struct sl_dpdk_packet packet;
    struct sl_dpdk_route route;
    assert_int_equal(f->ports[0]->ops->reserve(f->ports[0], &packet, 1), 1);
    const struct sl_dpdk_address from = address_of(0), to = address_of(1);
    sl_dpdk_route_build(&route, sl_wire_device_mac(f->devices[0]),
                        sl_wire_device_mac(f->devices[1]), &from, &to);
    const struct sl_dpdk_header header = {
        .connection = 1, .message = number, .kind = SL_DPDK_DATA, .body_bytes = BODY};
    const uint32_t before = sl_dpdk_write(packet.bytes, &route, &header);
    for (uint32_t i = 0; i < BODY; i++) {
        packet.bytes[before + i] = content_of(number, i);
    }
    packet.length = before + BODY;
    packet.queue = 0;
    packet.tail_length = 0;
    packet.pending = NULL;
    packet.unchecked = false;
    sl_dpdk_seal(packet.bytes, packet.length);
    return packet;
}

static void take(struct fixture *f, const struct sl_dpdk_packet *packet)
{
    struct sl_dpdk_parsed parsed;
    f->received++;
    if (sl_dpdk_parse(packet->bytes, packet->length, packet->checked, &parsed) != SL_DPDK_OURS) {
        f->broken++;
        return;
    }
    const uint32_t number = parsed.header.message;
    assert_true(parsed.body_bytes == BODY && number < PACKETS);
    for (uint32_t i = 0; i < BODY; i++) {
        assert_int_equal(parsed.body[i], content_of(number, i));
    }
    f->came[number]++;
    f->early += number < f->last;
    f->last = number;
}

static void receive_all(struct fixture *f)
{
    struct sl_dpdk_packet packets[SL_DPDK_BURST];
    uint32_t count;
    do {
        count = f->ports[1]->ops->receive(f->ports[1], packets, SL_DPDK_BURST);
        for (uint32_t i = 0; i < count; i++) {
            take(f, &packets[i]);
        }
        f->ports[1]->ops->release(f->ports[1], packets, count);
    } while (count > 0);
}

/* All packets go, by one and by many, and what is late comes. */
static void run(struct fixture *f)
{
    struct sl_dpdk_packet packets[SL_DPDK_BURST];
    uint32_t sent = 0;
    for (uint32_t i = 0, late = 0; late < LATE_TURN; i++) {
        uint32_t count = i % 3 == 0 ? 1 : 1 + i % SL_DPDK_BURST;
        count = count < PACKETS - sent ? count : PACKETS - sent;
        late += count == 0;
        f->now_ns += TURN_NS;
        for (uint32_t side = 0; side < 2; side++) {
            (void)sl_reactor_turn(f->reactors[side], f->now_ns);
        }
        for (uint32_t k = 0; k < count; k++) {
            packets[k] = make(f, sent + k);
        }
        for (uint32_t done = 0; done < count;) {
            done += f->ports[0]->ops->send(f->ports[0], packets + done, count - done);
            receive_all(f);
        }
        sent += count;
        assert_int_equal(f->ports[0]->ops->receive(f->ports[0], packets, 1),
                         0); /* sends what is late */
        receive_all(f);
    }
}

static void assert_share(uint64_t count, uint32_t share)
{
    assert_in_range(count, PACKETS / 1000 * (share / 1250), PACKETS / 1000 * (share / 830));
}

SL_CASE(fault_ports__each_fault_in_its_share)
{
    static const struct sl_dpdk_faults networks[] = {
        {.loss = 0},
        {.loss = TENTH},
        {.reorder = TENTH},
        {.duplicate = TENTH},
        {.corrupt = TENTH},
        {.truncate = TENTH},
        {.shorten = 5 * TENTH},
        {.loss = TENTH, .reorder = TENTH, .duplicate = TENTH, .corrupt = TENTH, .truncate = TENTH},
    };
    for (uint32_t i = 0; i < 2 * sizeof networks / sizeof networks[0]; i++) {
        static struct fixture f;
        struct sl_dpdk_faults faults = networks[i / 2];
        struct sl_dpdk_fault_counts counts;
        uint32_t times[3] = {0};
        faults.seed = 1 + i;
        faults.delay_us_max = 300;
        set_up(&f, &faults, i % 2);
        run(&f);
        sl_dpdk_fault_counts(f.ports[i % 2], &counts);
        for (uint32_t number = 0; number < PACKETS; number++) {
            assert_in_range(f.came[number], 0, 2);
            times[f.came[number]]++;
        }
        assert_int_equal(counts.packets, PACKETS);
        assert_share(counts.lost, faults.loss);
        assert_share(counts.delayed, faults.reorder);
        assert_share(counts.doubled, faults.duplicate);
        assert_share(counts.corrupted, faults.corrupt);
        assert_share(counts.truncated, faults.truncate);
        assert_int_equal(counts.shortened > 0, faults.shorten > 0);
        assert_int_equal(f.early > 0, faults.reorder > 0 || faults.duplicate > 0);
        assert_int_equal(f.broken, counts.corrupted + counts.truncated);
        assert_int_equal(times[0], counts.lost + f.broken);
        assert_int_equal(times[2], counts.doubled);
        tear_down(&f);
    }
}

/* All that is sent within so many milliseconds is lost. */
SL_CASE(fault_ports__blackout_loses_all_for_a_time)
{
    static struct fixture f;
    struct sl_dpdk_fault_counts counts;
    uint32_t longest = 0, length = 0;
    set_up(&f, &(struct sl_dpdk_faults){.blackout = 5000, .blackout_ms = 1, .seed = 1}, 0);
    run(&f);
    sl_dpdk_fault_counts(f.ports[0], &counts);
    for (uint32_t i = 0; i < PACKETS; i++) {
        length = f.came[i] == 0 ? length + 1 : 0;
        longest = length > longest ? length : longest;
    }
    assert_in_range(counts.blackouts, 1, 100);
    assert_in_range(longest, 500, PACKETS); /* 100 turns, of at most 32 */
    tear_down(&f);
}

/* Two damages of one packet could cancel out in its checksum. */
SL_CASE(fault_ports__what_came_damaged_is_not_damaged_again)
{
    static struct fixture f;
    struct sl_dpdk_fault_counts counts;
    set_up(&f, &(struct sl_dpdk_faults){.corrupt = SL_DPDK_FAULT_SHARES, .seed = 1}, BOTH);
    run(&f);
    sl_dpdk_fault_counts(f.ports[0], &counts);
    assert_int_equal(counts.corrupted, PACKETS);
    sl_dpdk_fault_counts(f.ports[1], &counts);
    assert_int_equal(counts.corrupted, 0);
    assert_int_equal(f.broken, PACKETS);
    tear_down(&f);
}
