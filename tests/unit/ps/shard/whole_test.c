/* Whole arrays for a handler: what comes in chunks is passed once. */

#include <string.h>

#include "kv_fixture.h"
#include "ps/shard/handler.h"
#include "ps/shard/state.h"
#include "ps/shard/whole.h"
#include "tests/support/unit.h"

#define KEY    7
#define WHOLE  10
#define TOKEN  ((struct sl_kv_token *)(uintptr_t)0x1000) /* the shard does not look into it */
#define CLIENT 55

static _Alignas(8) const float ten[WHOLE] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
static _Alignas(8) const float twenty[WHOLE] = {11, 12, 13, 14, 15, 16, 17, 18, 19, 20};

struct wholes {
    struct kv_fixture f;
    struct sl_kv_handler handler;
    struct sl_shard_request chunks[3]; /* values 0 to 3, 4 to 7, 8 and 9 */
    uint32_t calls;
    int answer;
    const void *from; /* where its values are; NULL: it makes them */
    float pushed[WHOLE];
    bool pushes;
    size_t memory_bytes; /* of the shard, at first */
};

static int handle(void *ctx, const struct sl_kv_request *request)
{
    struct wholes *self = ctx;
    self->calls++;
    assert_int_equal(request->key_count, 1);
    assert_int_equal(request->keys[0], KEY);
    assert_int_equal(request->value_count, WHOLE);
    assert_int_equal(request->array_length, 0);
    self->pushes = request->push != NULL;
    if (request->push != NULL) {
        memcpy(self->pushed, request->push, sizeof self->pushed);
    }
    if (request->pull != NULL && self->from != NULL) {
        *request->reply = self->from;
    } else if (request->pull != NULL && self->answer == 0) {
        memcpy(request->pull, twenty, sizeof twenty);
    }
    return self->answer;
}

static void setup(struct wholes *self)
{
    self->f.key_budget = 1;
    self->handler =
        (struct sl_kv_handler){.handle = handle, .ctx = self, .whole_bytes = WHOLE * sizeof(float)};
    kv_make(&self->f, &(struct sl_shard_options){.count = 1, .kv_handler = &self->handler});
    self->memory_bytes = self->f.shard->memory_bytes;
}

static void teardown(struct wholes *self)
{
    sl_shard_destroy(&self->f.shard);
}

#define CASE(name) SL_CASE_USING(name, struct wholes, self, setup, teardown)

static int run(struct wholes *self, uint32_t chunk)
{
    struct kv_fixture *f = &self->f;
    memset(f->reply, 0, WHOLE * sizeof(float));
    return kv_go_on(f, &self->chunks[chunk]);
}

/* Takes the chunk in and runs it. */
static int send(struct wholes *self, uint32_t chunk, uint8_t op)
{
    struct kv_fixture *f = &self->f;
    const struct sl_shard_client caller = {.client = CLIENT};
    kv_request_piece(f, FLOATS, op, KEY, 4 * chunk, WHOLE,
                     op == SL_REQUEST_KV_PULL ? NULL : ten + 4 * chunk, chunk == 2 ? 2 : 4);
    assert_int_equal(sl_shard_begin(f->shard, &caller, f->request.payload, f->request.bytes,
                                    &self->chunks[chunk], &f->reason),
                     0);
    return run(self, chunk);
}

static void expect_chunk(struct wholes *self, uint32_t chunk, const float *values)
{
    assert_memory_equal(self->f.reply, values + 4 * chunk, (chunk == 2 ? 2 : 4) * sizeof(float));
}

static void expect_nothing_left(struct wholes *self)
{
    assert_true(sl_list_empty(&self->f.shard->wholes));
    assert_int_equal(self->f.shard->memory_bytes, self->memory_bytes);
}

CASE(whole__a_push_is_passed_once)
{
    for (uint32_t chunk = 0; chunk < 3; chunk++) {
        assert_int_equal(self->calls, 0);
        assert_int_equal(send(self, chunk, SL_REQUEST_KV_PUSH), SL_SHARD_DONE);
    }
    assert_int_equal(self->calls, 1);
    assert_memory_equal(self->pushed, ten, sizeof ten);
    expect_nothing_left(self);
}

CASE(whole__a_pull_is_passed_once)
{
    for (int i = 0; i < 2; i++) {
        self->from = i == 0 ? NULL : ten;
        for (uint32_t chunk = 0; chunk < 3; chunk++) {
            assert_int_equal(send(self, chunk, SL_REQUEST_KV_PULL), SL_SHARD_DONE);
            expect_chunk(self, chunk, i == 0 ? twenty : ten);
        }
        assert_int_equal(self->calls, i + 1);
        expect_nothing_left(self);
    }
}

/* Every chunk waits for the last one, and counts as done. */
CASE(whole__a_push_pull_is_passed_once)
{
    for (uint32_t chunk = 0; chunk < 2; chunk++) {
        assert_int_equal(send(self, chunk, SL_REQUEST_KV_PUSH_PULL), SL_SHARD_PARKED);
        assert_true(sl_flags_has(self->chunks[chunk].flags, SL_SHARD_KEPT | SL_SHARD_KEPT_PUSH));
        assert_true(sl_shard_skips_writes(&self->chunks[chunk]));
        assert_true(sl_shard_waits(self->f.shard, &self->chunks[chunk]));
    }
    assert_int_equal(send(self, 2, SL_REQUEST_KV_PUSH_PULL), SL_SHARD_DONE);
    expect_chunk(self, 2, twenty);
    assert_true(sl_shard_take_wakeup(self->f.shard));
    for (uint32_t chunk = 0; chunk < 2; chunk++) {
        assert_false(sl_shard_waits(self->f.shard, &self->chunks[chunk]));
        assert_int_equal(run(self, chunk), SL_SHARD_DONE);
        expect_chunk(self, chunk, twenty);
    }
    assert_int_equal(self->calls, 1);
    assert_memory_equal(self->pushed, ten, sizeof ten);
    expect_nothing_left(self);
}

CASE(whole__a_pull_is_answered_later)
{
    self->answer = SL_KV_LATER;
    sl_shard_handler_offer(self->f.shard, TOKEN);
    for (uint32_t chunk = 0; chunk < 3; chunk++) {
        assert_int_equal(send(self, chunk, SL_REQUEST_KV_PULL), SL_SHARD_PARKED);
    }
    assert_ptr_equal(self->chunks[0].kept.token, TOKEN);
    assert_null(self->chunks[1].kept.token);
    assert_int_equal(self->calls, 1);
    float values[WHOLE];
    memcpy(values, twenty, sizeof values);
    const struct sl_kv_answer answer = {.values = values, .value_count = WHOLE};
    self->chunks[0].kept.answer = &answer;
    assert_int_equal(run(self, 0), SL_SHARD_DONE);
    expect_chunk(self, 0, twenty);
    memset(values, 0, sizeof values); /* the answer was sent */
    for (uint32_t chunk = 1; chunk < 3; chunk++) {
        assert_int_equal(run(self, chunk), SL_SHARD_DONE);
        expect_chunk(self, chunk, twenty);
    }
    expect_nothing_left(self);
}

CASE(whole__an_error_reaches_all_chunks)
{
    self->answer = SL_KV_LATER;
    sl_shard_handler_offer(self->f.shard, TOKEN);
    for (uint32_t chunk = 0; chunk < 3; chunk++) {
        assert_int_equal(send(self, chunk, SL_REQUEST_KV_PULL), SL_SHARD_PARKED);
    }
    const struct sl_kv_answer answer = {.values = twenty, .value_count = WHOLE - 1};
    self->chunks[0].kept.answer = &answer;
    for (uint32_t chunk = 0; chunk < 3; chunk++) {
        assert_int_equal(run(self, chunk), SL_ERR_INVALID);
    }
    expect_nothing_left(self);
    self->answer = SL_ERR_TOO_LARGE;
    for (uint32_t chunk = 0; chunk < 3; chunk++) {
        assert_int_equal(send(self, chunk, SL_REQUEST_KV_PULL), SL_ERR_TOO_LARGE);
    }
    expect_nothing_left(self);
}

/* The request that asks comes again, here or after its connection broke, without its bytes being
 * added twice. */
CASE(whole__is_asked_for_again)
{
    self->answer = SL_ERR_AGAIN;
    assert_int_equal(send(self, 0, SL_REQUEST_KV_PUSH), SL_SHARD_DONE);
    assert_int_equal(send(self, 1, SL_REQUEST_KV_PUSH), SL_SHARD_DONE);
    assert_int_equal(send(self, 2, SL_REQUEST_KV_PUSH), SL_SHARD_PARKED);
    assert_int_equal(run(self, 2), SL_SHARD_PARKED);
    sl_shard_abandon(self->f.shard, &self->chunks[2]);
    self->answer = 0;
    assert_int_equal(send(self, 2, SL_REQUEST_KV_PUSH), SL_SHARD_DONE);
    assert_int_equal(self->calls, 3);
    assert_memory_equal(self->pushed, ten, sizeof ten);
    expect_nothing_left(self);
}

CASE(whole__a_chunk_needs_those_before_it)
{
    assert_int_equal(send(self, 0, SL_REQUEST_KV_PUSH), SL_SHARD_DONE);
    assert_int_equal(send(self, 2, SL_REQUEST_KV_PUSH), SL_ERR_INVALID);
    assert_non_null(strstr(self->f.reason.text, "key 7: the chunk at value 8"));
    /* The next operation begins anew. */
    for (uint32_t chunk = 0; chunk < 3; chunk++) {
        assert_int_equal(send(self, chunk, SL_REQUEST_KV_PUSH), SL_SHARD_DONE);
    }
    assert_int_equal(self->calls, 1);
    expect_nothing_left(self);
}

CASE(whole__has_a_limit_that_both_numbers_say)
{
    self->handler.whole_bytes = WHOLE * sizeof(float) - 1;
    assert_int_equal(send(self, 0, SL_REQUEST_KV_PUSH), SL_ERR_TOO_LARGE);
    assert_non_null(
        strstr(self->f.reason.text, "an array of 40 bytes, its handler takes up to 39"));
    self->handler.whole_bytes = 0; /* in chunks: see handler_test.c */
    expect_nothing_left(self);
}

CASE(whole__half_an_array_goes_with_its_client)
{
    assert_int_equal(send(self, 0, SL_REQUEST_KV_PUSH), SL_SHARD_DONE);
    assert_int_equal(self->f.shard->memory_bytes, self->memory_bytes + WHOLE * sizeof(float));
    sl_shard_whole_client_left(self->f.shard, CLIENT + 1);
    assert_int_equal(self->f.shard->memory_bytes, self->memory_bytes + WHOLE * sizeof(float));
    sl_shard_whole_client_left(self->f.shard, CLIENT);
    expect_nothing_left(self);
    assert_int_equal(send(self, 0, SL_REQUEST_KV_PUSH_PULL), SL_SHARD_PARKED);
    sl_shard_whole_client_left(self->f.shard, CLIENT);
    sl_shard_abandon(self->f.shard, &self->chunks[0]);
    expect_nothing_left(self);
}

CASE(whole__counts_for_the_limit_of_memory)
{
    self->f.shard->options.memory_bytes_max = self->memory_bytes + WHOLE * sizeof(float) - 1;
    assert_int_equal(send(self, 0, SL_REQUEST_KV_PUSH), SL_ERR_NO_MEMORY);
    assert_int_equal(send(self, 0, SL_REQUEST_KV_PULL), SL_ERR_NO_MEMORY);
    assert_int_equal(self->calls, 0);
}

/* What a retransmission skips is not added, and what it pulls is asked for again. */
CASE(whole__a_replay_is_passed_without_its_push)
{
    struct kv_fixture *f = &self->f;
    for (uint32_t chunk = 0; chunk < 3; chunk++) {
        kv_request_piece(f, FLOATS, SL_REQUEST_KV_PUSH_PULL, KEY, 4 * chunk, WHOLE, ten + 4 * chunk,
                         chunk == 2 ? 2 : 4);
        assert_int_equal(kv_begin(f, &self->chunks[chunk]), 0);
        sl_shard_skip_writes(&self->chunks[chunk]);
        assert_int_equal(run(self, chunk), SL_SHARD_DONE);
        expect_chunk(self, chunk, twenty);
    }
    assert_int_equal(self->calls, 1);
    assert_false(self->pushes);
    expect_nothing_left(self);
}
