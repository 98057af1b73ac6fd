/* Random requests to KV tables, several in progress at once, against a plain map. */

#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "kv_fixture.h"
#include "tests/support/unit.h"

#define KEYS        600
#define LENGTH_MAX  700 /* now and then LENGTH_LONG */
#define LENGTH_LONG 20000
#define STEPS       700

/* What the shard shall hold: small whole numbers, whose sums are exact. */
struct model {
    struct kv_fixture f;
    uint64_t seed;
    float *floats[KEYS]; /* [lengths], NULL: not pushed */
    uint8_t *bytes[KEYS];
    uint32_t lengths[2][KEYS];
};

/* A request as it was made up. */
struct made {
    uint16_t table;
    uint8_t op;
    enum sl_precision pushed; /* floats: exact in each */
    uint32_t key_count;
    uint32_t keys[KEYS]; /* their numbers */
    uint32_t lens[KEYS];
    uint32_t start, whole; /* of a piece; whole 0: whole arrays */
    uint64_t count;
    float floats[SL_LIMIT_FRAME_PAYLOAD_BYTES / 8];
    uint8_t bytes[SL_LIMIT_FRAME_PAYLOAD_BYTES / 8];
};

static uint32_t draw(struct model *m, uint32_t below)
{
    m->seed = sl_hash_key(m->seed + 0x9e3779b97f4a7c15ULL);
    return (uint32_t)((m->seed >> 32) * below >> 32);
}

static uint64_t key_of(uint32_t number)
{
    return sl_hash_key(number / 2) + number % 2; /* all over the range, some side by side */
}

/* The length that everybody asks for, but for one now and then. */
static uint32_t draw_length(struct model *m, uint32_t number)
{
    if (draw(m, 300) == 0) {
        return 1 + draw(m, LENGTH_MAX);
    }
    return number % 97 == 0 ? LENGTH_LONG : 1 + number * 31 % LENGTH_MAX;
}

static void draw_keys(struct model *m, struct made *made)
{
    made->key_count = draw(m, 6) == 0 ? KEYS / 2 + draw(m, KEYS / 2) : 1 + draw(m, 12);
    uint32_t number = draw(m, KEYS);
    made->count = 0;
    for (uint32_t i = 0; i < made->key_count; i++) {
        made->keys[i] = number;
        made->lens[i] = draw_length(m, number);
        made->count += made->lens[i];
        number = draw(m, 50) == 0 ? number : (number + 1) % KEYS; /* one twice now and then */
    }
}

static void draw_request(struct model *m, struct made *made)
{
    made->table = (uint16_t)draw(m, 2);
    made->op = (uint8_t)(SL_REQUEST_KV_PUSH + draw(m, 4));
    made->pushed = made->table == FLOATS ? (enum sl_precision)draw(m, 4) : SL_PRECISION_F32;
    made->start = made->whole = 0;
    draw_keys(m, made);
    if (draw(m, 4) == 0) { /* a piece */
        made->key_count = 1;
        made->whole = made->lens[0];
        made->start = draw(m, made->whole);
        made->count = made->lens[0] = 1 + draw(m, made->whole - made->start);
    }
    for (uint64_t i = 0; i < made->count; i++) {
        made->floats[i] = (float)draw(m, 100);
        made->bytes[i] = (uint8_t)draw(m, 256);
    }
}

static void build(const struct made *made, struct shard_request *request)
{
    uint64_t keys[KEYS];
    for (uint32_t i = 0; i < made->key_count; i++) {
        keys[i] = key_of(made->keys[i]);
    }
    const bool lengths = made->op == SL_REQUEST_KV_LENGTHS;
    const bool pushes = !lengths && made->op != SL_REQUEST_KV_PULL;
    const struct sl_request_section section = {.op = made->op,
                                               .table_id = made->table,
                                               .bag_count = lengths ? 0 : made->whole,
                                               .start = lengths ? 0 : made->start,
                                               .count = lengths ? 0 : made->count};
    const void *values = made->table == FLOATS ? (const void *)made->floats : made->bytes;
    shard_request_begin(request, 0);
    request->pushed = made->pushed;
    shard_request_kv(request, section, keys, made->key_count,
                     lengths || made->whole != 0 ? NULL : made->lens, pushes ? values : NULL,
                     made->table == FLOATS ? sizeof(float) : 1);
}

static uint32_t whole_of(const struct made *made, uint32_t i)
{
    return made->whole != 0 ? made->whole : made->lens[i];
}

static int model_check(const struct model *m, const struct made *made)
{
    const uint32_t *lengths = m->lengths[made->table];
    uint32_t fresh[KEYS] = {0}; /* lengths that this request settles */
    for (uint32_t i = 0; i < made->key_count; i++) {
        const uint32_t number = made->keys[i];
        const uint32_t length = lengths[number] != 0 ? lengths[number] : fresh[number];
        if (length == 0 && made->op == SL_REQUEST_KV_PULL) {
            return SL_ERR_NOT_FOUND;
        }
        if (length != 0 && length != whole_of(made, i)) {
            return SL_ERR_INVALID;
        }
        fresh[number] = whole_of(made, i);
    }
    return SL_SHARD_DONE;
}

static void model_push(struct model *m, const struct made *made, uint32_t i, uint64_t at)
{
    const uint32_t number = made->keys[i];
    if (m->lengths[made->table][number] == 0) {
        m->lengths[made->table][number] = whole_of(made, i);
        if (made->table == FLOATS) {
            m->floats[number] = calloc(whole_of(made, i), sizeof(float));
        } else {
            m->bytes[number] = calloc(whole_of(made, i), 1);
        }
    }
    for (uint32_t k = 0; k < made->lens[i]; k++) {
        if (made->table == FLOATS) {
            m->floats[number][made->start + k] += made->floats[at + k];
        } else {
            m->bytes[number][made->start + k] = made->bytes[at + k];
        }
    }
}

/* Carries it out in the model, and compares what the shard has answered. */
static void model_apply(struct model *m, const struct made *made, const uint8_t *reply)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < made->key_count; i++) {
        const uint32_t number = made->keys[i];
        if (made->op == SL_REQUEST_KV_LENGTHS) {
            uint32_t length;
            memcpy(&length, reply + i * sizeof length, sizeof length);
            assert_int_equal(length, m->lengths[made->table][number]);
            continue;
        }
        if (made->op != SL_REQUEST_KV_PULL) {
            model_push(m, made, i, at);
        }
        if (made->op != SL_REQUEST_KV_PUSH && made->table == FLOATS) {
            assert_memory_equal(reply + at * sizeof(float), m->floats[number] + made->start,
                                made->lens[i] * sizeof(float));
        } else if (made->op != SL_REQUEST_KV_PUSH) {
            assert_memory_equal(reply + at, m->bytes[number] + made->start, made->lens[i]);
        }
        at += made->lens[i];
    }
}

/* One request from beginning to end, in slices of a random size. */
static void run_one(struct model *m, struct made *made)
{
    draw_request(m, made);
    m->f.key_budget = draw(m, 2) == 0 ? 1 + draw(m, 30) : 2000;
    build(made, &m->f.request);
    const int expected = made->op == SL_REQUEST_KV_LENGTHS ? SL_SHARD_DONE : model_check(m, made);
    assert_int_equal(kv_run_request(&m->f), expected);
    if (expected == SL_SHARD_DONE) {
        model_apply(m, made, m->f.reply);
    }
}

/* A long push that is given up somewhere while it claims: no trace of it. */
static void give_up_one(struct model *m, struct made *made, struct shard_request *request)
{
    struct sl_shard_request work;
    const struct sl_shard_client caller = {0};
    uint32_t spent;
    do {
        draw_request(m, made);
        made->op = SL_REQUEST_KV_PUSH;
    } while (made->key_count <= 256 + 40);
    build(made, request);
    assert_int_equal(
        sl_shard_begin(m->f.shard, &caller, request->payload, request->bytes, &work, &m->f.reason),
        0);
    if (sl_shard_run(m->f.shard, &work, NULL, 10, &spent, &m->f.reason) == SL_SHARD_AGAIN) {
        assert_true(sl_shard_stop_writes(&work));
        sl_shard_abandon(m->f.shard, &work);
    }
}

SL_CASE(kv__does_what_a_plain_map_does)
{
    struct made *made = malloc(sizeof *made);
    struct shard_request *other = malloc(sizeof *other);
    assert_non_null(made);
    assert_non_null(other);
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct model *m = calloc(1, sizeof *m);
        assert_non_null(m);
        print_message("seed %u\n", (unsigned)seed);
        m->seed = seed;
        kv_make(&m->f, &(struct sl_shard_options){.count = 1});
        for (uint32_t step = 0; step < STEPS; step++) {
            if (draw(m, 20) == 0) {
                give_up_one(m, made, other);
            }
            run_one(m, made);
        }
        sl_shard_destroy(&m->f.shard);
        for (uint32_t i = 0; i < KEYS; i++) {
            free(m->floats[i]);
            free(m->bytes[i]);
        }
        free(m);
    }
    free(other);
    free(made);
}
