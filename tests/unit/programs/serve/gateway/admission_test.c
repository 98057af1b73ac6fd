#include "programs/serve/gateway/admission.h"

#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/hash.h"
#include "programs/serve/gateway/balance.h"
#include "tests/support/unit.h"

#define MS 1000000ULL

struct fixture {
    struct sl_serve_admission admission;
    struct sl_serve_request requests[SL_SERVE_WAITING_MAX + 1];
};

static void set_up(struct fixture *f)
{
    memset(f, 0, sizeof *f);
    sl_serve_admission_init(&f->admission);
}

static void tear_down(struct fixture *f)
{
}

#define CASE(name) SL_CASE_USING(name, struct fixture, fixture, set_up, tear_down)

static int offer(struct fixture *f, uint32_t i, uint64_t deadline_ns, uint64_t cost_ns,
                 uint64_t expected_ns, uint32_t workers)
{
    f->requests[i].deadline_ns = deadline_ns;
    f->requests[i].cost_ns = cost_ns;
    return sl_serve_admission_offer(&f->admission, &f->requests[i], expected_ns, workers, 0);
}

CASE(admission_offer__refuses_what_cannot_be_kept)
{
    /* 10 ms of work for 2 workers wait. */
    assert_int_equal(offer(fixture, 0, 100 * MS, 10 * MS, 10 * MS, 2), 0);
    assert_int_equal(offer(fixture, 1, 20 * MS, 10 * MS, 15 * MS, 2), 0);
    assert_int_equal(offer(fixture, 2, 20 * MS, 10 * MS, 11 * MS, 2), SL_ERR_AGAIN);
    assert_int_equal(fixture->requests[2].answer.retry_ms, 2);
    assert_string_equal(fixture->requests[2].answer.text,
                        "the answer is expected in 21 ms, and the deadline is in 20 ms");
    /* Without workers nothing is expected. */
    assert_int_equal(offer(fixture, 3, MS, 0, 0, 0), 0);
    assert_int_equal(offer(fixture, 4, 0, 0, 0, 0), SL_ERR_DEADLINE);
    assert_int_equal(fixture->admission.waiting_count, 3);
}

CASE(admission_offer__has_room_for_so_many)
{
    for (uint32_t i = 0; i < SL_SERVE_WAITING_MAX; i++) {
        assert_int_equal(offer(fixture, i, 1000 * MS, MS, 0, 1000), 0);
    }
    assert_int_equal(offer(fixture, SL_SERVE_WAITING_MAX, 1000 * MS, MS, 0, 1000), SL_ERR_AGAIN);
    assert_true(fixture->requests[SL_SERVE_WAITING_MAX].answer.retry_ms > 0);
    /* What runs needs no room. */
    sl_serve_admission_run(&fixture->admission, &fixture->requests[0]);
    assert_int_equal(offer(fixture, SL_SERVE_WAITING_MAX, 1000 * MS, MS, 0, 1000), 0);
}

CASE(admission_first__is_the_oldest_or_one_that_waits_again)
{
    struct sl_serve_admission *admission = &fixture->admission;
    struct sl_serve_request *requests = fixture->requests;
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(offer(fixture, i, (100 - i) * MS, MS, 0, 0), 0);
    }
    assert_ptr_equal(sl_serve_admission_first(admission), &requests[0]);
    sl_serve_admission_run(admission, &requests[0]);
    assert_ptr_equal(sl_serve_admission_first(admission), &requests[1]);
    sl_serve_admission_wait_again(admission, &requests[0]);
    assert_ptr_equal(sl_serve_admission_first(admission), &requests[0]);
    assert_int_equal(admission->waiting_ns, 3 * MS);
    for (uint32_t i = 0; i < 3; i++) {
        sl_serve_admission_end(admission, &requests[i]);
    }
    assert_null(sl_serve_admission_first(admission));
    assert_int_equal(admission->waiting_ns, 0);
    assert_int_equal(admission->waiting_count, 0);
    assert_int_equal(admission->running_count, 0);
}

CASE(admission_due__is_the_deadline_and_a_grace_at_a_worker)
{
    struct sl_serve_admission *admission = &fixture->admission;
    struct sl_serve_request *requests = fixture->requests;
    assert_int_equal(sl_serve_admission_next_ns(admission), SL_CLOCK_NEVER);
    assert_int_equal(offer(fixture, 0, 10 * MS, MS, 0, 0), 0);
    assert_int_equal(offer(fixture, 1, 30 * MS, MS, 0, 0), 0);
    assert_int_equal(offer(fixture, 2, 20 * MS, MS, 0, 0), 0);
    sl_serve_admission_run(admission, &requests[0]);
    assert_int_equal(sl_serve_admission_next_ns(admission), 20 * MS);
    assert_null(sl_serve_admission_due(admission, 20 * MS - 1));
    assert_ptr_equal(sl_serve_admission_due(admission, 20 * MS), &requests[2]);
    sl_serve_admission_end(admission, &requests[2]);
    assert_int_equal(sl_serve_admission_next_ns(admission), 30 * MS);
    sl_serve_admission_end(admission, &requests[1]);
    assert_null(sl_serve_admission_due(admission, 10 * MS + SL_SERVE_GRACE_NS - 1));
    assert_ptr_equal(sl_serve_admission_due(admission, 10 * MS + SL_SERVE_GRACE_NS), &requests[0]);
    sl_serve_admission_wait_again(admission, &requests[0]);
    assert_ptr_equal(sl_serve_admission_due(admission, 10 * MS), &requests[0]);
    sl_serve_admission_end(admission, &requests[0]);
}

/* A gateway in invented time: balancer and admission with workers that come, go, and take longer or
 * shorter than they say. */

#define RUN_WORKERS  6
#define RUN_REQUESTS 3000
#define RUN_STEPS    20000

struct running {
    struct sl_serve_request request;
    struct sl_serve_use use;
    uint64_t ends_ns; /* at its worker */
    bool is_accepted, is_running, has_ended;
};

struct run {
    uint64_t random, now_ns, answered, late, refused;
    struct sl_serve_balance balance;
    struct sl_serve_admission admission;
    struct sl_serve_balance_worker workers[RUN_WORKERS];
    struct running requests[RUN_REQUESTS];
    uint32_t first, count; /* before the first, all have ended */
};

static uint64_t draw(struct run *run, uint64_t below)
{
    return sl_hash_random(&run->random) % below;
}

static void run_end(struct run *run, struct running *each)
{
    assert_true(each->is_accepted);
    assert_false(each->has_ended);
    assert_true(run->now_ns <= each->request.deadline_ns + SL_SERVE_GRACE_NS + MS);
    each->has_ended = true;
    if (each->is_running) {
        sl_serve_balance_end(&each->use);
        each->is_running = false;
    } else {
        each->request.state->waiting--;
    }
    sl_serve_admission_end(&run->admission, &each->request);
}

static void run_join_or_leave(struct run *run)
{
    struct sl_serve_balance_worker *worker = &run->workers[draw(run, RUN_WORKERS)];
    if (!sl_list_linked(&worker->link)) {
        memset(worker, 0, sizeof *worker);
        worker->batch_max = 1 + (uint32_t)draw(run, 16);
        worker->host[0] = (char)('a' + draw(run, 3));
        assert_int_equal(sl_serve_balance_join(&run->balance, worker), 0);
        return;
    }
    SL_LIST_FOREACH (link, &worker->uses) { /* it is lost: others take over */
        struct running *each =
            SL_CONTAINER_OF(SL_CONTAINER_OF(link, struct sl_serve_use, link), struct running, use);
        sl_serve_balance_end(&each->use);
        each->is_running = false;
        each->request.state->waiting++;
        sl_serve_admission_wait_again(&run->admission, &each->request);
    }
    sl_serve_balance_leave(&run->balance, worker);
}

static void run_arrive(struct run *run)
{
    uint64_t expected_ns = 0;
    struct running *each = &run->requests[run->count++];
    struct sl_serve_request *request = &each->request;
    request->state =
        sl_serve_balance_model(&run->balance, (const char[]){(char)('a' + draw(run, 20)), '\0'});
    request->arrived_ns = run->now_ns;
    request->deadline_ns = run->now_ns + draw(run, 200) * MS;
    const bool is_known = sl_serve_balance_expect(&run->balance, request->state, 1, run->now_ns,
                                                  &expected_ns, &request->cost_ns);
    each->is_accepted =
        sl_serve_admission_offer(&run->admission, request, expected_ns,
                                 is_known ? run->balance.worker_count : 0, run->now_ns) == 0;
    run->refused += each->is_accepted ? 0 : 1;
    request->state->waiting += each->is_accepted ? 1 : 0;
}

static void run_dispatch(struct run *run)
{
    struct sl_serve_request *request;
    while ((request = sl_serve_admission_first(&run->admission)) != NULL) {
        struct running *each = SL_CONTAINER_OF(request, struct running, request);
        each->use = (struct sl_serve_use){.model = request->state};
        each->use.worker = sl_serve_balance_choose(&run->balance, request->state, 1, run->now_ns,
                                                   &each->use.cost_ns);
        if (each->use.worker == NULL) {
            return;
        }
        each->is_running = true;
        each->ends_ns = run->now_ns + draw(run, 40) * MS;
        each->use.is_received = draw(run, 2) == 0;
        request->state->waiting--;
        sl_serve_admission_run(&run->admission, request);
        sl_serve_balance_begin(&run->balance, &each->use);
        assert_true(each->use.worker->use_count <= each->use.worker->slots);
    }
}

static void run_report(struct run *run)
{
    struct sl_serve_message load = {.kind = SL_SERVE_MESSAGE_LOAD, .load_count = 1};
    struct sl_serve_balance_worker *worker = &run->workers[draw(run, RUN_WORKERS)];
    load.queue_ns = draw(run, 100) * MS;
    load.queue_count = (uint32_t)draw(run, 10);
    load.loads[0] = (struct sl_serve_load){.model = {(char)('a' + draw(run, 20))},
                                           .version = 1,
                                           .bytes = 1000,
                                           .resident_bytes = draw(run, 1001),
                                           .batch_ns = draw(run, 20) * MS,
                                           .row_ns = draw(run, 2) * MS,
                                           .exposed_ns = draw(run, 50) * MS};
    if (sl_list_linked(&worker->link)) {
        sl_serve_balance_report(&run->balance, worker, &load, run->now_ns);
    }
}

static void run_step(struct run *run)
{
    struct sl_serve_request *request;
    run->now_ns += draw(run, MS);
    while (run->first < run->count &&
           (run->requests[run->first].has_ended || !run->requests[run->first].is_accepted)) {
        run->first++;
    }
    for (uint32_t i = run->first; i < run->count; i++) {
        struct running *each = &run->requests[i];
        if (each->is_running && each->ends_ns <= run->now_ns) {
            run_end(run, each);
            run->answered++;
        }
    }
    while ((request = sl_serve_admission_due(&run->admission, run->now_ns)) != NULL) {
        run_end(run, SL_CONTAINER_OF(request, struct running, request));
        run->late++;
    }
    assert_true(sl_serve_admission_next_ns(&run->admission) > run->now_ns);
    const uint64_t what = draw(run, 100);
    if (what < 2) {
        run_join_or_leave(run);
    } else if (what < 40 && run->count < RUN_REQUESTS) {
        run_arrive(run);
    } else if (what < 60) {
        run_report(run);
    }
    run_dispatch(run);
    assert_true(run->admission.waiting_count <= SL_SERVE_WAITING_MAX);
}

static void run_seed(uint64_t seed, enum sl_serve_strategy strategy)
{
    struct run *run = calloc(1, sizeof *run);
    assert_non_null(run);
    run->random = seed;
    run->now_ns = 1;
    sl_serve_balance_init(&run->balance, strategy);
    sl_serve_admission_init(&run->admission);
    for (uint32_t i = 0; i < RUN_STEPS; i++) {
        run_step(run);
    }
    run->now_ns += 1000 * MS;
    for (uint32_t i = 0; i < run->count; i++) {
        assert_true(run->requests[i].has_ended || !run->requests[i].is_accepted);
    }
    assert_int_equal(run->answered + run->late + run->refused, run->count);
    assert_true(run->answered > 0 && run->late > 0 && run->refused > 0);
    assert_int_equal(run->admission.waiting_ns, 0);
    assert_int_equal(run->admission.waiting_count + run->admission.running_count, 0);
    for (uint32_t i = 0; i < RUN_WORKERS; i++) {
        if (sl_list_linked(&run->workers[i].link)) {
            assert_int_equal(run->workers[i].uses_ns, 0);
            sl_serve_balance_leave(&run->balance, &run->workers[i]);
        }
    }
    sl_serve_balance_fini(&run->balance);
    free(run);
}

SL_CASE(admission__each_accepted_request_ends_once_in_time)
{
    for (uint64_t seed = 1; seed <= 10; seed++) {
        print_message("seed %d\n", (int)seed);
        run_seed(seed, SL_SERVE_BASIC);
        run_seed(seed, SL_SERVE_COST);
    }
}
