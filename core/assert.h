/* Assertions for a programmer's mistakes, in release builds too. What a peer, a file or a user
 * sends is an error (core/err.h), never an assertion. Any thread; never returns when it fails. */
#ifndef SL_CORE_ASSERT_H
#define SL_CORE_ASSERT_H

/* Prints the condition and its place to stderr, then aborts. */
_Noreturn void sl_assert_fail(const char *condition, const char *file, int line);

#define sl_assert(condition)                                                                       \
    (__builtin_expect(!(condition), 0) ? sl_assert_fail(#condition, __FILE__, __LINE__) : (void)0)

/* For checks that cost more than a compare: on in builds that define SL_ASSERT_SLOW (the sanitizer
 * presets). */
#ifdef SL_ASSERT_SLOW
#define sl_assert_slow(condition) sl_assert(condition)
#else
#define sl_assert_slow(condition) ((void)(0 && (condition)))
#endif

#endif
