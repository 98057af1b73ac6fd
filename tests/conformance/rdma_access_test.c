/* Access to memory: a peer that is not welcome has none, whatever keys it guesses; a welcome one
 * has that of the keys. Here the test knows the keys, since it shares the process. */
#include "core/log.h"
#include "net/rdma/state.h"
#include "rdma_raw.h"

#include <stdlib.h>
#include <string.h>

#define BYTES 4096

static struct world *world;

/* A block of the server's that peers may read. */
struct readable {
    uint64_t at;
    uint32_t key;
};

static void fill_block(struct node *node, void *ctx)
{
    struct readable *out = ctx;
    struct sl_rdma_nic *rail = ((struct sl_rdma *)node->transport)->nics;
    assert_non_null(rail);
    struct sl_rdma_block *block = sl_rdma_pool_get(rail, SL_RDMA_BLOCK_STAGING);
    assert_non_null(block);
    memcpy(block->at, content_of(7, BYTES), BYTES);
    *out = (struct readable){.at = (uintptr_t)block->at, .key = block->remote_key};
    sl_rdma_pool_put(block);
}

/* Connected, and one frame was answered: so the server knows the connection. */
static struct rdma_raw begin(bool is_welcome, struct readable *block)
{
    struct node *server = &world->nodes[0];
    node_set_policy(server, (struct policy){.echo = true, .strangers = !is_welcome});
    struct rdma_raw raw = rdma_raw_connect(&server->bound);
    const struct rdma_raw_packet frame = rdma_raw_frames(1, 40);
    rdma_raw_send(&raw, frame.bytes, frame.count);
    const struct sl_rdma_packet *answer;
    uint32_t bytes;
    do {
        answer = rdma_raw_receive(&raw, &bytes);
        assert_non_null(answer);
    } while (answer->kind != SL_RDMA_FRAMES);
    node_run(server, fill_block, block);
    memset(raw.lent, 0, BYTES);
    return raw;
}

/* The device of the server refuses, the connection ends, and nothing was read. */
static void expect_refusal(struct rdma_raw *raw)
{
    struct node *server = &world->nodes[0];
    rdma_raw_settle(raw);
    assert_int_equal(raw->failed > 0, true);
    assert_true(raw->first_failure == IBV_WC_REM_INV_REQ_ERR ||
                raw->first_failure == IBV_WC_REM_ACCESS_ERR);
    for (uint32_t i = 0; i < BYTES; i++) {
        assert_int_equal(raw->lent[i], 0);
    }
    rdma_raw_close(raw);
    WAIT_UNTIL(server->closed_count == server->open_count);
}

#define CASE(name) SL_CASE_WITH(name, world = world_open(1, NULL), world_close(world))

CASE(stranger__reads_nothing)
{
    struct readable block;
    struct rdma_raw raw = begin(false, &block);
    rdma_raw_read(&raw, block.at, block.key, BYTES);
    expect_refusal(&raw);
}

CASE(stranger__writes_nothing)
{
    struct readable block;
    struct rdma_raw raw = begin(false, &block);
    rdma_raw_write(&raw, block.at, block.key, BYTES);
    expect_refusal(&raw);
}

CASE(member__reads_what_it_has_the_key_of)
{
    struct readable block;
    struct rdma_raw raw = begin(true, &block);
    rdma_raw_read(&raw, block.at, block.key, BYTES);
    rdma_raw_settle(&raw);
    assert_int_equal(raw.failed, 0);
    assert_memory_equal(raw.lent, content_of(7, BYTES), BYTES);
    rdma_raw_close(&raw);
}

CASE(member__writes_where_nothing_is_lent)
{
    struct readable block;
    struct rdma_raw raw = begin(true, &block);
    rdma_raw_write(&raw, block.at, block.key, BYTES);
    expect_refusal(&raw);
}

int main(void)
{
    static struct conformance_target target;
    if (!rdma_target_init(&target, "rdma access", "RDMA_IP")) {
        return SKIPPED;
    }
    if (getenv("STARLING_LOG") == NULL) {
        sl_log_setup(SL_LOG_OFF, target.name); /* all that it says is expected */
    }
    return sl_unit_run("rdma access", __FILE__);
}
