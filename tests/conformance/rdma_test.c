/* The suite over RDMA verbs, in the ways of the table. */
#include "rdma.h"

static const struct rdma_variant {
    const char *name;
    const char *address_variable; /* the environment variable with the address to listen at */
    bool polling;
    const char *cases; /* a pattern; NULL: all cases */
} variants[] = {
    {.name = "sleeping", .address_variable = "RDMA_IP"},
    {.name = "polling", .address_variable = "RDMA_IP", .polling = true},
    {.name = "v6", .address_variable = "RDMA_IP6", .cases = "target__*"},
};

int main(int argc, char **argv)
{
    const struct rdma_variant *variant = CONFORMANCE_VARIANT(argc, argv, variants);
    struct conformance_target target = {.polling = variant->polling};
    if (!rdma_target_init(&target, variant->name, variant->address_variable)) {
        return SKIPPED;
    }
    cmocka_set_test_filter(variant->cases);
    return conformance_run(&target) == 0 ? 0 : 1;
}
