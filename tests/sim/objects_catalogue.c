#include "tests/sim/objects_catalogue.h"

#include <inttypes.h>

#include "objects/catalogue_state.h"

/* The walk from a copy towards the origin ends after as many steps as there are copies. */
static bool is_in_cycle(const struct sl_catalogue_part *part, const struct sl_catalogue_copy *copy,
                        uint32_t stripe)
{
    uint32_t steps = 0;
    while (copy != NULL && steps <= part->copies.count) {
        copy = sl_catalogue_find(&part->copies, NULL, copy->parents[stripe]);
        steps++;
    }
    return copy != NULL;
}

static void judge_plan(const struct sl_catalogue_part *part, struct sl_sim_objects_oracle *oracle)
{
    for (uint32_t i = 0; i < part->copies.count; i++) {
        const struct sl_catalogue_copy *copy = sl_catalogue_item(&part->copies, i);
        for (uint32_t s = 0; s < SL_OBJECTS_STRIPES; s++) {
            if (is_in_cycle(part, copy, s)) {
                sl_sim_fail(
                    &oracle->breach, "plan", "%s fetches stripe %u of %s@%" PRIu64 " in a cycle",
                    copy->node->address, s, part->version->object->name, part->version->key.number);
            }
        }
    }
}

void sl_sim_objects_catalogue_judge_plans(const struct sl_objects_catalogue *catalogue,
                                          struct sl_sim_objects_oracle *oracle)
{
    for (uint32_t i = 0; i < catalogue->objects.count; i++) {
        const struct sl_catalogue_object *object = sl_catalogue_item(&catalogue->objects, i);
        for (uint32_t v = 0; v < object->versions.count; v++) {
            const struct sl_catalogue_version *version = sl_catalogue_item(&object->versions, v);
            for (uint32_t p = 0; p < version->part_count; p++) {
                judge_plan(&version->parts[p], oracle);
            }
        }
    }
}

static void judge_version(const struct sl_catalogue_version *version,
                          struct sl_sim_objects_oracle *oracle)
{
    for (uint32_t i = 0; i < version->part_count; i++) {
        for (uint32_t k = 0; k < version->parts[i].copies.count; k++) {
            const struct sl_catalogue_copy *copy = sl_catalogue_item(&version->parts[i].copies, k);
            sl_sim_fail(&oracle->breach, "rest",
                        "the catalogue has part %u of %s@%" PRIu64 " at %s, %u blocks", i,
                        version->object->name, version->key.number, copy->node->address,
                        copy->blocks);
        }
    }
}

void sl_sim_objects_catalogue_judge_rest(const struct sl_objects_catalogue *catalogue,
                                         struct sl_sim_objects_oracle *oracle, uint32_t nodes)
{
    for (uint32_t i = 0; i < catalogue->objects.count; i++) {
        const struct sl_catalogue_object *object = sl_catalogue_item(&catalogue->objects, i);
        for (uint32_t k = 0; k < object->versions.count; k++) {
            judge_version(sl_catalogue_item(&object->versions, k), oracle);
        }
    }
    if (catalogue->nodes.count != nodes) {
        sl_sim_fail(&oracle->breach, "rest", "the catalogue has %u nodes of %u",
                    catalogue->nodes.count, nodes);
    }
}
