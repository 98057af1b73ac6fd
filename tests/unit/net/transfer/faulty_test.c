/* Two engines over transports with faults on purpose: frames and operations are late, operations
 * fail, and connections break. Both sides move bytes, and know what each byte of both memories must
 * be. The cases run over TCP and shared memory, the latter with frames and with mapped memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/hash.h"
#include "net/transfer/engine.h"
#include "pair.h"
#include "tests/support/faulty_transport.h"

#define BYTES     (4U << 20)
#define QUARTER   (BYTES / 4)
#define COUNT_MAX 1024
#define TRIES     50

struct side {
    struct sl_transfer *engine;
    struct sl_transfer_segment *segment; /* of the other side */
    struct sl_transfer_batch *batch;
    uint8_t *memory, *expected;
    struct sl_transfer_request requests[COUNT_MAX];
    uint32_t count;
};

static const struct way {
    const char *name, *endpoints;
    bool is_mapped;
    struct sl_faults faults;
} ways[] = {
    {"tcp", "tcp://127.0.0.1:0", false, {.seed = 1, .late = 50, .cut = 1}},
    {"shm, frames", "tcp://127.0.0.1:0,shm://", false, {.seed = 2, .late = 50, .cut = 1}},
    {"shm, mapped", "tcp://127.0.0.1:0,shm://", true, {.seed = 3, .late = 50, .fail = 20}},
    {"shm, mapped, cut",
     "tcp://127.0.0.1:0,shm://",
     true,
     {.seed = 4, .late = 50, .fail = 20, .cut = 1}},
};

static const struct way *way;
static struct sl_faulty_transport faulty[2]; /* TCP, shared memory */
static struct side sides[2];
static uint64_t random_state;

static const char *next_way(uint32_t n)
{
    if (n == sizeof ways / sizeof ways[0]) {
        return NULL;
    }
    way = &ways[n];
    sl_faulty_transport_init(&faulty[0], sl_builtin_find(SL_ENDPOINT_TCP), &way->faults);
    sl_faulty_transport_init(&faulty[1], sl_builtin_find(SL_ENDPOINT_SHM), &way->faults);
    return way->name;
}

SL_UNIT_WAYS(next_way);

static const struct sl_transport_ops *find_transport(enum sl_endpoint_scheme scheme)
{
    return &faulty[scheme == SL_ENDPOINT_SHM ? 1 : 0].ops;
}

static uint32_t below(uint32_t bound)
{
    return (uint32_t)(sl_hash_random(&random_state) % bound);
}

static struct side *other(const struct side *side)
{
    return side == &sides[0] ? &sides[1] : &sides[0];
}

static void succeed(int err)
{
    if (err != 0) {
        fail_msg("%s", sl_transfer_last_error());
    }
}

static uint8_t *memory_of(struct sl_transfer *engine)
{
    void *memory = NULL;
    if (way->is_mapped) {
        succeed(sl_transfer_memory_create(engine, BYTES, -1, PAIR_ALL, &memory));
        return memory;
    }
    memory = malloc(BYTES);
    const struct sl_transfer_memory range = {.base = memory, .bytes = BYTES, .access = PAIR_ALL};
    succeed(sl_transfer_register(engine, &range, 1));
    return memory;
}

static void free_memory(struct sl_transfer *engine, uint8_t *memory)
{
    void *base = memory;
    if (way->is_mapped) {
        succeed(sl_transfer_memory_free(engine, &base, PAIR_TIMEOUT_MS));
    } else {
        succeed(sl_transfer_unregister(engine, &base, 1, PAIR_TIMEOUT_MS));
        free(base);
    }
}

static void setup(void)
{
    const struct sl_transfer_options options = {
        .name = "127.0.0.1:0", .endpoints = way->endpoints, .slice_bytes = 64 << 10};
    const struct sl_transfer_setup transports = {.find_transport = find_transport};
    for (uint32_t i = 0; i < 2; i++) {
        struct side *side = &sides[i];
        succeed(sl_transfer_create_with(&options, &transports, &side->engine));
        succeed(sl_transfer_batch_create(side->engine, COUNT_MAX, &side->batch));
        side->memory = memory_of(side->engine);
        side->expected = malloc(BYTES);
        assert_non_null(side->expected);
        pair_fill(side->memory, BYTES, i);
        memcpy(side->expected, side->memory, BYTES);
    }
    for (uint32_t i = 0; i < 2; i++) {
        succeed(sl_transfer_segment_open(sides[i].engine, sl_transfer_name(sides[1 - i].engine),
                                         PAIR_TIMEOUT_MS, &sides[i].segment));
    }
    random_state = way->faults.seed;
}

static void teardown(void)
{
    for (uint32_t i = 0; i < 2; i++) {
        sl_transfer_batch_free(&sides[i].batch);
        sl_transfer_segment_close(&sides[i].segment);
    }
    for (uint32_t i = 0; i < 2; i++) {
        free_memory(sides[i].engine, sides[i].memory);
        sl_transfer_destroy(&sides[i].engine);
        free(sides[i].expected);
    }
}

#define CASE(name) SL_CASE_WITH(name, setup(), teardown())

static struct sl_transfer_request request(const struct side *side, enum sl_transfer_op op,
                                          size_t local, size_t remote, size_t bytes)
{
    return (struct sl_transfer_request){.op = op,
                                        .local = side->memory + local,
                                        .segment = side->segment,
                                        .remote = (uintptr_t)other(side)->memory + remote,
                                        .bytes = bytes};
}

/* Adds a request to the side's next batch; notes what it will have done. */
static void add(struct side *side, enum sl_transfer_op op, size_t local, size_t remote,
                size_t bytes)
{
    uint8_t *here = side->expected + local, *there = other(side)->expected + remote;
    assert_true(side->count < COUNT_MAX);
    side->requests[side->count++] = request(side, op, local, remote, bytes);
    if (op == SL_TRANSFER_READ) {
        memcpy(here, there, bytes);
    } else {
        memcpy(there, here, bytes);
    }
}

static void submit(struct side *side)
{
    succeed(
        sl_transfer_batch_submit(side->batch, side->requests, side->count, PAIR_TIMEOUT_MS, NULL));
}

/* A slice may be lost more often than an engine sends it again: then the batch is tried again. */
static void finish(struct side *side)
{
    for (uint32_t i = 0; sl_transfer_batch_wait(side->batch) != 0; i++) {
        if (way->faults.cut == 0 || i == TRIES) {
            fail_msg("%s", sl_transfer_last_error());
        }
        submit(side);
    }
    side->count = 0;
}

static void expect_all(void)
{
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(memcmp(sides[i].memory, sides[i].expected, BYTES), 0);
    }
}

static void run(struct side *side)
{
    submit(side);
    finish(side);
    expect_all();
}

/* Bytes that neither memory has. */
static void renew(struct side *side, size_t at, size_t bytes)
{
    pair_fill(side->memory + at, bytes, below(1U << 30));
    memcpy(side->expected + at, side->memory + at, bytes);
}

CASE(faulty__every_length_at_every_alignment)
{
    static const size_t lengths[] = {1,    2,     3,     7,     8,     63,    64,
                                     4095, 16384, 16385, 65535, 65537, 300001};
    struct side *side = &sides[0];
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        for (size_t shift = 0; shift < 8; shift++) {
            renew(side, 0, lengths[i] + 8);
            add(side, SL_TRANSFER_WRITE, shift, 7 - shift, lengths[i]);
            add(side, SL_TRANSFER_READ, 2 * QUARTER + 7 - shift, QUARTER + shift * 100 + shift,
                lengths[i]);
            run(side);
        }
    }
}

CASE(faulty__half_of_the_memory)
{
    for (uint32_t i = 0; i < 6; i++) {
        struct side *side = &sides[i % 2];
        renew(side, 0, BYTES / 2);
        add(side, SL_TRANSFER_WRITE, i, BYTES / 2 + 11, BYTES / 2 - 77);
        run(side);
        add(side, SL_TRANSFER_READ, BYTES / 2 + i, 3, BYTES / 2 - 13);
        run(side);
    }
}

/* Blocks that touch here are apart there, and the other way round; some touch on both sides. */
CASE(faulty__strided_and_neighbouring_blocks)
{
    enum { COUNT = 300, BLOCK = 700 };
    struct side *side = &sides[0];
    for (uint32_t round = 0; round < 6; round++) {
        const size_t apart = round % 3 == 0 ? BLOCK : 3 * BLOCK / 2 + round;
        renew(side, 0, QUARTER);
        for (size_t i = 0; i < COUNT; i++) {
            add(side, SL_TRANSFER_WRITE, i * BLOCK, QUARTER + i * apart, BLOCK);
            add(side, SL_TRANSFER_READ, QUARTER + i * apart, 3 * QUARTER + i * BLOCK,
                1 + i % BLOCK);
        }
        run(side);
    }
}

/* Each side writes to the first quarter of the other from its own second one, which the other reads
 * into its third one. */
CASE(faulty__both_directions_at_once)
{
    enum { COUNT = 100, STEP = QUARTER / COUNT };
    for (uint32_t round = 0; round < 10; round++) {
        for (uint32_t k = 0; k < 2; k++) {
            renew(&sides[k], QUARTER, QUARTER);
        }
        for (uint32_t k = 0; k < 2; k++) {
            for (size_t i = 0; i < COUNT; i++) {
                const size_t at = i * STEP + below(STEP / 2), bytes = 1 + below(STEP / 2);
                add(&sides[k], SL_TRANSFER_WRITE, QUARTER + at, i * STEP, bytes);
                add(&sides[k], SL_TRANSFER_READ, 2 * QUARTER + at, QUARTER + i * STEP, bytes);
            }
        }
        submit(&sides[0]);
        submit(&sides[1]);
        finish(&sides[0]);
        finish(&sides[1]);
        expect_all();
    }
}

/* Memory is unregistered, and then unmapped, in the middle of a batch; other memory of the batch is
 * not affected. */
CASE(faulty__unregister_under_load)
{
    struct side *side = &sides[0];
    for (uint32_t round = 0; round < 10; round++) {
        const enum sl_transfer_op op = round % 2 == 0 ? SL_TRANSFER_READ : SL_TRANSFER_WRITE;
        uint8_t *more = memory_of(sides[1].engine);
        struct sl_transfer_request one = request(side, op, 0, 0, QUARTER);
        one.remote = (uintptr_t)more;
        do { /* until the list of buffers has arrived */
            succeed(sl_transfer_batch_submit(side->batch, &one, 1, PAIR_TIMEOUT_MS, NULL));
        } while (sl_transfer_batch_wait(side->batch) != 0);
        one.bytes = BYTES / 2;
        succeed(sl_transfer_batch_submit(side->batch, &one, 1, PAIR_TIMEOUT_MS, NULL));
        (void)usleep(round * 100);
        free_memory(sides[1].engine, more);
        (void)sl_transfer_batch_wait(side->batch);
        memcpy(side->expected, side->memory, BYTES / 2);
        expect_all();
        succeed(sl_transfer_batch_submit(side->batch, &one, 1, PAIR_TIMEOUT_MS, NULL));
        assert_int_not_equal(sl_transfer_batch_wait(side->batch), 0);
        add(side, SL_TRANSFER_READ, 0, 5, 1000);
        run(side);
    }
}

/* Afterwards nothing of the batch is read from or written to this side's memory, and nothing of its
 * WRITEs lands over later ones. */
CASE(faulty__cancel)
{
    struct side *side = &sides[0];
    for (uint32_t round = 0; round < 20; round++) {
        const enum sl_transfer_op op = round % 2 == 0 ? SL_TRANSFER_READ : SL_TRANSFER_WRITE;
        const struct sl_transfer_request one = request(side, op, 0, 0, BYTES / 2);
        succeed(sl_transfer_batch_submit(side->batch, &one, 1, PAIR_TIMEOUT_MS, NULL));
        (void)usleep(round * 50);
        sl_transfer_batch_cancel(side->batch);
        (void)sl_transfer_batch_wait(side->batch);
        renew(side, 0, BYTES / 2);
        add(side, SL_TRANSFER_WRITE, 0, 0, BYTES / 2);
        run(side);
        (void)usleep(1000);
        expect_all();
    }
}

/* A notice comes once, in its turn, and after the WRITEs of its batch. */
CASE(faulty__notices)
{
    struct side *side = &sides[0];
    static struct sl_transfer_noticed noticed;
    uint32_t last = 0;
    for (uint32_t round = 1; round <= 40; round++) {
        char name[16];
        const struct sl_transfer_notice notice = {.name = name, .text = "text", .bytes = 4};
        (void)snprintf(name, sizeof name, "%u", round);
        renew(side, 0, 5000);
        add(side, SL_TRANSFER_WRITE, 0, 0, 5000);
        succeed(sl_transfer_batch_submit(side->batch, side->requests, side->count, PAIR_TIMEOUT_MS,
                                         &notice));
        side->count = 0;
        if (sl_transfer_batch_wait(side->batch) != 0) {
            assert_int_not_equal(way->faults.cut, 0);
            memcpy(sides[1].expected, sides[1].memory, 5000);
            continue;
        }
        while (last != round) { /* those of batches that failed may have come */
            succeed(sl_transfer_notice_take(sides[1].engine, PAIR_TIMEOUT_MS, &noticed));
            const uint32_t number = (uint32_t)atoi(noticed.name);
            assert_true(number > last && number <= round);
            last = number;
        }
        expect_all();
    }
}

SL_CASE(faulty__has_met_the_faults)
{
    const uint32_t used = strcmp(way->name, "tcp") == 0 ? 0 : 1;
    assert_true(faulty[used].late_count > 0);
    assert_true(way->faults.cut == 0 || faulty[0].cut_count + faulty[1].cut_count > 0);
    assert_true(!way->is_mapped || faulty[1].failed_count > 0);
}
