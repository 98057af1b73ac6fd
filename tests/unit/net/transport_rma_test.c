#include "net/transport_rma.h"

#include "tests/support/unit.h"

enum {
    READ = SL_TRANSPORT_RMA_READ,
    WRITE = SL_TRANSPORT_RMA_WRITE,
    FLUSH = SL_TRANSPORT_RMA_FLUSH
};

static int check(int kind, uint64_t offset, uint32_t bytes, struct sl_transport_rma_token token)
{
    const struct sl_transport_rma_op op = {.kind = (enum sl_transport_rma_kind)kind,
                                           .offset = offset,
                                           .bytes = bytes,
                                           .token = &token};
    return sl_transport_rma_check(&op);
}

SL_CASE(check__range)
{
    const struct sl_transport_rma_token token = {.bytes = 100, .access = 3};
    assert_int_equal(check(READ, 0, 100, token), 0);
    assert_int_equal(check(WRITE, 99, 1, token), 0);
    assert_int_equal(check(READ, 0, 101, token), SL_ERR_INVALID);
    assert_int_equal(check(WRITE, 99, 2, token), SL_ERR_INVALID);
    assert_int_equal(check(READ, 101, 1, token), SL_ERR_INVALID);
    assert_int_equal(check(READ, UINT64_MAX, 1, token), SL_ERR_INVALID);
    assert_int_equal(check(READ, UINT64_MAX - 1, UINT32_MAX, token), SL_ERR_INVALID);
}

SL_CASE(check__access)
{
    const struct sl_transport_rma_token nothing = {.bytes = 100, .access = 0};
    const struct sl_transport_rma_token reads = {.bytes = 100,
                                                 .access = SL_TRANSPORT_RMA_PEERS_READ};
    const struct sl_transport_rma_token writes = {.bytes = 100,
                                                  .access = SL_TRANSPORT_RMA_PEERS_WRITE};
    assert_int_equal(check(READ, 0, 1, nothing), SL_ERR_REFUSED);
    assert_int_equal(check(FLUSH, 0, 0, nothing), SL_ERR_REFUSED);
    assert_int_equal(check(READ, 0, 1, reads), 0);
    assert_int_equal(check(FLUSH, 0, 0, reads), 0);
    assert_int_equal(check(WRITE, 0, 1, reads), SL_ERR_REFUSED);
    assert_int_equal(check(WRITE, 0, 1, writes), 0);
    assert_int_equal(check(READ, 0, 1, writes), SL_ERR_REFUSED);
}

SL_CASE(check__flush_reads_from_the_region)
{
    const struct sl_transport_rma_token token = {.access = 3};
    assert_int_equal(check(FLUSH, 0, 0, token), SL_ERR_INVALID);
}

int main(void)
{
    return sl_unit_run("transport_rma", __FILE__);
}
