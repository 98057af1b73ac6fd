#include "core/rlimit.h"

#include <sys/resource.h>

void sl_rlimit_raise(int resource)
{
    struct rlimit limit;
    if (getrlimit((__rlimit_resource_t)resource, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit((__rlimit_resource_t)resource, &limit);
    }
}
