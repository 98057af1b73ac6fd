#include <stdlib.h>

#include "core/clock.h"
#include "core/hash.h"
#include "net/dpdk/received_packets.h"
#include "net/dpdk/sent_packets.h"
#include "tests/support/unit.h"

#define US SL_CLOCK_NS_PER_US
#define MS SL_CLOCK_NS_PER_MS

struct fixture {
    struct sl_dpdk_sent_packets sent_packets;
    uint32_t came, lost, first;
    uint32_t last_lost;    /* `message` of it */
    uint32_t checksums[2]; /* of `message`, of what came and of what is lost */
};

static void on_came(void *ctx, const struct sl_dpdk_sent_packet *packet)
{
    struct fixture *fixture = ctx;
    fixture->came++;
    fixture->checksums[0] += packet->message;
}

static void on_lost(void *ctx, const struct sl_dpdk_sent_packet *packet)
{
    struct fixture *fixture = ctx;
    fixture->lost++;
    fixture->last_lost = packet->message;
    fixture->checksums[1] += packet->message;
}

static void setup(struct fixture *fixture)
{
    fixture->first = UINT32_MAX - 4;
    assert_int_equal(sl_dpdk_sent_packets_open(&fixture->sent_packets, fixture->first), 0);
}

static void teardown(struct fixture *fixture)
{
    sl_dpdk_sent_packets_close(&fixture->sent_packets);
}

#define CASE(name) SL_CASE_USING(name, struct fixture, fixture, setup, teardown)

/* Packet n, counted from 0, of 100 bytes. */
static void send_at(struct fixture *fixture, uint32_t n, uint64_t now_ns)
{
    assert_int_equal(fixture->sent_packets.next, fixture->first + n);
    const struct sl_dpdk_sent_packet packet = {.message = n, .body_bytes = 100};
    sl_dpdk_sent_packets_sent(&fixture->sent_packets, &packet, now_ns);
}

static void send_count(struct fixture *fixture, uint32_t count, uint64_t now_ns)
{
    for (uint32_t n = 0; n < count; n++) {
        send_at(fixture, n, now_ns);
    }
}

static struct sl_dpdk_sent_packet_events events_of(struct fixture *fixture)
{
    return (struct sl_dpdk_sent_packet_events){.came = on_came, .lost = on_lost, .ctx = fixture};
}

static bool acknowledge(struct fixture *fixture, uint32_t n, uint64_t word, uint64_t now_ns)
{
    const struct sl_dpdk_sent_packet_events events = events_of(fixture);
    return sl_dpdk_sent_packets_acknowledged(&fixture->sent_packets, fixture->first + n, &word,
                                             word != 0, now_ns, &events);
}

static bool expire(struct fixture *fixture, uint64_t now_ns)
{
    const struct sl_dpdk_sent_packet_events events = events_of(fixture);
    return sl_dpdk_sent_packets_expire(&fixture->sent_packets, now_ns, &events);
}

CASE(sent_packets_acknowledged__in_order)
{
    send_count(fixture, 10, 1000 * US);
    assert_int_equal(fixture->sent_packets.outstanding_bytes, 1000);
    assert_int_equal(sl_dpdk_sent_packets_behind(&fixture->sent_packets), 10);
    assert_true(acknowledge(fixture, 4, 0, 1010 * US));
    assert_int_equal(fixture->came, 4);
    assert_int_equal(fixture->sent_packets.outstanding_bytes, 600);
    assert_int_equal(sl_dpdk_sent_packets_behind(&fixture->sent_packets), 6);
    assert_true(acknowledge(fixture, 2, 0, 1020 * US)); /* older: no harm */
    assert_true(acknowledge(fixture, 10, 0, 1030 * US));
    assert_int_equal(fixture->came, 10);
    assert_int_equal(fixture->lost, 0);
    assert_int_equal(fixture->checksums[0], 45);
    assert_int_equal(fixture->sent_packets.outstanding_bytes, 0);
    assert_true(sl_dpdk_sent_packets_none(&fixture->sent_packets));
    assert_true(sl_dpdk_sent_packets_timer(&fixture->sent_packets) == SL_CLOCK_NEVER);
}

CASE(sent_packets_acknowledged__refuses_what_was_never_sent)
{
    send_count(fixture, 10, 0);
    assert_false(acknowledge(fixture, 11, 0, 1));
    assert_false(acknowledge(fixture, 1U << 31, 0, 1));
    assert_false(acknowledge(fixture, 9, 1, 1));         /* packet 10 */
    assert_false(acknowledge(fixture, 0, 1ULL << 9, 1)); /* packet 10 */
    assert_false(acknowledge(fixture, 10U - SL_DPDK_RECEIVED_JUMP - 1, 0, 1));
    const uint64_t none[4] = {0};
    const struct sl_dpdk_sent_packet_events events = events_of(fixture);
    /* So many words say that a packet behind 192 has come. */
    assert_false(sl_dpdk_sent_packets_acknowledged(&fixture->sent_packets, fixture->first, none, 4,
                                                   1, &events));
    assert_int_equal(fixture->came + fixture->lost, 0);
    assert_int_equal(fixture->sent_packets.outstanding_bytes, 1000);
    assert_true(fixture->sent_packets.rtt.smoothed_ns == 0);
    assert_true(acknowledge(fixture, 0, 1ULL << 8, 1)); /* packet 9 */
    assert_int_equal(fixture->came, 1);
}

CASE(sent_packets_acknowledged__three_later_ones_are_a_loss)
{
    send_count(fixture, 10, 0);
    assert_true(acknowledge(fixture, 0, 1, 10 * US)); /* 1 */
    assert_true(acknowledge(fixture, 0, 3, 10 * US)); /* 1, 2 */
    assert_int_equal(fixture->lost, 0);
    assert_true(acknowledge(fixture, 0, 7, 10 * US)); /* 1, 2, 3 */
    assert_int_equal(fixture->lost, 1);
    assert_int_equal(fixture->last_lost, 0);
    assert_int_equal(fixture->came, 3);
    assert_int_equal(sl_dpdk_sent_packets_behind(&fixture->sent_packets),
                     6); /* all before 4 are settled */
    assert_int_equal(fixture->sent_packets.outstanding_bytes, 600);
    /* It comes late: it was lost, and nothing more is said of it. */
    assert_true(acknowledge(fixture, 4, 0, 11 * US));
    assert_int_equal(fixture->came, 3);
}

CASE(sent_packets_expire__age_is_a_loss_when_a_later_one_has_come)
{
    send_at(fixture, 0, 0);
    send_at(fixture, 1, 50 * US);
    assert_true(acknowledge(fixture, 0, 1, 250 * US)); /* 1 in 200 us */
    assert_int_equal(fixture->lost, 1);                /* 0 is older than 225 us */
    fixture->lost = 0;
    send_at(fixture, 2, 255 * US);
    send_at(fixture, 3, 260 * US);
    assert_true(acknowledge(fixture, 2, 1, 270 * US)); /* 3 */
    assert_int_equal(fixture->lost, 0);
    uint64_t at = sl_dpdk_sent_packets_timer(&fixture->sent_packets);
    assert_true(at > 255 * US + 190 * US && at <= 255 * US + 225 * US);
    assert_false(expire(fixture, at - 1));
    assert_int_equal(fixture->lost, 0);
    assert_false(expire(fixture, at));
    assert_int_equal(fixture->lost, 1);
    assert_int_equal(fixture->last_lost, 2);
    assert_true(sl_dpdk_sent_packets_none(&fixture->sent_packets));
}

CASE(sent_packets_acknowledged__words_say_more_than_their_bits)
{
    send_count(fixture, 1000, 0);
    /* Nothing of the first 256 came, but something behind did: 193 came at the earliest. */
    const uint64_t none[4] = {0};
    const struct sl_dpdk_sent_packet_events events = events_of(fixture);
    assert_true(sl_dpdk_sent_packets_acknowledged(&fixture->sent_packets, fixture->first, none, 4,
                                                  1, &events));
    assert_int_equal(fixture->came, 0);
    assert_int_equal(fixture->lost, 193 - 2);
    assert_int_equal(fixture->last_lost, 190);
}

CASE(sent_packets_timer__doubles_and_the_third_loses_all)
{
    sl_dpdk_sent_packets_measured(&fixture->sent_packets, 800 * US); /* and 4 times 400 us */
    send_count(fixture, 5, 0);
    uint64_t at = sl_dpdk_sent_packets_timer(&fixture->sent_packets);
    assert_true(at == 2400 * US);
    assert_false(expire(fixture, at - 1));
    assert_true(expire(fixture, at));
    assert_true(sl_dpdk_sent_packets_timer(&fixture->sent_packets) == at + 4800 * US);
    at += 4800 * US;
    assert_true(expire(fixture, at));
    assert_int_equal(fixture->lost, 0);
    at += 9600 * US;
    assert_true(sl_dpdk_sent_packets_timer(&fixture->sent_packets) == at);
    assert_true(expire(fixture, at));
    assert_int_equal(fixture->lost, 5);
    assert_int_equal(fixture->sent_packets.outstanding_bytes, 0);
    assert_true(sl_dpdk_sent_packets_timer(&fixture->sent_packets) == SL_CLOCK_NEVER);
    send_at(fixture, 5, at);
    assert_true(sl_dpdk_sent_packets_timer(&fixture->sent_packets) == at + 19200 * US);
    assert_true(acknowledge(fixture, 6, 0, at + MS));
    assert_int_equal(fixture->came, 1);
    assert_int_equal(fixture->sent_packets.timeouts, 0);
}

/* A lost tail is asked for soon, and nothing counts as lost for it: the peer may have slept. */
CASE(sent_packets_timer__probes_come_before_a_timeout)
{
    sl_dpdk_sent_packets_measured(&fixture->sent_packets, 100 * US); /* and 4 times 50 us */
    send_count(fixture, 2, 0);
    uint64_t at = 300 * US;
    assert_true(sl_dpdk_sent_packets_timer(&fixture->sent_packets) == at);
    assert_true(expire(fixture, at));
    at += 600 * US;
    assert_true(sl_dpdk_sent_packets_timer(&fixture->sent_packets) == at);
    assert_true(expire(fixture, at));
    assert_int_equal(fixture->sent_packets.timeouts, 0);
    for (uint32_t n = 0; n < 3; n++) { /* 1, 2 and 4 ms: no probes between them */
        assert_int_equal(fixture->sent_packets.timeouts, n);
        assert_int_equal(fixture->lost, 0);
        at += (1U << n) * MS;
        assert_true(sl_dpdk_sent_packets_timer(&fixture->sent_packets) == at);
        assert_true(expire(fixture, at));
    }
    assert_int_equal(fixture->lost, 2);
}

CASE(sent_packets_expire__a_probe_finds_a_lost_tail)
{
    sl_dpdk_sent_packets_measured(&fixture->sent_packets, 10 * US);
    send_count(fixture, 3, 0);
    assert_true(acknowledge(fixture, 2, 0, 10 * US));
    uint64_t at = sl_dpdk_sent_packets_timer(&fixture->sent_packets);
    assert_true(at < 100 * US);
    assert_true(expire(fixture, at));
    send_at(fixture, 3, at);
    assert_true(acknowledge(fixture, 2, 1, at + 10 * US)); /* the probe has come */
    assert_int_equal(fixture->lost, 1);
    assert_int_equal(fixture->last_lost, 2);
}

CASE(sent_packets_timer__stays_within_its_limits)
{
    send_at(fixture, 0, 0);
    assert_true(sl_dpdk_sent_packets_timer(&fixture->sent_packets) == 250 * MS); /* not known yet */
    sl_dpdk_sent_packets_measured(&fixture->sent_packets, 10 * US);
    assert_true(sl_dpdk_sent_packets_timer(&fixture->sent_packets) == 60 * US);
    for (uint64_t at = 0, n = 1; n < 100; n++) {
        uint64_t next = sl_dpdk_sent_packets_timer(&fixture->sent_packets);
        assert_true(next > at && next - at <= 250 * MS);
        at = next;
        assert_true(expire(fixture, at));
        send_at(fixture, (uint32_t)n, at);
    }
}

CASE(sent_packets_timer__what_is_heard_puts_it_off)
{
    send_count(fixture, 2, 0);
    assert_true(acknowledge(fixture, 1, 0, 100 * MS));
    assert_true(sl_dpdk_sent_packets_timer(&fixture->sent_packets) > 200 * MS);
    assert_true(acknowledge(fixture, 1, 0, 150 * MS)); /* nothing new */
    assert_true(sl_dpdk_sent_packets_timer(&fixture->sent_packets) == 100 * MS + 250 * MS);
}

CASE(sent_packets_measured__as_rfc_9002)
{
    struct sl_dpdk_rtt *rtt = &fixture->sent_packets.rtt;
    sl_dpdk_sent_packets_measured(&fixture->sent_packets, 800);
    assert_true(rtt->smoothed_ns == 800 && rtt->variance_ns == 400 && rtt->least_ns == 800);
    sl_dpdk_sent_packets_measured(&fixture->sent_packets, 1600);
    assert_true(rtt->smoothed_ns == 900 && rtt->variance_ns == 500 && rtt->least_ns == 800);
    sl_dpdk_sent_packets_measured(&fixture->sent_packets, 0); /* the clock stood */
    assert_true(rtt->latest_ns == 1 && rtt->least_ns == 1);
}

/* Only the newest packet of an acknowledgement says how long the way is, and only once. */
CASE(sent_packets_acknowledged__measures_the_newest)
{
    for (uint32_t n = 0; n < 4; n++) {
        send_at(fixture, n, n * US);
    }
    assert_true(acknowledge(fixture, 0, 2, 82 * US)); /* packet 2 */
    assert_true(fixture->sent_packets.rtt.latest_ns == 80 * US);
    assert_true(acknowledge(fixture, 1, 2, 84 * US)); /* 0, and 3 */
    assert_true(fixture->sent_packets.rtt.latest_ns == 81 * US);
    assert_true(acknowledge(fixture, 4, 0, 86 * US)); /* 1, which is older than 3 */
    assert_true(fixture->sent_packets.rtt.latest_ns == 81 * US);
    assert_int_equal(fixture->came, 4);
}

CASE(sent_packets_full__until_the_oldest_is_settled)
{
    send_count(fixture, SL_DPDK_SENT_PACKETS, 0);
    assert_true(sl_dpdk_sent_packets_full(&fixture->sent_packets));
    assert_int_equal(sl_dpdk_sent_packets_behind(&fixture->sent_packets), SL_DPDK_SENT_PACKETS);
    assert_true(acknowledge(fixture, 0, 3, 1)); /* 1, 2 */
    assert_true(sl_dpdk_sent_packets_full(&fixture->sent_packets));
    assert_true(acknowledge(fixture, 0, 7, 1)); /* and 3: 0 is lost */
    assert_false(sl_dpdk_sent_packets_full(&fixture->sent_packets));
    assert_int_equal(sl_dpdk_sent_packets_behind(&fixture->sent_packets), SL_DPDK_SENT_PACKETS - 4);
}

/* ---- a sender, a receiver, and a network that does what it likes -------------------------------
 */

#define PIECES    4000U
#define WIRE      1024U /* packets on their way, each way */
#define WINDOW    200U  /* pieces on their way */
#define STEP_NS   (10 * US)
#define STEPS_MAX 2000000U

struct cable_packet {
    bool is_ack;
    uint32_t sequence, behind, piece, acknowledged, sack_words;
    uint64_t sack[4];
    uint64_t arrives_ns;
};

struct cable {
    uint64_t random;
    uint32_t loss, reorder, twice; /* of 1000 packets */
    struct cable_packet packets[WIRE];
    uint32_t count;
};

struct world {
    struct sl_dpdk_sent_packets sent_packets;
    struct sl_dpdk_received_packets received;
    struct cable cable;
    uint64_t now_ns;
    uint32_t todo[PIECES]; /* a stack of what is to be sent, the first on top */
    uint32_t todo_count;
    uint8_t is_out[PIECES], came[PIECES], arrived[PIECES];
    uint32_t came_count, copies;
    bool ack_due;
};

static bool chance(struct cable *cable, uint32_t of_1000)
{
    return sl_hash_random(&cable->random) % 1000 < of_1000;
}

static void cable_put(struct world *world, struct cable_packet *packet)
{
    struct cable *cable = &world->cable;
    uint32_t copies = chance(cable, cable->loss) ? 0 : chance(cable, cable->twice) ? 2 : 1;
    for (; copies > 0 && cable->count < WIRE; copies--) {
        uint64_t late = chance(cable, cable->reorder) ? sl_hash_random(&cable->random) % 20 : 0;
        packet->arrives_ns = world->now_ns + (3 + late) * STEP_NS;
        cable->packets[cable->count++] = *packet;
    }
}

static void piece_came(void *ctx, const struct sl_dpdk_sent_packet *packet)
{
    struct world *world = ctx;
    if (packet->body_bytes != 0) {
        assert_int_equal(world->is_out[packet->message], 1);
        assert_int_equal(world->came[packet->message], 0);
        assert_int_equal(world->arrived[packet->message], 1); /* nothing came that did not */
        world->is_out[packet->message] = 0;
        world->came[packet->message] = 1;
        world->came_count++;
    }
}

static void piece_lost(void *ctx, const struct sl_dpdk_sent_packet *packet)
{
    struct world *world = ctx;
    if (packet->body_bytes != 0) {
        assert_int_equal(world->is_out[packet->message], 1);
        assert_int_equal(world->came[packet->message], 0);
        world->is_out[packet->message] = 0;
        world->todo[world->todo_count++] = packet->message;
    }
}

static void send_one(struct world *world, uint32_t piece, uint16_t bytes)
{
    struct cable_packet packet = {.sequence = world->sent_packets.next,
                                  .behind = sl_dpdk_sent_packets_behind(&world->sent_packets),
                                  .piece = piece};
    const struct sl_dpdk_sent_packet sent_packet = {.message = piece, .body_bytes = bytes};
    sl_dpdk_sent_packets_sent(&world->sent_packets, &sent_packet, world->now_ns);
    cable_put(world, &packet);
}

static void sender_turn(struct world *world, const struct sl_dpdk_sent_packet_events *events)
{
    bool timeout = sl_dpdk_sent_packets_timer(&world->sent_packets) <= world->now_ns &&
                   sl_dpdk_sent_packets_expire(&world->sent_packets, world->now_ns, events);
    if (timeout && !sl_dpdk_sent_packets_full(&world->sent_packets)) {
        send_one(world, PIECES, 0); /* asks */
    }
    for (uint32_t i = 0;
         i < 20 && world->todo_count > 0 && world->sent_packets.outstanding_bytes < WINDOW * 10 &&
         !sl_dpdk_sent_packets_full(&world->sent_packets);
         i++) {
        uint32_t piece = world->todo[--world->todo_count];
        assert_int_equal(world->is_out[piece], 0);
        world->is_out[piece] = 1;
        send_one(world, piece, 10);
    }
}

static void receiver_take(struct world *world, const struct cable_packet *packet)
{
    assert_true(
        sl_dpdk_received_packets_settle(&world->received, packet->sequence, packet->behind));
    enum sl_dpdk_received_packets_answer answer =
        sl_dpdk_received_packets_ask(&world->received, packet->sequence);
    assert_int_not_equal(answer, SL_DPDK_RECEIVED_OUTSIDE);
    /* Now and then there is no room for one. */
    if (answer == SL_DPDK_RECEIVED_NEW && !chance(&world->cable, world->cable.loss / 10)) {
        sl_dpdk_received_packets_take(&world->received, packet->sequence);
        if (packet->piece < PIECES) {
            world->copies += world->arrived[packet->piece];
            world->arrived[packet->piece] = 1;
        }
    }
    world->ack_due = true;
}

static void deliver(struct world *world, const struct sl_dpdk_sent_packet_events *events)
{
    struct cable *cable = &world->cable;
    uint32_t kept = 0, count = cable->count;
    for (uint32_t i = 0; i < count; i++) {
        const struct cable_packet packet = cable->packets[i];
        if (packet.arrives_ns > world->now_ns) {
            cable->packets[kept++] = packet;
        } else if (packet.is_ack) {
            assert_true(sl_dpdk_sent_packets_acknowledged(&world->sent_packets, packet.acknowledged,
                                                          packet.sack, packet.sack_words,
                                                          world->now_ns, events));
        } else {
            receiver_take(world, &packet);
        }
    }
    cable->count = kept;
}

static void receiver_turn(struct world *world)
{
    if (world->ack_due) {
        struct cable_packet ack = {.is_ack = true, .acknowledged = world->received.next};
        ack.sack_words = sl_dpdk_received_packets_words(&world->received, ack.sack, 4);
        cable_put(world, &ack);
        world->ack_due = false;
    }
}

static void forge(struct world *world, const struct sl_dpdk_sent_packet_events *events)
{
    uint64_t word = sl_hash_random(&world->cable.random) | 1ULL << 63;
    uint32_t ahead = (uint32_t)sl_hash_random(&world->cable.random) % (1U << 30);
    uint32_t bytes = world->sent_packets.outstanding_bytes;
    assert_false(sl_dpdk_sent_packets_acknowledged(&world->sent_packets,
                                                   world->sent_packets.next + ahead + 1, NULL, 0,
                                                   world->now_ns, events));
    assert_false(sl_dpdk_sent_packets_acknowledged(
        &world->sent_packets, world->sent_packets.next - 60, &word, 1, world->now_ns, events));
    assert_int_equal(world->sent_packets.outstanding_bytes, bytes);
}

static uint32_t count_out(const struct world *world)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < PIECES; i++) {
        count += world->is_out[i];
    }
    return count;
}

/* Returns how many packets were sent for one piece, in thousandths. */
static uint32_t run_world(uint64_t seed, uint32_t loss, uint32_t reorder, uint32_t twice)
{
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    uint32_t first = 0U - (uint32_t)(seed * 1000);
    assert_int_equal(sl_dpdk_sent_packets_open(&world->sent_packets, first), 0);
    sl_dpdk_received_packets_init(&world->received, first);
    world->cable = (struct cable){.random = seed, .loss = loss, .reorder = reorder, .twice = twice};
    for (uint32_t i = 0; i < PIECES; i++) {
        world->todo[world->todo_count++] = PIECES - 1 - i;
    }
    const struct sl_dpdk_sent_packet_events events = {
        .came = piece_came, .lost = piece_lost, .ctx = world};
    for (uint32_t i = 0; world->came_count < PIECES; i++) {
        if (i == STEPS_MAX) {
            fail_msg("%u of %u lost: %u pieces came in time", loss, 1000, world->came_count);
        }
        world->now_ns += STEP_NS;
        sender_turn(world, &events);
        deliver(world, &events);
        receiver_turn(world);
        if (i % 64 == 0) {
            forge(world, &events);
            assert_int_equal(world->sent_packets.outstanding_bytes, 10 * count_out(world));
        }
    }
    assert_int_equal(world->sent_packets.outstanding_bytes, 0);
    uint32_t sent = world->sent_packets.next - first;
    assert_true(world->copies <= sent - PIECES);
    sl_dpdk_sent_packets_close(&world->sent_packets);
    free(world);
    return (uint32_t)((uint64_t)sent * 1000 / PIECES);
}

SL_CASE(sent_packets__all_comes_once_through_any_network)
{
    static const struct {
        uint32_t loss, reorder, twice, sent_max;
    } networks[] = {
        {0, 0, 0, 1000},         {0, 0, 100, 1000},
        {1, 0, 0, 1010},         {10, 0, 0, 1040},
        {50, 0, 50, 1150},       {200, 0, 0, 1900},
        {0, 10, 0, 1100},        {0, 300, 100, UINT32_MAX},
        {20, 50, 20, 2000},      {500, 500, 200, UINT32_MAX},
        {650, 0, 0, UINT32_MAX},
    };
    for (size_t i = 0; i < sizeof networks / sizeof networks[0]; i++) {
        for (uint64_t seed = 1; seed <= 3; seed++) {
            uint32_t sent =
                run_world(seed + 10 * i, networks[i].loss, networks[i].reorder, networks[i].twice);
            if (sent > networks[i].sent_max) {
                fail_msg("network %zu, seed %u: %u packets for 1000 pieces", i, (unsigned)seed,
                         sent);
            }
        }
    }
}
