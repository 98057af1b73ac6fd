#include "objects/catalogue/catalogue_versions.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "objects/catalogue/catalogue_plan.h"

int sl_catalogue_begin_epoch(struct sl_objects_catalogue *catalogue,
                             struct sl_catalogue_object *object, uint64_t epoch,
                             uint32_t part_count, struct sl_reason *reason)
{
    uint64_t *publishers = calloc(part_count, sizeof *publishers);
    if (publishers == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "the catalogue has no memory left");
    }
    free(object->publishers);
    object->publishers = publishers;
    object->publisher_count = part_count;
    object->epoch = epoch;
    catalogue->epoch = catalogue->epoch > epoch ? catalogue->epoch : epoch;
    for (uint32_t i = object->versions.count; i-- > 0;) {
        struct sl_catalogue_version *version = sl_catalogue_item(&object->versions, i);
        if (version->time_ms == 0) {
            sl_catalogue_version_remove(catalogue, version, false);
        }
    }
    return 0;
}

/* Commits */

void sl_catalogue_retire_old(struct sl_objects_catalogue *catalogue,
                             const struct sl_catalogue_version *committed)
{
    const struct sl_catalogue_object *object = committed->object;
    uint32_t kept = 0, retired = 0;
    for (uint32_t i = object->versions.count; i-- > 0;) {
        struct sl_catalogue_version *version = sl_catalogue_item(&object->versions, i);
        if (version->time_ms != 0 && version->origin != SL_ORIGIN_CALLER &&
            ++kept > catalogue->options.keep_versions && version != committed) {
            sl_catalogue_version_remove(catalogue, version, true);
            retired++;
        }
    }
    if (retired > 1) { /* more were kept before */
        sl_log_warn("objects: %u versions of %s are removed: a commit keeps the newest %u "
                    "(--keep-versions of the catalogue)",
                    retired, object->name, catalogue->options.keep_versions);
    }
}

static struct sl_hash_128 tombstone_of_whole(const char *name, uint64_t version)
{
    return sl_objects_tombstone_of(name, version, SL_OBJECTS_TOMBSTONE_WHOLE,
                                   (struct sl_hash_128){0});
}

static struct sl_hash_128 tombstone_of(const struct sl_catalogue_version *version, uint32_t part)
{
    return sl_objects_tombstone_of(version->object->name, version->key.number, part,
                                   version->parts[part].info.digest);
}

void sl_catalogue_publish(struct sl_objects_catalogue *catalogue,
                          struct sl_catalogue_version *version, uint64_t time_ms)
{
    version->time_ms = time_ms > 0 ? time_ms : 1;
    sl_list_remove(&version->by_touch);
    /* It may have been removed before, and published again. */
    sl_objects_tombstones_remove(&catalogue->removed,
                                 tombstone_of_whole(version->object->name, version->key.number));
    for (uint32_t p = 0; p < version->part_count; p++) {
        sl_objects_tombstones_remove(&catalogue->removed, tombstone_of(version, p));
    }
    if (catalogue->options.changed != NULL) {
        struct sl_objects_message message = {0};
        sl_catalogue_record_fill(version, &message);
        catalogue->options.changed(catalogue->options.ctx, version->object->name,
                                   version->key.number, &message.commit.record);
    }
    if (sl_catalogue_newest(version->object) == version) {
        sl_catalogue_plan_announce(catalogue, version);
    }
}

/* Restored versions */

/* Adds a version from a record of an earlier catalogue or of a node, and does not publish it. If
 * the epoch of the record is newer than that of the object, the holders of its parts become the
 * publishers of that epoch. Returns NULL if the record is not committed, has a number that is too
 * large or that exists already, or if memory or a limit is reached. */
static struct sl_catalogue_version *restore(struct sl_objects_catalogue *catalogue,
                                            const struct sl_objects_record *record,
                                            struct sl_reason *reason)
{
    struct sl_catalogue_object *object;
    struct sl_catalogue_version *version;
    if (record->time_ms == 0 || record->epoch > SL_CATALOGUE_NUMBER_MAX ||
        sl_catalogue_object_add(catalogue, record->name, &object, reason) != 0) {
        return NULL;
    }
    if (record->epoch > object->epoch) {
        if (sl_catalogue_begin_epoch(catalogue, object, record->epoch, record->part_count,
                                     reason) != 0) {
            return NULL;
        }
        for (uint32_t p = 0; p < record->part_count; p++) {
            object->publishers[p] = record->parts[p].holder;
        }
    }
    if (sl_catalogue_find(&object->versions, NULL, record->version) != NULL ||
        sl_catalogue_version_add(catalogue, object, record, record->part_count, &version, reason) !=
            0) {
        return NULL;
    }
    for (uint32_t p = 0; p < record->part_count; p++) {
        version->parts[p].info = record->parts[p];
    }
    return version;
}

/* A HOLD has a record of its version. */
static bool has_record(const struct sl_objects_message *message)
{
    const struct sl_objects_record *record = &message->commit.record;
    return message->commit.record_count == 1 && record->time_ms != 0 &&
           record->version == message->version && strcmp(record->name, message->name) == 0 &&
           message->part < record->part_count;
}

/* Returns whether the part was not logged before, and notes that it is now. */
static bool is_first_line(struct sl_objects_catalogue *catalogue,
                          const struct sl_objects_message *message)
{
    const struct sl_objects_part *part = &message->commit.record.parts[message->part];
    return sl_objects_tombstones_add(
        &catalogue->conflicts,
        sl_objects_tombstone_of(message->name, message->version, message->part, part->digest));
}

struct sl_catalogue_version *sl_catalogue_take_unknown(struct sl_objects_catalogue *catalogue,
                                                       const struct sl_catalogue_node *node,
                                                       const struct sl_objects_message *message,
                                                       struct sl_catalogue_version *known)
{
    const struct sl_objects_record *record = &message->commit.record;
    if (!has_record(message)) {
        return NULL;
    }
    const struct sl_hash_128 digest = record->parts[message->part].digest;
    const struct sl_hash_128 of_part =
        sl_objects_tombstone_of(record->name, record->version, message->part, digest);
    const bool was_other = /* bytes of a version that was removed: both are */
        sl_objects_tombstones_has(&catalogue->conflicts, of_part) &&
        sl_objects_tombstones_has(&catalogue->removed,
                                  tombstone_of_whole(record->name, record->version));
    if (was_other || sl_objects_tombstones_has(&catalogue->removed, of_part)) {
        sl_catalogue_send_retire(catalogue, node, record->name, record->version, message->part,
                                 digest);
        return NULL;
    }
    if (known != NULL) {
        const bool is_newer = record->time_ms > known->time_ms;
        if (is_first_line(catalogue, message)) {
            sl_log_error("objects: %s@%" PRIu64 " exists twice: committed at %" PRIu64
                         " ms (Unix time) and, with other bytes, at %" PRIu64
                         " ms, which %s has; readers get the %s; no file is removed",
                         message->name, message->version, known->time_ms, record->time_ms,
                         node->address, is_newer ? "latter" : "former");
        }
        if (!is_newer) {
            return NULL;
        }
        sl_catalogue_version_remove(catalogue, known, false);
    }
    struct sl_reason reason = {.text = "the catalogue cannot use its record"};
    struct sl_catalogue_version *restored = restore(catalogue, record, &reason);
    if (restored == NULL && is_first_line(catalogue, message)) {
        sl_log_error("objects: %s@%" PRIu64 " of %s is not restored: %s; its files stay",
                     message->name, message->version, node->address, reason.text);
    }
    return restored;
}

void sl_objects_catalogue_load(struct sl_objects_catalogue *catalogue,
                               const struct sl_objects_record *record)
{
    struct sl_catalogue_version *version = restore(catalogue, record, NULL);
    catalogue->is_restart = true;
    if (version != NULL) {
        version->time_ms = record->time_ms;
        version->touched_ms = catalogue->now_ms;
        sl_list_append(&catalogue->by_touch, &version->by_touch);
    }
}
