#include "tests/sim/objects_catalogue.h"

#include <inttypes.h>
#include <string.h>

#include "objects/catalogue/catalogue_state.h"
#include "tests/sim/objects_actions.h"
#include "tests/sim/objects_old.h"

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

/* NULL: the catalogue does not know the name. */
static const struct sl_catalogue_object *find_object(const struct sl_objects_catalogue *catalogue,
                                                     uint32_t name)
{
    char text[16];
    sl_sim_objects_name(name, text);
    return sl_catalogue_find(&catalogue->objects, text, 0);
}

/* The versions that this catalogue had before. One whose last copy is gone has no tombstone. */
static void judge_left(const struct sl_objects_catalogue *catalogue,
                       struct sl_sim_objects_oracle *oracle)
{
    for (uint32_t i = 0; i < oracle->known_count; i++) {
        const struct sl_sim_objects_known *known = &oracle->known[i];
        const struct sl_catalogue_object *object = find_object(catalogue, known->name);
        uint32_t newer = 0;
        bool is_there = false;
        for (uint32_t v = 0; object != NULL && v < object->versions.count; v++) {
            const struct sl_catalogue_version *version = sl_catalogue_item(&object->versions, v);
            newer += version->time_ms != 0 && version->origin != SL_ORIGIN_CALLER &&
                     version->key.number > known->version;
            is_there =
                is_there || (version->key.number == known->version &&
                             sl_hash_128_equal(version->parts[0].info.digest, known->digest));
        }
        char name[16];
        sl_sim_objects_name(known->name, name);
        if (!is_there && sl_objects_tombstones_has(
                             &catalogue->removed,
                             sl_objects_tombstone_of(name, known->version, 0, known->digest))) {
            sl_sim_objects_oracle_left(oracle, known, newer, catalogue->options.keep_versions);
        }
    }
}

void sl_sim_objects_catalogue_judge(const struct sl_objects_catalogue *catalogue,
                                    struct sl_sim_objects_oracle *oracle)
{
    judge_left(catalogue, oracle);
    oracle->known_count = 0;
    for (uint32_t name = 0; name <= oracle->plan->name_count; name++) {
        const struct sl_catalogue_object *object = find_object(catalogue, name);
        for (uint32_t v = 0; object != NULL && v < object->versions.count; v++) {
            const struct sl_catalogue_version *version = sl_catalogue_item(&object->versions, v);
            for (uint32_t p = 0; p < version->part_count; p++) {
                judge_plan(&version->parts[p], oracle);
            }
            if (version->time_ms != 0) {
                oracle->known[oracle->known_count++] =
                    (struct sl_sim_objects_known){.name = name,
                                                  .version = version->key.number,
                                                  .origin = version->origin,
                                                  .digest = version->parts[0].info.digest};
            }
        }
    }
}

static bool is_old(const struct sl_catalogue_object *object)
{
    return strncmp(object->name, SL_SIM_OLD_NAME, strlen(SL_SIM_OLD_NAME)) == 0;
}

void sl_sim_objects_catalogue_judge_old(const struct sl_objects_catalogue *catalogue,
                                        struct sl_sim_objects_oracle *oracle)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < catalogue->objects.count; i++) {
        const struct sl_catalogue_object *object = sl_catalogue_item(&catalogue->objects, i);
        count += is_old(object) ? object->versions.count : 0;
    }
    if (count != oracle->plan->old_count) {
        sl_sim_fail(&oracle->breach, "old", "the catalogue has %u of %u old versions", count,
                    oracle->plan->old_count);
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
        for (uint32_t k = 0; !is_old(object) && k < object->versions.count; k++) {
            judge_version(sl_catalogue_item(&object->versions, k), oracle);
        }
    }
    if (catalogue->nodes.count != nodes) {
        sl_sim_fail(&oracle->breach, "rest", "the catalogue has %u nodes of %u",
                    catalogue->nodes.count, nodes);
    }
}
