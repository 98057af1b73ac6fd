#include <stdlib.h>

#include "core/shared.h"
#include "net/rdma/state.h"
#include "tests/support/unit.h"
#include "tests/unit/net/rdma/fake.h"

#define CHUNKS    3
#define TAIL      5000 /* of the last chunk */
#define BYTES     ((size_t)(CHUNKS - 1) * SL_RDMA_CHUNK_BYTES + TAIL)
#define SPANS_MAX 4

struct fixture {
    struct rdma_fake fake;
    struct sl_shared read, write; /* by who attaches */
    struct sl_rdma_local_sge spans[SPANS_MAX];
};

static void setup(struct fixture *fixture)
{
    rdma_fake_init(&fixture->fake);
    assert_int_equal(sl_rdma_memory_open(&fixture->fake.nic), 0);
    assert_int_equal(sl_shared_create("read", BYTES, SL_SHARED_READ, &fixture->read), 0);
    assert_int_equal(sl_shared_create("write", BYTES, SL_SHARED_WRITE, &fixture->write), 0);
}

static void teardown(struct fixture *fixture)
{
    sl_rdma_memory_close(&fixture->fake.nic);
    rdma_fake_fini(&fixture->fake);
    sl_shared_destroy(&fixture->read);
    sl_shared_destroy(&fixture->write);
}

#define CASE(name) SL_CASE_USING(name, struct fixture, fixture, setup, teardown)

static void take(struct fixture *fixture, void *base, size_t bytes)
{
    assert_int_equal(sl_rdma_memory_register(&fixture->fake.rdma.base, base, bytes), 0);
}

static uint32_t find(struct fixture *fixture, const void *at, uint32_t bytes, enum sl_rdma_use use)
{
    return sl_rdma_memory_find(&fixture->fake.nic, at, bytes, use, fixture->spans, SPANS_MAX);
}

static const struct rdma_fake_region *region_of(const struct fixture *fixture, uint32_t local_sge)
{
    const struct rdma_fake_region *region =
        rdma_fake_region_of(&fixture->fake, fixture->spans[local_sge].local_key);
    assert_non_null(region);
    assert_int_equal(region->mr.rkey, fixture->spans[local_sge].remote_key);
    return region;
}

CASE(register__registers_nothing_with_the_device)
{
    take(fixture, fixture->read.base, BYTES);
    assert_int_equal(fixture->fake.registered, 0);
}

CASE(register__has_a_limit)
{
    for (uint32_t i = 0; i < SL_RDMA_REGIONS; i++) {
        take(fixture, fixture->read.base + i, 1);
    }
    assert_int_equal(sl_rdma_memory_register(&fixture->fake.rdma.base, fixture->write.base, BYTES),
                     SL_ERR_NO_MEMORY);
    sl_rdma_memory_unregister(&fixture->fake.rdma.base, fixture->read.base + 7);
    take(fixture, fixture->write.base, BYTES);
    assert_int_equal(find(fixture, fixture->write.base, 8, SL_RDMA_USE_SEND), 1);
}

CASE(find__registers_the_chunk_once)
{
    uint8_t *at = fixture->read.base + SL_RDMA_CHUNK_BYTES + 16;
    take(fixture, fixture->read.base, BYTES);
    assert_int_equal(find(fixture, at, 1000, SL_RDMA_USE_SEND), 1);
    assert_ptr_equal(fixture->spans[0].at, at);
    assert_int_equal(fixture->spans[0].bytes, 1000);
    const struct rdma_fake_region *region = region_of(fixture, 0);
    assert_int_equal(region->at, (uintptr_t)fixture->read.base + SL_RDMA_CHUNK_BYTES);
    assert_int_equal(region->bytes, SL_RDMA_CHUNK_BYTES);
    assert_int_equal(find(fixture, at + 8, 10, SL_RDMA_USE_SEND), 1);
    assert_int_equal(find(fixture, at + 8, 10, SL_RDMA_USE_SINK), 1);
    assert_int_equal(fixture->fake.registered, 1);
    assert_int_equal(fixture->fake.deregistered, 0);
}

CASE(find__splits_at_chunks)
{
    take(fixture, fixture->read.base, BYTES);
    uint8_t *at = fixture->read.base + SL_RDMA_CHUNK_BYTES - 1;
    assert_int_equal(find(fixture, at, SL_RDMA_CHUNK_BYTES + 2, SL_RDMA_USE_READ), 3);
    assert_int_equal(fixture->spans[0].bytes, 1);
    assert_int_equal(fixture->spans[1].bytes, SL_RDMA_CHUNK_BYTES);
    assert_int_equal(fixture->spans[2].bytes, 1);
    for (uint32_t i = 0; i < 3; i++) {
        const struct rdma_fake_region *region = region_of(fixture, i);
        assert_ptr_equal(fixture->spans[i].at, at);
        assert_true(region->at <= (uintptr_t)at);
        assert_true((uintptr_t)at + fixture->spans[i].bytes <= region->at + region->bytes);
        at += fixture->spans[i].bytes;
    }
    assert_int_equal(region_of(fixture, 2)->bytes, TAIL);
}

CASE(find__too_many_spans_are_none)
{
    take(fixture, fixture->read.base, BYTES);
    uint8_t *at = fixture->read.base + SL_RDMA_CHUNK_BYTES - 1;
    assert_int_equal(
        sl_rdma_memory_find(&fixture->fake.nic, at, 2, SL_RDMA_USE_READ, fixture->spans, 1), 0);
}

CASE(find__the_end_of_a_region_is_the_end)
{
    take(fixture, fixture->read.base, BYTES);
    assert_int_equal(find(fixture, fixture->read.base + BYTES - 8, 8, SL_RDMA_USE_SEND), 1);
    assert_int_equal(find(fixture, fixture->read.base + BYTES - 8, 9, SL_RDMA_USE_SEND), 0);
    assert_int_equal(find(fixture, fixture->read.base - 1, 8, SL_RDMA_USE_SEND), 0);
}

/* Memory that the device only sends from and receives into has no key that a peer could use. */
CASE(find__peers_read_what_was_for_them_to_read)
{
    const int remote = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    take(fixture, fixture->read.base, BYTES);
    assert_int_equal(find(fixture, fixture->read.base, 8, SL_RDMA_USE_SEND), 1);
    assert_int_equal(region_of(fixture, 0)->access & remote, 0);
    assert_int_equal(find(fixture, fixture->read.base, 8, SL_RDMA_USE_SINK), 1);
    assert_int_equal(region_of(fixture, 0)->access & remote, 0);
    assert_int_equal(find(fixture, fixture->read.base, 8, SL_RDMA_USE_READ), 1);
    assert_int_equal(region_of(fixture, 0)->access & remote, IBV_ACCESS_REMOTE_READ);
    uint8_t *second = fixture->read.base + SL_RDMA_CHUNK_BYTES;
    assert_int_equal(find(fixture, second, 8, SL_RDMA_USE_READ), 1);
    assert_int_equal(find(fixture, second, 8, SL_RDMA_USE_SEND), 1);
    assert_int_equal(fixture->fake.registered, 3); /* one serves both */
}

CASE(find__peers_write_where_it_was_shared_for_it)
{
    take(fixture, fixture->read.base, BYTES);
    take(fixture, fixture->write.base, BYTES);
    assert_int_equal(find(fixture, fixture->write.base, 8, SL_RDMA_USE_REPLY_BUFFER), 1);
    assert_true((region_of(fixture, 0)->access & IBV_ACCESS_REMOTE_WRITE) != 0);
    assert_int_equal(find(fixture, fixture->read.base, 8, SL_RDMA_USE_REPLY_BUFFER), 0);
    assert_int_equal(find(fixture, fixture->read.base, 8, SL_RDMA_USE_SINK), 1);
    assert_int_equal(region_of(fixture, 0)->access & IBV_ACCESS_REMOTE_WRITE, 0);
}

/* Memory that the caller registered and does not share: peers write it from its first use as a
 * reply buffer on, chunk by chunk, and no key of another use lets them. */
CASE(find__own_memory_is_registered_once_as_a_reply_buffer)
{
    uint8_t *own = aligned_alloc(4096, 2 * SL_RDMA_CHUNK_BYTES);
    take(fixture, own, 2 * SL_RDMA_CHUNK_BYTES);
    assert_int_equal(find(fixture, own, 8, SL_RDMA_USE_READ), 1);
    assert_int_equal(region_of(fixture, 0)->access & IBV_ACCESS_REMOTE_WRITE, 0);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(find(fixture, own + 64, 1000, SL_RDMA_USE_REPLY_BUFFER), 1);
        assert_true((region_of(fixture, 0)->access & IBV_ACCESS_REMOTE_WRITE) != 0);
        assert_int_equal(fixture->fake.registered, 2);
    }
    assert_int_equal(find(fixture, own, 8, SL_RDMA_USE_READ), 1);
    assert_int_equal(region_of(fixture, 0)->access & IBV_ACCESS_REMOTE_WRITE, 0);
    uint8_t *second = own + SL_RDMA_CHUNK_BYTES;
    assert_int_equal(find(fixture, second, 8, SL_RDMA_USE_REPLY_BUFFER), 1);
    assert_int_equal(find(fixture, second, 8, SL_RDMA_USE_SEND), 1);
    assert_int_equal(fixture->fake.registered, 3); /* one serves both */
    sl_rdma_memory_unregister(&fixture->fake.rdma.base, own);
    assert_int_equal(fixture->fake.deregistered, 3);
    free(own);
}

/* It would stay open to peers beyond the request, or be registered for each. */
CASE(find__memory_that_is_not_registered_is_no_reply_buffer)
{
    assert_int_equal(sl_rdma_memory_find(&fixture->fake.nic, fixture->write.base, 1000,
                                         SL_RDMA_USE_REPLY_BUFFER, fixture->spans, SPANS_MAX),
                     0);
    assert_int_equal(fixture->fake.registered, 0);
}

CASE(find__takes_relaxed_order_where_it_can)
{
    fixture->fake.nic.caps.relaxed_order = true;
    take(fixture, fixture->read.base, BYTES);
    assert_int_equal(find(fixture, fixture->read.base, 8, SL_RDMA_USE_SEND), 1);
    assert_true((region_of(fixture, 0)->access & IBV_ACCESS_RELAXED_ORDERING) != 0);
}

CASE(unregister__deregisters)
{
    take(fixture, fixture->read.base, BYTES);
    assert_int_equal(find(fixture, fixture->read.base, 8, SL_RDMA_USE_SEND), 1);
    sl_rdma_memory_unregister(&fixture->fake.rdma.base, fixture->read.base);
    assert_int_equal(fixture->fake.deregistered, 1);
    assert_int_equal(find(fixture, fixture->read.base, 8, SL_RDMA_USE_SEND), 0);
    take(fixture, fixture->read.base, BYTES);
    assert_int_equal(find(fixture, fixture->read.base, 8, SL_RDMA_USE_SEND), 1);
    assert_int_equal(fixture->fake.registered, 2);
}

/* A rail that did not hear of it: its chunks are of a registration that is over. */
CASE(find__chunks_of_an_older_registration_do_not_serve)
{
    take(fixture, fixture->read.base, BYTES);
    assert_int_equal(find(fixture, fixture->read.base, 8, SL_RDMA_USE_SEND), 1);
    fixture->fake.rdma.nics = NULL;
    sl_rdma_memory_unregister(&fixture->fake.rdma.base, fixture->read.base);
    take(fixture, fixture->write.base, BYTES); /* the same place in the table */
    assert_int_equal(find(fixture, fixture->write.base, 8, SL_RDMA_USE_REPLY_BUFFER), 1);
    assert_int_equal(region_of(fixture, 0)->at, (uintptr_t)fixture->write.base);
    assert_int_equal(fixture->fake.deregistered, 1);
}

CASE(find__a_device_that_refuses_is_not_asked_each_time)
{
    take(fixture, fixture->read.base, BYTES);
    fixture->fake.live_bytes_max = SL_RDMA_CHUNK_BYTES;
    assert_int_equal(find(fixture, fixture->read.base, 8, SL_RDMA_USE_SEND), 1);
    uint8_t *second = fixture->read.base + SL_RDMA_CHUNK_BYTES;
    assert_int_equal(find(fixture, second - 4, 8, SL_RDMA_USE_SEND), 0);
    assert_int_equal(find(fixture, fixture->read.base + 8, 8, SL_RDMA_USE_SEND), 1);
    fixture->fake.live_bytes_max = 0;
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(find(fixture, second, 8, SL_RDMA_USE_SEND), 0);
    }
    rdma_fake_sleep(&fixture->fake, 20);
    assert_int_equal(find(fixture, second, 8, SL_RDMA_USE_SEND), 1);
}

CASE(find__other_memory_is_never_registered)
{
    assert_int_equal(find(fixture, fixture->read.base, 8, SL_RDMA_USE_SEND), 0);
    assert_int_equal(fixture->fake.registered, 0);
    assert_false(sl_rdma_memory_is_registered(&fixture->fake.nic, fixture->read.base, 8));
    take(fixture, fixture->read.base, BYTES);
    assert_true(sl_rdma_memory_is_registered(&fixture->fake.nic, fixture->read.base, 8));
}

CASE(find__a_device_that_is_gone_knows_nothing)
{
    take(fixture, fixture->read.base, BYTES);
    fixture->fake.nic.gone = true;
    assert_int_equal(find(fixture, fixture->read.base, 8, SL_RDMA_USE_SEND), 0);
}
