/* Tests in C: a case is a function that registers itself, and CMocka's assertions are at hand.
 *
 *     SL_CASE(hash_key__is_invertible)
 *     {
 *         assert_int_equal(...);
 *     }
 *
 * A file's cases run in their order. UNIT_CASE in the environment, a pattern with *, chooses some.
 */
#ifndef SL_TESTS_SUPPORT_UNIT_H
#define SL_TESTS_SUPPORT_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

struct sl_unit_case {
    const char *file;
    int line;
    struct CMUnitTest test; /* no name: a function or a fixture for all cases of the file */
    const char *(*next_way)(uint32_t n);
};

#define SL_UNIT_ENTRY(name, ...)                                                                   \
    static const struct sl_unit_case name##_case = {                                               \
        .file = __FILE__, .line = __LINE__, __VA_ARGS__};                                          \
    static const struct sl_unit_case *const name##_entry                                           \
        __attribute__((used, section("sl_unit_cases"))) = &name##_case

#define SL_UNIT_ADD(function, ...)                                                                 \
    static void function(void **state);                                                            \
    SL_UNIT_ENTRY(function, .test = {__VA_ARGS__});                                                \
    static void function(void **state)

#define SL_CASE(name) SL_UNIT_ADD(name, #name, name, NULL, NULL, NULL)

/* With statements that run before and after the case; either may be empty. `after` runs also when
 * the case has failed. */
#define SL_CASE_WITH(name, before, after)                                                          \
    static int name##_before(void **state)                                                         \
    {                                                                                              \
        before;                                                                                    \
        return 0;                                                                                  \
    }                                                                                              \
    static int name##_after(void **state)                                                          \
    {                                                                                              \
        after;                                                                                     \
        return 0;                                                                                  \
    }                                                                                              \
    SL_UNIT_ADD(name, #name, name, name##_before, name##_after, NULL)

/* The case's parameter is a fixture of its own, `type *variable`: memory that was zeroed, between
 * set_up(variable, ...) and tear_down(variable). A file, or its fixture, may define
 *     #define CASE(name) SL_CASE_USING(name, struct world, world, set_up, tear_down) */
#define SL_CASE_USING(name, type, variable, set_up, tear_down, ...)                                \
    static void name##_with(type *variable);                                                       \
    SL_CASE(name)                                                                                  \
    {                                                                                              \
        static type *own; /* refers to the memory also after a failure */                          \
        own = calloc(1, sizeof *own);                                                              \
        assert_non_null(own);                                                                      \
        set_up(own, ##__VA_ARGS__);                                                                \
        name##_with(own);                                                                          \
        tear_down(own);                                                                            \
        free(own);                                                                                 \
    }                                                                                              \
    static void name##_with(type *variable)

/* A set_up or tear_down that has nothing to do. */
static inline void sl_unit_nothing(void *fixture)
{
}

/* Runs before all cases of the file. */
#define SL_UNIT_SETUP() SL_UNIT_ADD(set_up_the_file, NULL, set_up_the_file, NULL, NULL, NULL)

/* Functions, as CMocka's, that run once before and after all cases of the file. */
#define SL_UNIT_GROUP(setup, teardown)                                                             \
    SL_UNIT_ENTRY(group_of_the_file, .test = {NULL, NULL, setup, teardown, NULL})

/* The file's cases run once for each way: next(n) prepares the n-th, from 0 on, and returns its
 * name; NULL: that was all. */
#define SL_UNIT_WAYS(next) SL_UNIT_ENTRY(ways_of_the_file, .next_way = (next))

/* Runs the program's cases of the files whose path contains `file`; returns how many failed. */
int sl_unit_run(const char *name, const char *file);

#endif
