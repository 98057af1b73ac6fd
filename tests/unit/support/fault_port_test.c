/* Each fault happens as often as it is asked for, and nothing else does; whose packets are whose
 * stays exact (the ports within abort at what was given twice, or not given back). */
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "net/dpdk/wire.h"
#include "tests/support/fault_port.h"
#include "tests/support/unit.h"
#include "tests/support/wire_port.h"

#define PACKETS   4000U
#define TENTH     100000U /* a share */
#define BODY      100U
#define REST      40U
#define QUEUE     64U
#define TURN_NS   (10 * SL_CLOCK_NS_PER_US)
#define LATE_TURN 200U /* after so many turns nothing is late any more */

struct fixture {
    struct sl_clock clock;
    uint64_t now_ns;
    bool is_v6;
    struct sl_wire *wire;
    struct sl_wire_host *hosts[2];
    struct sl_wire_device *devices[2];
    struct sl_reactor *reactors[2];
    struct sl_dpdk_port *ports[2];
    uint8_t rest[REST];
    uint32_t pending;
    uint32_t sent;
    uint8_t came[PACKETS + 1]; /* how often each, unchanged */
    uint32_t received, broken, early, last;
};

static uint64_t now_ns(void *ctx)
{
    return ((const struct fixture *)ctx)->now_ns;
}

/* faults: of the port of the side that is `faulty`, 0 sends and 1 receives. */
static void set_up(struct fixture *f, const struct sl_wire_device_options *options,
                   const struct sl_dpdk_faults *faults, uint32_t faulty)
{
    sl_log_setup(SL_LOG_OFF, "faults");
    *f = (struct fixture){.now_ns = SL_CLOCK_NS_PER_S};
    f->clock = (struct sl_clock){.now_ns = now_ns, .ctx = f};
    f->wire = sl_wire_create(&(struct sl_wire_options){.clock = &f->clock});
    for (uint32_t i = 0; i < 2; i++) {
        struct sl_wire_device_options device = *options;
        device.address = i == 0 ? "10.0.0.1" : "10.0.0.2";
        device.queue_packets = QUEUE;
        const struct sl_reactor_options reactor = {
            .name = "r", .core = -1, .stepped = true, .clock = &f->clock, .seed = 1};
        f->hosts[i] = sl_wire_host_add(f->wire);
        f->devices[i] = sl_wire_device_add(f->hosts[i], &device);
        assert_int_equal(sl_reactor_create(&reactor, &f->reactors[i]), 0);
        struct sl_dpdk_medium medium = *sl_wire_host_medium(f->hosts[i]);
        struct sl_dpdk_fault_medium faulty_medium = {.inner = medium, .faults = *faults};
        if (i == faulty) {
            medium = (struct sl_dpdk_medium){.ops = &sl_dpdk_fault_ports, .ctx = &faulty_medium};
        }
        assert_int_equal(medium.ops->open(medium.ctx, f->reactors[i], &f->ports[i], 1), 1);
    }
    if (options->tx_gather) {
        struct sl_dpdk_port *port = f->ports[0];
        assert_int_equal(port->ops->memory_register(port, f->rest, sizeof f->rest), 0);
    }
}

static void tear_down(struct fixture *f)
{
    struct sl_dpdk_port_info facts;
    f->ports[0]->ops->info(f->ports[0], &facts);
    if (facts.tx_gather) {
        f->ports[0]->ops->memory_unregister(f->ports[0], f->rest);
    }
    for (uint32_t i = 0; i < 2; i++) {
        f->ports[i]->ops->close(&f->ports[i]); /* aborts where one is out */
        sl_wire_host_remove(&f->hosts[i]);
        sl_reactor_destroy(&f->reactors[i]);
    }
    sl_wire_destroy(&f->wire);
}

/* ---- Packets ----------------------------------------------------------------------------------
 */

static struct sl_dpdk_address address_of(const struct fixture *f, uint32_t side)
{
    struct sl_dpdk_address address = {.port = 9200};
    if (f->is_v6) {
        address.ip.s6_addr[0] = 0xfd;
    } else {
        address.ip.s6_addr[10] = address.ip.s6_addr[11] = 0xff;
        address.ip.s6_addr[12] = 10;
    }
    address.ip.s6_addr[15] = (uint8_t)(1 + side);
    return address;
}

static uint8_t content_of(uint32_t number, uint32_t at)
{
    return (uint8_t)(number * 31 + at * 7);
}

/* The number is the message's. `rest`: the end of the body lies elsewhere. */
static struct sl_dpdk_packet make(struct fixture *f, uint32_t number)
{
    struct sl_dpdk_port_info facts;
    struct sl_dpdk_packet packet;
    struct sl_dpdk_route route;
    f->ports[0]->ops->info(f->ports[0], &facts);
    assert_int_equal(f->ports[0]->ops->reserve(f->ports[0], &packet, 1), 1);
    const struct sl_dpdk_address from = address_of(f, 0), to = address_of(f, 1);
    sl_dpdk_route_build(&route, sl_wire_device_mac(f->devices[0]),
                        sl_wire_device_mac(f->devices[1]), &from, &to);
    const struct sl_dpdk_header header = {
        .connection = 1, .message = number, .kind = SL_DPDK_DATA, .body_bytes = BODY};
    const uint32_t before = sl_dpdk_write(packet.bytes, &route, &header);
    const uint32_t rest = facts.tx_gather ? REST : 0;
    for (uint32_t i = 0; i < BODY; i++) {
        uint8_t *at = i < BODY - rest ? packet.bytes + before + i : &f->rest[i - (BODY - rest)];
        *at = content_of(rest > 0 ? 0 : number, i);
    }
    packet.length = before + BODY - rest;
    packet.queue = 0;
    packet.tail = f->rest;
    packet.tail_length = rest;
    packet.pending = rest > 0 ? &f->pending : NULL;
    f->pending += rest > 0;
    packet.unchecked = facts.tx_checksum;
    if (!facts.tx_checksum) {
        sl_dpdk_seal(packet.bytes, packet.length, packet.tail, rest);
    }
    return packet;
}

static bool is_whole(const struct sl_dpdk_parsed *parsed, bool gathers)
{
    bool same = parsed->body_bytes == BODY && parsed->header.message < PACKETS;
    for (uint32_t i = 0; same && i < BODY; i++) {
        same = parsed->body[i] == content_of(gathers ? 0 : parsed->header.message, i);
    }
    return same;
}

static void take(struct fixture *f, const struct sl_dpdk_packet *packet)
{
    struct sl_dpdk_parsed parsed;
    struct sl_dpdk_port_info facts;
    f->ports[0]->ops->info(f->ports[0], &facts);
    f->received++;
    switch (sl_dpdk_parse(packet->bytes, packet->length, packet->checked, &parsed)) {
    case SL_DPDK_OURS:
        assert_true(is_whole(&parsed, facts.tx_gather)); /* whatever befell it */
        f->came[parsed.header.message]++;
        f->early += parsed.header.message < f->last;
        f->last = parsed.header.message;
        return;
    case SL_DPDK_NEIGHBOUR:
    case SL_DPDK_NOT_OURS:
    case SL_DPDK_MALFORMED:
        f->broken++;
        return;
    }
}

static uint32_t receive_all(struct fixture *f)
{
    struct sl_dpdk_packet packets[SL_DPDK_BURST];
    uint32_t all = 0, count;
    do {
        count = f->ports[1]->ops->receive(f->ports[1], packets, SL_DPDK_BURST);
        for (uint32_t i = 0; i < count; i++) {
            take(f, &packets[i]);
        }
        f->ports[1]->ops->release(f->ports[1], packets, count);
        all += count;
    } while (count > 0);
    return all;
}

/* What was sent goes on with any call. */
static void poll_sender(struct fixture *f)
{
    struct sl_dpdk_packet packet;
    assert_int_equal(f->ports[0]->ops->receive(f->ports[0], &packet, 1), 0);
}

static void turn(struct fixture *f)
{
    f->now_ns += TURN_NS;
    for (uint32_t i = 0; i < 2; i++) {
        (void)sl_reactor_turn(f->reactors[i], f->now_ns);
    }
}

static void send_burst(struct fixture *f, uint32_t count)
{
    struct sl_dpdk_packet packets[SL_DPDK_BURST];
    for (uint32_t i = 0; i < count; i++) {
        packets[i] = make(f, f->sent + i);
    }
    uint32_t done = 0;
    while (done < count) {
        done += f->ports[0]->ops->send(f->ports[0], packets + done, count - done);
        (void)receive_all(f);
    }
    f->sent += count;
}

/* All packets go, by one and by many, and what is late comes. */
static void run(struct fixture *f)
{
    for (uint32_t i = 0; f->sent < PACKETS; i++) {
        const uint32_t left = PACKETS - f->sent;
        const uint32_t count = i % 3 == 0 ? 1 : 1 + i % SL_DPDK_BURST;
        turn(f);
        send_burst(f, count < left ? count : left);
        (void)receive_all(f);
    }
    for (uint32_t i = 0; i < LATE_TURN; i++) {
        turn(f);
        poll_sender(f);
        (void)receive_all(f);
    }
    assert_int_equal(f->pending, 0);
    assert_int_equal(sl_wire_device_held(f->devices[0]), 0);
    assert_int_equal(sl_wire_device_held(f->devices[1]), 0);
}

struct tally {
    uint32_t none, once, twice;
};

static struct tally tally(const struct fixture *f)
{
    struct tally tally = {0};
    for (uint32_t i = 0; i < PACKETS; i++) {
        assert_in_range(f->came[i], 0, 2);
        tally.none += f->came[i] == 0;
        tally.once += f->came[i] == 1;
        tally.twice += f->came[i] == 2;
    }
    return tally;
}

/* About a tenth. */
static void assert_tenth(uint64_t count)
{
    assert_in_range(count, PACKETS * 8 / 100, PACKETS * 12 / 100);
}

static const struct sl_wire_device_options kinds[] = {
    {0}, {.tx_checksum = true}, {.tx_gather = true}, {.tx_gather = true, .tx_checksum = true}};
#define KINDS (sizeof kinds / sizeof kinds[0])

typedef void check_fn(struct fixture *f, const struct sl_dpdk_fault_counts *counts);

static void each_way(struct sl_dpdk_faults faults, check_fn *check)
{
    static struct fixture f;
    for (uint32_t i = 0; i < 2 * 2 * KINDS; i++) {
        struct sl_dpdk_fault_counts counts;
        const uint32_t faulty = i % 2;
        faults.seed = 1 + i;
        faults.delay_us_max = 300;
        set_up(&f, &kinds[i / 2 % KINDS], &faults, faulty);
        f.is_v6 = i / 2 / KINDS > 0;
        run(&f);
        sl_dpdk_fault_counts(f.ports[faulty], &counts);
        check(&f, &counts);
        tear_down(&f);
    }
}

/* ---- The cases --------------------------------------------------------------------------------
 */

static void check_none(struct fixture *f, const struct sl_dpdk_fault_counts *counts)
{
    assert_int_equal(tally(f).once, PACKETS);
    assert_int_equal(f->early, 0);
    assert_int_equal(counts->packets, PACKETS);
    assert_int_equal(counts->lost + counts->delayed + counts->doubled + counts->corrupted +
                         counts->truncated + counts->blackouts + counts->shortened,
                     0);
}

SL_CASE(none__changes_nothing)
{
    each_way((struct sl_dpdk_faults){0}, check_none);
}

static void check_loss(struct fixture *f, const struct sl_dpdk_fault_counts *counts)
{
    const struct tally seen = tally(f);
    assert_tenth(counts->lost);
    assert_int_equal(seen.none, counts->lost);
    assert_int_equal(seen.twice, 0);
    assert_int_equal(f->early, 0);
}

SL_CASE(loss__in_its_share)
{
    each_way((struct sl_dpdk_faults){.loss = TENTH}, check_loss);
}

static void check_reorder(struct fixture *f, const struct sl_dpdk_fault_counts *counts)
{
    assert_tenth(counts->delayed);
    assert_int_equal(tally(f).once, PACKETS);
    assert_in_range(f->early, PACKETS / 20, PACKETS);
}

SL_CASE(reorder__in_its_share)
{
    each_way((struct sl_dpdk_faults){.reorder = TENTH}, check_reorder);
}

static void check_duplicate(struct fixture *f, const struct sl_dpdk_fault_counts *counts)
{
    assert_tenth(counts->doubled);
    assert_int_equal(tally(f).twice, counts->doubled);
    assert_int_equal(tally(f).none, 0);
}

SL_CASE(duplicate__in_its_share)
{
    each_way((struct sl_dpdk_faults){.duplicate = TENTH}, check_duplicate);
}

/* What of IPv6 nothing sums may pass: of a header of 40 bytes the first 4 and the hop limit. */
static void check_corrupt(struct fixture *f, const struct sl_dpdk_fault_counts *counts)
{
    const struct tally seen = tally(f);
    assert_tenth(counts->corrupted);
    assert_int_equal(f->received, PACKETS);
    assert_int_equal(seen.none, f->broken);
    assert_int_equal(seen.twice, 0);
    if (f->is_v6) {
        assert_in_range(f->broken, counts->corrupted * 19 / 20, counts->corrupted);
    } else {
        assert_int_equal(f->broken, counts->corrupted);
    }
}

SL_CASE(corrupt__is_found_by_its_sum)
{
    each_way((struct sl_dpdk_faults){.corrupt = TENTH}, check_corrupt);
}

static void check_truncate(struct fixture *f, const struct sl_dpdk_fault_counts *counts)
{
    assert_tenth(counts->truncated);
    assert_int_equal(f->received, PACKETS);
    assert_int_equal(f->broken, counts->truncated);
    assert_int_equal(tally(f).none, counts->truncated);
}

SL_CASE(truncate__is_found_by_its_length)
{
    each_way((struct sl_dpdk_faults){.truncate = TENTH}, check_truncate);
}

static void check_short(struct fixture *f, const struct sl_dpdk_fault_counts *counts)
{
    assert_in_range(counts->shortened, 20, UINT64_MAX);
    assert_int_equal(tally(f).once, PACKETS);
    assert_int_equal(f->early, 0);
}

SL_CASE(shorten__loses_nothing)
{
    each_way((struct sl_dpdk_faults){.shorten = 5 * TENTH}, check_short);
}

/* All that is sent within so many milliseconds is lost, and hardly anything else. */
static void check_blackout(struct fixture *f, const struct sl_dpdk_fault_counts *counts)
{
    uint32_t runs = 0, longest = 0, length = 0;
    for (uint32_t i = 0; i < PACKETS; i++) {
        length = f->came[i] == 0 ? length + 1 : 0;
        runs += length == 1;
        longest = length > longest ? length : longest;
    }
    assert_in_range(counts->blackouts, 1, 100);
    assert_in_range(runs, 1, counts->blackouts);
    assert_in_range(longest, 500, PACKETS); /* 100 turns, of at most 32 */
    assert_int_equal(tally(f).none, counts->lost);
}

SL_CASE(blackout__loses_all_for_a_time)
{
    each_way((struct sl_dpdk_faults){.blackout = 5000, .blackout_ms = 1}, check_blackout);
}

static void check_all(struct fixture *f, const struct sl_dpdk_fault_counts *counts)
{
    assert_in_range(tally(f).none, counts->lost, counts->lost + f->broken);
}

SL_CASE(all__together)
{
    each_way((struct sl_dpdk_faults){.loss = TENTH,
                                     .reorder = 2 * TENTH,
                                     .duplicate = 2 * TENTH,
                                     .corrupt = TENTH,
                                     .truncate = TENTH,
                                     .shorten = 3 * TENTH},
             check_all);
}

/* A port that refuses keeps its caller's packets his; what was late by then is lost. */
SL_CASE(send__into_a_full_queue)
{
    static struct fixture f;
    struct sl_dpdk_fault_counts counts;
    const struct sl_dpdk_faults faults = {
        .duplicate = 4 * TENTH, .corrupt = 2 * TENTH, .delay_us_max = 1};
    set_up(&f, &(struct sl_wire_device_options){0}, &faults, 0);
    struct sl_dpdk_packet packets[SL_DPDK_BURST];
    for (uint32_t round = 0; round < 20; round++) {
        turn(&f);
        for (uint32_t i = 0; i < SL_DPDK_BURST; i++) {
            packets[i] = make(&f, f.sent + i);
        }
        const uint32_t done = f.ports[0]->ops->send(f.ports[0], packets, SL_DPDK_BURST);
        f.ports[0]->ops->release(f.ports[0], packets + done, SL_DPDK_BURST - done);
        f.sent += done;
    }
    assert_in_range(f.sent, QUEUE / 4, 19 * SL_DPDK_BURST);
    turn(&f);
    poll_sender(&f);
    sl_dpdk_fault_counts(f.ports[0], &counts);
    assert_in_range(counts.lost, 1, SL_DPDK_BURST * 20);
    assert_int_equal(receive_all(&f), QUEUE);
    assert_int_equal(sl_wire_device_held(f.devices[0]), 0);
    tear_down(&f);
}

/* Who sleeps is woken for what is late, and one that is closed gives it back. */
SL_CASE(arm__for_what_is_late)
{
    for (uint32_t faulty = 0; faulty < 2; faulty++) {
        static struct fixture f;
        const struct sl_dpdk_faults faults = {.reorder = SL_DPDK_FAULT_SHARES, .delay_us_max = 50};
        set_up(&f, &(struct sl_wire_device_options){0}, &faults, faulty);
        turn(&f);
        struct sl_dpdk_port *port = f.ports[faulty];
        assert_true(port->ops->arm(port));
        assert_int_equal(sl_reactor_next_ns(f.reactors[faulty]), SL_CLOCK_NEVER);
        send_burst(&f, 3);
        assert_int_equal(f.received, 0);
        assert_true(port->ops->arm(port));
        const uint64_t next_ns = sl_reactor_next_ns(f.reactors[faulty]);
        assert_in_range(next_ns, f.now_ns + 1, f.now_ns + 50 * SL_CLOCK_NS_PER_US);
        f.now_ns = next_ns - 1;
        turn(&f);
        assert_false(port->ops->arm(port));
        poll_sender(&f);
        assert_in_range(receive_all(&f), 1, 3);
        send_burst(&f, 3);
        tear_down(&f);
    }
}

/* What nothing but the frame check protects is not damaged. */
SL_CASE(corrupt__not_what_has_no_sum)
{
    static struct fixture f;
    const struct sl_dpdk_faults faults = {.corrupt = SL_DPDK_FAULT_SHARES};
    set_up(&f, &(struct sl_wire_device_options){0}, &faults, 1);
    struct sl_dpdk_packet packet = make(&f, 7);
    packet.bytes[13] = 0x06; /* ARP */
    uint8_t before[BODY];
    memcpy(before, packet.bytes, sizeof before);
    assert_int_equal(f.ports[0]->ops->send(f.ports[0], &packet, 1), 1);
    assert_int_equal(f.ports[1]->ops->receive(f.ports[1], &packet, 1), 1);
    assert_memory_equal(packet.bytes, before, sizeof before);
    f.ports[1]->ops->release(f.ports[1], &packet, 1);
    tear_down(&f);
}

SL_CASE(facts__promise_less)
{
    static struct fixture f;
    struct sl_dpdk_port_info facts;
    set_up(&f, &(struct sl_wire_device_options){.packets = 400}, &(struct sl_dpdk_faults){0}, 1);
    f.ports[1]->ops->info(f.ports[1], &facts);
    assert_int_equal(facts.packets, 350);
    assert_true(f.ports[1]->ops->link_is_up(f.ports[1]));
    tear_down(&f);
}

/* ---- What a user writes -----------------------------------------------------------------------
 */

SL_CASE(faults_parse__reads)
{
    struct sl_dpdk_faults faults;
    char why[512];
    assert_int_equal(sl_dpdk_faults_parse("loss=0.01,reorder=0.02,duplicate=0.5,corrupt=0.000001,"
                                          "truncate=0,blackout=0.00001,short=1,delay_us=7,"
                                          "blackout_ms=9,seed=18446744073709551615",
                                          &faults, why, sizeof why),
                     0);
    assert_int_equal(faults.loss, 10000);
    assert_int_equal(faults.duplicate, 500000);
    assert_int_equal(faults.corrupt, 1);
    assert_int_equal(faults.shorten, SL_DPDK_FAULT_SHARES);
    assert_int_equal(faults.delay_us_max, 7);
    assert_int_equal(faults.blackout_ms, 9);
    assert_true(faults.seed == UINT64_MAX);
    assert_int_equal(sl_dpdk_faults_parse("", &faults, why, sizeof why), 0);
    assert_int_equal(faults.delay_us_max, 100);
    assert_int_equal(faults.blackout_ms, 50);
    assert_int_equal(sl_dpdk_faults_parse("loss=0.5,corrupt=0.5", &faults, why, sizeof why), 0);
}

SL_CASE(faults_parse__refuses)
{
    static const char *const bad[] = {"loss",
                                      "loss=",
                                      "loss=1.1",
                                      "loss=2",
                                      "loss=-0.1",
                                      "loss=0.1,",
                                      ",loss=0.1",
                                      "loss=0.1;x",
                                      "Loss=0.1",
                                      "loss=0.1,loss=0.1",
                                      "loss=1e-2",
                                      "loss=0.",
                                      "loss=0,01",
                                      "drop=0.1",
                                      "loss=0.6,reorder=0.5",
                                      "loss= 0.1",
                                      "seed=0.5",
                                      "seed=",
                                      "seed=-1",
                                      "seed=18446744073709551616",
                                      "loss=0.1 ",
                                      "delay_us=1.5",
                                      "delay_us=1000001",
                                      "=0.1",
                                      "loss=0.0000001",
                                      "loss=99999999999999999999"};
    struct sl_dpdk_faults faults = {.loss = 5};
    for (uint32_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char why[512] = "";
        assert_int_equal(sl_dpdk_faults_parse(bad[i], &faults, why, sizeof why), SL_ERR_INVALID);
        assert_int_equal(faults.loss, 5);
        assert_true(strstr(why, "share") != NULL);
    }
}
