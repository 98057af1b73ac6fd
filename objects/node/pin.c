#include "objects/node/pin.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/assert.h"
#include "objects/node/fetch.h"
#include "objects/node/node.h"
#include "objects/node/session.h"

static void pin_end(struct sl_objects_pin *pin, int err, const char *reason)
{
    if (!pin->has_ended) {
        pin->has_ended = true;
        pin->err = err;
        (void)snprintf(pin->reason, sizeof pin->reason, "%s", reason);
        pin->ended(pin);
    }
}

static void pin_timer_passed(struct sl_timer *timer, uint64_t now_ns)
{
    pin_end(SL_CONTAINER_OF(timer, struct sl_objects_pin, timer), 0, "");
}

static void part_grown(struct sl_objects_cache_use *use)
{
    struct sl_objects_pin *pin = SL_CONTAINER_OF(use, struct sl_objects_pin_part, use)->pin;
    if (pin->grown != NULL) {
        pin->grown(pin);
    }
}

static void part_ended(struct sl_objects_cache_use *use, int err, const char *reason)
{
    struct sl_objects_pin *pin = SL_CONTAINER_OF(use, struct sl_objects_pin_part, use)->pin;
    if (err != 0 || --pin->left == 0) {
        pin_end(pin, err, reason);
    }
}

static int open_part(struct sl_objects_pin *pin, const struct sl_objects_message *news,
                     uint32_t index, uint64_t deadline_ns)
{
    struct sl_objects_pin_part *part = &pin->parts[index];
    part->pin = pin;
    part->use.grown = part_grown;
    part->use.ended = part_ended;
    const int err = sl_objects_cache_get(pin->node, &part->use, news, index, deadline_ns);
    if (err != SL_ERR_EXISTS) {
        pin->left += err == 0 ? 1 : 0;
        return err;
    }
    struct sl_objects_copy *copy = sl_objects_copy_find(pin->node, news->commit.record.name,
                                                        news->commit.record.version, index);
    if (copy == NULL || copy->fetch != NULL || copy->is_uncommitted ||
        !sl_hash_128_equal(copy->info.digest, news->commit.record.parts[index].digest)) {
        return SL_ERR_AGAIN;
    }
    copy->uses++;
    part->own = copy;
    return 0;
}

static int fail(const struct sl_objects *node, const struct sl_objects_record *record, int err,
                struct sl_reason *reason)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < record->part_count; i++) {
        bytes += record->parts[i].bytes;
    }
    return err == SL_ERR_AGAIN
               ? sl_reason_fail(reason, err,
                                "this process gets or publishes it in its own memory just now")
           : err == SL_ERR_TOO_LARGE
               ? sl_reason_fail(reason, err,
                                "%" PRIu64 " bytes do not fit into the pool of %" PRIu64, bytes,
                                node->pool_bytes)
               : sl_reason_fail(reason, err, "open views leave no memory for it in the pool");
}

int sl_objects_pin_open(struct sl_objects *node, const struct sl_objects_message *news,
                        uint64_t deadline_ns, struct sl_objects_pin **out, struct sl_reason *reason)
{
    const uint32_t part_count = news->commit.record.part_count;
    struct sl_objects_pin *made = calloc(1, sizeof *made + part_count * sizeof made->parts[0]);
    int err = 0;
    if (made == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "out of memory");
    }
    made->node = node;
    made->version = news->commit.record.version;
    made->timer.run = pin_timer_passed;
    made->part_count = part_count;
    for (uint32_t i = 0; err == 0 && i < part_count; i++) {
        err = open_part(made, news, i, deadline_ns);
    }
    if (err != 0) {
        sl_objects_pin_close(&made);
        return fail(node, &news->commit.record, err, reason);
    }
    if (made->left == 0) {
        sl_reactor_arm(node->reactor, &made->timer, 0);
    }
    *out = made;
    return 0;
}

void sl_objects_pin_close(struct sl_objects_pin **pin)
{
    struct sl_objects_pin *gone = *pin;
    *pin = NULL;
    if (gone == NULL) {
        return;
    }
    for (uint32_t i = 0; i < gone->part_count; i++) {
        struct sl_objects_pin_part *part = &gone->parts[i];
        if (part->use.copy != NULL) {
            sl_objects_cache_put(gone->node, &part->use);
        } else if (part->own != NULL) {
            sl_objects_copy_put(part->own);
        }
    }
    sl_reactor_disarm(gone->node->reactor, &gone->timer);
    free(gone);
}

bool sl_objects_pin_is_placed(const struct sl_objects_pin *pin)
{
    for (uint32_t i = 0; i < pin->part_count; i++) {
        const struct sl_objects_copy *copy = pin->parts[i].use.copy;
        if (copy == NULL) {
            continue;
        }
        /* Without an image, the manifest has all places before it has arrived. */
        const bool has_manifest = copy->fetch == NULL || copy->pooled->blocks[0].is_verified;
        if (copy->place_count <
                sl_objects_copy_manifest_blocks(copy) + sl_objects_copy_block_count(copy) ||
            !has_manifest) {
            return false;
        }
    }
    return true;
}

uint64_t sl_objects_pin_verified(const struct sl_objects_pin *pin)
{
    uint64_t verified = 0;
    for (uint32_t i = 0; i < pin->part_count; i++) {
        const struct sl_objects_copy *copy = sl_objects_pin_copy(&pin->parts[i]);
        const uint64_t bytes = sl_objects_copy_beginning(copy);
        verified += bytes;
        if (bytes < copy->info.bytes) {
            break;
        }
    }
    return verified;
}

void sl_objects_pin_describe(const struct sl_objects_pin *pin, char text[SL_REASON_BYTES])
{
    text[0] = '\0';
    for (uint32_t i = 0; text[0] == '\0' && i < pin->part_count; i++) {
        const struct sl_objects_copy *copy = pin->parts[i].use.copy;
        if (copy != NULL && copy->fetch != NULL) {
            sl_objects_fetch_describe(copy->fetch, text);
        }
    }
}

void sl_objects_pin_set_stops(struct sl_objects_pin *pin, const uint64_t *stops, uint32_t count)
{
    uint64_t within[SL_OBJECTS_SESSION_STOPS_MAX], image_at = 0;
    for (uint32_t i = 0; i < pin->part_count; i++) {
        struct sl_objects_copy *copy = sl_objects_pin_copy(&pin->parts[i]);
        uint32_t within_count = 0;
        for (uint32_t k = 0; k < count; k++) {
            if (stops[k] > image_at && stops[k] <= image_at + copy->info.bytes) {
                within[within_count++] = stops[k] - image_at;
            }
        }
        sl_objects_copy_set_stops(copy, within, within_count);
        image_at += copy->info.bytes;
    }
}
