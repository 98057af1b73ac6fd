#include <stdlib.h>
#include <string.h>

#include "core/shared.h"
#include "net/rdma/reply_buffer.h"
#include "net/rdma/send.h"
#include "tests/support/unit.h"
#include "tests/unit/net/rdma/wire.h"

#define MEMORY_BYTES (1U << 20)
#define FRAME(bytes) (SL_FRAME_HEADER_BYTES + (bytes))

struct fixture {
    struct rdma_wire wire;
    struct rdma_wire_end *a, *b;
    struct sl_shared shared; /* registered, peers may write it */
    uint8_t *memory;         /* registered, MEMORY_BYTES */
    uint8_t *sink;           /* not registered */
};

static void setup(struct fixture *fixture)
{
    rdma_wire_init(&fixture->wire);
    fixture->a = &fixture->wire.ends[0];
    fixture->b = &fixture->wire.ends[1];
    assert_int_equal(sl_shared_create("send", MEMORY_BYTES, SL_SHARED_WRITE, &fixture->shared), 0);
    assert_int_equal(sl_rdma_memory_register(&fixture->wire.fake.rdma.base, fixture->shared.base,
                                             fixture->shared.bytes),
                     0);
    fixture->memory = aligned_alloc(4096, MEMORY_BYTES);
    fixture->sink = aligned_alloc(4096, MEMORY_BYTES);
    assert_non_null(fixture->memory);
    assert_non_null(fixture->sink);
    assert_int_equal(
        sl_rdma_memory_register(&fixture->wire.fake.rdma.base, fixture->memory, MEMORY_BYTES), 0);
    fixture->b->sink = fixture->sink;
}

static void teardown(struct fixture *fixture)
{
    sl_rdma_memory_unregister(&fixture->wire.fake.rdma.base, fixture->shared.base);
    rdma_wire_fini(&fixture->wire);
    sl_shared_destroy(&fixture->shared);
    free(fixture->memory);
    free(fixture->sink);
}

#define CASE(name) SL_CASE_USING(name, struct fixture, fixture, setup, teardown)

static void *cookie(uintptr_t number)
{
    return (void *)number;
}

static void ask(struct fixture *fixture, uint64_t request_id, void *reply_buffer, uint32_t bytes)
{
    rdma_wire_frame(fixture->memory, SL_FRAME_REQUEST, request_id, 8, 1);
    const struct sl_transport_frame frame = {.head = fixture->memory,
                                             .head_bytes = FRAME(8),
                                             .cookie = cookie(1),
                                             .reply_buffer = reply_buffer,
                                             .reply_buffer_bytes = bytes};
    assert_int_equal(sl_rdma_send_burst(&fixture->a->conn->base, &frame, 1), 1);
    rdma_wire_settle(&fixture->wire);
}

static void answer(struct fixture *fixture, uint64_t request_id, uint32_t bytes, uint8_t fill)
{
    uint8_t *at = fixture->memory + MEMORY_BYTES / 2;
    rdma_wire_frame(at, SL_FRAME_REPLY, request_id, bytes, fill);
    rdma_wire_send(fixture->b, at, cookie(request_id));
}

/* One trip: the writes and the header are posted together. */
CASE(reply_buffer__one_trip)
{
    uint8_t *reply_buffer = fixture->shared.base;
    fixture->a->sink = reply_buffer;
    static const uint32_t sizes[] = {SL_RDMA_LONG_BYTES, 16384, 16385, 100000};
    for (uint32_t i = 0; i < 4; i++) {
        ask(fixture, i + 1, reply_buffer, 100000);
        uint32_t calls = fixture->b->post_calls, posted = fixture->b->posted;
        answer(fixture, i + 1, sizes[i], (uint8_t)i);
        rdma_wire_settle(&fixture->wire);
        assert_int_equal(fixture->b->post_calls, calls + 1);
        const struct rdma_wire_request *write = &fixture->b->requests[posted];
        assert_int_equal(write->opcode, IBV_WR_RDMA_WRITE);
        assert_int_equal(write->remote_at, (uintptr_t)reply_buffer);
        assert_int_equal(write->bytes, sizes[i]);
        assert_int_equal(rdma_wire_head(write + 1).kind, SL_RDMA_WRITTEN);
        assert_int_equal(rdma_wire_head(write + 1).frame_bytes, SL_FRAME_HEADER_BYTES);
        rdma_wire_expect(fixture->a, i, i + 1, sizes[i], (uint8_t)i);
        assert_ptr_equal(fixture->a->messages[i].payload, reply_buffer);
        assert_int_equal(fixture->a->asked, i < 2 ? 0 : i - 1);
        assert_int_equal(fixture->b->sent_count, i + 1);
    }
}

CASE(reply_buffer__and_sink_says_elsewhere)
{
    uint8_t *reply_buffer = fixture->shared.base;
    ask(fixture, 1, reply_buffer, 50000);
    answer(fixture, 1, 50000, 7);
    rdma_wire_settle(&fixture->wire);
    assert_int_equal(fixture->a->received, 0); /* NULL: nowhere, for now */
    assert_true(fixture->a->asked > 0);
    fixture->a->sink = fixture->sink + 3; /* of any alignment */
    rdma_wire_settle(&fixture->wire);
    rdma_wire_expect(fixture->a, 0, 1, 50000, 7);
    assert_ptr_equal(fixture->a->messages[0].payload, fixture->sink + 3);
}

/* One that is short goes in a packet, one that is too long is read; either way it is over. */
CASE(reply_buffer__is_used_once)
{
    uint8_t *reply_buffer = fixture->shared.base;
    fixture->a->sink = fixture->sink;
    static const uint32_t sizes[] = {100, 60000};
    for (uint32_t i = 0; i < 2; i++) {
        ask(fixture, i + 1, reply_buffer, 50000);
        memset(reply_buffer, 0xaa, 60000);
        for (uint32_t k = 0; k < 2; k++) {
            answer(fixture, i + 1, k == 0 ? sizes[i] : 40000, 1);
            rdma_wire_settle(&fixture->wire);
        }
        assert_int_equal(fixture->a->received, 2 * (i + 1));
        for (uint32_t k = 0; k < 60000; k++) {
            assert_int_equal(reply_buffer[k], 0xaa);
        }
    }
}

/* More than are remembered, or one of the same number again: without. */
CASE(reply_buffer__whose_place_is_taken)
{
    uint8_t *reply_buffer = fixture->shared.base;
    ask(fixture, 1, reply_buffer, 50000);
    ask(fixture, 1 + SL_RDMA_REPLY_BUFFERS, reply_buffer, 50000);
    uint32_t bytes = 0;
    assert_ptr_equal(sl_rdma_reply_buffer_lent(fixture->a->conn, 1, &bytes), reply_buffer);
    assert_int_equal(bytes, 50000);
    assert_null(sl_rdma_reply_buffer_lent(fixture->a->conn, 1 + SL_RDMA_REPLY_BUFFERS, &bytes));
    fixture->a->sink = fixture->sink;
    answer(fixture, 1 + SL_RDMA_REPLY_BUFFERS, 40000, 1);
    rdma_wire_settle(&fixture->wire);
    rdma_wire_expect(fixture->a, 0, 1 + SL_RDMA_REPLY_BUFFERS, 40000, 1);
    assert_ptr_equal(sl_rdma_reply_buffer_lent(fixture->a->conn, 1, &bytes), reply_buffer);
}

/* Memory that nobody registered is never opened to the peer: the answer is read. */
CASE(reply_buffer__anywhere)
{
    uint32_t bytes;
    fixture->a->sink = fixture->sink;
    ask(fixture, 1, fixture->sink, 200000);
    assert_null(sl_rdma_reply_buffer_lent(fixture->a->conn, 1, &bytes));
    answer(fixture, 1, 150000, 9);
    rdma_wire_settle(&fixture->wire);
    rdma_wire_expect(fixture->a, 0, 1, 150000, 9);
    assert_ptr_equal(fixture->a->messages[0].payload, fixture->sink);
    for (uint32_t i = 0; i < RDMA_FAKE_REGIONS; i++) {
        const struct rdma_fake_region *region = &fixture->wire.fake.regions[i];
        assert_true(region->at < (uintptr_t)fixture->sink ||
                    region->at >= (uintptr_t)fixture->sink + MEMORY_BYTES ||
                    (region->access & IBV_ACCESS_REMOTE_WRITE) == 0);
    }
}

/* What the caller registered, from wherever: written there. */
CASE(reply_buffer__in_memory_of_the_callers)
{
    struct sl_transport *transport = &fixture->wire.fake.rdma.base;
    fixture->a->sink = fixture->sink;
    assert_int_equal(sl_rdma_memory_register(transport, fixture->sink, MEMORY_BYTES), 0);
    const uint32_t before = fixture->wire.fake.registered;
    for (uint32_t i = 0; i < 3; i++) {
        ask(fixture, i + 1, fixture->sink, 200000);
        const uint32_t posted = fixture->b->posted;
        answer(fixture, i + 1, 150000, (uint8_t)i);
        rdma_wire_settle(&fixture->wire);
        assert_int_equal(fixture->b->requests[posted].opcode, IBV_WR_RDMA_WRITE);
        rdma_wire_expect(fixture->a, i, i + 1, 150000, (uint8_t)i);
    }
    assert_in_range(fixture->wire.fake.registered, before + 1, before + 2); /* the answers' too */
    sl_rdma_memory_unregister(transport, fixture->sink);
}
