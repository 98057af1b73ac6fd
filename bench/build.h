/* How this program was built. */
#ifndef SL_BENCH_BUILD_H
#define SL_BENCH_BUILD_H

/* "starling 0.1.0, gcc 12.2.0, RelWithDebInfo"; static storage. */
static inline const char *sl_bench_build(void)
{
#ifdef __clang__
    return "starling " STARLING_VERSION ", " __VERSION__ ", " STARLING_BUILD_TYPE;
#else
    return "starling " STARLING_VERSION ", gcc " __VERSION__ ", " STARLING_BUILD_TYPE;
#endif
}

#endif
