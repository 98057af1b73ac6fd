/* A transport with faults on purpose keeps the contract: what is late arrives once, in order. */
#include <stdio.h>

#include "conformance.h"
#include "core/log.h"

static int run(enum sl_endpoint_scheme scheme, const char *endpoint)
{
    static struct sl_faulty_transport faulty;
    static struct conformance_target target;
    const struct sl_faults late = {.seed = 1, .late = 100};
    char name[64];
    sl_faulty_transport_init(&faulty, sl_builtin_find(scheme), &late);
    (void)snprintf(name, sizeof name, "faulty %s", faulty.ops.scheme);
    target = (struct conformance_target){
        .name = name, .ops = &faulty.ops, .endpoint = endpoint, .faulty = &faulty};
    conformance_target = &target;
    int failed = sl_unit_run(name, "/cases_rma");
    faulty.faults = late; /* the last of those cases had their own */
    failed += sl_unit_run(name, "/cases_transfer");
    if (faulty.late_count == 0) {
        fprintf(stderr, "%s: nothing was late\n", name);
    }
    return failed + (faulty.late_count == 0 ? 1 : 0);
}

int main(void)
{
    static const char *const files[] = {&conformance_rma_cases, &conformance_transfer_cases};
    (void)*(const char *const volatile *)files;
    sl_log_setup(SL_LOG_OFF, "faulty"); /* connections that end are no news here */
    return run(SL_ENDPOINT_SHM, "shm://conformance-faulty:0") +
           run(SL_ENDPOINT_TCP, "tcp://127.0.0.1:0");
}
