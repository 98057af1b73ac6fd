/* OpenBLAS knows processors by their model numbers. For one that is newer than the library it takes
 * its oldest kernels, of 2004, with a fifth of the speed. */
#include <cblas.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "programs/serve/engine/blas.h"

/* Exported by OpenBLAS if it is built for several processors. */
void gotoblas_dynamic_init(void) __attribute__((weak));
void gotoblas_dynamic_quit(void) __attribute__((weak));

void sl_blas_choose_kernels(void)
{
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const char *kernels = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")
                              ? "SkylakeX"
                              : "Haswell";
    if (has_avx2 && strcmp(openblas_get_corename(), "Prescott") == 0 &&
        gotoblas_dynamic_init != NULL && gotoblas_dynamic_quit != NULL &&
        setenv("OPENBLAS_CORETYPE", kernels, 0) == 0) { /* a user's choice stays */
        gotoblas_dynamic_quit();
        gotoblas_dynamic_init();
    }
}
