/* Answers that the peer writes to where they are wanted: into memory of any sort, of any size, in
 * any order; and not any more when the connection has ended. */
#include "rdma_asker.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/hash.h"

#define MIB         (1U << 20)
#define LENT_BYTES  (16U * MIB) /* several times what is registered with the device at once */
#define GUARD_BYTES 64
#define GUARD_BYTE  0x3c
#define MANY        256
#define SOME        48

/* Node 0 answers, node 1 asks; node 2 is there to be handed over to. */
static struct world *world;
static struct sl_endpoint at;
static struct sl_shared lent; /* node 1's; peers may write there */

static void register_lent(struct node *node, void *ctx)
{
    assert_int_equal(sl_transport_memory_register(node->transport, lent.base, lent.bytes), 0);
}

static int open_world(void **state)
{
    world = world_open(3, NULL);
    assert_int_equal(sl_shared_create("landing", LENT_BYTES, SL_SHARED_WRITE, &lent), 0);
    node_run(&world->nodes[1], register_lent, NULL);
    answerer_open(&world->nodes[0], &at);
    return 0;
}

static int close_world(void **state)
{
    world_close(world);
    sl_shared_destroy(&lent);
    assert_int_equal(answerer_open_count, 0);
    return 0;
}

static void ask_and_wait(struct asker *asker, const struct question *questions, uint32_t count)
{
    uint32_t before = asker->answers;
    asker_ask(asker, questions, count);
    WAIT_UNTIL(asker->answers == before + count || asker->closed != 0);
    assert_int_equal(asker->closed, 0);
}

static void finish(struct asker *asker)
{
    WAIT_UNTIL(asker->sent == asker->asked);
    asker_disconnect(asker);
    WAIT_UNTIL(asker->closed == 1);
    assert_int_equal(asker->close_err, SL_OK);
    asker_destroy(&asker);
}

static bool all_are(const uint8_t *memory, size_t bytes, uint8_t value)
{
    return bytes == 0 || (memory[0] == value && memcmp(memory, memory + 1, bytes - 1) == 0);
}

/* Asks for an answer of `bytes` at `landing`, and looks at the memory behind it. */
static void ask_with_guard(struct asker *asker, uint32_t bytes, uint32_t manner,
                           uint8_t *reply_buffer)
{
    struct question question = {.bytes = bytes,
                                .manner = manner,
                                .reply_buffer = reply_buffer,
                                .reply_buffer_bytes = bytes};
    memset(reply_buffer + bytes, GUARD_BYTE, GUARD_BYTES);
    ask_and_wait(asker, &question, 1);
    assert_true(all_are(reply_buffer + bytes, GUARD_BYTES, GUARD_BYTE));
}

/* Below, at and above every size at which something changes. */
SL_CASE_WITH(reply_buffer__of_every_size, open_world, close_world)
{
    static const uint32_t sizes[] = {0,    1,       64,          6143,   6144,  8000,
                                     8192, 16384,   16385,       16390,  65536, 300000,
                                     MIB,  MIB + 3, 4 * MIB - 1, 4 * MIB};
    struct asker *asker = asker_open(&world->nodes[1], &at);
    uint8_t *heap = aligned_alloc(64, 4 * MIB + 128);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (uint32_t manner = 0; manner <= ANSWER_FROM_REGISTERED; manner++) {
            ask_with_guard(asker, sizes[i], manner, lent.base);
            ask_with_guard(asker, sizes[i], manner, heap);
        }
    }
    finish(asker);
    free(heap);
}

/* Memory is registered with the device in pieces; what is written may lie on several. */
SL_CASE_WITH(reply_buffer__across_borders, open_world, close_world)
{
    struct asker *asker = asker_open(&world->nodes[1], &at);
    for (uint32_t border = 4 * MIB; border < LENT_BYTES; border += 4 * MIB) {
        ask_with_guard(asker, 300000, ANSWER_FROM_REGISTERED, lent.base + border - 8);
        ask_with_guard(asker, 300000, 0, lent.base + border - 150000);
        ask_with_guard(asker, 300000, ANSWER_FROM_REGISTERED, lent.base + border - 299992);
        ask_with_guard(asker, 4 * MIB, ANSWER_FROM_REGISTERED, lent.base + border - 2 * MIB - 8);
    }
    finish(asker);
}

/* An answer that `sink` wants elsewhere comes there, though it was written to the landing. */
SL_CASE_WITH(reply_buffer__and_sink_says_elsewhere, open_world, close_world)
{
    struct asker *asker = asker_open(&world->nodes[1], &at);
    uint8_t *elsewhere = malloc(4 * MIB);
    for (uint32_t i = 0; i < 8; i++) {
        const struct question question = {.bytes = i % 4 == 3 ? 4 * MIB : 20000 + i,
                                          .manner = i % 2,
                                          .reply_buffer = lent.base + 64 * i,
                                          .reply_buffer_bytes = 4 * MIB,
                                          .elsewhere = elsewhere};
        ask_and_wait(asker, &question, 1);
    }
    finish(asker);
    free(elsewhere);
}

/* It is not written at all, nor behind it. */
SL_CASE_WITH(reply_buffer__smaller_than_the_answer, open_world, close_world)
{
    struct asker *asker = asker_open(&world->nodes[1], &at);
    uint8_t *elsewhere = malloc(300000);
    memset(lent.base, GUARD_BYTE, 400000);
    for (uint32_t i = 0; i < 6; i++) {
        const struct question question = {.bytes = 300000,
                                          .manner = i % 2,
                                          .reply_buffer = lent.base,
                                          .reply_buffer_bytes = i < 4 ? 299999 : 16,
                                          .elsewhere = elsewhere};
        ask_and_wait(asker, &question, 1);
    }
    assert_true(all_are(lent.base, 400000, GUARD_BYTE));
    finish(asker);
    free(elsewhere);
}

/* Its landing is its owner's again, and serves for something else. */
SL_CASE_WITH(reply_buffer__of_a_request_that_is_refused, open_world, close_world)
{
    struct asker *asker = asker_open(&world->nodes[1], &at);
    memset(lent.base, GUARD_BYTE, 100000);
    struct question question = {.bytes = 100000,
                                .manner = ANSWER_REFUSED,
                                .reply_buffer = lent.base,
                                .reply_buffer_bytes = 100000};
    ask_and_wait(asker, &question, 1);
    assert_true(all_are(lent.base, 100000, GUARD_BYTE));
    question.manner = 0;
    ask_and_wait(asker, &question, 1);
    finish(asker);
}

/* Questions whose landings follow each other in memory of either sort. */
static void make_questions(struct question *questions, uint32_t count, uint32_t manner,
                           uint8_t *heap)
{
    size_t used[2] = {0, 0};
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t bytes = i % 7 == 0 ? 100 + i : 17000 + i * 131 % 40000;
        const uint32_t which = i % 4 == 1;
        uint8_t *memory = which == 0 ? lent.base : heap;
        questions[i] =
            (struct question){.bytes = bytes,
                              .manner = manner | (i % 3 == 0 ? 0 : ANSWER_FROM_REGISTERED),
                              .reply_buffer = memory + used[which],
                              .reply_buffer_bytes = bytes};
        used[which] += (bytes + 15) & ~7U;
    }
}

SL_CASE_WITH(reply_buffer__many_at_once_in_any_order, open_world, close_world)
{
    struct asker *asker = asker_open(&world->nodes[1], &at);
    static struct question questions[MANY];
    uint8_t *heap = malloc(8 * MIB);
    for (uint64_t round = 1; round <= 2; round++) {
        make_questions(questions, MANY, ANSWER_LATER, heap);
        asker_ask(asker, questions, MANY);
        WAIT_UNTIL(answerer_kept_count == MANY);
        answerer_answer_kept(&world->nodes[0], round);
        WAIT_UNTIL(asker->answers == round * MANY);
        for (uint32_t i = 0; i < MANY; i++) {
            const uint32_t number = (uint32_t)(round - 1) * MANY + i + 1;
            const struct question *question = &questions[i];
            if (question->bytes > SL_LIMIT_INLINE_PAYLOAD_BYTES) {
                assert_memory_equal(question->reply_buffer, content_of(number, question->bytes),
                                    question->bytes);
            }
        }
    }
    finish(asker);
    free(heap);
}

/* More than anybody remembers: all are answered, somehow. */
SL_CASE_WITH(reply_buffer__more_than_are_remembered, open_world, close_world)
{
    enum { COUNT = 1100 };
    struct asker *asker = asker_open(&world->nodes[1], &at);
    static struct question questions[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        questions[i] = (struct question){.bytes = i % 50 == 0 ? 20000 : 40,
                                         .manner = ANSWER_LATER,
                                         .reply_buffer = lent.base + 64 * i,
                                         .reply_buffer_bytes = i % 50 == 0 ? 20000 : 64};
    }
    for (uint32_t i = 0; i < COUNT; i += 50) { /* these must not lie upon each other */
        questions[i].reply_buffer = lent.base + 20000 * (i / 50) + 64 * COUNT;
    }
    asker_ask(asker, questions, COUNT);
    WAIT_UNTIL(answerer_kept_count == COUNT);
    answerer_answer_kept(&world->nodes[0], 5);
    WAIT_UNTIL(asker->answers == COUNT);
    finish(asker);
}

enum who { ASKER, ANSWERER, BOTH, WHO_COUNT };

static void end_in_the_middle(enum who who, uint64_t seed, uint8_t *heap)
{
    static struct question questions[SOME];
    struct asker *asker = asker_open(&world->nodes[1], &at);
    make_questions(questions, SOME, seed % 2 == 0 ? ANSWER_LATER : 0, heap);
    for (uint32_t i = 1; i < SOME; i += 16) {
        questions[i].bytes = questions[i].reply_buffer_bytes = 2 * MIB;
        questions[i].reply_buffer =
            (i == 1 ? heap : lent.base) + 4 * MIB + (size_t)(i / 16) * 2 * MIB;
    }
    asker_ask(asker, questions, SOME);
    if (seed % 2 == 0) {
        WAIT_UNTIL(answerer_kept_count == SOME);
        answerer_answer_kept(&world->nodes[0], seed);
    }
    uint32_t least = (uint32_t)(seed % 16);
    WAIT_UNTIL(asker->answers >= least);
    if (who != ANSWERER) {
        asker_disconnect(asker);
    }
    if (who != ASKER) {
        answerer_disconnect(&world->nodes[0]);
    }
    WAIT_UNTIL(asker->closed == 1 && answerer_open_count == 0);
    usleep(2000); /* what is written too late is seen the likelier */
    for (uint32_t i = 0; i < SOME; i++) {
        const struct question *question = &questions[i];
        assert_true(asker->answered[i] ||
                    all_are(question->reply_buffer, question->reply_buffer_bytes, ASKER_POISON));
    }
    asker_destroy(&asker);
    answerer_kept_count = 0;
}

/* Whoever ends it: what was not answered is not written to after `closed`. */
SL_CASE_WITH(reply_buffer__and_the_connection_ends, open_world, close_world)
{
    enum { ROUNDS = 24 };
    uint8_t *heap = malloc(8 * MIB);
    uint64_t seed = 1;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        end_in_the_middle(i % WHO_COUNT, sl_hash_random(&seed), heap);
    }
    free(heap);
}

int main(void)
{
    static struct conformance_target target;
    if (!rdma_target_init(&target, "rdma landing", "RDMA_IP")) {
        return SKIPPED;
    }
    return sl_unit_run("rdma landing", __FILE__);
}
