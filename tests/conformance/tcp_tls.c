#include "tcp_tls.h"

#include "authority.h"
#include "core/log.h"
#include "secure_raw.h"

int tcp_tls_run(const char *name, const char *endpoint, bool polling)
{
    if (!tcp_can_listen(endpoint)) {
        return SKIPPED;
    }
    sl_log_setup(SL_LOG_ERROR, name);
    authority_make();
    struct conformance_target target = {
        .name = name,
        .ops = sl_builtin_find(SL_ENDPOINT_TCP),
        .endpoint = endpoint,
        .polling = polling,
        .tls = authority_files(AUTHORITY_NODE),
        .connect_raw = secure_raw_connect,
    };
    int failed = conformance_run(&target);
    secure_raw_join();
    return failed == 0 ? 0 : 1;
}
