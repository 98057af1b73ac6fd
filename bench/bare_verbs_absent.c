/* Built without the headers of rdma-core. */
#include "bench/bare_verbs.h"
#include "core/err.h"
#include "core/log.h"

int sl_bench_bare_verbs_run(const struct sl_bench_bare_verbs *verbs,
                            const struct sl_bench_common *common, double *pushes_per_s)
{
    (void)verbs;
    (void)common;
    (void)pushes_per_s;
    sl_log_error("verbs: this program was built without RDMA");
    return SL_ERR_UNSUPPORTED;
}
