#include <arpa/inet.h>
#include <string.h>

#include "core/clock.h"
#include "net/dpdk/neighbour_packet.h"
#include "tests/support/unit.h"

#define S  SL_CLOCK_NS_PER_S
#define MS SL_CLOCK_NS_PER_MS

static const uint8_t mac_a[6] = {2, 0, 0, 0, 0, 0xa}, mac_b[6] = {2, 0, 0, 0, 0, 0xb},
                     mac_c[6] = {2, 0, 0, 0, 0, 0xc};

static struct in6_addr ip_of(const char *text)
{
    struct in6_addr ip;
    assert_int_equal(inet_pton(AF_INET6, text, &ip), 1);
    return ip;
}

/* Two machines, of IPv4 or IPv6, and a packet between them. */
struct fixture {
    struct sl_dpdk_self a, b;
    struct sl_dpdk_neighbours *of_a, *of_b;
    uint8_t ask[SL_DPDK_NEIGHBOUR_BYTES], answer[SL_DPDK_NEIGHBOUR_BYTES], mac[6];
    uint32_t ask_bytes, answer_bytes;
};

static void open_both(struct fixture *fixture, const char *a, const char *b, uint8_t prefix_bits)
{
    memset(fixture, 0, sizeof *fixture);
    fixture->a = (struct sl_dpdk_self){.ip = ip_of(a), .prefix_bits = prefix_bits};
    fixture->b = (struct sl_dpdk_self){.ip = ip_of(b), .prefix_bits = prefix_bits};
    memcpy(fixture->a.mac, mac_a, 6);
    memcpy(fixture->b.mac, mac_b, 6);
    assert_int_equal(sl_dpdk_neighbours_open(&fixture->a, &fixture->of_a), 0);
    assert_int_equal(sl_dpdk_neighbours_open(&fixture->b, &fixture->of_b), 0);
}

static void close_both(struct fixture *fixture)
{
    sl_dpdk_neighbours_close(&fixture->of_a);
    sl_dpdk_neighbours_close(&fixture->of_b);
    assert_null(fixture->of_a);
}

static bool find(struct fixture *fixture, const struct in6_addr *ip, uint64_t now_ns)
{
    return sl_dpdk_neighbours_find(fixture->of_a, ip, now_ns, fixture->mac, fixture->ask,
                                   &fixture->ask_bytes);
}

static enum sl_dpdk_class class_of(const uint8_t *packet, uint32_t bytes)
{
    struct sl_dpdk_parsed parsed;
    return sl_dpdk_parse(packet, bytes, false, &parsed);
}

static void ask_and_answer(struct fixture *fixture)
{
    assert_false(find(fixture, &fixture->b.ip, 0));
    assert_true(fixture->ask_bytes > 0);
    assert_int_equal(class_of(fixture->ask, fixture->ask_bytes), SL_DPDK_NEIGHBOUR);
    assert_true((fixture->ask[0] & 1) == 1); /* to a group */
    assert_memory_equal(fixture->ask + 6, mac_a, 6);
    fixture->answer_bytes = sl_dpdk_neighbours_take(fixture->of_b, fixture->ask, fixture->ask_bytes,
                                                    0, fixture->answer);
    assert_true(fixture->answer_bytes > 0);
    assert_int_equal(class_of(fixture->answer, fixture->answer_bytes), SL_DPDK_NEIGHBOUR);
    assert_memory_equal(fixture->answer, mac_a, 6);
    assert_memory_equal(fixture->answer + 6, mac_b, 6);
    uint8_t none[SL_DPDK_NEIGHBOUR_BYTES];
    assert_int_equal(
        sl_dpdk_neighbours_take(fixture->of_a, fixture->answer, fixture->answer_bytes, 0, none), 0);
    assert_true(find(fixture, &fixture->b.ip, 1));
    assert_memory_equal(fixture->mac, mac_b, 6);
    assert_int_equal(fixture->ask_bytes, 0);
    /* b has learned from being asked. */
    assert_true(sl_dpdk_neighbours_find(fixture->of_b, &fixture->a.ip, 1, fixture->mac,
                                        fixture->ask, &fixture->ask_bytes));
    assert_memory_equal(fixture->mac, mac_a, 6);
}

static const char *const names[2][2] = {{"::ffff:10.0.0.1", "::ffff:10.0.0.2"},
                                        {"fd00::12:3456", "fd00::78:9abc"}};

SL_CASE(neighbours__ask_and_answer)
{
    for (int v6 = 0; v6 < 2; v6++) {
        struct fixture fixture;
        open_both(&fixture, names[v6][0], names[v6][1], v6 ? 64 : 24);
        ask_and_answer(&fixture);
        close_both(&fixture);
    }
}

SL_CASE(neighbours_ask__as_the_standards_say)
{
    static const uint8_t arp[42] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0,  0xa, 8, 6,
                                    0,    1,    8,    0,    6,    4,    0, 1, 2, 0, 0,  0,   0, 0xa,
                                    10,   0,    0,    1,    0,    0,    0, 0, 0, 0, 10, 0,   0, 2};
    struct fixture fixture;
    open_both(&fixture, names[0][0], names[0][1], 24);
    find(&fixture, &fixture.b.ip, 0);
    assert_int_equal(fixture.ask_bytes, 60);
    assert_memory_equal(fixture.ask, arp, sizeof arp);
    close_both(&fixture);
    open_both(&fixture, names[1][0], names[1][1], 64);
    find(&fixture, &fixture.b.ip, 0);
    static const uint8_t ether[14] = {0x33, 0x33, 0xff, 0x78, 0x9a, 0xbc, 2,
                                      0,    0,    0,    0,    0xa,  0x86, 0xdd};
    const struct in6_addr group = ip_of("ff02::1:ff78:9abc");
    assert_int_equal(fixture.ask_bytes, 14 + 40 + 32);
    assert_memory_equal(fixture.ask, ether, sizeof ether);
    assert_memory_equal(fixture.ask + 14 + 24, &group, 16);
    assert_int_equal(fixture.ask[14 + 7], 255);
    assert_memory_equal(fixture.ask + 14 + 48, &fixture.b.ip, 16);
    close_both(&fixture);
}

SL_CASE(neighbours_find__asks_when_in_doubt)
{
    struct fixture fixture;
    open_both(&fixture, names[0][0], names[0][1], 24);
    assert_false(sl_dpdk_neighbours_look(fixture.of_a, &fixture.b.ip, fixture.mac));
    sl_dpdk_neighbours_doubt(fixture.of_a, &fixture.b.ip);
    ask_and_answer(&fixture);
    assert_true(sl_dpdk_neighbours_news(fixture.of_a));
    assert_false(sl_dpdk_neighbours_news(fixture.of_a));
    assert_true(sl_dpdk_neighbours_look(fixture.of_a, &fixture.b.ip, fixture.mac));
    sl_dpdk_neighbours_doubt(fixture.of_a, &fixture.b.ip);
    assert_true(find(&fixture, &fixture.b.ip, S));
    assert_true(fixture.ask_bytes > 0);
    sl_dpdk_neighbours_confirm(fixture.of_a, &fixture.b.ip, mac_b, 2 * S);
    assert_false(sl_dpdk_neighbours_news(fixture.of_a));
    assert_true(find(&fixture, &fixture.b.ip, 3 * S));
    assert_int_equal(fixture.ask_bytes, 0);
    sl_dpdk_neighbours_confirm(fixture.of_a, &fixture.b.ip, mac_c, 3 * S);
    assert_true(sl_dpdk_neighbours_news(fixture.of_a));
    close_both(&fixture);
}

/* Many ask for us, each from an address of its own: those that we have looked for stay known. */
SL_CASE(neighbours_take__a_flood_of_askers)
{
    struct fixture fixture;
    open_both(&fixture, names[0][0], names[0][1], 16);
    ask_and_answer(&fixture);
    struct sl_dpdk_self asker = fixture.b;
    for (uint32_t i = 0; i < 3000; i++) {
        asker.ip.s6_addr[14] = (uint8_t)(1 + i / 256);
        asker.ip.s6_addr[15] = (uint8_t)i;
        uint32_t bytes = sl_dpdk_neighbour_ask(&asker, &fixture.a.ip, fixture.ask);
        bytes = sl_dpdk_neighbours_take(fixture.of_a, fixture.ask, bytes, S + i, fixture.answer);
        assert_true(bytes > 0);
    }
    assert_true(sl_dpdk_neighbours_look(fixture.of_a, &fixture.b.ip, fixture.mac));
    assert_true(sl_dpdk_neighbours_look(fixture.of_a, &asker.ip, fixture.mac));
    /* Nor do they when all places are of those that were looked for. */
    for (uint32_t i = 0; i < 1100; i++) {
        struct in6_addr ip = fixture.b.ip;
        ip.s6_addr[14] = (uint8_t)(1 + i / 256);
        ip.s6_addr[15] = (uint8_t)i;
        sl_dpdk_neighbours_confirm(fixture.of_a, &ip, mac_c, 2 * S + i);
    }
    asker.ip.s6_addr[14] = 100;
    uint32_t bytes = sl_dpdk_neighbour_ask(&asker, &fixture.a.ip, fixture.ask);
    assert_true(sl_dpdk_neighbours_take(fixture.of_a, fixture.ask, bytes, 3 * S, fixture.answer) >
                0);
    assert_false(sl_dpdk_neighbours_look(fixture.of_a, &asker.ip, fixture.mac));
    close_both(&fixture);
}

SL_CASE(neighbours_take__somebody_has_our_address)
{
    for (int v6 = 0; v6 < 2; v6++) {
        struct fixture fixture;
        open_both(&fixture, names[v6][0], names[v6][1], v6 ? 64 : 24);
        struct sl_dpdk_self rival = fixture.a;
        uint32_t bytes = sl_dpdk_neighbour_ask(&rival, &fixture.b.ip, fixture.ask);
        sl_dpdk_neighbours_take(fixture.of_a, fixture.ask, bytes, S, fixture.answer);
        assert_false(sl_dpdk_neighbours_rival(fixture.of_a, fixture.mac)); /* it is we */
        memcpy(rival.mac, mac_c, sizeof rival.mac);
        bytes = sl_dpdk_neighbour_ask(&rival, &fixture.b.ip, fixture.ask);
        sl_dpdk_neighbours_take(fixture.of_a, fixture.ask, bytes, S, fixture.answer);
        assert_true(sl_dpdk_neighbours_rival(fixture.of_a, fixture.mac));
        assert_memory_equal(fixture.mac, mac_c, 6);
        assert_false(sl_dpdk_neighbours_rival(fixture.of_a, fixture.mac));
        assert_false(sl_dpdk_neighbours_look(fixture.of_a, &fixture.a.ip, fixture.mac));
        close_both(&fixture);
    }
}

SL_CASE(neighbours_find__asks_now_and_then)
{
    struct fixture fixture;
    open_both(&fixture, names[0][0], names[0][1], 24);
    uint32_t asked = 0;
    for (uint64_t now = 0; now < 1000 * MS; now += 10 * MS) {
        assert_false(find(&fixture, &fixture.b.ip, now));
        asked += fixture.ask_bytes > 0;
    }
    assert_int_equal(asked, 10);
    sl_dpdk_neighbours_confirm(fixture.of_a, &fixture.b.ip, mac_b, S);
    assert_true(find(&fixture, &fixture.b.ip, 30 * S));
    assert_int_equal(fixture.ask_bytes, 0);
    assert_true(find(&fixture, &fixture.b.ip, 31 * S)); /* old, and used while it is asked for */
    assert_memory_equal(fixture.mac, mac_b, 6);
    assert_true(fixture.ask_bytes > 0);
    assert_true(find(&fixture, &fixture.b.ip, 31 * S + 1));
    assert_int_equal(fixture.ask_bytes, 0);
    close_both(&fixture);
}

SL_CASE(neighbours_find__beside_or_behind_the_gateway)
{
    static const struct {
        const char *self, *gateway, *ip, *asked;
        uint8_t prefix_bits;
    } cases[] = {
        {"::ffff:10.0.0.1", "::ffff:10.0.0.254", "::ffff:10.0.0.129", "::ffff:10.0.0.129", 24},
        {"::ffff:10.0.0.1", "::ffff:10.0.0.126", "::ffff:10.0.0.129", "::ffff:10.0.0.126", 25},
        {"::ffff:10.0.0.1", "::ffff:10.0.0.254", "::ffff:11.0.0.2", "::ffff:10.0.0.254", 24},
        {"::ffff:10.0.0.1", "::ffff:10.0.0.254", "::ffff:11.0.0.2", "::ffff:11.0.0.2", 32},
        {"::ffff:10.0.0.1", "::ffff:10.0.0.254", "::ffff:11.0.0.2", "::ffff:11.0.0.2", 0},
        {"::ffff:10.0.0.1", NULL, "::ffff:11.0.0.2", "::ffff:11.0.0.2", 24},
        {"fd00::1", "fd00::ff", "fd00::2", "fd00::2", 64},
        {"fd00::1", "fd00::ff", "fd01::2", "fd00::ff", 64},
        {"fd00::1", "fd00::ff", "fe80::2", "fe80::2", 64},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture fixture;
        struct sl_dpdk_neighbour_said said;
        open_both(&fixture, cases[i].self, cases[i].self, cases[i].prefix_bits);
        sl_dpdk_neighbours_close(&fixture.of_a);
        fixture.a.has_gateway = cases[i].gateway != NULL;
        fixture.a.gateway = ip_of(fixture.a.has_gateway ? cases[i].gateway : "::");
        assert_int_equal(sl_dpdk_neighbours_open(&fixture.a, &fixture.of_a), 0);
        const struct in6_addr ip = ip_of(cases[i].ip), asked = ip_of(cases[i].asked);
        assert_false(find(&fixture, &ip, 0));
        assert_true(sl_dpdk_neighbour_parse(fixture.ask, fixture.ask_bytes, &said));
        assert_true(said.asks);
        assert_memory_equal(&said.target, &asked, 16);
        /* What comes from there does not say whose way it was. */
        sl_dpdk_neighbours_confirm(fixture.of_a, &ip, mac_c, 1);
        assert_true(find(&fixture, &ip, 2) == (memcmp(&ip, &asked, 16) == 0));
        close_both(&fixture);
    }
}

SL_CASE(neighbours_find__of_the_other_family)
{
    struct fixture fixture;
    open_both(&fixture, names[0][0], names[0][1], 0);
    const struct in6_addr other = ip_of("fd00::1");
    assert_false(find(&fixture, &other, 0));
    assert_int_equal(fixture.ask_bytes, 0);
    sl_dpdk_neighbours_confirm(fixture.of_a, &other, mac_b, 0);
    assert_false(find(&fixture, &other, 0));
    close_both(&fixture);
}

/* Nobody is believed who was not asked, and does not ask. */
SL_CASE(neighbours_take__believes_who_was_asked)
{
    for (int v6 = 0; v6 < 2; v6++) {
        struct fixture fixture;
        uint8_t packet[SL_DPDK_NEIGHBOUR_BYTES];
        open_both(&fixture, names[v6][0], names[v6][1], v6 ? 64 : 24);
        struct sl_dpdk_neighbour_said to_a = {.tells = true, .who = fixture.a.ip};
        memcpy(to_a.mac, mac_a, 6);
        uint32_t bytes = sl_dpdk_neighbour_answer(&fixture.b, &to_a, packet);
        sl_dpdk_neighbours_take(fixture.of_a, packet, bytes, 0, fixture.answer);
        assert_false(find(&fixture, &fixture.b.ip, 1)); /* it had not been asked for */
        sl_dpdk_neighbours_take(fixture.of_a, packet, bytes, 2, fixture.answer);
        assert_true(find(&fixture, &fixture.b.ip, 3));
        memcpy(fixture.b.mac, mac_c, 6); /* another device has the address now, and says so */
        bytes = sl_dpdk_neighbour_answer(&fixture.b, &to_a, packet);
        sl_dpdk_neighbours_take(fixture.of_a, packet, bytes, 4, fixture.answer);
        assert_true(find(&fixture, &fixture.b.ip, 5));
        assert_memory_equal(fixture.mac, mac_c, 6);
        /* For somebody else. */
        const struct in6_addr third = ip_of(v6 ? "fd00::99" : "::ffff:10.0.0.99");
        bytes = sl_dpdk_neighbour_ask(&fixture.b, &third, packet);
        assert_int_equal(sl_dpdk_neighbours_take(fixture.of_a, packet, bytes, 6, fixture.answer),
                         0);
        close_both(&fixture);
    }
}

/* Who makes sure that his address is nobody's has none to be answered at. */
SL_CASE(neighbours_take__answers_who_has_no_address_yet)
{
    for (int v6 = 0; v6 < 2; v6++) {
        struct fixture fixture;
        uint8_t packet[SL_DPDK_NEIGHBOUR_BYTES];
        open_both(&fixture, names[v6][0], names[v6][1], v6 ? 64 : 24);
        struct sl_dpdk_self nobody = fixture.b;
        nobody.ip = ip_of(v6 ? "::" : "::ffff:0.0.0.0");
        uint32_t bytes = sl_dpdk_neighbour_ask(&nobody, &fixture.a.ip, packet);
        assert_true(sl_dpdk_neighbours_take(fixture.of_a, packet, bytes, 0, fixture.answer) > 0);
        static const uint8_t all_nodes[6] = {0x33, 0x33, 0, 0, 0, 1};
        assert_memory_equal(fixture.answer, v6 ? all_nodes : mac_b, 6);
        assert_false(find(&fixture, &nobody.ip, 0)); /* and was not learned */
        close_both(&fixture);
    }
}

SL_CASE(neighbour_parse__any_bit_and_any_length)
{
    for (int v6 = 0; v6 < 2; v6++) {
        struct fixture fixture;
        struct sl_dpdk_neighbour_said said;
        open_both(&fixture, names[v6][0], names[v6][1], v6 ? 64 : 24);
        find(&fixture, &fixture.b.ip, 0);
        uint32_t needed = v6 ? 86 : 42;
        for (uint32_t length = 0; length < needed; length++) {
            assert_false(sl_dpdk_neighbour_parse(fixture.ask, length, &said));
        }
        assert_true(sl_dpdk_neighbour_parse(fixture.ask, needed, &said));
        for (uint32_t i = 8 * 14; v6 && i < 8 * needed; i++) {
            fixture.ask[i / 8] ^= (uint8_t)(1U << i % 8);
            bool is_free = (i / 8 == 14 && i % 8 < 4) || (i / 8 > 14 && i / 8 < 18);
            assert_true(sl_dpdk_neighbour_parse(fixture.ask, needed, &said) == is_free);
            fixture.ask[i / 8] ^= (uint8_t)(1U << i % 8);
        }
        if (!v6) {
            fixture.ask[22] |= 1; /* the Ethernet address of a group is no neighbour's */
            assert_false(sl_dpdk_neighbour_parse(fixture.ask, needed, &said));
        }
        close_both(&fixture);
    }
}

SL_CASE(neighbours__the_oldest_makes_room)
{
    struct fixture fixture;
    open_both(&fixture, "::ffff:10.0.0.1", "::ffff:10.0.0.2", 8);
    struct in6_addr ip = ip_of("::ffff:10.1.0.0");
    for (uint32_t i = 0; i < 3000; i++) {
        ip.s6_addr[14] = (uint8_t)(i >> 8);
        ip.s6_addr[15] = (uint8_t)i;
        sl_dpdk_neighbours_confirm(fixture.of_a, &ip, mac_b, i);
        sl_dpdk_neighbours_confirm(fixture.of_a, &fixture.b.ip, mac_c, i);
    }
    uint32_t known = 0;
    for (uint32_t i = 0; i < 3000; i++) {
        ip.s6_addr[14] = (uint8_t)(i >> 8);
        ip.s6_addr[15] = (uint8_t)i;
        if (i >= 3000 - 1023) {
            assert_true(find(&fixture, &ip, 3000));
            known++;
        }
    }
    assert_int_equal(known, 1023);
    assert_true(find(&fixture, &fixture.b.ip, 3000)); /* is heard all the time */
    ip.s6_addr[14] = ip.s6_addr[15] = 0;
    assert_false(find(&fixture, &ip, 3000));
    close_both(&fixture);
}
