#include "objects/node/cache.h"

#include <inttypes.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "objects/node/board_residency.h"
#include "objects/node/fetch.h"
#include "objects/node/node.h"
#include "objects/node/withdraw.h"

static bool is_complete(const struct sl_objects_copy *copy)
{
    return copy->verified.range_count > 0 &&
           copy->verified.count == sl_objects_copy_block_count(copy);
}

static void end_use(struct sl_objects *node, struct sl_objects_cache_use *use, int err,
                    const char *reason)
{
    sl_reactor_disarm(node->reactor, &use->timer);
    if (!use->has_ended) {
        use->has_ended = true;
        use->ended(use, err, reason);
    }
}

/* Takes the uses one by one, since a callback may get and put any of them. */
static struct sl_objects_cache_use *next_use(struct sl_objects_copy *copy, struct sl_list *left)
{
    struct sl_objects_cache_use *use = SL_LIST_POP(struct sl_objects_cache_use, link, left);
    if (use != NULL) {
        sl_list_append(&copy->cache.uses, &use->link);
    }
    return use;
}

static void cache_grown(struct sl_objects_copy *copy)
{
    struct sl_objects_cache_use *use;
    struct sl_list left;
    sl_list_init(&left);
    sl_list_append_all(&left, &copy->cache.uses);
    while ((use = next_use(copy, &left)) != NULL) {
        if (use->grown != NULL && !use->has_ended) {
            use->grown(use);
        }
    }
}

/* A failed fetch drops its blocks: the catalogue must not expect the others from this node. */
static void cache_fetch_over(struct sl_objects *node, struct sl_objects_copy *copy, void *ctx,
                             int err, const char *reason)
{
    struct sl_objects_pool_version *pooled = copy->pooled;
    struct sl_objects_cache_use *use;
    struct sl_list left;
    if (err != 0) {
        sl_objects_withdraw(node, copy, reason);
    }
    sl_list_init(&left);
    sl_list_append_all(&left, &copy->cache.uses);
    while ((use = next_use(copy, &left)) != NULL) {
        end_use(node, use, err, reason);
    }
    sl_objects_pool_unpin(&node->pool, pooled);
}

/* Takes the manifest and the image from the message, a block each. If one is wrong, both are
 * fetched. */
static void fill(struct sl_objects *node, struct sl_objects_copy *copy,
                 const struct sl_objects_message *news)
{
    const struct sl_objects_part *part = &news->commit.record.parts[0];
    struct sl_objects_manifest *manifest = &copy->manifest;
    struct sl_reason reason;
    if (news->commit.image.manifest == NULL || copy->verified.range_count > 0 ||
        part->bytes != copy->info.bytes || part->manifest_bytes != copy->info.manifest_bytes ||
        !sl_hash_128_equal(sl_hash_bytes_128(news->commit.image.manifest, part->manifest_bytes),
                           copy->info.digest)) {
        return;
    }
    if (sl_objects_manifest_decode(manifest, news->commit.image.manifest, part->manifest_bytes,
                                   &reason) != 0 ||
        manifest->image_bytes != part->bytes ||
        !sl_objects_manifest_verify(manifest, 0, news->commit.image.bytes) ||
        sl_objects_copy_reserve(node, copy, &reason) != 0) {
        sl_objects_manifest_fini(manifest);
        return;
    }
    memcpy(copy->places[0].base, news->commit.image.manifest, part->manifest_bytes);
    if (!copy->pooled->blocks[1].is_verified) { /* else an older version has the same slot */
        memcpy(copy->places[1].base, news->commit.image.bytes, part->bytes);
    }
    sl_objects_pool_set_verified(copy->pooled, 0);
    sl_objects_pool_set_verified(copy->pooled, 1);
    if (sl_objects_copy_add_first(copy, 1) == 0 && news->commit.record.time_ms != 0) {
        sl_objects_report(node, copy);
    }
    sl_objects_serve_grown(node);
}

/* The fetch pins the copy, too: READs may be in flight after the last put. */
static int start_fetch(struct sl_objects *node, struct sl_objects_copy *copy,
                       const struct sl_objects_message *news, uint64_t deadline_ns,
                       struct sl_reason *reason)
{
    int err = sl_objects_copy_reserve(node, copy, reason);
    err = err != 0 ? err : sl_objects_fetch_create(node, copy, deadline_ns, cache_fetch_over, NULL);
    if (err == 0) {
        sl_objects_pool_pin(&node->pool, copy->pooled);
        if (news->part == copy->part) {
            sl_objects_fetch_news(copy->fetch, news);
        }
        sl_objects_fetch_start(copy->fetch);
    }
    return err;
}

/* Pinned, and in the node's list. */
static int add(struct sl_objects *node, const struct sl_objects_record *record, uint32_t part,
               struct sl_objects_copy **out, struct sl_reason *reason)
{
    struct sl_objects_copy *copy;
    int err = node->pool.base == NULL
                  ? sl_reason_fail(reason, SL_ERR_NO_MEMORY, "the node has no pool")
                  : sl_objects_copy_create(record->name, record->version, part,
                                           &record->parts[part], &copy);
    if (err != 0) {
        return err;
    }
    err = sl_objects_copy_reserve(node, copy, reason);
    if (err != 0) {
        sl_objects_copy_free(copy);
        return err;
    }
    copy->grown = cache_grown;
    sl_objects_copy_set_record(copy, record);
    sl_objects_serve_add(node, copy);
    *out = copy;
    return 0;
}

/* A version of this number was removed, and another one committed; or is to be, but is refused. */
static struct sl_objects_copy *find(struct sl_objects *node, const struct sl_objects_record *record,
                                    uint32_t part, bool *is_other)
{
    struct sl_objects_copy *copy = sl_objects_copy_find(node, record->name, record->version, part);
    *is_other = copy != NULL && !sl_hash_128_equal(copy->info.digest, record->parts[part].digest);
    if (*is_other && copy->pooled != NULL && record->time_ms != 0) {
        *is_other = false;
        sl_objects_withdraw(node, copy, "another version has its number");
        return NULL;
    }
    return copy;
}

static void cache_timer_passed(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_objects_cache_use *use = SL_CONTAINER_OF(timer, struct sl_objects_cache_use, timer);
    const struct sl_objects_fetch *fetch = use->copy->fetch;
    char text[SL_REASON_BYTES] = "";
    if (fetch != NULL) {
        sl_objects_fetch_describe(fetch, text);
    }
    use->has_ended = true;
    use->ended(use, fetch != NULL ? SL_ERR_DEADLINE : 0, text);
}

static int get(struct sl_objects *node, struct sl_objects_cache_use *use,
               const struct sl_objects_message *news, uint32_t part, uint64_t deadline_ns,
               struct sl_reason *reason)
{
    bool is_other;
    struct sl_objects_copy *copy = find(node, &news->commit.record, part, &is_other);
    int err = 0;
    if (copy == NULL) {
        err = add(node, &news->commit.record, part, &copy, reason);
    } else if (is_other) {
        err = sl_reason_fail(reason, SL_ERR_EXISTS, "the version has other bytes here");
    } else if (copy->pooled == NULL) {
        err = sl_reason_fail(reason, SL_ERR_EXISTS, "it is in memory of the application");
    } else {
        sl_objects_pool_pin(&node->pool, copy->pooled);
    }
    if (err != 0) {
        return err;
    }
    use->copy = copy;
    use->timer.run = cache_timer_passed;
    use->has_ended = false;
    sl_list_append(&copy->cache.uses, &use->link);
    copy->cache.use_count++;
    if (copy->fetch == NULL) {
        fill(node, copy, news);
    }
    if (copy->fetch != NULL) {
        sl_objects_fetch_prolong(copy->fetch, deadline_ns);
    } else if (!is_complete(copy)) {
        err = start_fetch(node, copy, news, deadline_ns, reason);
    }
    const uint64_t now_ns = sl_reactor_now_ns(node->reactor);
    sl_reactor_arm(node->reactor, &use->timer,
                   copy->fetch != NULL && deadline_ns > now_ns ? deadline_ns - now_ns : 0);
    if (err != 0 && copy->verified.range_count == 0) {
        sl_objects_withdraw(node, copy, "it cannot be fetched");
    }
    if (err != 0) {
        sl_objects_cache_put(node, use);
    }
    return err;
}

int sl_objects_cache_get(struct sl_objects *node, struct sl_objects_cache_use *use,
                         const struct sl_objects_message *news, uint32_t part, uint64_t deadline_ns)
{
    const struct sl_objects_record *record = &news->commit.record;
    struct sl_reason reason = {.text = "out of memory"};
    sl_reactor_assert_owner(node->reactor);
    sl_assert(news->commit.record_count == 1);
    sl_assert(part < record->part_count);
    const int err = get(node, use, news, part, deadline_ns, &reason);
    if (err != 0 && err != SL_ERR_EXISTS) {
        sl_log_debug("objects: %s@%" PRIu64 " part %u is not fetched: %s", record->name,
                     record->version, part, reason.text); /* its users try again */
        sl_objects_report_none(node, record->name, record->version, part);
    }
    return err;
}

void sl_objects_cache_put(struct sl_objects *node, struct sl_objects_cache_use *use)
{
    struct sl_objects_copy *copy = use->copy;
    struct sl_objects_pool_version *pooled = copy->pooled;
    sl_reactor_assert_owner(node->reactor);
    use->copy = NULL;
    sl_list_remove(&use->link);
    sl_reactor_disarm(node->reactor, &use->timer);
    if (--copy->cache.use_count == 0 && copy->fetch != NULL) {
        sl_objects_withdraw(node, copy, "it is not used any more");
    }
    sl_objects_pool_unpin(&node->pool, pooled);
}

void sl_objects_cache_shrunk(void *ctx, struct sl_objects_pool_version *version)
{
    struct sl_objects *node = ctx;
    struct sl_objects_copy *copy = version->owner;
    if (copy == NULL) {
        return;
    }
    copy->place_count = version->resident_count;
    if (version->resident_count > 0) {
        copy->verified.range_count = copy->verified.sent =
            0; /* no child reads it, or knows its ranges */
        (void)sl_objects_copy_add_first(copy, version->resident_count - version->head_count);
        sl_objects_report(node, copy);
        sl_objects_board_residency_changed(node, copy->name);
        return;
    }
    copy->pooled = NULL;
    if (sl_list_linked(&copy->link)) { /* else it is that of a publication */
        sl_list_remove(&copy->link);
        if (!copy->is_withdrawn) {
            sl_objects_report_none(node, copy->name, copy->version, copy->part);
        }
        sl_objects_board_residency_changed(node, copy->name);
        sl_objects_copy_put(copy);
    }
}
