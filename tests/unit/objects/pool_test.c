#include "objects/node/pool.h"

#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "tests/support/unit.h"

#define BLOCK        SL_OBJECTS_BLOCK_BYTES
#define SLOTS        24
#define BLOCKS_MAX   (SLOTS + 1)
#define NAMES        3
#define VERSIONS_MAX 64 /* of the model */
#define ROUNDS       100000

static struct sl_objects_pool pool;
static struct sl_reason reason;
static uint8_t *memory;
static uint32_t shrunk_count, freed_count;

static void shrunk(void *context, struct sl_objects_pool_version *version)
{
    assert_ptr_equal(context, &pool);
    shrunk_count++;
    freed_count += version->resident_count == 0;
}

static void setup(void)
{
    memory = malloc(SLOTS * BLOCK);
    assert_non_null(memory);
    assert_int_equal(sl_objects_pool_init(&pool, memory, SLOTS * BLOCK + 1, shrunk, &pool), 0);
    shrunk_count = freed_count = 0;
}

static void teardown(void)
{
    sl_objects_pool_fini(&pool);
    free(memory);
}

#define CASE(name) SL_CASE_WITH(name, setup(), teardown())

static struct sl_objects_pool_key key_of(uint64_t number)
{
    return (struct sl_objects_pool_key){.name = "model/a", .version = number};
}

/* Block i of the image has digest first + i. */
static int reserve(uint64_t number, uint32_t block_count, uint64_t first,
                   struct sl_objects_pool_version **out)
{
    struct sl_hash_128 digests[BLOCKS_MAX + 1];
    const struct sl_objects_pool_key key = key_of(number);
    for (uint32_t i = 0; i < block_count && i < BLOCKS_MAX; i++) {
        digests[i] = (struct sl_hash_128){first + i, 0};
    }
    return sl_objects_pool_reserve(&pool, &key, block_count, digests, block_count, out, &reason);
}

/* A version whose blocks are all verified and, unless it stays pinned, may be evicted. */
static struct sl_objects_pool_version *hold(uint64_t number, uint32_t block_count, uint64_t first,
                                            bool stays_pinned)
{
    struct sl_objects_pool_version *version = NULL;
    assert_int_equal(reserve(number, block_count, first, &version), 0);
    for (uint32_t i = 0; i < block_count; i++) {
        sl_objects_pool_set_verified(version, i);
    }
    if (!stays_pinned) {
        sl_objects_pool_unpin(&pool, version);
    }
    return version;
}

/* Returns how many blocks from `block` on lie side by side and are all verified (or all not), and
 * where the first of them is. */
static uint32_t run_of(const struct sl_objects_pool_version *version, uint32_t block,
                       bool is_verified, uint8_t **at)
{
    const struct sl_objects_pool_block *first = &version->blocks[block];
    uint32_t count = 0;
    while (block + count < version->resident_count && first[count].is_verified == is_verified &&
           first[count].slot == first->slot + count) {
        count++;
    }
    if (count > 0) {
        *at = pool.base + (size_t)first->slot * BLOCK;
    }
    return count;
}

static uint8_t *place(const struct sl_objects_pool_version *version, uint32_t block)
{
    uint8_t *at = NULL;
    const uint32_t run = run_of(version, block, true, &at);
    return run > 0 ? at : NULL;
}

static uint32_t count_runs(const struct sl_objects_pool_version *version, bool is_verified)
{
    uint8_t *at;
    uint32_t runs = 0;
    for (uint32_t block = 0; block < version->resident_count; runs++) {
        block += run_of(version, block, is_verified, &at);
    }
    return runs;
}

CASE(pool__gives_a_version_one_run_of_slots)
{
    struct sl_objects_pool_version *version = NULL;
    assert_int_equal(pool.slot_count, SLOTS);
    assert_int_equal(reserve(1, 10, 100, &version), 0);
    uint8_t *at;
    assert_int_equal(run_of(version, 0, false, &at), 10);
    assert_ptr_equal(at, memory);
    assert_int_equal(run_of(version, 9, false, &at), 1);
    assert_int_equal(run_of(version, 0, true, &at), 0);
    sl_objects_pool_set_verified(version, 4);
    sl_objects_pool_set_verified(version, 4);
    assert_int_equal(version->verified_count, 1);
    assert_int_equal(run_of(version, 0, false, &at), 4);
    assert_int_equal(run_of(version, 4, true, &at), 1);
    assert_ptr_equal(at, memory + 4 * BLOCK);
    assert_int_equal(pool.free_count, SLOTS - 10);
}

CASE(pool__refuses_a_version_that_is_larger_than_itself)
{
    struct sl_objects_pool_version *version = NULL;
    hold(1, 5, 100, false);
    assert_int_equal(reserve(2, SLOTS + 1, 200, &version), SL_ERR_TOO_LARGE);
    assert_non_null(strstr(reason.text, "model/a@2"));
    assert_non_null(strstr(reason.text, "6553600")); /* 25 blocks */
    assert_non_null(strstr(reason.text, "6291456")); /* 24 slots */
    assert_null(version);
    assert_int_equal(shrunk_count, 0);
    assert_int_equal(reserve(2, SLOTS, 200, &version), 0);
}

CASE(pool__refuses_other_bytes_of_a_version)
{
    struct sl_objects_pool_version *version = hold(1, 3, 100, false), *other = NULL;
    assert_int_equal(reserve(1, 3, 101, &other), SL_ERR_EXISTS);
    assert_int_equal(reserve(1, 2, 100, &other), SL_ERR_EXISTS);
    assert_int_equal(reserve(1, 3, 100, &other), 0);
    assert_ptr_equal(version, other);
    assert_int_equal(other->verified_count, 3);
}

CASE(pool__finds_by_name_version_and_part)
{
    struct sl_objects_pool_version *version = hold(7, 3, 100, false);
    struct sl_objects_pool_key key = key_of(7);
    assert_ptr_equal(sl_objects_pool_find(&pool, &key), version);
    key.part = 1;
    assert_null(sl_objects_pool_find(&pool, &key));
    key = key_of(8);
    assert_null(sl_objects_pool_find(&pool, &key));
    key = (struct sl_objects_pool_key){.name = "model/b", .version = 7};
    assert_null(sl_objects_pool_find(&pool, &key));
}

CASE(pool__keeps_an_image_without_bytes)
{
    struct sl_objects_pool_version *version = NULL;
    const struct sl_objects_pool_key key = key_of(1);
    assert_int_equal(reserve(1, 0, 0, &version), 0);
    assert_int_equal(version->block_count, 0);
    sl_objects_pool_unpin(&pool, version);
    assert_ptr_equal(sl_objects_pool_find(&pool, &key), version);
    hold(2, SLOTS, 100, false);
}

CASE(pool__shares_slots_of_equal_verified_blocks)
{
    struct sl_objects_pool_version *one = hold(3, 8, 100, false), *two = NULL;
    struct sl_hash_128 digests[9];
    for (uint64_t i = 0; i < 9; i++) {
        digests[i] = (struct sl_hash_128){i == 2 || i == 5 ? 900 + i : 100 + i, 0};
    }
    const struct sl_objects_pool_key key = key_of(5);
    assert_int_equal(sl_objects_pool_reserve(&pool, &key, 9, digests, 9, &two, &reason), 0);
    assert_int_equal(pool.free_count, SLOTS - 8 - 3);
    assert_int_equal(two->verified_count, 6);
    for (uint32_t i = 0; i < 8; i++) {
        assert_true(i == 2 || i == 5 ? place(two, i) == NULL : place(two, i) == place(one, i));
    }
    sl_objects_pool_retire(&pool, one);
    assert_int_equal(pool.free_count, SLOTS - 9);
    assert_int_equal(two->verified_count, 6);
}

CASE(pool__does_not_share_blocks_that_are_not_verified)
{
    struct sl_objects_pool_version *one = NULL, *two = NULL;
    assert_int_equal(reserve(1, 4, 100, &one), 0);
    sl_objects_pool_set_verified(one, 1);
    assert_int_equal(reserve(2, 4, 100, &two), 0);
    assert_int_equal(two->verified_count, 1);
    assert_int_equal(pool.free_count, SLOTS - 7);
}

CASE(pool__evicts_the_end_of_the_least_recently_used_version)
{
    struct sl_objects_pool_version *one = hold(1, 8, 100, false), *two = hold(2, 8, 200, false);
    sl_objects_pool_pin(&pool, one);
    sl_objects_pool_unpin(&pool, one);
    hold(3, 11, 300, false); /* needs 3 more than are free */
    assert_int_equal(one->resident_count, 8);
    assert_int_equal(two->resident_count, 5);
    assert_int_equal(two->verified_count, 5);
    assert_int_equal(shrunk_count, 1);
    hold(4, 6, 400, false); /* 5 of two, which is gone then; 1 of one */
    assert_int_equal(freed_count, 1);
    assert_int_equal(one->resident_count, 7);
    const struct sl_objects_pool_key key = key_of(2);
    assert_null(sl_objects_pool_find(&pool, &key));
    assert_int_equal(pool.free_count, 0);
}

CASE(pool__keeps_pinned_and_kept_versions)
{
    struct sl_objects_pool_version *pinned = hold(1, 8, 100, true), *kept = hold(2, 8, 200, false),
                                   *more = NULL;
    kept->keep = true;
    hold(3, 8, 300, false);
    assert_int_equal(reserve(4, 9, 400, &more), SL_ERR_NO_MEMORY);
    assert_non_null(strstr(reason.text, "model/a@4"));
    assert_int_equal(shrunk_count, 0);
    assert_int_equal(reserve(4, 8, 400, &more), 0);
    assert_int_equal(pinned->resident_count, 8);
    assert_int_equal(kept->resident_count, 8);
    kept->keep = false;
    sl_objects_pool_unpin(&pool, more);
    assert_int_equal(reserve(5, 9, 500, &more), 0);
}

CASE(pool__keeps_shared_blocks_of_an_evicted_version)
{
    struct sl_objects_pool_version *one = hold(1, 8, 100, false), *two = NULL, *three = NULL;
    uint8_t *at = place(one, 0);
    assert_int_equal(reserve(2, 4, 100, &two), 0);
    assert_int_equal(reserve(3, 20, 300, &three), 0); /* what two does not share */
    assert_int_equal(one->resident_count, 4);
    sl_objects_pool_retire(&pool, one);
    assert_int_equal(pool.free_count, 0);
    assert_ptr_equal(place(two, 0), at);
    assert_int_equal(two->verified_count, 4);
}

CASE(pool__fills_an_evicted_version_again)
{
    struct sl_objects_pool_version *one = hold(1, 20, 100, false), *two = hold(2, 14, 200, false);
    assert_int_equal(one->resident_count, 10);
    sl_objects_pool_retire(&pool, two);
    struct sl_objects_pool_version *again = NULL;
    assert_int_equal(reserve(1, 20, 100, &again), 0);
    assert_ptr_equal(again, one);
    assert_int_equal(one->resident_count, 20);
    assert_int_equal(one->verified_count, 10);
    uint8_t *at;
    assert_int_equal(run_of(one, 0, true, &at), 10);
}

CASE(pool__gives_slots_to_the_first_blocks_and_later_to_the_others)
{
    struct sl_objects_pool_version *one = NULL, *again = NULL;
    struct sl_hash_128 digests[6] = {{1, 0}, {2, 0}, {3, 0}, {4, 0}, {5, 0}, {6, 0}};
    const struct sl_objects_pool_key key = key_of(1);
    assert_int_equal(sl_objects_pool_reserve(&pool, &key, 6, digests, 2, &one, &reason), 0);
    assert_int_equal(one->resident_count, 2);
    assert_int_equal(pool.free_count, SLOTS - 2);
    assert_int_equal(sl_objects_pool_reserve(&pool, &key, 5, digests, 2, &again, &reason),
                     SL_ERR_EXISTS);
    assert_int_equal(sl_objects_pool_reserve(&pool, &key, 6, digests, 6, &again, &reason), 0);
    assert_ptr_equal(again, one);
    assert_int_equal(one->resident_count, 6);
    digests[5].high = 1;
    assert_int_equal(sl_objects_pool_reserve(&pool, &key, 6, digests, 6, &again, &reason),
                     SL_ERR_EXISTS);
    sl_objects_pool_unpin(&pool, one);
    sl_objects_pool_unpin(&pool, one);
    one->head_count = 2;
    hold(2, SLOTS - 3, 100, false);
    assert_int_equal(one->resident_count, 3);
    hold(3, 1, 200, false);
    assert_null(sl_objects_pool_find(&pool, &key));
    assert_int_equal(pool.free_count, 2);
}

CASE(pool__frees_a_retired_version_with_its_last_pin)
{
    struct sl_objects_pool_version *one = hold(1, 8, 100, true), *again = NULL;
    const struct sl_objects_pool_key key = key_of(1);
    sl_objects_pool_pin(&pool, one);
    sl_objects_pool_retire(&pool, one);
    assert_null(sl_objects_pool_find(&pool, &key));
    assert_int_equal(reserve(1, 8, 700, &again), 0); /* the same number, published anew */
    assert_int_equal(one->verified_count, 8);
    sl_objects_pool_unpin(&pool, one);
    assert_int_equal(freed_count, 0);
    sl_objects_pool_unpin(&pool, one);
    assert_int_equal(freed_count, 1);
    assert_ptr_equal(sl_objects_pool_find(&pool, &key), again);
}

CASE(pool__takes_long_runs_first)
{
    struct sl_objects_pool_version *versions[SLOTS], *large = NULL;
    for (uint32_t i = 0; i < SLOTS; i++) {
        versions[i] = hold(i + 1, 1, 1000 * (i + 1), true);
    }
    /* Free runs of 1, 2, 1, 6 and 4 slots. */
    static const uint32_t free_slots[] = {0, 2, 3, 5, 7, 8, 9, 10, 11, 12, 20, 21, 22, 23};
    for (uint32_t i = 0; i < sizeof free_slots / sizeof free_slots[0]; i++) {
        sl_objects_pool_retire(&pool, versions[free_slots[i]]);
        sl_objects_pool_unpin(&pool, versions[free_slots[i]]);
    }
    assert_int_equal(reserve(100, 6, 1, &large), 0);
    assert_int_equal(count_runs(large, false), 1);
    sl_objects_pool_retire(&pool, large);
    sl_objects_pool_unpin(&pool, large);
    assert_int_equal(reserve(101, 10, 1, &large), 0);
    assert_int_equal(count_runs(large, false), 2);
    sl_objects_pool_retire(&pool, large);
    sl_objects_pool_unpin(&pool, large);
    assert_int_equal(reserve(102, 14, 1, &large), 0);
    assert_int_equal(count_runs(large, false), 5);
}

/* ---- Random operations against a slow model ---------------------------------------------------
 */

/* In the model a slot is a cell, a number that is never used twice; versions that share a slot have
 * the same cell. The slots in use are the distinct cells. */
struct model_version {
    bool exists, is_retired, keep;
    uint32_t name, part, pins;
    uint64_t number, used_at;
    uint32_t block_count, resident_count;
    struct sl_hash_128 digests[BLOCKS_MAX];
    uint64_t cells[BLOCKS_MAX];
    bool is_verified[BLOCKS_MAX];
    struct sl_objects_pool_version *real;
};

static struct model_version model[VERSIONS_MAX];
static uint64_t random_state, now, last_cell;
static uint32_t model_freed_count;
static const char *const names[NAMES] = {"a", "b", "model/c"};

static uint32_t chance(uint32_t below)
{
    return (uint32_t)(sl_hash_random(&random_state) % below);
}

static int by_value(const void *one, const void *other)
{
    const uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

static bool may_evict(const struct model_version *version)
{
    return version->pins == 0 && !version->keep;
}

/* Slots in use; by all versions, or by those that must stay. */
static uint32_t model_used(bool only_lasting)
{
    static uint64_t cells[VERSIONS_MAX * BLOCKS_MAX];
    uint32_t count = 0, distinct = 0;
    for (uint32_t v = 0; v < VERSIONS_MAX; v++) {
        const bool counts = model[v].exists && !(only_lasting && may_evict(&model[v]));
        for (uint32_t i = 0; counts && i < model[v].resident_count; i++) {
            cells[count++] = model[v].cells[i];
        }
    }
    qsort(cells, count, sizeof cells[0], by_value);
    for (uint32_t i = 0; i < count; i++) {
        distinct += i == 0 || cells[i] != cells[i - 1];
    }
    return distinct;
}

static struct model_version *model_find(uint32_t name, uint64_t number, uint32_t part)
{
    for (uint32_t v = 0; v < VERSIONS_MAX; v++) {
        if (model[v].exists && !model[v].is_retired && model[v].name == name &&
            model[v].number == number && model[v].part == part) {
            return &model[v];
        }
    }
    return NULL;
}

static void model_free(struct model_version *version)
{
    version->exists = false;
    model_freed_count++;
}

static void model_evict_block(void)
{
    struct model_version *oldest = NULL;
    for (uint32_t v = 0; v < VERSIONS_MAX; v++) {
        if (model[v].exists && may_evict(&model[v]) &&
            (oldest == NULL || model[v].used_at < oldest->used_at)) {
            oldest = &model[v];
        }
    }
    assert_non_null(oldest);
    if (oldest->resident_count > 0) {
        oldest->is_verified[--oldest->resident_count] = false;
    }
    if (oldest->resident_count == 0) {
        model_free(oldest);
    }
}

/* Whether the version, pinned, has all its slots now. */
static bool model_reserve(struct model_version *version)
{
    const struct model_version saved = *version;
    const struct model_version *before = NULL;
    for (uint64_t number = version->number - 1; before == NULL && number > 0; number--) {
        before = model_find(version->name, number, version->part);
    }
    for (uint32_t i = version->resident_count; i < version->block_count; i++) {
        const bool shares =
            before != NULL && i < before->resident_count && before->is_verified[i] &&
            memcmp(&before->digests[i], &version->digests[i], sizeof before->digests[i]) == 0;
        version->cells[i] = shares ? before->cells[i] : ++last_cell;
        version->is_verified[i] = shares;
    }
    version->exists = true;
    version->pins++;
    version->resident_count = version->block_count;
    if (model_used(true) > SLOTS) {
        *version = saved;
        version->used_at = ++now;
        return false;
    }
    while (model_used(false) > SLOTS) {
        model_evict_block();
    }
    return true;
}

/* Some blocks differ from one version to the next. */
static void make_digests(struct model_version *version)
{
    uint64_t state = version->number * 64 + version->part * 8 + version->name;
    version->block_count = (uint32_t)(sl_hash_random(&state) % 13);
    for (uint32_t i = 0; i < version->block_count; i++) {
        const uint64_t place = (version->name * 2U + version->part) * BLOCKS_MAX + i;
        version->digests[i] =
            (struct sl_hash_128){place, sl_hash_random(&state) % 2 == 0 ? version->number : 0};
    }
}

static void reserve_random(void)
{
    const uint32_t name = chance(NAMES), part = chance(2);
    const uint64_t number = 1 + chance(8);
    struct model_version *version = model_find(name, number, part);
    for (uint32_t v = 0; version == NULL && v < VERSIONS_MAX; v++) {
        if (!model[v].exists) {
            version = &model[v];
            *version = (struct model_version){.name = name, .part = part, .number = number};
            make_digests(version);
        }
    }
    if (version == NULL) {
        return;
    }
    const struct sl_objects_pool_key key = {names[name], number, part};
    const bool was_new = !version->exists;
    struct sl_objects_pool_version *real = NULL;
    const int err = sl_objects_pool_reserve(&pool, &key, version->block_count, version->digests,
                                            version->block_count, &real, &reason);
    assert_int_equal(err, model_reserve(version) ? 0 : SL_ERR_NO_MEMORY);
    if (err == 0) {
        assert_true(was_new || real == version->real);
        version->real = real;
    }
}

/* Writes into blocks that are not verified, as READs do: first anything, then for some the right
 * bytes. */
static void write_random(struct model_version *version)
{
    for (uint32_t i = 0; i < version->resident_count; i++) {
        uint8_t *at;
        if (run_of(version->real, i, false, &at) == 0) {
            continue;
        }
        const struct sl_hash_128 *bytes = &version->digests[i];
        memset(at, (int)chance(256), sizeof *bytes);
        if (chance(2) == 0) {
            memcpy(at, bytes, sizeof *bytes);
            sl_objects_pool_set_verified(version->real, i);
            version->is_verified[i] = true;
        }
    }
}

static void change_random(struct model_version *version, uint32_t what)
{
    if (what == 0 && (!version->is_retired || version->pins > 0)) {
        sl_objects_pool_pin(&pool, version->real);
        version->pins++;
    } else if (what < 4 && version->pins > 0) {
        sl_objects_pool_unpin(&pool, version->real);
        version->used_at = ++now;
        if (--version->pins == 0 && version->is_retired) {
            model_free(version);
        }
    } else if (what < 6 && version->pins > 0) {
        write_random(version);
    } else if (what == 6) {
        version->keep = version->real->keep = chance(4) == 0;
    } else if (what == 7 && chance(4) == 0 && !version->is_retired) {
        sl_objects_pool_retire(&pool, version->real);
        version->is_retired = true;
        if (version->pins == 0) {
            model_free(version);
        }
    }
}

static void check_version(const struct model_version *version, uint64_t *cell_of)
{
    const struct sl_objects_pool_version *real = version->real;
    const struct sl_objects_pool_key key = {names[version->name], version->number, version->part};
    assert_true(version->is_retired || sl_objects_pool_find(&pool, &key) == real);
    assert_int_equal(real->pins, version->pins);
    assert_int_equal(real->resident_count, version->resident_count);
    uint32_t verified_count = 0;
    for (uint32_t i = 0; i < version->resident_count; i++) {
        const uint32_t slot = real->blocks[i].slot;
        assert_int_equal(real->blocks[i].is_verified, version->is_verified[i]);
        assert_true(slot < SLOTS);
        assert_true(cell_of[slot] == 0 || cell_of[slot] == version->cells[i]);
        cell_of[slot] = version->cells[i];
        if (version->is_verified[i]) {
            verified_count++;
            assert_memory_equal(place(real, i), &version->digests[i], sizeof version->digests[i]);
        }
    }
    assert_int_equal(real->verified_count, verified_count);
}

static void check_all(void)
{
    uint64_t cell_of[SLOTS] = {0};
    for (uint32_t v = 0; v < VERSIONS_MAX; v++) {
        if (model[v].exists) {
            check_version(&model[v], cell_of);
        }
    }
    assert_int_equal(pool.free_count, SLOTS - model_used(false));
    assert_int_equal(freed_count, model_freed_count);
}

CASE(pool__does_what_a_slow_model_does)
{
    memset(model, 0, sizeof model);
    random_state = 7;
    model_freed_count = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t v = chance(VERSIONS_MAX);
        for (uint32_t tries = 0; tries < VERSIONS_MAX && !model[v].exists; tries++) {
            v = (v + 1) % VERSIONS_MAX;
        }
        if (!model[v].exists || chance(4) == 0) {
            reserve_random();
        } else {
            change_random(&model[v], chance(8));
        }
        check_all();
    }
    assert_true(model_freed_count > 1000);
}
