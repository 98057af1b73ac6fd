/* What is opened and closed next, with invented time: the test takes the jobs, and ends them as it
 * likes. */
#include "programs/serve/worker/opener.h"

#include <string.h>

#include "programs/serve/worker/pending.h"
#include "tests/support/unit.h"

#define MODELS 5

static struct {
    struct sl_reactor *reactor;
    struct sl_serve_worker_options options;
    struct sl_serve_model_table models;
    struct sl_list queue;
    struct sl_serve_opener opener;
    struct sl_offload_job *job; /* NULL: none was begun */
    int err;                    /* of the last job, for requests */
    uint64_t now_ns;
    struct sl_serve_model_entry *entry[MODELS];
    struct sl_serve_pending pendings[MODELS];
} f;

static void post(void *ctx, struct sl_offload_job *job)
{
    assert_null(f.job);
    f.job = job;
}

static void opened(void *ctx, struct sl_serve_model_entry *entry, int err)
{
    f.err = err;
}

static void set_up(void)
{
    const struct sl_reactor_options options = {.name = "stepped", .core = -1, .stepped = true};
    memset(&f, 0, sizeof f);
    assert_int_equal(sl_reactor_create(&options, &f.reactor), 0);
    f.now_ns = sl_reactor_now_ns(f.reactor);
    f.options = (struct sl_serve_worker_options){.batch_max = 32};
    sl_list_init(&f.queue);
    sl_serve_model_table_init(&f.models);
    f.opener = (struct sl_serve_opener){.options = &f.options,
                                        .reactor = f.reactor,
                                        .models = &f.models,
                                        .queue = &f.queue,
                                        .post = post,
                                        .opened = opened};
    for (uint32_t i = 0; i < MODELS; i++) {
        const char name[] = {(char)('a' + i), '\0'};
        f.entry[i] = sl_serve_model_table_find(&f.models, name, 1); /* of a given version */
        f.pendings[i] = (struct sl_serve_pending){.entry = f.entry[i], .item.model = f.entry[i]};
    }
}

static void tear_down(void)
{
    for (uint32_t i = 0; i < MODELS; i++) {
        f.entry[i]->current = NULL; /* no version of this test can be closed */
        sl_list_init(&f.entry[i]->old);
    }
    sl_serve_model_table_fini(&f.models);
    sl_reactor_destroy(&f.reactor);
}

#define CASE(name)                                                                                 \
    static void name##_here(void);                                                                 \
    SL_CASE(name)                                                                                  \
    {                                                                                              \
        set_up();                                                                                  \
        name##_here();                                                                             \
        tear_down();                                                                               \
    }                                                                                              \
    static void name##_here(void)

static void arrive(uint32_t model)
{
    f.entry[model]->waiting++;
    sl_list_append(&f.queue, &f.pendings[model].item.link);
}

static void answer(uint32_t model)
{
    f.entry[model]->waiting--;
    f.entry[model]->used_ns = f.now_ns;
    sl_list_remove(&f.pendings[model].item.link);
}

static void pass(uint64_t ms)
{
    f.now_ns += ms * SL_CLOCK_NS_PER_MS;
    sl_reactor_turn(f.reactor, f.now_ns);
}

/* The job that is begun now opens the model, and has this end. */
static void expect_open(uint32_t model, int err)
{
    static struct sl_serve_version versions[MODELS];
    sl_serve_opener_next(&f.opener);
    assert_non_null(f.job);
    assert_ptr_equal(f.opener.entry, f.entry[model]);
    assert_ptr_equal(f.opener.open.name, f.entry[model]->name);
    assert_true(f.entry[model]->is_opening);
    versions[model] = (struct sl_serve_version){.number = 1, .bytes = 100, .verified = 100};
    f.opener.err = err;
    f.opener.made = err == 0 ? &versions[model] : NULL;
    f.job->err = 0;
    f.job->done(f.job);
    f.job = NULL;
    assert_false(f.entry[model]->is_opening);
    assert_int_equal(f.entry[model]->current != NULL, err == 0);
}

static void expect_close(uint32_t model)
{
    sl_serve_opener_next(&f.opener);
    assert_non_null(f.job);
    assert_ptr_equal(f.opener.entry, f.entry[model]);
    assert_null(f.opener.open.name);
    assert_false(sl_list_empty(&f.opener.old));
    f.opener.made = NULL;
    f.opener.err = f.job->err = 0;
    f.job->done(f.job);
    f.job = NULL;
    assert_null(f.entry[model]->current);
}

static void expect_nothing(void)
{
    sl_serve_opener_next(&f.opener);
    assert_null(f.job);
}

CASE(opener_next__the_model_of_the_oldest_request)
{
    expect_nothing();
    arrive(3);
    arrive(1);
    expect_open(3, 0);
    expect_open(1, 0);
    expect_nothing();
}

CASE(opener_next__two_models_wait_for_the_one_that_computes)
{
    for (uint32_t i = 0; i < MODELS; i++) {
        arrive(i);
    }
    expect_open(0, 0);
    f.entry[0]->is_running = true;
    expect_open(1, 0);
    expect_open(2, 0);
    expect_nothing();
    f.entry[0]->is_running = false;
    answer(0);
    f.entry[1]->is_running = true;
    expect_open(3, 0);
    expect_nothing();
}

CASE(opener_next__one_job_at_a_time)
{
    arrive(0);
    arrive(1);
    sl_serve_opener_next(&f.opener);
    assert_true(sl_serve_opener_is_busy(&f.opener));
    sl_serve_opener_next(&f.opener); /* post would fail */
    f.opener.err = SL_ERR_DEADLINE;
    f.job->err = 0;
    f.job->done(f.job);
}

CASE(opener_next__closes_a_model_without_requests_after_a_while)
{
    arrive(0);
    expect_open(0, 0);
    pass(100);
    expect_nothing(); /* its request waits */
    answer(0);
    pass(19);
    expect_nothing();
    pass(1);
    expect_close(0);
    expect_nothing();
}

CASE(opener_next__closes_at_once_while_the_pool_is_full)
{
    arrive(0);
    expect_open(0, 0);
    answer(0);
    arrive(1);
    expect_open(1, SL_ERR_NO_MEMORY);
    assert_int_equal(f.err, 0);
    expect_close(0);
    expect_nothing();
    pass(10);
    expect_open(1, 0);
    answer(1);
    expect_close(1);
    /* No longer, a second after the pool was full. */
    pass(1000);
    arrive(2);
    expect_open(2, 0);
    answer(2);
    expect_nothing();
}

CASE(opener_next__another_model_comes_first_after_an_error_that_may_pass)
{
    arrive(0);
    arrive(1);
    expect_open(0, SL_ERR_DEADLINE);
    assert_int_equal(f.err, 0);
    expect_open(1, SL_ERR_CLOSED);
    assert_int_equal(f.err, 0);
    expect_nothing();
    pass(10);
    expect_open(0, 0);
    expect_open(1, 0);
}

CASE(opener_next__reports_errors_that_stay)
{
    static const int errs[][2] = {{SL_ERR_NOT_FOUND, SL_ERR_NOT_FOUND},
                                  {SL_ERR_CANCELLED, SL_ERR_NOT_FOUND}, /* it was removed */
                                  {SL_ERR_INVALID, SL_ERR_CORRUPT}, /* the model, not the request */
                                  {SL_ERR_TOO_LARGE, SL_ERR_TOO_LARGE},
                                  {SL_ERR_UNSUPPORTED, SL_ERR_UNSUPPORTED}};
    arrive(0);
    for (size_t i = 0; i < sizeof errs / sizeof errs[0]; i++) {
        expect_open(0, errs[i][0]);
        assert_int_equal(f.err, errs[i][1]);
        pass(10);
    }
}
