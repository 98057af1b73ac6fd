/* The suite over shared memory, in the ways of the table. */
#include "conformance.h"
#include "core/log.h"

static const struct shm_variant {
    const char *name;
    bool polling;
} variants[] = {
    {.name = "sleeping"},
    {.name = "polling", .polling = true},
};

int main(int argc, char **argv)
{
    const struct shm_variant *variant = CONFORMANCE_VARIANT(argc, argv, variants);
    sl_log_setup(SL_LOG_OFF, variant->name); /* refused peers, which are logged, are expected */
    const struct conformance_target target = {
        .name = variant->name,
        .ops = sl_builtin_find(SL_ENDPOINT_SHM),
        .endpoint = "shm://conformance:0",
        .polling = variant->polling,
        .shakes_hands = true,
    };
    return conformance_run(&target) == 0 ? 0 : 1;
}
