#include "pair.h"

#include <stdlib.h>
#include <string.h>

#define GUARD_BYTE 0xa5

/* What orders the accesses of two engines of one process is a connection, which a tool that looks
 * for races cannot see. */
#define UNORDERED  __attribute__((no_sanitize("thread"), noinline))

/* Whole words, since some tests move hundreds of megabytes in slow builds. */
typedef uint64_t __attribute__((aligned(1), may_alias)) word;

#define SEED 0xD1B54A32D192ED03U
#define STEP 0x9E3779B97F4A7C15U

UNORDERED void pair_fill(uint8_t *memory, size_t bytes, uint32_t seed)
{
    uint64_t value = seed * SEED;
    size_t i = 0;
    for (; i + sizeof value <= bytes; i += sizeof value) {
        *(word *)(memory + i) = value += STEP;
    }
    for (value += STEP; i < bytes; i++, value >>= 8) {
        memory[i] = (uint8_t)value;
    }
}

UNORDERED void pair_expect(const uint8_t *memory, size_t bytes, uint32_t seed)
{
    uint64_t value = seed * SEED;
    size_t i = 0;
    for (; i + sizeof value <= bytes && *(const word *)(memory + i) == value + STEP;
         i += sizeof value) {
        value += STEP;
    }
    for (value += STEP; i < bytes; i++, value >>= 8) {
        if (memory[i] != (uint8_t)value) {
            fail_msg("byte %zu of %zu is %u, not %u", i, bytes, memory[i], (uint8_t)value);
        }
    }
}

void pair_memory_init(struct pair_memory *memory, size_t bytes)
{
    memory->bytes = bytes;
    memory->all = malloc(bytes + 2 * PAIR_GUARD);
    assert_non_null(memory->all);
    memory->base = memory->all + PAIR_GUARD;
    memset(memory->all, GUARD_BYTE, bytes + 2 * PAIR_GUARD);
}

void pair_memory_fini(struct pair_memory *memory)
{
    for (size_t i = 0; i < PAIR_GUARD; i++) {
        assert_int_equal(memory->all[i], GUARD_BYTE);
        assert_int_equal(memory->base[memory->bytes + i], GUARD_BYTE);
    }
    free(memory->all);
}

static struct sl_transfer *engine(const struct sl_transfer_options *options,
                                  const struct pair_memory *memory)
{
    const char *endpoints = getenv("STARLING_TEST_ENDPOINTS");
    struct sl_transfer_options used = {.name = "127.0.0.1:0",
                                       .endpoints =
                                           endpoints != NULL ? endpoints : "tcp://127.0.0.1:0",
                                       .insecure = true};
    struct sl_transfer *made;
    used = options != NULL ? *options : used;
    used.stall_ms = used.stall_ms != 0 ? used.stall_ms : PAIR_TIMEOUT_MS;
    if (sl_transfer_create(&used, &made) != 0) {
        fail_msg("%s", sl_transfer_last_error());
    }
    const struct sl_transfer_memory range = {
        .base = memory->base, .bytes = memory->bytes, .access = PAIR_ALL};
    if (sl_transfer_register(made, &range, 1) != 0) {
        fail_msg("%s", sl_transfer_last_error());
    }
    return made;
}

void pair_init(struct pair *pair, size_t bytes, const struct sl_transfer_options *options)
{
    pair_memory_init(&pair->local, bytes);
    pair_memory_init(&pair->remote, bytes);
    pair->here = engine(options, &pair->local);
    pair->there = engine(options, &pair->remote);
    if (sl_transfer_segment_open(pair->here, sl_transfer_name(pair->there), PAIR_TIMEOUT_MS,
                                 &pair->segment) != 0) {
        fail_msg("%s", sl_transfer_last_error());
    }
    assert_int_equal(sl_transfer_batch_create(pair->here, 4096, &pair->batch), 0);
}

void pair_fini(struct pair *pair)
{
    sl_transfer_batch_free(&pair->batch);
    sl_transfer_segment_close(&pair->segment);
    sl_transfer_destroy(&pair->here);
    sl_transfer_destroy(&pair->there);
    pair_memory_fini(&pair->local);
    pair_memory_fini(&pair->remote);
}

struct sl_transfer_request pair_request(const struct pair *pair, enum sl_transfer_op op,
                                        size_t local, size_t remote, size_t bytes)
{
    return (struct sl_transfer_request){
        .op = op,
        .local = pair->local.base + local,
        .segment = pair->segment,
        .remote = (uintptr_t)pair->remote.base + remote,
        .bytes = bytes,
    };
}

int pair_run(struct pair *pair, const struct sl_transfer_request *requests, uint32_t count,
             uint32_t timeout_ms)
{
    const int err = sl_transfer_batch_submit(pair->batch, requests, count, timeout_ms, NULL);
    return err != 0 ? err : sl_transfer_batch_wait(pair->batch);
}

void pair_move(struct pair *pair, enum sl_transfer_op op, size_t local, size_t remote, size_t bytes)
{
    const struct sl_transfer_request request = pair_request(pair, op, local, remote, bytes);
    if (pair_run(pair, &request, 1, PAIR_TIMEOUT_MS) != 0) {
        fail_msg("%s", sl_transfer_last_error());
    }
}
