#include "programs/serve/engine/blas.h"

void sl_blas_choose_kernels(void)
{
}
