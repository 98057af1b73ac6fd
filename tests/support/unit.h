/* Unit tests: a case is a function that registers itself, and CMocka's assertions are at hand.
 *
 *     SL_CASE(hash_key__is_invertible)
 *     {
 *         assert_int_equal(...);
 *     }
 *
 * unit_main.c.in runs the cases of one file in their order. */
#ifndef SL_TESTS_SUPPORT_UNIT_H
#define SL_TESTS_SUPPORT_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct sl_unit_case {
    const char *file;
    int line;
    struct CMUnitTest test; /* no name: runs once before the file's cases */
};

#define SL_UNIT_ADD(function, ...)                                                                 \
    static void function(void **state);                                                            \
    static const struct sl_unit_case function##_case = {__FILE__, __LINE__, __VA_ARGS__};          \
    static const struct sl_unit_case *const function##_entry                                       \
        __attribute__((used, section("sl_unit_cases"))) = &function##_case;                        \
    static void function(__attribute__((unused)) void **state)

#define SL_CASE(name)                       SL_UNIT_ADD(name, {#name, name, NULL, NULL, NULL})

/* With functions that run before and after the case, as CMocka's; either may be NULL. */
#define SL_CASE_WITH(name, setup, teardown) SL_UNIT_ADD(name, {#name, name, setup, teardown, NULL})

/* Runs before all cases of the file. */
#define SL_UNIT_SETUP()                     SL_UNIT_ADD(set_up_the_file, {NULL, set_up_the_file, NULL, NULL, NULL})

#endif
