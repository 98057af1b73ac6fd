#include "programs/serve/gateway/balance.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/unit.h"

#define MS 1000000ULL

struct fixture {
    struct sl_serve_balance balance;
    struct sl_serve_balance_worker workers[8];
    struct sl_serve_use uses[16];
    struct sl_serve_model *a, *b;
    uint64_t cost_ns;
};

static void set_up(struct fixture *f, enum sl_serve_strategy strategy)
{
    memset(f, 0, sizeof *f);
    sl_serve_balance_init(&f->balance, strategy);
    f->a = sl_serve_balance_model(&f->balance, "a");
    f->b = sl_serve_balance_model(&f->balance, "b");
}

/* Worker i of the host. */
static struct sl_serve_balance_worker *add(struct fixture *f, uint32_t i, const char *host)
{
    struct sl_serve_balance_worker *worker = &f->workers[i];
    (void)snprintf(worker->name, sizeof worker->name, "w%u", i);
    (void)snprintf(worker->host, sizeof worker->host, "%s", host);
    worker->batch_max = 8;
    assert_int_equal(sl_serve_balance_join(&f->balance, worker), 0);
    return worker;
}

static void tear_down(struct fixture *f)
{
    for (uint32_t i = 0; i < 16; i++) {
        if (sl_list_linked(&f->uses[i].link)) {
            sl_serve_balance_end(&f->uses[i]);
        }
    }
    for (uint32_t i = 0; i < 8; i++) {
        if (sl_list_linked(&f->workers[i].link)) {
            sl_serve_balance_leave(&f->balance, &f->workers[i]);
        }
    }
    sl_serve_balance_fini(&f->balance);
}

#define BASIC_CASE(name) SL_CASE_USING(name, struct fixture, f, set_up, tear_down, SL_SERVE_BASIC)
#define COST_CASE(name)  SL_CASE_USING(name, struct fixture, f, set_up, tear_down, SL_SERVE_COST)

static void report(struct fixture *f, struct sl_serve_balance_worker *worker, const char *model,
                   const struct sl_serve_load *costs, uint64_t queue_ns, uint32_t queue_count,
                   uint64_t now_ns)
{
    struct sl_serve_message load = {.kind = SL_SERVE_MESSAGE_LOAD,
                                    .queue_ns = queue_ns,
                                    .queue_count = queue_count,
                                    .load_count = model != NULL ? 1 : 0};
    if (model != NULL) {
        load.loads[0] = *costs;
        load.loads[0].version = costs->version != 0 ? costs->version : 1;
        (void)snprintf(load.loads[0].model, sizeof load.loads[0].model, "%s", model);
    }
    sl_serve_balance_report(&f->balance, worker, &load, now_ns);
}

static void begin(struct fixture *f, uint32_t use, struct sl_serve_balance_worker *worker,
                  const struct sl_serve_model *model, uint64_t cost_ns)
{
    f->uses[use] = (struct sl_serve_use){
        .worker = worker, .model = model, .cost_ns = cost_ns, .is_received = true};
    sl_serve_balance_begin(&f->balance, &f->uses[use]);
}

static struct sl_serve_balance_worker *choose(struct fixture *f, const struct sl_serve_model *model,
                                              uint64_t now_ns)
{
    return sl_serve_balance_choose(&f->balance, model, 1, now_ns, &f->cost_ns);
}

static const struct sl_serve_load HELD = {.bytes = 1000, .resident_bytes = 1000};

BASIC_CASE(balance_choose__basic_is_the_rule_of_pipeps)
{
    assert_null(choose(f, f->a, 0));
    struct sl_serve_balance_worker *other = add(f, 0, "other"), *holder = add(f, 1, "holder");
    report(f, holder, "a", &HELD, 0, 0, 0);
    /* 1. An idle holder. */
    assert_ptr_equal(choose(f, f->a, 0), holder);
    /* 2. Any idle worker, before a busy holder. */
    begin(f, 0, holder, f->b, 1);
    assert_ptr_equal(choose(f, f->a, 0), other);
    /* 3. A holder with fewer than 2 requests, before less loaded workers. */
    begin(f, 1, other, f->b, 1);
    assert_ptr_equal(choose(f, f->a, 0), holder);
    /* 4. The least loaded with fewer than 4. */
    begin(f, 2, holder, f->b, 1);
    assert_ptr_equal(choose(f, f->a, 0), other);
    begin(f, 3, other, f->b, 1);
    begin(f, 4, other, f->b, 1);
    assert_ptr_equal(choose(f, f->a, 0), holder);
    begin(f, 5, holder, f->b, 1);
    begin(f, 6, holder, f->b, 1);
    assert_ptr_equal(choose(f, f->a, 0), other);
    begin(f, 7, other, f->b, 1);
    /* 5. Else none. */
    assert_null(choose(f, f->a, 0));
    sl_serve_balance_end(&f->uses[4]);
    assert_ptr_equal(choose(f, f->a, 0), other);
}

BASIC_CASE(balance_choose__basic_counts_requests_of_other_gateways)
{
    struct sl_serve_balance_worker *one = add(f, 0, "one"), *two = add(f, 1, "two");
    report(f, one, NULL, NULL, 0, 3, 0);
    assert_ptr_equal(choose(f, f->a, 0), two);
    report(f, two, NULL, NULL, 0, 4, 0);
    assert_ptr_equal(choose(f, f->a, 0), one);
    report(f, one, NULL, NULL, 0, 4, 0);
    assert_null(choose(f, f->a, 0));
}

BASIC_CASE(balance_choose__basic_follows_a_model_that_is_being_loaded)
{
    struct sl_serve_balance_worker *one = add(f, 0, "one"), *two = add(f, 1, "two");
    begin(f, 0, one, f->a, 1);
    begin(f, 1, two, f->b, 1);
    assert_ptr_equal(choose(f, f->a, 0), one);
    assert_ptr_equal(choose(f, f->b, 0), two);
}

BASIC_CASE(balance_choose__leaves_out_workers_that_are_full_or_leaving)
{
    struct sl_serve_balance_worker *one = add(f, 0, "one"), *two = add(f, 1, "two");
    one->is_full = true;
    assert_ptr_equal(choose(f, f->a, 0), two);
    two->is_leaving = true;
    assert_null(choose(f, f->a, 0));
    one->is_full = false;
    assert_ptr_equal(choose(f, f->a, 0), one);
}

COST_CASE(balance_choose__cost_is_queue_and_exposed_load_and_compute)
{
    struct sl_serve_balance_worker *cold = add(f, 0, "cold"), *warm = add(f, 1, "warm");
    struct sl_serve_load costs = {.bytes = 1000, .batch_ns = 2 * MS, .row_ns = MS};
    costs.exposed_ns = 10 * MS;
    report(f, cold, "a", &costs, 0, 0, 0);
    costs.exposed_ns = 0;
    report(f, warm, "a", &costs, 0, 0, 0);
    assert_ptr_equal(choose(f, f->a, 0), warm);
    assert_int_equal(f->cost_ns, 3 * MS);
    /* 9 ms of queue are less than 10 ms of load, 11 are more. */
    begin(f, 0, warm, f->b, 9 * MS);
    assert_ptr_equal(choose(f, f->a, 0), warm);
    begin(f, 1, warm, f->b, 2 * MS);
    assert_ptr_equal(choose(f, f->a, 0), cold);
    assert_int_equal(f->cost_ns, 13 * MS);
    /* Once one is there, others join its batch: 1 ms and an eighth of 2 ms. */
    begin(f, 2, cold, f->a, 13 * MS);
    assert_ptr_equal(choose(f, f->a, 0), warm);
    sl_serve_balance_end(&f->uses[0]);
    sl_serve_balance_end(&f->uses[1]);
    warm->is_full = true;
    assert_ptr_equal(choose(f, f->a, 0), cold);
    assert_int_equal(f->cost_ns, MS + MS / 4);
}

COST_CASE(balance_choose__cost_of_an_unknown_host_is_the_transfer_beyond_compute)
{
    struct sl_serve_balance_worker *known = add(f, 0, "known");
    /* 1 ms and 10,000,000 bytes with 1 ns each: 11 ms. */
    const struct sl_serve_load costs = {.bytes = 10000000,
                                        .resident_bytes = 10000000,
                                        .alpha_ns = MS,
                                        .beta_ps = 1000,
                                        .batch_ns = 4 * MS};
    report(f, known, "a", &costs, 0, 0, 0);
    assert_ptr_equal(choose(f, f->a, 0), known);
    assert_int_equal(f->cost_ns, 4 * MS);
    known->is_full = true;
    add(f, 1, "unknown");
    assert_ptr_equal(choose(f, f->a, 0), &f->workers[1]);
    assert_int_equal(f->cost_ns, 11 * MS);
    /* What nobody knows has some cost, so that such requests spread. */
    assert_non_null(choose(f, f->b, 0));
    assert_true(f->cost_ns > 0);
}

static void expect_others_if_silent(struct fixture *f)
{
    struct sl_serve_balance_worker *one = add(f, 0, "one"), *two = add(f, 1, "two");
    begin(f, 0, one, f->b, 1);
    begin(f, 1, two, f->b, 2);
    begin(f, 2, two, f->b, 2);
    f->uses[0].is_received = false;
    assert_ptr_equal(choose(f, f->a, 200 * MS), one);
    assert_ptr_equal(choose(f, f->a, 201 * MS), two);
    two->is_full = true;
    assert_ptr_equal(choose(f, f->a, 201 * MS), one);
    two->is_full = false;
    f->uses[0].is_received = true;
    assert_ptr_equal(choose(f, f->a, 201 * MS), one);
}

BASIC_CASE(balance_choose__basic_prefers_workers_that_confirm)
{
    expect_others_if_silent(f);
}

COST_CASE(balance_choose__cost_prefers_workers_that_confirm)
{
    expect_others_if_silent(f);
}

COST_CASE(balance_able__has_no_worker_whose_answers_are_overdue)
{
    struct sl_serve_balance_worker *one = add(f, 0, "one"), *two = add(f, 1, "two");
    assert_int_equal(sl_serve_balance_able(&f->balance, 0), 2);
    begin(f, 0, one, f->a, 1);
    begin(f, 1, two, f->b, 1);
    f->uses[0].due_ns = 100 * MS;
    f->uses[1].due_ns = 5000 * MS;
    assert_int_equal(sl_serve_balance_able(&f->balance, 1100 * MS), 2);
    assert_int_equal(sl_serve_balance_able(&f->balance, 1101 * MS), 1);
    assert_ptr_equal(choose(f, f->a, 1101 * MS), two);
    sl_serve_balance_end(&f->uses[0]);
    assert_int_equal(sl_serve_balance_able(&f->balance, 1101 * MS), 2);
    one->is_leaving = true;
    f->uses[1].is_received = false; /* it has been on its way for too long */
    assert_int_equal(sl_serve_balance_able(&f->balance, 1101 * MS), 0);
}

COST_CASE(balance_report__corrects_the_queue)
{
    struct sl_serve_balance_worker *worker = add(f, 0, "one");
    begin(f, 0, worker, f->a, 5 * MS);
    begin(f, 1, worker, f->a, 3 * MS);
    f->uses[1].is_received = false; /* after the report */
    assert_int_equal(sl_serve_balance_queue_ns(worker, 0), 8 * MS);
    /* Other gateways have sent 4 ms more, which proceed. */
    report(f, worker, NULL, NULL, 9 * MS, 2, 100 * MS);
    assert_int_equal(sl_serve_balance_queue_ns(worker, 100 * MS), 12 * MS);
    assert_int_equal(sl_serve_balance_queue_ns(worker, 103 * MS), 9 * MS);
    assert_int_equal(sl_serve_balance_queue_ns(worker, 200 * MS), 8 * MS);
    assert_int_equal(worker->other_count, 1);
    /* A request is nearly done; with its end the correction ends. */
    report(f, worker, NULL, NULL, MS, 1, 200 * MS);
    assert_int_equal(sl_serve_balance_queue_ns(worker, 200 * MS), 4 * MS);
    sl_serve_balance_end(&f->uses[0]);
    assert_int_equal(sl_serve_balance_queue_ns(worker, 200 * MS), 3 * MS);
    sl_serve_balance_end(&f->uses[1]);
    assert_int_equal(sl_serve_balance_queue_ns(worker, 200 * MS), 0);
}

COST_CASE(balance_report__keeps_the_newest_version_and_takes_any_number)
{
    struct sl_serve_balance_worker *worker = add(f, 0, "one");
    struct sl_serve_load costs = {.version = 5, .batch_ns = 7 * MS};
    report(f, worker, "a", &costs, 0, 0, 0);
    costs = (struct sl_serve_load){.version = 4, .batch_ns = MS};
    report(f, worker, "a", &costs, 0, 0, 0);
    assert_non_null(choose(f, f->a, 0));
    assert_int_equal(f->cost_ns, 7 * MS);
    memset(&costs, 0x7f, sizeof costs);
    report(f, worker, "b", &costs, INT64_MAX, UINT32_MAX, 0);
    assert_non_null(choose(f, f->b, 0));
    assert_true(f->cost_ns < UINT64_MAX / 1000);
    begin(f, 0, worker, f->b, f->cost_ns);
    report(f, worker, NULL, NULL, INT64_MAX, UINT32_MAX, 0);
    assert_true(sl_serve_balance_queue_ns(worker, 0) < UINT64_MAX / 1000);
}

COST_CASE(balance_join__a_label_is_forgotten_with_its_last_worker)
{
    const struct sl_serve_load costs = {.bytes = 1000, .batch_ns = 77 * MS};
    add(f, 0, "one");
    add(f, 1, "one");
    report(f, &f->workers[0], "a", &costs, 0, 0, 0);
    sl_serve_balance_leave(&f->balance, &f->workers[0]);
    assert_ptr_equal(choose(f, f->a, 0), &f->workers[1]);
    assert_int_equal(f->cost_ns, 77 * MS);
    sl_serve_balance_leave(&f->balance, &f->workers[1]);
    add(f, 2, "two");
    assert_ptr_equal(choose(f, f->a, 0), &f->workers[2]);
    assert_int_not_equal(f->cost_ns, 77 * MS);
}

COST_CASE(balance_join__is_limited)
{
    static struct sl_serve_balance_worker many[SL_SERVE_WORKERS_MAX + 1];
    struct sl_serve_balance *balance = &f->balance;
    uint32_t count;
    memset(many, 0, sizeof many);
    for (count = 0; count < SL_SERVE_WORKERS_MAX + 1; count++) {
        many[count].batch_max = 1;
        (void)snprintf(many[count].host, sizeof many[count].host, "h%u",
                       count % SL_SERVE_HOSTS_MAX);
        if (sl_serve_balance_join(balance, &many[count]) != 0) {
            break;
        }
    }
    assert_int_equal(count, SL_SERVE_WORKERS_MAX);
    sl_serve_balance_leave(balance, &many[--count]);
    (void)snprintf(many[count].host, sizeof many[count].host, "one more");
    assert_int_equal(sl_serve_balance_join(balance, &many[count]), SL_ERR_TOO_LARGE);
    while (count > 0) {
        sl_serve_balance_leave(balance, &many[--count]);
    }
}

COST_CASE(balance_expect__needs_a_worker_and_ignores_slots)
{
    uint64_t finish_ns, cost_ns;
    assert_false(sl_serve_balance_expect(&f->balance, f->a, 1, 0, &finish_ns, &cost_ns));
    struct sl_serve_balance_worker *worker = add(f, 0, "one");
    const struct sl_serve_load costs = {.bytes = 1000, .batch_ns = 8 * MS, .exposed_ns = 2 * MS};
    report(f, worker, "a", &costs, 0, 0, 0);
    begin(f, 0, worker, f->b, 5 * MS);
    worker->is_full = true;
    assert_true(sl_serve_balance_expect(&f->balance, f->a, 1, 0, &finish_ns, &cost_ns));
    assert_int_equal(finish_ns, 5 * MS); /* nobody tries the model: its cost may be outdated */
    assert_int_equal(cost_ns, 10 * MS);
    /* Behind another request for the model that waits. */
    f->a->waiting = 1;
    assert_true(sl_serve_balance_expect(&f->balance, f->a, 1, 0, &finish_ns, &cost_ns));
    assert_int_equal(cost_ns, MS);
    assert_int_equal(finish_ns, 6 * MS);
    f->a->waiting = 0;
    /* Behind one at a worker. */
    begin(f, 1, worker, f->a, 10 * MS);
    assert_true(sl_serve_balance_expect(&f->balance, f->a, 1, 0, &finish_ns, &cost_ns));
    assert_int_equal(finish_ns, 16 * MS);
    worker->is_leaving = true;
    assert_false(sl_serve_balance_expect(&f->balance, f->a, 1, 0, &finish_ns, &cost_ns));
}
