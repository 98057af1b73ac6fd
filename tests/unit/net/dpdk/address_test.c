/* Addresses that strangers give: whom nobody answers, and which are not theirs. */
#include <string.h>

#include "net/dpdk/checksum.h"
#include "net/dpdk/wire.h"
#include "tests/support/unit.h"
#include "tests/unit/net/dpdk/hosts.h"

static void seal_anew(struct packet *packet)
{
    packet->bytes[14 + 10] = packet->bytes[14 + 11] = 0;
    uint16_t checksum = sl_dpdk_checksum_fold(sl_dpdk_checksum(0, packet->bytes + 14, 20));
    packet->bytes[14 + 10] = (uint8_t)checksum;
    packet->bytes[14 + 11] = (uint8_t)(checksum >> 8);
    packet->bytes[40] = packet->bytes[41] = 0;
    sl_dpdk_seal(packet->bytes, packet->length);
}

static const struct {
    uint32_t at, bytes;
    uint8_t value[6];
} nowhere[] = {
    {26, 4, {224, 0, 0, 1}},                      /* a group */
    {26, 4, {255, 255, 255, 255}},                /* all */
    {26, 4, {0, 0, 0, 0}},                        /* nobody */
    {34, 2, {0, 0}},                              /* no port */
    {6, 6, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}, /* all of the Ethernet */
    {6, 6, {0x33, 0x33, 0x00, 0x00, 0x00, 0x01}}, /* many of it */
};

/* What would be answered to many, or to nobody, is not answered. */
SL_CASE(open__from_where_nobody_can_be)
{
    for (uint32_t i = 0; i < sizeof nowhere / sizeof nowhere[0]; i++) {
        struct hosts hosts;
        hosts_open(&hosts, NULL);
        (void)hosts_pair(&hosts);
        struct packet *packet = &hosts.last[FROM_B][SL_DPDK_OPEN];
        memcpy(packet->bytes + nowhere[i].at, nowhere[i].value, nowhere[i].bytes);
        packet->bytes[42 + SL_DPDK_HEADER_BYTES] ^= 1; /* another's question */
        seal_anew(packet);
        sl_wire_inject(hosts.wire, packet->bytes, packet->length, 0);
        hosts_run_ms(&hosts, 5);
        assert_int_equal(hosts.received[SL_DPDK_RETRY], 1);
        hosts_close(&hosts);
    }
}

/* Nor are an ACCEPT that nobody asked for, and a PROBE for another life of this process. */
SL_CASE(denied__from_where_nobody_can_be)
{
    static const uint8_t kinds[] = {SL_DPDK_ACCEPT, SL_DPDK_PROBE};
    for (uint32_t i = 0; i < 2 * sizeof nowhere / sizeof nowhere[0]; i++) {
        struct hosts hosts;
        hosts_open(&hosts, NULL);
        (void)hosts_pair(&hosts);
        struct packet *packet = &hosts.last[FROM_B][SL_DPDK_OPEN];
        memset(packet->bytes + 42, 0x77, 8); /* an id of nobody's */
        packet->bytes[42] = 0;               /* of this reactor */
        packet->bytes[42 + 30] = (uint8_t)(SL_DPDK_VERSION << 4 | kinds[i % 2]);
        seal_anew(packet);
        sl_wire_inject(hosts.wire, packet->bytes, packet->length, 0);
        hosts_run_ms(&hosts, 5);
        assert_int_equal(hosts.received[SL_DPDK_RESET], 1);
        memcpy(packet->bytes + nowhere[i / 2].at, nowhere[i / 2].value, nowhere[i / 2].bytes);
        seal_anew(packet);
        sl_wire_inject(hosts.wire, packet->bytes, packet->length, 0);
        hosts_run_ms(&hosts, 5);
        assert_int_equal(hosts.received[SL_DPDK_RESET], 1);
        hosts_close(&hosts);
    }
}

/* The cookie of one address is no good from another: who cannot read what is sent to the address
 * that he gives does not get a connection. */
HOSTS_CASE(open__from_another_address)
{
    (void)hosts_pair(hosts);
    struct packet *packet = &hosts->last[FROM_B][SL_DPDK_OPEN];
    packet->bytes[14 + 15] = 99; /* of the source's IPv4 address */
    seal_anew(packet);
    hosts_repeat(hosts, FROM_B, SL_DPDK_OPEN);
    hosts_run_ms(hosts, 50);
    assert_int_equal(hosts->received[SL_DPDK_RETRY], 2);
    assert_int_equal(hosts->nodes[0].link_count, 1);
}
