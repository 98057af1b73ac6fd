#include <stdlib.h>
#include <string.h>

#include "tests/support/unit.h"
#include "tests/unit/net/rdma/fake.h"

#define CONNS   8
#define MINIMUM (SL_RDMA_WINDOW_MIN + SL_RDMA_SPARE)

struct fixture {
    struct rdma_fake fake;
    struct sl_rdma_conn conns[CONNS];
    struct rdma_cm_id ids[CONNS];
    struct ibv_qp queue_pairs[CONNS];
};

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    rdma_fake_init(&fixture->fake);
    for (uint32_t i = 0; i < CONNS; i++) {
        fixture->queue_pairs[i].context = &fixture->fake.verbs;
        fixture->ids[i].qp = &fixture->queue_pairs[i];
        fixture->conns[i].rdma = &fixture->fake.rdma;
        fixture->conns[i].nic = &fixture->fake.nic;
        fixture->conns[i].serial = i + 1;
        fixture->conns[i].link.id = &fixture->ids[i];
    }
    *state = fixture;
    return 0;
}

static int setup_without_srq(void **state)
{
    (void)setup(state);
    struct fixture *fixture = *state;
    fixture->fake.nic.srq = NULL;
    fixture->fake.nic.srq_entries = 0;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    sl_rdma_pool_close(&fixture->fake.nic);
    rdma_fake_fini(&fixture->fake);
    free(fixture);
    return 0;
}

static bool promise(struct fixture *fixture, uint32_t conn, uint32_t window)
{
    return sl_rdma_pool_reserve(&fixture->fake.nic, &fixture->conns[conn], window);
}

static void release(struct fixture *fixture, uint32_t conn)
{
    sl_rdma_pool_release(&fixture->fake.nic, &fixture->conns[conn]);
}

static struct sl_rdma_block *fill(struct fixture *fixture, enum ibv_wc_status status)
{
    struct ibv_wc wc = rdma_fake_fill(&fixture->fake, status);
    return sl_rdma_pool_take(&fixture->fake.nic, &wc);
}

/* ---- With a shared receive queue ---------------------------------------------------------------
 */

SL_CASE_WITH(promise__posts_what_was_promised, setup, teardown)
{
    struct fixture *fixture = *state;
    for (uint32_t i = 0; i < CONNS; i++) {
        assert_true(promise(fixture, i, SL_RDMA_WINDOW_MIN));
        assert_true(fixture->fake.posted_count >= (i + 1) * MINIMUM);
        assert_int_equal(fixture->fake.posted_count, fixture->fake.nic.pool.posted);
        assert_int_equal(fixture->fake.nic.pool.reserved, (i + 1) * MINIMUM);
    }
    assert_true(fixture->fake.post_calls < fixture->fake.posted_count / 4); /* in chains */
    for (uint32_t i = 0; i < CONNS; i++) {
        release(fixture, i);
    }
    assert_int_equal(fixture->fake.nic.pool.reserved, 0);
    assert_int_equal(fixture->fake.nic.cq_promised, 0);
    assert_int_equal(fixture->fake.nic.promises, 0);
}

SL_CASE_WITH(promise__blocks_do_not_overlap, setup, teardown)
{
    struct fixture *fixture = *state;
    assert_true(promise(fixture, 0, SL_RDMA_WINDOW_MAX));
    for (uint32_t i = 0; i < fixture->fake.posted_count; i++) {
        const struct sl_rdma_block *block = (void *)(uintptr_t)(fixture->fake.posted[i] - 1);
        assert_int_equal((uintptr_t)block->at % 64, 0);
        const struct rdma_fake_region *region = rdma_fake_region_of(&fixture->fake, block->key);
        assert_non_null(region);
        assert_true((uintptr_t)block->at >= region->at);
        assert_true((uintptr_t)block->at + SL_RDMA_PACKET_BYTES <= region->at + region->bytes);
        memset(block->at, (int)i, SL_RDMA_PACKET_BYTES);
    }
    for (uint32_t i = 0; i < fixture->fake.posted_count; i++) {
        const struct sl_rdma_block *block = (void *)(uintptr_t)(fixture->fake.posted[i] - 1);
        assert_int_equal(block->at[0], i & 0xff);
        assert_int_equal(block->at[SL_RDMA_PACKET_BYTES - 1], i & 0xff);
    }
    release(fixture, 0);
}

SL_CASE_WITH(promise__a_larger_window_is_bounded_and_the_smallest_is_not, setup, teardown)
{
    struct fixture *fixture = *state;
    fixture->fake.rdma.buffers_max = 3 * MINIMUM;
    assert_true(promise(fixture, 0, SL_RDMA_WINDOW_MIN));
    assert_true(promise(fixture, 0, 2 * SL_RDMA_WINDOW_MIN));
    assert_false(promise(fixture, 0, SL_RDMA_WINDOW_MAX));
    assert_int_equal(fixture->conns[0].reserved, 2 * SL_RDMA_WINDOW_MIN + SL_RDMA_SPARE);
    for (uint32_t i = 1; i < CONNS; i++) {
        assert_true(promise(fixture, i, SL_RDMA_WINDOW_MIN));
    }
    assert_true(fixture->fake.posted_count >= CONNS * MINIMUM + SL_RDMA_WINDOW_MIN);
}

SL_CASE_WITH(promise__the_shared_queue_is_not_overfilled, setup, teardown)
{
    struct fixture *fixture = *state;
    fixture->fake.nic.srq_entries = fixture->fake.post_max = 3 * MINIMUM + 1;
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(promise(fixture, i, SL_RDMA_WINDOW_MIN));
    }
    assert_int_equal(fixture->fake.posted_count, 3 * MINIMUM + 1);
    assert_false(promise(fixture, 3, SL_RDMA_WINDOW_MIN));
    assert_int_equal(fixture->conns[3].reserved, 0);
    release(fixture, 0);
    assert_true(promise(fixture, 3, SL_RDMA_WINDOW_MIN));
}

SL_CASE_WITH(promise__the_completion_queue_grows, setup, teardown)
{
    struct fixture *fixture = *state;
    for (uint32_t i = 0; i < CONNS; i++) {
        assert_true(promise(fixture, i, SL_RDMA_WINDOW_MAX));
        assert_true((uint32_t)fixture->fake.cq.cqe >=
                    (i + 1) * (SL_RDMA_SENDS + SL_RDMA_WINDOW_MAX + SL_RDMA_SPARE));
    }
    assert_true(fixture->fake.resizes > 0);
}

/* With iWARP reads are outstanding beside them. */
SL_CASE_WITH(promise__what_iwarp_reads_has_room_too, setup, teardown)
{
    struct fixture *fixture = *state;
    fixture->fake.nic.caps.is_iwarp = true;
    fixture->fake.nic.caps.reads_max = SL_RDMA_READS;
    for (uint32_t i = 0; i < CONNS; i++) {
        assert_true(promise(fixture, i, SL_RDMA_WINDOW_MIN));
        assert_int_equal(fixture->fake.nic.cq_promised,
                         (i + 1) * (SL_RDMA_SENDS + SL_RDMA_READS + MINIMUM));
    }
    for (uint32_t i = 0; i < CONNS; i++) {
        release(fixture, i);
    }
    assert_int_equal(fixture->fake.nic.cq_promised, 0);
}

SL_CASE_WITH(promise__is_refused_where_completions_have_no_room, setup, teardown)
{
    struct fixture *fixture = *state;
    fixture->fake.nic.caps.resizes = false;
    uint32_t made = 0;
    while (made < CONNS && promise(fixture, made, SL_RDMA_WINDOW_MIN)) {
        made++;
    }
    assert_true(made > 0);
    assert_true(made < CONNS);
    assert_true(made * (SL_RDMA_SENDS + MINIMUM) <= fixture->fake.nic.cq_entries);
    assert_int_equal(fixture->fake.nic.promises, made);
}

SL_CASE_WITH(promise__little_memory_is_enough_for_few, setup, teardown)
{
    struct fixture *fixture = *state;
    fixture->fake.live_bytes_max = 130 << 10;
    assert_true(promise(fixture, 0, SL_RDMA_WINDOW_MIN));
    assert_false(promise(fixture, 0, SL_RDMA_WINDOW_MAX));
    assert_false(promise(fixture, 1, SL_RDMA_WINDOW_MAX));
    assert_int_equal(fixture->fake.nic.promises, 1);
    fixture->fake.live_bytes_max = 0;
    assert_true(promise(fixture, 1, SL_RDMA_WINDOW_MIN)); /* tried however lately it failed */
}

SL_CASE_WITH(put__posts_in_batches, setup, teardown)
{
    struct fixture *fixture = *state;
    struct sl_rdma_block *blocks[20];
    assert_true(promise(fixture, 0, SL_RDMA_WINDOW_MAX));
    uint32_t posted = fixture->fake.posted_count;
    uint32_t calls = fixture->fake.post_calls;
    for (uint32_t i = 0; i < 20; i++) {
        blocks[i] = fill(fixture, IBV_WC_SUCCESS);
    }
    assert_int_equal(fixture->fake.nic.pool.posted, posted - 20);
    for (uint32_t i = 0; i < 20; i++) {
        sl_rdma_pool_put(blocks[i]);
    }
    assert_int_equal(fixture->fake.post_calls, calls + 1);
    sl_rdma_pool_flush(&fixture->fake.nic);
    assert_int_equal(fixture->fake.post_calls, calls + 2);
    assert_int_equal(fixture->fake.posted_count, posted);
    assert_int_equal(fixture->fake.nic.pool.posted, posted);
    sl_rdma_pool_flush(&fixture->fake.nic);
    assert_int_equal(fixture->fake.post_calls, calls + 2);
}

SL_CASE_WITH(put__what_the_device_refuses_is_posted_later, setup, teardown)
{
    struct fixture *fixture = *state;
    assert_true(promise(fixture, 0, SL_RDMA_WINDOW_MIN));
    uint32_t posted = fixture->fake.posted_count;
    struct sl_rdma_block *first = fill(fixture, IBV_WC_SUCCESS);
    struct sl_rdma_block *second = fill(fixture, IBV_WC_SUCCESS);
    fixture->fake.post_max = posted - 1;
    sl_rdma_pool_put(first);
    sl_rdma_pool_put(second);
    sl_rdma_pool_flush(&fixture->fake.nic);
    assert_int_equal(fixture->fake.posted_count, posted - 1);
    assert_int_equal(fixture->fake.nic.pool.posted, posted - 1);
    fixture->fake.post_max = RDMA_FAKE_POSTED;
    assert_true(promise(fixture, 1, SL_RDMA_WINDOW_MIN));
    assert_int_equal(fixture->fake.posted_count, posted);
}

SL_CASE_WITH(get__gives_blocks_of_their_kind, setup, teardown)
{
    struct fixture *fixture = *state;
    struct sl_rdma_block *send = sl_rdma_pool_get(&fixture->fake.nic, SL_RDMA_BLOCK_SEND);
    struct sl_rdma_block *staging = sl_rdma_pool_get(&fixture->fake.nic, SL_RDMA_BLOCK_STAGING);
    assert_non_null(send);
    assert_non_null(staging);
    memset(send->at, 1, SL_RDMA_PACKET_BYTES);
    memset(staging->at, 2, SL_RDMA_STAGING_BYTES);
    const struct rdma_fake_region *region =
        rdma_fake_region_of(&fixture->fake, staging->remote_key);
    assert_true((region->access & IBV_ACCESS_REMOTE_READ) != 0);
    assert_int_equal(region->access & IBV_ACCESS_REMOTE_WRITE, 0);
    sl_rdma_pool_put(send);
    sl_rdma_pool_put(staging);
    assert_ptr_equal(sl_rdma_pool_get(&fixture->fake.nic, SL_RDMA_BLOCK_SEND), send);
    assert_ptr_equal(sl_rdma_pool_get(&fixture->fake.nic, SL_RDMA_BLOCK_STAGING), staging);
    sl_rdma_pool_put(send);
    sl_rdma_pool_put(staging);
}

SL_CASE_WITH(get__is_bounded, setup, teardown)
{
    struct fixture *fixture = *state;
    fixture->fake.rdma.buffers_max = 40;
    struct sl_rdma_block *list = NULL;
    struct sl_rdma_block *block;
    uint32_t count = 0;
    while ((block = sl_rdma_pool_get(&fixture->fake.nic, SL_RDMA_BLOCK_SEND)) != NULL) {
        block->next = list;
        list = block;
        count++;
        assert_true(count <= 128);
    }
    assert_true(count >= 40);
    while (list != NULL) {
        block = list;
        list = block->next;
        sl_rdma_pool_put(block);
    }
}

SL_CASE_WITH(unpin__what_lies_in_blocks_stays, setup, teardown)
{
    struct fixture *fixture = *state;
    assert_true(promise(fixture, 0, SL_RDMA_WINDOW_MIN));
    struct sl_rdma_block *block = fill(fixture, IBV_WC_SUCCESS);
    block->at[5] = 77;
    sl_rdma_pool_unpin(&fixture->fake.nic);
    assert_int_equal(fixture->fake.live_bytes, 0);
    assert_int_equal(block->at[5], 77);
    fixture->fake.nic.gone = true;
    fixture->fake.nic.pd = NULL;
    uint32_t calls = fixture->fake.post_calls;
    sl_rdma_pool_put(block);
    sl_rdma_pool_flush(&fixture->fake.nic);
    assert_int_equal(fixture->fake.post_calls, calls);
}

/* ---- Without ----------------------------------------------------------------------------------
 */

static uint32_t posted_to(const struct fixture *fixture, uint32_t conn)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < fixture->fake.posted_count; i++) {
        count += fixture->fake.posted_to[i] == &fixture->queue_pairs[conn];
    }
    assert_int_equal(count, fixture->conns[conn].link.receives);
    return count;
}

SL_CASE_WITH(promise__each_queue_pair_has_its_own, setup_without_srq, teardown)
{
    struct fixture *fixture = *state;
    for (uint32_t i = 0; i < CONNS; i++) {
        assert_true(promise(fixture, i, SL_RDMA_WINDOW_MIN));
    }
    for (uint32_t i = 0; i < CONNS; i++) {
        assert_int_equal(posted_to(fixture, i), MINIMUM);
    }
    assert_true(promise(fixture, 3, SL_RDMA_WINDOW_MAX));
    assert_int_equal(posted_to(fixture, 3), SL_RDMA_WINDOW_MAX + SL_RDMA_SPARE);
    for (uint32_t i = 0; i < CONNS; i++) {
        release(fixture, i);
    }
    assert_int_equal(fixture->fake.nic.pool.posted, 0);
}

SL_CASE_WITH(put__goes_back_to_its_queue_pair, setup_without_srq, teardown)
{
    struct fixture *fixture = *state;
    assert_true(promise(fixture, 0, SL_RDMA_WINDOW_MIN));
    assert_true(promise(fixture, 1, SL_RDMA_WINDOW_MIN));
    struct sl_rdma_block *blocks[MINIMUM + 2];
    for (uint32_t i = 0; i < MINIMUM + 2; i++) { /* all of the first, two of the second */
        blocks[i] = fill(fixture, IBV_WC_SUCCESS);
        assert_ptr_equal(blocks[i]->conn, &fixture->conns[i / MINIMUM]);
    }
    assert_int_equal(posted_to(fixture, 0), 0);
    assert_int_equal(posted_to(fixture, 1), MINIMUM - 2);
    for (uint32_t i = 0; i < MINIMUM + 2; i++) {
        sl_rdma_pool_put(blocks[i]);
    }
    sl_rdma_pool_flush(&fixture->fake.nic);
    assert_int_equal(posted_to(fixture, 0), MINIMUM);
    assert_int_equal(posted_to(fixture, 1), MINIMUM);
}

/* Else a queue pair in error would give them back again and again. */
SL_CASE_WITH(put__what_failed_is_not_posted_again, setup_without_srq, teardown)
{
    struct fixture *fixture = *state;
    assert_true(promise(fixture, 0, SL_RDMA_WINDOW_MIN));
    for (uint32_t i = 0; i < MINIMUM; i++) {
        sl_rdma_pool_put(fill(fixture, IBV_WC_WR_FLUSH_ERR));
    }
    sl_rdma_pool_flush(&fixture->fake.nic);
    assert_int_equal(fixture->fake.posted_count, 0);
    assert_int_equal(fixture->conns[0].link.receives, 0);
}

SL_CASE_WITH(forget__another_queue_pair_gets_them, setup_without_srq, teardown)
{
    struct fixture *fixture = *state;
    assert_true(promise(fixture, 0, SL_RDMA_WINDOW_MIN));
    struct sl_rdma_block *held = fill(fixture, IBV_WC_SUCCESS);
    sl_rdma_pool_forget(&fixture->fake.nic, &fixture->conns[0]);
    assert_int_equal(fixture->fake.nic.pool.posted, 0);
    fixture->fake.posted_count = 0; /* the queue pair was destroyed */
    fixture->conns[0].link.id = &fixture->ids[1];
    assert_true(promise(fixture, 0, SL_RDMA_WINDOW_MIN));
    assert_int_equal(fixture->conns[0].link.receives, MINIMUM);
    sl_rdma_pool_put(held); /* which has all it needs */
    sl_rdma_pool_flush(&fixture->fake.nic);
    assert_int_equal(fixture->fake.posted_count, MINIMUM);
}

/* A device may say of a buffer that it was given back after its queue pair was destroyed. */
SL_CASE_WITH(take__what_was_taken_back_is_not_taken_twice, setup_without_srq, teardown)
{
    struct fixture *fixture = *state;
    assert_true(promise(fixture, 0, SL_RDMA_WINDOW_MIN));
    struct ibv_wc late = rdma_fake_fill(&fixture->fake, IBV_WC_WR_FLUSH_ERR);
    sl_rdma_pool_forget(&fixture->fake.nic, &fixture->conns[0]);
    fixture->fake.posted_count = 0;
    assert_null(sl_rdma_pool_take(&fixture->fake.nic, &late));
    fixture->queue_pairs[1].qp_num = 7;
    assert_true(promise(fixture, 1, SL_RDMA_WINDOW_MAX)); /* it is posted there now */
    uint32_t posted = fixture->fake.nic.pool.posted;
    assert_null(sl_rdma_pool_take(&fixture->fake.nic, &late));
    assert_int_equal(fixture->fake.nic.pool.posted, posted);
    assert_int_equal(fixture->conns[1].link.receives, posted);
}

SL_CASE_WITH(put__a_staging_block_wakes_who_waits, setup, teardown)
{
    struct fixture *fixture = *state;
    struct sl_rdma *rdma = &fixture->fake.rdma;
    struct sl_rdma_block *block = sl_rdma_pool_get(&fixture->fake.nic, SL_RDMA_BLOCK_STAGING);
    sl_rdma_pool_put(block);
    assert_false(rdma->awake);
    sl_rdma_mark_waiting(&fixture->conns[0]);
    block = sl_rdma_pool_get(&fixture->fake.nic, SL_RDMA_BLOCK_STAGING);
    assert_false(rdma->awake);
    sl_rdma_pool_put(block);
    assert_true(rdma->awake);
}

SL_CASE_WITH(put__after_its_connection_is_free, setup_without_srq, teardown)
{
    struct fixture *fixture = *state;
    assert_true(promise(fixture, 0, SL_RDMA_WINDOW_MIN));
    struct sl_rdma_block *held = fill(fixture, IBV_WC_SUCCESS);
    release(fixture, 0);
    fixture->fake.posted_count = 0;
    fixture->conns[0].serial = 100; /* the same memory, another connection */
    assert_true(promise(fixture, 0, SL_RDMA_WINDOW_MIN));
    sl_rdma_pool_put(held);
    sl_rdma_pool_flush(&fixture->fake.nic);
    assert_int_equal(fixture->fake.posted_count, MINIMUM);
}
