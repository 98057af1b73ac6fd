/* What tests of the sending half have in common: one end for each test, and the frames that it is
 * offered and sends by their numbers. */
#ifndef SL_TESTS_UNIT_NET_DPDK_SENDING_H
#define SL_TESTS_UNIT_NET_DPDK_SENDING_H

#include "net/dpdk/wire.h"
#include "tests/unit/net/dpdk/end.h"

#define PIECE END_BODY_MAX
#define FIRST END_FIRST

static struct end end;

#define CASE(name) SL_CASE_WITH(name, end_open(&end, NULL), end_close(&end))

static inline void *cookie_of(uint32_t number)
{
    return (void *)(uintptr_t)(number + 1);
}

static inline uint8_t *make(uint32_t number, uint32_t payload_bytes)
{
    return end_make(&end, number, payload_bytes);
}

static inline uint8_t *offer(uint32_t number, uint32_t payload_bytes)
{
    return end_offer_made(&end, number, payload_bytes, cookie_of(number));
}

static inline void acknowledge(uint32_t acknowledged)
{
    assert_true(end_acknowledge(&end, acknowledged, 0, end.conn->granted_theirs));
}

static inline const struct sl_dpdk_header *sent_header(uint32_t n)
{
    return &end_sent(&end, n)->parsed.header;
}

static inline void expect_sent(uint32_t n, enum sl_dpdk_kind kind, uint32_t message,
                               uint32_t offset)
{
    assert_int_equal(sent_header(n)->kind, kind);
    assert_int_equal(sent_header(n)->message, message);
    assert_int_equal(sent_header(n)->offset, offset);
}

#endif
