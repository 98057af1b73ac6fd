/* A shard against a model of it that is plain enough to be believed: workers join, push, tick,
 * leave, are lost and finish in random order, and what a table shows is always the model's sum of
 * whole iterations. The seed is in the test's output where it fails. */

#include <string.h>

#include "core/hash.h"
#include "fixture.h"
#include "tests/support/unit.h"

#define ALL       6 /* workers; those from WORKERS on must join to count */
#define CLOCK_MAX 4096
#define KEYS      40 /* of one push: more than one slice of a commit */

struct model_worker {
    bool counts, belongs, finished;
    uint32_t clock;          /* iterations that it has ended */
    bool began, pushed;      /* since it counts; in its iteration */
    float pushes[CLOCK_MAX]; /* by iteration; those below the floor are in `shown` */
};

struct model {
    struct model_worker workers[ALL];
    uint32_t min_clock;
    float shown;
    uint64_t random;
};

static uint32_t draw(struct model *model, uint32_t below)
{
    return (uint32_t)(sl_hash_random(&model->random) % below);
}

static bool nobody_counts(const struct model *model)
{
    for (uint32_t w = 0; w < ALL; w++) {
        if (model->workers[w].counts) {
            return false;
        }
    }
    return true;
}

/* The floor: the least clock that counts; of nobody, the end of what has been done. */
static uint32_t min_clock_now(const struct model *model)
{
    uint32_t least = CLOCK_MAX;
    uint32_t done = 0;
    bool all_finished = true;
    for (uint32_t w = 0; w < ALL; w++) {
        const struct model_worker *who = &model->workers[w];
        if (who->counts) {
            least = who->clock < least ? who->clock : least;
        } else if (who->belongs) {
            done = who->clock > done ? who->clock : done;
            all_finished &= who->finished;
        }
    }
    if (!nobody_counts(model)) {
        return least;
    }
    return all_finished ? SL_REQUEST_CLOCK_FINISHED : done;
}

/* Shows the iterations that the floor has passed, whole. */
static void settle(struct model *model)
{
    uint32_t min_clock = min_clock_now(model);
    assert_true(min_clock >= model->min_clock);
    model->min_clock = min_clock;
    for (uint32_t w = 0; w < ALL; w++) {
        for (uint32_t clock = 0; clock < CLOCK_MAX && clock < min_clock; clock++) {
            model->shown += model->workers[w].pushes[clock];
            model->workers[w].pushes[clock] = 0.0F;
        }
    }
}

static void forget_from(struct model_worker *who, uint32_t clock)
{
    for (; clock < CLOCK_MAX; clock++) {
        who->pushes[clock] = 0.0F;
    }
}

static void do_push(struct fixture *f, struct model *model, uint32_t worker)
{
    static uint64_t keys[KEYS];
    static float gradients[KEYS * DIM];
    struct model_worker *who = &model->workers[worker];
    float value = (float)(1 + draw(model, 8));
    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = i;
        gradients[i * DIM] = value;
    }
    shard_request_begin(&f->request, who->clock);
    shard_request_push(&f->request, SL_REQUEST_PUSH, BSP, keys, KEYS, gradients, DIM);
    assert_int_equal(fixture_run(f, worker), SL_SHARD_DONE);
    if (!who->counts) {
        model->shown += value;
        return;
    }
    who->pushes[who->clock] += value;
    who->began = who->pushed = true;
}

static void do_tick(struct fixture *f, struct model *model, uint32_t worker)
{
    struct model_worker *who = &model->workers[worker];
    if (who->counts) {
        assert_int_equal(fixture_tick(f, worker, who->clock), SL_SHARD_DONE);
        who->clock++;
        who->began = true;
        who->pushed = false;
    }
}

static void do_end(struct fixture *f, struct model *model, uint32_t worker)
{
    struct model_worker *who = &model->workers[worker];
    bool lost = draw(model, 2) == 0;
    bool finishes = !lost && draw(model, 10) == 0 && who->counts;
    if (lost) {
        sl_shard_worker_expired(f->shard, worker);
    } else if (finishes) {
        assert_int_equal(fixture_tick(f, worker, SL_REQUEST_CLOCK_FINISHED), SL_SHARD_DONE);
    } else {
        sl_shard_worker_left(f->shard, worker);
    }
    if (who->counts && lost) {
        forget_from(who, who->clock);
    } else if (who->counts) {
        who->clock += who->pushed;
    }
    who->finished |= finishes;
    who->counts = who->pushed = false;
}

static uint32_t joinable(const struct model *model, const struct model_worker *who)
{
    return who->clock > model->min_clock ? who->clock : model->min_clock;
}

/* The worker asks for a clock near the least possible; the model says what it must get. */
static void do_join(struct fixture *f, struct model *model, uint32_t worker)
{
    struct model_worker *who = &model->workers[worker];
    uint32_t around = joinable(model, who);
    if (around >= CLOCK_MAX - 4 && model->min_clock != SL_REQUEST_CLOCK_FINISHED) {
        return;
    }
    uint32_t clock = (around == SL_REQUEST_CLOCK_FINISHED ? 3 : around) + draw(model, 4);
    clock = clock > 2 ? clock - 2 : 0;
    uint32_t wanted = clock;
    if (who->finished) {
        wanted = SL_REQUEST_CLOCK_FINISHED;
    } else if (clock < model->min_clock) {
        wanted = around;
    } else if (who->counts && clock != who->clock && (who->began || clock < who->clock)) {
        wanted = who->clock;
    }
    assert_int_equal(sl_shard_worker_join(f->shard, worker, clock), wanted);
    if (wanted != clock) {
        return;
    }
    if (!who->counts) {
        forget_from(who, clock);
        who->pushed = false;
    }
    who->began = who->counts && who->began && who->clock == clock;
    who->counts = who->belongs = true;
    who->clock = clock;
}

/* A pull is answered just when nobody has to be waited for, and shows whole iterations. */
static void check_pulls(struct fixture *f, const struct model *model, uint32_t worker)
{
    const struct model_worker *who = &model->workers[worker];
    uint32_t clock = model->min_clock;
    float value;
    assert_int_equal(fixture_pull(f, worker, clock, BSP, KEYS - 1, &value), SL_SHARD_DONE);
    assert_true(value == model->shown);
    if (clock < SL_REQUEST_CLOCK_FINISHED) {
        bool waits = who->belongs && !nobody_counts(model);
        assert_int_equal(fixture_pull(f, worker, clock + 1, BSP, 0, &value),
                         waits ? SL_SHARD_PARKED : SL_SHARD_DONE);
    }
    struct sl_shard_worker found = sl_shard_worker_find(f->shard, worker);
    assert_int_equal(found.active, who->counts);
    assert_int_equal(found.clock, who->finished ? SL_REQUEST_CLOCK_FINISHED
                                  : who->counts ? who->clock
                                                : joinable(model, who));
}

static void act(struct fixture *f, struct model *model)
{
    uint32_t worker = draw(model, ALL);
    uint32_t what = draw(model, 100);
    if (what < 45) {
        do_push(f, model, worker);
    } else if (what < 85) {
        do_tick(f, model, worker);
    } else if (what < 90) {
        do_end(f, model, worker);
    } else {
        do_join(f, model, worker);
    }
    /* Who comes or goes does so in the middle of a commit, too. */
    if (sl_shard_iteration_due(f->shard) && draw(model, 2) == 0) {
        settle(model);
        (void)sl_shard_apply_iteration(f->shard, 1 + draw(model, KEYS));
        if (draw(model, 2) == 0) {
            do_join(f, model, draw(model, ALL));
        } else {
            worker = draw(model, ALL);
            sl_shard_worker_expired(f->shard, worker);
            if (model->workers[worker].counts) {
                forget_from(&model->workers[worker], model->workers[worker].clock);
                model->workers[worker].counts = model->workers[worker].pushed = false;
            }
        }
    }
    fixture_commit(f);
    settle(model);
}

CASE(shard_model__whole_iterations_while_workers_come_and_go)
{
    static struct model model;
    uint64_t acts = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        print_message("seed %u\n", (unsigned)seed);
        sl_shard_destroy(&f->shard);
        fixture_make(f, 1 << 20);
        memset(&model, 0, sizeof model);
        model.random = seed;
        for (uint32_t w = 0; w < WORKERS; w++) {
            model.workers[w].counts = model.workers[w].belongs = true;
        }
        for (uint32_t i = 0; i < 400 && model.min_clock < CLOCK_MAX - 8; i++, acts++) {
            act(f, &model);
            assert_true(fixture_peek(f, BSP, 0) == model.shown);
            check_pulls(f, &model, draw(&model, ALL));
        }
    }
    assert_true(acts > 60 * 100);
}
