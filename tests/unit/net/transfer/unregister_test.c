/* Memory is unregistered while peers use it; afterwards it is unmapped, so that a late access ends
 * the process. */
#include <sys/mman.h>

#include "core/clock.h"
#include "net/transfer/memory.h"
#include "pair.h"

#define BYTES (8U << 20)

static struct pair pair;

#define CASE(name) SL_CASE_WITH(name, pair_init(&pair, BYTES, NULL), pair_fini(&pair))

static void use_until_unregistered(enum sl_transfer_op op)
{
    void *base = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const struct sl_transfer_memory memory = {.base = base, .bytes = BYTES, .access = PAIR_ALL};
    struct sl_transfer_request request = pair_request(&pair, op, 0, 0, BYTES);
    struct sl_transfer_batch *second;
    request.remote = (uintptr_t)base;
    assert_int_equal(sl_transfer_batch_create(pair.here, 1, &second), 0);
    assert_int_equal(sl_transfer_register(pair.there, &memory, 1), 0);
    while (pair_run(&pair, &request, 1, PAIR_TIMEOUT_MS) != 0) {
        /* The list of buffers has not arrived yet. */
    }
    assert_int_equal(sl_transfer_batch_submit(pair.batch, &request, 1, PAIR_TIMEOUT_MS, NULL), 0);
    assert_int_equal(sl_transfer_batch_submit(second, &request, 1, PAIR_TIMEOUT_MS, NULL), 0);
    assert_int_equal(sl_transfer_unregister(pair.there, &base, 1, PAIR_TIMEOUT_MS), 0);
    assert_int_equal(munmap(base, BYTES), 0);
    (void)sl_transfer_batch_wait(pair.batch);
    (void)sl_transfer_batch_wait(second);
    assert_int_not_equal(pair_run(&pair, &request, 1, PAIR_TIMEOUT_MS), 0);
    sl_transfer_batch_free(&second);
}

/* One request of two names memory that its owner has unmapped too early. The kernel refuses to send
 * such memory. The processor copies a part of what is received, so receiving would end the process.
 */
static void use_unmapped(enum sl_transfer_op op, bool is_remote)
{
    void *base = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const struct sl_transfer_memory memory = {.base = base, .bytes = BYTES, .access = PAIR_ALL};
    struct sl_transfer_request requests[] = {pair_request(&pair, op, 0, 0, BYTES / 2),
                                             pair_request(&pair, op, 0, 0, BYTES / 2)};
    struct sl_transfer_status status;
    if (is_remote) {
        requests[0].remote = (uintptr_t)base;
    } else {
        requests[0].local = base;
    }
    struct sl_transfer *owner = is_remote ? pair.there : pair.here;
    assert_int_equal(sl_transfer_register(owner, &memory, 1), 0);
    while (pair_run(&pair, requests, 1, PAIR_TIMEOUT_MS) != 0) {
        /* The list of buffers has not arrived yet. */
    }
    assert_int_equal(munmap(base, BYTES), 0);
    for (uint32_t round = 0; round < 3; round++) {
        assert_int_not_equal(pair_run(&pair, requests, 2, PAIR_TIMEOUT_MS), 0);
        assert_int_equal(sl_transfer_batch_status(pair.batch, 0, &status), 0);
        assert_int_equal(status.state, SL_TRANSFER_FAILED);
        assert_int_equal(sl_transfer_batch_status(pair.batch, 1, &status), 0);
        assert_int_equal(status.state, SL_TRANSFER_COMPLETED);
    }
    assert_int_equal(sl_transfer_unregister(owner, &base, 1, PAIR_TIMEOUT_MS), 0);
    pair_move(&pair, op, 0, 0, BYTES);
}

CASE(unmapped_memory__fails_its_reads_only_at_the_target)
{
    use_unmapped(SL_TRANSFER_READ, true);
}

CASE(unmapped_memory__fails_its_writes_only_at_the_initiator)
{
    use_unmapped(SL_TRANSFER_WRITE, false);
}

CASE(unregister__ends_all_reads)
{
    for (uint32_t i = 0; i < 20; i++) {
        use_until_unregistered(SL_TRANSFER_READ);
    }
    pair_move(&pair, SL_TRANSFER_READ, 0, 0, BYTES);
}

CASE(unregister__ends_all_writes)
{
    for (uint32_t i = 0; i < 20; i++) {
        use_until_unregistered(SL_TRANSFER_WRITE);
    }
    pair_move(&pair, SL_TRANSFER_WRITE, 0, 0, BYTES);
}

static void wait_for_buffers(uint32_t count)
{
    uint32_t have = 0;
    while (have != count) {
        assert_int_equal(sl_transfer_segment_buffers(pair.segment, NULL, 0, &have), 0);
    }
}

struct count_call {
    struct sl_transfer_call call;
    uint64_t count;
};

static void count_here(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    SL_CONTAINER_OF(call, struct count_call, call)->count = io->guest_count;
    sl_transfer_io_answer(call, 0, "counted");
}

/* The connections that the engine has accepted so far. */
static uint64_t accepted_by(struct sl_transfer *transfer)
{
    struct count_call count = {.call = {.run = count_here}};
    assert_int_equal(sl_transfer_io_call(&transfer->ios[0], &count.call), 0);
    return count.count;
}

/* Given from the last to the first. Peers learn of them in few messages, and stay connected. */
CASE(register__and_unregister_take_many_ranges)
{
    enum { COUNT = 700, RANGE = 16 };
    static uint8_t all[COUNT][RANGE];
    static struct sl_transfer_memory ranges[COUNT];
    static void *bases[COUNT];
    const uint64_t connections = accepted_by(pair.there);
    for (uint32_t i = 0; i < COUNT; i++) {
        bases[i] = all[COUNT - 1 - i];
        ranges[i] = (struct sl_transfer_memory){
            .base = bases[i], .bytes = RANGE, .access = SL_TRANSFER_PEERS_READ};
    }
    for (uint32_t round = 0; round < 3; round++) {
        assert_int_equal(sl_transfer_register(pair.there, ranges, COUNT), 0);
        wait_for_buffers(COUNT + 1);
        assert_int_equal(sl_transfer_unregister(pair.there, bases, COUNT, PAIR_TIMEOUT_MS), 0);
        wait_for_buffers(1);
    }
    assert_int_equal(accepted_by(pair.there), connections);
}

SL_CASE(unregister__stops_access_on_all_reactors_before_it_waits_for_one)
{
    const struct sl_transfer_options options = {.name = "127.0.0.1:0", .reactor_count = 2};
    pair_init(&pair, 1000, &options);
    struct sl_transfer_region *region = pair.there->registered->by_address[0];
    void *const base = pair.remote.base;
    region->memory.uses++; /* as if a request of a peer did not end */
    assert_int_equal(sl_transfer_unregister(pair.there, &base, 1, 20), SL_ERR_DEADLINE);
    for (uint32_t i = 0; i < 2; i++) {
        assert_null(sl_transfer_table_find(pair.there->ios[i].table, region->memory.key));
    }
    region->memory.uses--;
    assert_int_equal(sl_transfer_unregister(pair.there, &base, 1, PAIR_TIMEOUT_MS), 0);
    pair_fini(&pair);
}
