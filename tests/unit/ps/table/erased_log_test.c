/* The log of erased keys: what it keeps, and what it forgets. */
#include "ps/table/erased_log.h"
#include "tests/support/unit.h"

static void add_keys(struct sl_erased_log *log, struct sl_table_budget *budget, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        sl_erased_log_add(log, budget, log->end * 3);
    }
}

static void check_keys(const struct sl_erased_log *log)
{
    for (uint64_t at = log->first; at < log->end; at++) {
        assert_true(sl_erased_log_key(log, at) == at * 3);
    }
}

SL_CASE(erased_log__keeps_nothing_unless_wanted)
{
    struct sl_table_budget budget = {0};
    struct sl_erased_log log = {0};
    add_keys(&log, &budget, 5000);
    assert_int_equal(log.first, 5000);
    assert_int_equal(log.end, 5000);
    assert_int_equal(budget.bytes, 0);
    log.keeps = true;
    add_keys(&log, &budget, 3000);
    assert_int_equal(log.first, 5000);
    check_keys(&log);
    sl_erased_log_forget(&log, 6000);
    sl_erased_log_forget(&log, 5500);
    assert_int_equal(log.first, 6000);
    add_keys(&log, &budget, 3000);
    check_keys(&log);
    sl_erased_log_fini(&log, &budget);
    assert_int_equal(budget.bytes, 0);
}

SL_CASE(erased_log__forgets_the_oldest)
{
    struct sl_table_budget budget = {0};
    struct sl_erased_log log = {.keeps = true};
    add_keys(&log, &budget, SL_ERASED_LOG_KEYS);
    assert_int_equal(log.first, 0);
    add_keys(&log, &budget, 7);
    assert_int_equal(log.first, 7);
    check_keys(&log);
    sl_erased_log_fini(&log, &budget);
    assert_int_equal(budget.bytes, 0);
}

SL_CASE(erased_log__without_memory)
{
    struct sl_table_budget none = {.bytes_max = 8};
    struct sl_erased_log log = {.keeps = true};
    add_keys(&log, &none, 10);
    assert_int_equal(log.first, 10);
    sl_erased_log_fini(&log, &none);
    struct sl_table_budget little = {.bytes_max = 10000};
    log.keeps = true;
    add_keys(&log, &little, 2000);
    assert_int_equal(log.end - log.first, 1024);
    check_keys(&log);
    sl_erased_log_fini(&log, &little);
    assert_int_equal(little.bytes, 0);
}
