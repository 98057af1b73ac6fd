#include "objects/catalogue/catalogue_plan.h"

#include <string.h>

#include "core/array.h"

/* NEWS */

void sl_catalogue_record_fill(const struct sl_catalogue_version *version,
                              struct sl_objects_message *out)
{
    out->commit.record_count = 1;
    out->commit.record = (struct sl_objects_record){
        .name = version->object->name,
        .note = sl_catalogue_version_note(version),
        .version = version->key.number,
        .epoch = version->epoch,
        .time_ms = version->time_ms,
        .origin = version->origin,
        .part_count = version->part_count,
    };
    for (uint32_t p = 0; p < version->part_count; p++) {
        out->commit.record.parts[p] = version->parts[p].info;
    }
}

/* Appends a node to the sources. Without memory there is one source less. */
static void add_source(struct sl_objects_catalogue *catalogue, uint32_t *count,
                       const struct sl_catalogue_copy *copy)
{
    if (sl_array_make_room(&catalogue->plan.sources, &catalogue->plan.source_capacity, *count,
                           sizeof *catalogue->plan.sources)) {
        catalogue->plan.sources[(*count)++] =
            (struct sl_objects_source){.node = copy->key.number, .location = copy->node->location};
    }
}

/* The origin counts as a source until two others are complete. */
static bool is_spared(const struct sl_catalogue_copy *copy)
{
    return sl_catalogue_copy_is_origin(copy) && copy->part->holder_count > 2;
}

/* Writes to `sources`, on pass 0 the holders but for a spared origin, on pass 1 all holders, on
 * pass 2 the fetchers that have blocks. */
static uint32_t collect_others(struct sl_objects_catalogue *catalogue,
                               const struct sl_catalogue_part *part, uint32_t pass)
{
    uint32_t count = 0;
    SL_LIST_EACH (const struct sl_catalogue_copy, copy, by_part,
                  pass < 2 ? &part->holders : &part->fetchers) {
        if (copy->blocks > 0 && copy->node->expires_ms != 0 && !(pass == 0 && is_spared(copy))) {
            add_source(catalogue, &count, copy);
        }
    }
    return count;
}

static struct sl_objects_peer catalogue_plan_peer_of(const struct sl_objects_catalogue *catalogue,
                                                     uint64_t id)
{
    const struct sl_catalogue_node *node = sl_catalogue_find(&catalogue->nodes, NULL, id);
    return node == NULL ? (struct sl_objects_peer){.address = ""}
                        : (struct sl_objects_peer){.node = id, .address = node->address};
}

/* Returns how many of them are complete: fetchers may fetch from the copy, and be no parents. */
static uint32_t fill_others(struct sl_objects_catalogue *catalogue, struct sl_catalogue_copy *copy,
                            const uint64_t *refused, uint32_t refused_count,
                            struct sl_objects_message *out)
{
    uint32_t chosen[SL_OBJECTS_OTHERS_MAX], found = 0, pass = 0;
    for (; pass < 3 && found == 0; pass++) {
        const uint32_t count = collect_others(catalogue, copy->part, pass);
        found = sl_objects_choose_others(catalogue->plan.sources, count, copy->turn,
                                         copy->node->location, refused, refused_count, chosen,
                                         SL_OBJECTS_OTHERS_MAX);
    }
    for (uint32_t i = 0; i < found; i++) {
        out->news.others[i] =
            catalogue_plan_peer_of(catalogue, catalogue->plan.sources[chosen[i]].node);
    }
    out->news.other_count = found;
    copy->turn += found;
    return pass < 3 ? found : 0;
}

void sl_catalogue_news_fill(struct sl_objects_catalogue *catalogue, struct sl_catalogue_copy *copy,
                            const uint64_t *bad, uint32_t bad_count, struct sl_objects_message *out)
{
    const struct sl_catalogue_version *version = copy->part->version;
    const uint64_t unix_ms = catalogue->options.unix_ms(catalogue->options.ctx);
    uint64_t refused[SL_OBJECTS_OTHERS_MAX + SL_OBJECTS_STRIPES + 1];
    uint32_t refused_count = 0;
    for (; refused_count < bad_count; refused_count++) {
        refused[refused_count] = bad[refused_count];
    }
    refused[refused_count++] = copy->key.number;
    for (uint32_t s = 0; s < SL_OBJECTS_STRIPES; s++) {
        out->news.parents[s] = catalogue_plan_peer_of(catalogue, copy->parents[s]);
        for (uint32_t b = 0; b < bad_count; b++) {
            if (bad[b] == copy->parents[s]) {
                out->news.parents[s].node = 0;
            }
        }
        refused[refused_count++] = copy->parents[s];
    }
    sl_catalogue_record_fill(version, out);
    out->part = sl_catalogue_part_index(copy->part);
    out->news.age_ms = unix_ms > version->time_ms ? unix_ms - version->time_ms : 0;
    const uint32_t complete = fill_others(catalogue, copy, refused, refused_count, out);
    for (uint32_t s = 0; s < SL_OBJECTS_STRIPES; s++) {
        if (out->news.parents[s].node == 0) {
            out->news.parents[s] =
                complete > 0 ? out->news.others[s % complete] : out->news.parents[1 - s];
        }
    }
    out->news.parent_count =
        out->news.parents[0].node != 0 && out->news.parents[1].node != 0 ? 2 : 0;
    copy->is_known = true;
}

/* Sends the next waiting NEWS of the node, unless one is unanswered. */
static void news_next(struct sl_objects_catalogue *catalogue, struct sl_catalogue_node *node)
{
    struct sl_catalogue_copy *copy =
        node->told_request != 0 ? NULL : SL_LIST_POP(struct sl_catalogue_copy, news, &node->news);
    if (copy == NULL) {
        return;
    }
    struct sl_objects_message message = {.kind = SL_OBJECTS_NEWS};
    sl_catalogue_news_fill(catalogue, copy, NULL, 0, &message);
    if (catalogue->put != NULL && catalogue->put_left > 0 && !copy->is_complete &&
        sl_hash_128_equal(copy->part->info.digest, catalogue->put->commit.record.parts[0].digest)) {
        message.commit.image = catalogue->put->commit.image;
        catalogue->put_left--;
    }
    catalogue->request += catalogue->request == UINT32_MAX ? 2 : 1;
    message.request = node->told_request = catalogue->request;
    node->told = copy;
    copy->heard = node->alives;
    copy->heard_ms = catalogue->now_ms;
    node->told_ms = catalogue->now_ms;
    sl_catalogue_send(catalogue, node->address, &message);
}

void sl_catalogue_news_taken(struct sl_objects_catalogue *catalogue, struct sl_catalogue_node *node,
                             uint32_t request)
{
    if (request != 0 && request == node->told_request) {
        node->told_request = 0;
        node->told = NULL;
        news_next(catalogue, node);
    }
}

/* Plan */

/* Returns the first node of the part that was seen on the host of this one; 0: this is it. */
static uint64_t first_on_host(struct sl_objects_catalogue *catalogue,
                              const struct sl_catalogue_node *node)
{
    const uint64_t known = catalogue->plan.hosts.count;
    uint64_t number;
    if (node->host == 0 || node->expires_ms == 0 ||
        !sl_array_make_room(&catalogue->plan.first_on_host, &catalogue->plan.host_capacity,
                            (uint32_t)known, sizeof *catalogue->plan.first_on_host) ||
        sl_key_index_add(&catalogue->plan.hosts, node->host, &number) != 0) {
        return 0;
    }
    if (number == known) {
        catalogue->plan.first_on_host[number] = node->key.number;
        return 0;
    }
    return catalogue->plan.first_on_host[number];
}

/* Writes the fetchers that have joined to `batch`. One with a source on its host is not among them:
 * it gets that source. */
static uint32_t collect_batch(struct sl_objects_catalogue *catalogue,
                              const struct sl_catalogue_part *part)
{
    uint32_t count = 0;
    sl_key_index_clear(&catalogue->plan.hosts);
    SL_LIST_EACH (struct sl_catalogue_copy, copy, by_part, &part->holders) {
        (void)first_on_host(catalogue, copy->node);
    }
    SL_LIST_EACH (struct sl_catalogue_copy, copy, by_part, &part->fetchers) {
        copy->stage = copy->node->expires_ms != 0 ? copy->stage : SL_CATALOGUE_PASSIVE;
        const uint64_t local =
            copy->stage != SL_CATALOGUE_PASSIVE ? first_on_host(catalogue, copy->node) : 0;
        if (copy->stage == SL_CATALOGUE_JOINED && local != 0) {
            copy->stage = SL_CATALOGUE_PLANNED;
            sl_catalogue_copy_set_parents(copy, local, local, true);
        } else if (copy->stage == SL_CATALOGUE_JOINED &&
                   sl_array_make_room(&catalogue->plan.batch, &catalogue->plan.batch_capacity,
                                      count, sizeof *catalogue->plan.batch)) {
            catalogue->plan.batch[count++] = (struct sl_catalogue_planned){
                .copy = copy, .before = {copy->parents[0], copy->parents[1]}};
        }
    }
    return count;
}

/* Complete, or planned before: it gets all blocks without the batch. */
static bool is_source(const struct sl_catalogue_copy *copy)
{
    return copy->is_complete ? copy->node->expires_ms != 0 && !is_spared(copy)
                             : copy->stage == SL_CATALOGUE_PLANNED && !copy->is_local;
}

/* Writes sources for a batch of this size, holders first, two for each fetcher: those that serve
 * nobody; else those that serve one stripe; else the one that serves the fewest. */
static uint32_t collect_free(struct sl_objects_catalogue *catalogue,
                             const struct sl_catalogue_part *part, uint32_t fetchers)
{
    const struct sl_list *const lists[] = {&part->holders, &part->fetchers};
    const struct sl_catalogue_copy *least = NULL;
    uint32_t count = 0;
    for (uint32_t i = 0; i < 4 && (i < 2 || count == 0); i++) {
        SL_LIST_EACH (const struct sl_catalogue_copy, copy, by_part, lists[i % 2]) {
            if (is_source(copy)) {
                least = least == NULL || copy->load < least->load ? copy : least;
                if (copy->load == i / 2 && count < SL_OBJECTS_STRIPES * fetchers) {
                    add_source(catalogue, &count, copy);
                }
            }
        }
    }
    if (count == 0 && least != NULL) {
        add_source(catalogue, &count, least);
    }
    return count;
}

static uint64_t parent_of(const struct sl_objects_catalogue *catalogue, uint32_t fetcher,
                          uint32_t stripe, uint32_t holders, uint32_t fetchers)
{
    const struct sl_objects_parent parent =
        sl_objects_choose_parent(fetcher, stripe, holders, fetchers);
    return parent.is_holder ? catalogue->plan.sources[parent.index].node
                            : catalogue->plan.batch[parent.index].copy->key.number;
}

/* Plans the batch; joining: only this fetcher, its last one. */
static void plan(struct sl_objects_catalogue *catalogue, struct sl_catalogue_part *part,
                 const struct sl_catalogue_copy *joining)
{
    const uint32_t fetchers = collect_batch(catalogue, part);
    for (uint32_t r = 0; r < fetchers; r++) {
        sl_catalogue_copy_set_parents(catalogue->plan.batch[r].copy, 0, 0, false);
    }
    const uint32_t holders = collect_free(catalogue, part, fetchers);
    for (uint32_t r = 0; r < fetchers; r++) {
        const uint64_t *before = catalogue->plan.batch[r].before;
        struct sl_catalogue_copy *copy = catalogue->plan.batch[r].copy;
        if (joining != NULL && copy != joining) {
            sl_catalogue_copy_set_parents(copy, before[0], before[1], false);
        } else if (holders > 0) {
            sl_catalogue_copy_set_parents(copy, parent_of(catalogue, r, 0, holders, fetchers),
                                          parent_of(catalogue, r, 1, holders, fetchers), false);
        }
        if (joining == NULL) {
            copy->stage = holders > 0 ? SL_CATALOGUE_PLANNED : copy->stage;
            if (before[0] != copy->parents[0] || before[1] != copy->parents[1]) {
                sl_list_append(&copy->node->news, &copy->news);
            }
        }
    }
}

void sl_catalogue_plan_join(struct sl_objects_catalogue *catalogue, struct sl_catalogue_copy *copy)
{
    copy->stage = SL_CATALOGUE_JOINED;
    sl_list_append(&copy->part->fetchers, &copy->by_part);
    plan(catalogue, copy->part, copy);
    if (!sl_list_linked(&copy->part->replan)) {
        sl_list_append(&catalogue->replans, &copy->part->replan);
    }
}

void sl_catalogue_plan_part(struct sl_objects_catalogue *catalogue, struct sl_catalogue_part *part)
{
    part->planned_ms = catalogue->now_ms;
    sl_list_remove(&part->replan);
    plan(catalogue, part, NULL);
    SL_LIST_EACH (struct sl_catalogue_copy, copy, by_part, &part->fetchers) {
        if (sl_list_linked(&copy->news)) {
            news_next(catalogue, copy->node);
        }
    }
}

/* Removes the copies of earlier versions that the node was not told of: they are skipped. */
static void skip_unknown(struct sl_objects_catalogue *catalogue,
                         const struct sl_catalogue_follow *follow)
{
    SL_LIST_EACH (struct sl_catalogue_copy, copy, news, &follow->node->news) {
        if (!copy->is_known && copy->part->version->object == follow->object) {
            sl_catalogue_copy_remove(catalogue, copy);
        }
    }
}

void sl_catalogue_plan_announce(struct sl_objects_catalogue *catalogue,
                                struct sl_catalogue_version *version)
{
    SL_LIST_EACH (struct sl_catalogue_follow, follow, by_object, &version->object->follows) {
        struct sl_catalogue_copy *copy;
        if (follow->version >= version->key.number) {
            continue;
        }
        skip_unknown(catalogue, follow);
        if (sl_catalogue_copy_add(catalogue, &version->parts[0], follow->node, &copy, NULL) == 0) {
            follow->version = version->key.number;
            copy->stage = SL_CATALOGUE_JOINED;
            sl_list_append(&copy->node->news, &copy->news);
        }
    }
    sl_catalogue_plan_part(catalogue, &version->parts[0]);
    SL_LIST_EACH (struct sl_catalogue_follow, follow, by_object, &version->object->follows) {
        news_next(catalogue, follow->node);
    }
}
