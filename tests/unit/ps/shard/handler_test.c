/* KV tables whose requests go to a handler of the program's own. */

#include <string.h>

#include "kv_fixture.h"
#include "tests/support/unit.h"

static const uint64_t keys[] = {2, 5, 9};
static const uint32_t lens[] = {1, 3, 2};
static _Alignas(8) const float six[] = {1, 2, 3, 4, 5, 6};

/* What the handler was shown last, and what it shall say. */
struct shown {
    uint32_t calls;
    struct sl_kv_request request;
    float pushed[6];
    int answer;
    const void *from; /* where its values are; NULL: it makes them */
};

static int handle(void *ctx, const struct sl_kv_request *request)
{
    struct shown *shown = ctx;
    shown->calls++;
    shown->request = *request;
    if (request->push != NULL) {
        memcpy(shown->pushed, request->push, request->value_count * request->value_bytes);
    }
    if (request->pull != NULL && shown->from != NULL) {
        *request->reply = shown->from;
    } else if (request->pull != NULL && shown->answer == 0) {
        memset(request->pull, 7, request->value_count * request->value_bytes);
    }
    return shown->answer;
}

static uint32_t length(void *ctx, const char *table, uint64_t key)
{
    return (uint32_t)(key + strlen(table));
}

struct handled {
    struct kv_fixture f;
    struct shown shown;
    struct sl_kv_handler handler;
};

static void setup(struct handled *self)
{
    self->f.key_budget = 1; /* a section is not sliced */
    self->handler = (struct sl_kv_handler){.handle = handle, .length = length, .ctx = &self->shown};
    kv_make(&self->f, &(struct sl_shard_options){.count = 1, .kv_handler = &self->handler});
}

static void teardown(struct handled *self)
{
    sl_shard_destroy(&self->f.shard);
}

#define CASE(name) SL_CASE_USING(name, struct handled, self, setup, teardown)

CASE(handler__is_shown_each_section_once)
{
    struct kv_fixture *f = &self->f;
    const struct sl_kv_request *request = &self->shown.request;
    shard_request_begin(&f->request, 0);
    struct sl_request_section section = {
        .op = SL_REQUEST_KV_PUSH_PULL, .table_id = FLOATS, .count = 6, .command = 99};
    shard_request_kv(&f->request, section, keys, 3, lens, six, 4);
    const struct sl_shard_client caller = {.has_clock = true, .worker = 12};
    assert_int_equal(sl_shard_begin(f->shard, &caller, f->request.payload, f->request.bytes,
                                    &f->work, &f->reason),
                     0);
    assert_true(sl_shard_ready(f->shard, &f->work, UINT32_MAX)); /* unless it says AGAIN */
    assert_int_equal(kv_go_on(f, &f->work), SL_SHARD_DONE);
    assert_int_equal(self->shown.calls, 1);
    assert_string_equal(request->table, "floats");
    assert_int_equal(request->server, 0);
    assert_int_equal(request->server_count, 1);
    assert_int_equal(request->worker, 12);
    assert_int_equal(request->command, 99);
    assert_int_equal(request->value_bytes, 4);
    assert_int_equal(request->key_count, 3);
    assert_int_equal(request->value_count, 6);
    assert_int_equal(request->array_length, 0);
    assert_memory_equal(request->keys, keys, sizeof keys);
    assert_memory_equal(request->lens, lens, sizeof lens);
    assert_memory_equal(self->shown.pushed, six, sizeof six);
    assert_int_equal((uintptr_t)request->push % 8 | (uintptr_t)request->pull % 8, 0);
    assert_memory_equal(f->reply, "\7\7\7\7\7\7\7\7", 8);
    kv_request_piece(f, BYTES, SL_REQUEST_KV_PUSH, 8, 5, 10, "abc", 3);
    assert_int_equal(kv_run_request(f), SL_SHARD_DONE);
    assert_int_equal(self->shown.calls, 2);
    assert_int_equal(request->worker, -1);
    assert_null(request->pull);
    assert_null(request->lens);
    assert_int_equal(request->chunk_start, 5);
    assert_int_equal(request->array_length, 10);
    assert_int_equal(kv_stats(f, FLOATS).pushed_rows, 3);
    assert_int_equal(kv_stats(f, FLOATS).rows, 0); /* nothing is stored */
}

/* What comes before the second section cannot be done twice. */
CASE(handler__is_not_vouched_for_behind_other_sections)
{
    struct kv_fixture *f = &self->f;
    const struct sl_request_section push = {
        .op = SL_REQUEST_KV_PUSH, .table_id = FLOATS, .count = 6};
    shard_request_begin(&f->request, 0);
    shard_request_kv(&f->request, push, keys, 3, lens, six, 4);
    shard_request_kv(&f->request, push, keys, 3, lens, six, 4);
    assert_int_equal(sl_shard_begin(f->shard, &(struct sl_shard_client){0}, f->request.payload,
                                    f->request.bytes, &f->work, &f->reason),
                     0);
    assert_false(sl_shard_ready(f->shard, &f->work, UINT32_MAX));
}

/* Sent from there when it is the whole reply; else it is copied to its place. */
CASE(handler__says_where_its_answer_is)
{
    struct kv_fixture *f = &self->f;
    self->shown.from = six;
    assert_int_equal(kv_run(f, FLOATS, SL_REQUEST_KV_PULL, keys, 3, lens, NULL, 6), SL_SHARD_DONE);
    assert_ptr_equal(f->work.answer, six);
    assert_int_equal(kv_run(f, FLOATS, SL_REQUEST_KV_PULL, keys, 1, NULL, NULL, 5), SL_SHARD_DONE);
    assert_null(f->work.answer);
    assert_memory_equal(f->reply, six, 5 * sizeof(float));
    self->shown.from = six + 1;
    assert_int_equal(kv_run(f, FLOATS, SL_REQUEST_KV_PULL, keys, 1, NULL, NULL, 4), SL_SHARD_DONE);
    assert_null(f->work.answer);
    assert_memory_equal(f->reply, six + 1, 4 * sizeof(float));
}

CASE(handler__answers_for_lengths)
{
    struct kv_fixture *f = &self->f;
    assert_int_equal(kv_length(f, FLOATS, 5), 5 + 6);
    self->handler.length = NULL;
    assert_int_equal(kv_length(f, FLOATS, 5), 0);
    assert_int_equal(self->shown.calls, 0);
}

CASE(handler__an_error_ends_the_request)
{
    struct kv_fixture *f = &self->f;
    self->shown.answer = SL_ERR_UNSUPPORTED;
    assert_int_equal(kv_run(f, BYTES, SL_REQUEST_KV_PULL, keys, 3, lens, NULL, 6),
                     SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(f->reason.text,
                           "shard 0, section 0 (table bytes): its handler returned -14 "
                           "(unsupported)"));
    static const int strange[] = {1, -1000, INT32_MIN};
    for (uint32_t i = 0; i < 3; i++) {
        self->shown.answer = strange[i];
        assert_int_equal(kv_run(f, BYTES, SL_REQUEST_KV_PULL, keys, 3, lens, NULL, 6),
                         SL_ERR_INVALID);
    }
}

CASE(handler__is_not_shown_the_keys_of_another_shard)
{
    struct kv_fixture *f = &self->f;
    sl_shard_destroy(&f->shard);
    kv_make(f, &(struct sl_shard_options){.index = 1, .count = 2, .kv_handler = &self->handler});
    assert_int_equal(kv_run(f, FLOATS, SL_REQUEST_KV_PUSH, keys, 3, lens, six, 6),
                     SL_ERR_WRONG_SHARD);
    assert_int_equal(self->shown.calls, 0);
}

CASE(handler__again_parks_until_another_call_is_done)
{
    struct kv_fixture *f = &self->f;
    static _Alignas(8) uint8_t moved[4096];
    struct sl_shard_request parked;
    uint32_t spent;
    self->shown.answer = SL_ERR_AGAIN;
    kv_request(f, FLOATS, SL_REQUEST_KV_PUSH_PULL, keys, 3, lens, six, 6);
    assert_int_equal(kv_begin(f, &parked), 0);
    assert_false(sl_shard_waits(f->shard, &parked));
    assert_int_equal(kv_go_on(f, &parked), SL_SHARD_PARKED);
    assert_int_equal(self->shown.calls, 1);
    assert_true(sl_shard_waits(f->shard, &parked));
    assert_false(sl_shard_take_wakeup(f->shard));
    char text[200];
    sl_shard_describe_wait(f->shard, &parked, text, sizeof text);
    assert_string_equal(text, "shard 0: a request to table floats waits for its handler");
    /* Elsewhere in memory it waits on. */
    assert_true(sl_shard_rest_bytes(f->shard, &parked) <= sizeof moved);
    sl_shard_move_rest(f->shard, &parked, moved);
    memset(f->request.payload, 0xff, f->request.bytes);
    assert_true(sl_shard_waits(f->shard, &parked));
    /* Another that has to wait too changes nothing; one that is done does, even by an error. */
    assert_int_equal(kv_run(f, BYTES, SL_REQUEST_KV_PULL, keys, 3, lens, NULL, 6), SL_SHARD_PARKED);
    assert_true(sl_shard_waits(f->shard, &parked));
    assert_false(sl_shard_take_wakeup(f->shard));
    sl_shard_abandon(f->shard, &f->work);
    self->shown.answer = 0;
    assert_int_equal(kv_run(f, BYTES, SL_REQUEST_KV_PULL, keys, 3, lens, NULL, 6), SL_SHARD_DONE);
    assert_false(sl_shard_waits(f->shard, &parked));
    assert_true(sl_shard_take_wakeup(f->shard));
    assert_false(sl_shard_take_wakeup(f->shard));
    self->shown.answer = SL_ERR_AGAIN;
    assert_int_equal(sl_shard_run(f->shard, &parked, f->reply, 100, &spent, &f->reason),
                     SL_SHARD_PARKED);
    assert_true(sl_shard_waits(f->shard, &parked));
    self->shown.answer = SL_ERR_INVALID;
    assert_int_equal(kv_run(f, BYTES, SL_REQUEST_KV_PUSH, keys, 3, lens, six, 6), SL_ERR_INVALID);
    assert_true(sl_shard_take_wakeup(f->shard));
    self->shown.answer = 0;
    assert_int_equal(kv_go_on(f, &parked), SL_SHARD_DONE);
    assert_memory_equal(self->shown.pushed, six, sizeof six);
    /* Nobody waits: nobody is told. */
    assert_false(sl_shard_take_wakeup(f->shard));
    assert_int_equal(kv_run(f, BYTES, SL_REQUEST_KV_PUSH, keys, 3, lens, six, 6), SL_SHARD_DONE);
    assert_false(sl_shard_take_wakeup(f->shard));
}

CASE(handler__a_parked_push_that_nobody_wants_is_not_shown_again)
{
    struct kv_fixture *f = &self->f;
    self->shown.answer = SL_ERR_AGAIN;
    assert_int_equal(kv_run(f, FLOATS, SL_REQUEST_KV_PUSH, keys, 3, lens, six, 6), SL_SHARD_PARKED);
    assert_true(sl_shard_stop_writes(&f->work));
    self->shown.answer = 0;
    assert_int_equal(kv_go_on(f, &f->work), SL_SHARD_DONE);
    assert_int_equal(self->shown.calls, 1);
    sl_shard_abandon(f->shard, &f->work);
}

CASE(handler__a_replay_is_shown_without_its_push)
{
    struct kv_fixture *f = &self->f;
    kv_request(f, FLOATS, SL_REQUEST_KV_PUSH_PULL, keys, 3, lens, six, 6);
    assert_int_equal(kv_begin(f, &f->work), 0);
    sl_shard_skip_writes(&f->work);
    assert_int_equal(kv_go_on(f, &f->work), SL_SHARD_DONE);
    assert_int_equal(self->shown.calls, 1);
    assert_null(self->shown.request.push);
    assert_non_null(self->shown.request.pull);
    kv_request(f, FLOATS, SL_REQUEST_KV_PUSH, keys, 3, lens, six, 6);
    assert_int_equal(kv_begin(f, &f->work), 0);
    sl_shard_skip_writes(&f->work);
    assert_int_equal(kv_go_on(f, &f->work), SL_SHARD_DONE);
    assert_int_equal(self->shown.calls, 1);
}
