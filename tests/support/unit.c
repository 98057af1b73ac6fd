#include "tests/support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CASES_MAX 1024

extern const struct sl_unit_case *const __start_sl_unit_cases[] __attribute__((weak));
extern const struct sl_unit_case *const __stop_sl_unit_cases[] __attribute__((weak));

static int compare_places(const void *a, const void *b)
{
    const struct sl_unit_case *x = *(const struct sl_unit_case *const *)a;
    const struct sl_unit_case *y = *(const struct sl_unit_case *const *)b;
    const int files = strcmp(x->file, y->file);
    return files != 0 ? files : x->line - y->line;
}

static size_t find_cases(const char *file, const struct sl_unit_case **cases)
{
    size_t count = 0;
    for (const struct sl_unit_case *const *at = __start_sl_unit_cases; at < __stop_sl_unit_cases;
         at++) {
        if (strstr((*at)->file, file) != NULL && count < CASES_MAX) {
            cases[count++] = *at;
        }
    }
    qsort(cases, count, sizeof cases[0], compare_places);
    return count;
}

int sl_unit_run(const char *name, const char *file)
{
    static const struct sl_unit_case *cases[CASES_MAX];
    static struct CMUnitTest tests[CASES_MAX];
    const size_t count = find_cases(file, cases);
    size_t test_count = 0;
    struct CMUnitTest group = {0};
    const char *(*next_way)(uint32_t) = NULL;
    for (size_t i = 0; i < count; i++) {
        const struct sl_unit_case *one = cases[i];
        if (one->test.name != NULL) {
            tests[test_count++] = one->test;
        } else if (one->next_way != NULL) {
            next_way = one->next_way;
        } else if (one->test.test_func != NULL) {
            one->test.test_func(NULL);
        } else {
            group = one->test;
        }
    }
    if (test_count == 0) {
        fprintf(stderr, "%s: has no cases\n", file);
        return 1;
    }
    if (getenv("UNIT_CASE") != NULL) {
        cmocka_set_test_filter(getenv("UNIT_CASE"));
    }
    int failed = 0;
    const char *way = next_way != NULL ? next_way(0) : name;
    for (uint32_t n = 1; way != NULL; n++) {
        failed +=
            _cmocka_run_group_tests(way, tests, test_count, group.setup_func, group.teardown_func);
        way = next_way != NULL ? next_way(n) : NULL;
    }
    return failed;
}
