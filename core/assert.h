/* Assertions for programming errors, in release builds too. Bad input from a peer, a file or a user
 * is an error (core/err.h), never an assertion. Any thread; a failed assertion does not return. */
#ifndef SL_CORE_ASSERT_H
#define SL_CORE_ASSERT_H

/* Prints the condition and its source position to stderr, then aborts. */
_Noreturn void sl_assert_fail(const char *condition, const char *file, int line);

#define sl_assert(condition)                                                                       \
    (__builtin_expect(!(condition), 0) ? sl_assert_fail(#condition, __FILE__, __LINE__) : (void)0)

/* For expensive checks: enabled in builds that define SL_ASSERT_SLOW (the sanitizer presets). */
#ifdef SL_ASSERT_SLOW
#define sl_assert_slow(condition) sl_assert(condition)
#else
#define sl_assert_slow(condition) ((void)(0 && (condition)))
#endif

#endif
