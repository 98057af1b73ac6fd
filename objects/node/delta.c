#include "objects/node/delta.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "objects/node/cache.h"
#include "objects/node/delta_code.h"
#include "objects/node/node.h"
#include "objects/node/withdraw.h"
#include "reactor/offload.h"

#define STALL_NS   (500 * SL_CLOCK_NS_PER_MS) /* then blocks are fetched as a whole */
#define JOB_BLOCKS 16                         /* that are rebuilt in one job */
#define SUFFIX     "~delta"

struct sl_objects_delta {
    struct sl_objects *node;
    struct sl_objects_copy *copy, *base; /* base: pinned; NULL: not known yet */
    const struct sl_objects_delta_events *events;
    void *ctx;
    uint64_t deadline_ns;
    char name[SL_OBJECTS_NAME_BYTES];
    struct sl_objects_ask find;
    struct sl_objects_cache_use use; /* its copy NULL: not yet */
    struct sl_timer stalled;         /* or, when it is over, until `over` */
    bool is_over;
    struct {
        struct sl_offload_job job;
        struct sl_objects_delta_coder *coder;
        uint32_t next;    /* block that no job has had */
        uint64_t next_at; /* where its bytes begin in the delta */
        uint32_t count;   /* 0: no job is in progress */
        struct rebuilding {
            uint32_t block, bytes;
            uint64_t at;
            bool is_right;
        } blocks[JOB_BLOCKS];
        uint8_t scratch[SL_OBJECTS_BLOCK_BYTES];
    } work;
};

/* Names */

bool sl_objects_delta_is_name(const char *name)
{
    const char *suffix = strrchr(name, SUFFIX[0]);
    if (suffix == NULL || strncmp(suffix, SUFFIX, strlen(SUFFIX)) != 0) {
        return false;
    }
    const char *digits = suffix + strlen(SUFFIX);
    return *digits != '\0' && digits[strspn(digits, "0123456789")] == '\0';
}

bool sl_objects_delta_name(const char *name, uint32_t part, char out[SL_OBJECTS_NAME_BYTES])
{
    const int length = snprintf(out, SL_OBJECTS_NAME_BYTES, "%s" SUFFIX "%u", name, part);
    return length < SL_OBJECTS_NAME_BYTES;
}

/* Bases */

static bool is_base(const struct sl_objects_copy *base, const struct sl_objects_copy *copy)
{
    return base->pooled != NULL && !base->is_withdrawn && base->version < copy->version &&
           base->part == copy->part && strcmp(base->name, copy->name) == 0 &&
           base->verified.range_count > 0 &&
           base->verified.count == sl_objects_copy_block_count(base);
}

struct sl_objects_copy *sl_objects_delta_find_base(struct sl_objects *node,
                                                   const struct sl_objects_copy *copy,
                                                   uint64_t version)
{
    struct sl_objects_copy *found = NULL;
    SL_LIST_EACH (struct sl_objects_copy, base, link, &node->copies) {
        if (is_base(base, copy) && (version == 0 || base->version == version) &&
            (found == NULL || base->version > found->version)) {
            found = base;
        }
    }
    return found;
}

/* End */

static void delta_over(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_objects_delta *delta = SL_CONTAINER_OF(timer, struct sl_objects_delta, stalled);
    if (delta->use.copy != NULL) {
        sl_objects_cache_put(delta->node, &delta->use);
    }
    if (delta->base != NULL) {
        sl_objects_pool_unpin(&delta->node->pool, delta->base->pooled);
    }
    delta->events->over(delta->ctx);
    sl_objects_delta_coder_destroy(&delta->work.coder);
    free(delta);
}

static void delta_cancel(struct sl_objects_delta *delta)
{
    if (delta->is_over) {
        return;
    }
    delta->is_over = true;
    if (sl_list_linked(&delta->find.link)) {
        sl_objects_ask_cancel(&delta->find);
        sl_objects_report_none(delta->node, delta->name, delta->copy->version, 0);
    }
    delta->stalled.run = delta_over;
    sl_reactor_disarm(delta->node->reactor, &delta->stalled);
    if (delta->work.count == 0) { /* else at the end of the job */
        sl_reactor_arm(delta->node->reactor, &delta->stalled, 0);
    }
}

/* Blocks that it does not bring are fetched as a whole. */
static void delta_give_up(struct sl_objects_delta *delta, const char *reason)
{
    if (!delta->is_over) {
        sl_cell_add(&delta->node->measured.counters.delta_fallbacks, 1);
        sl_log_debug("objects: %s@%" PRIu64 " is not used: %s", delta->name, delta->copy->version,
                     reason);
        delta_cancel(delta);
    }
}

static void delta_stalled(struct sl_timer *timer, uint64_t now_ns)
{
    delta_give_up(SL_CONTAINER_OF(timer, struct sl_objects_delta, stalled),
                  "its sources are too slow");
}

/* Rebuild */

static const uint8_t *image_at(const struct sl_objects_copy *copy, uint64_t offset, uint32_t bytes,
                               void *scratch)
{
    return sl_objects_place_read(copy->places, copy->place_count,
                                 sl_objects_copy_image_at(copy) + offset, bytes, scratch);
}

/* On the offload thread: the delta's bytes are verified, the base's are, and the slots of the copy
 * belong to the delta. */
static void delta_rebuild(struct sl_offload_job *job)
{
    struct sl_objects_delta *delta = SL_CONTAINER_OF(job, struct sl_objects_delta, work.job);
    const struct sl_objects_copy *copy = delta->copy;
    for (uint32_t i = 0; i < delta->work.count; i++) {
        struct rebuilding *it = &delta->work.blocks[i];
        uint8_t *block = sl_objects_copy_block(copy, it->block);
        const int err = sl_objects_delta_decode(
            delta->work.coder, sl_objects_copy_block(delta->base, it->block),
            image_at(delta->use.copy, it->at, it->bytes, delta->work.scratch), it->bytes, block,
            sl_objects_manifest_block_bytes(&copy->manifest, it->block));
        it->is_right = err == 0 && sl_objects_manifest_verify(&copy->manifest, it->block, block);
    }
}

static void delta_rebuild_next(struct sl_objects_delta *delta);

static void delta_rebuilt(struct sl_offload_job *job)
{
    struct sl_objects_delta *delta = SL_CONTAINER_OF(job, struct sl_objects_delta, work.job);
    const struct sl_objects_copy *copy = delta->copy;
    const uint32_t count = delta->work.count;
    if (job->err != 0) { /* there is no thread */
        delta_rebuild(job);
    }
    delta->work.count = 0;
    if (delta->is_over) {
        sl_reactor_arm(delta->node->reactor, &delta->stalled, 0);
        return;
    }
    for (uint32_t i = 0; i < count && !delta->is_over; i++) {
        const struct rebuilding *it = &delta->work.blocks[i];
        if (it->is_right) {
            sl_cell_add(&delta->node->measured.counters.delta_saved_bytes,
                        sl_objects_manifest_block_bytes(&copy->manifest, it->block) - it->bytes);
            delta->events->rebuilt(delta->ctx, it->block);
        } else {
            sl_cell_add(&delta->node->measured.counters.delta_fallbacks, 1);
            sl_log_warn("objects: %s@%" PRIu64 ": block %u does not match its digest; fetched as a "
                        "whole",
                        delta->name, copy->version, it->block);
        }
    }
    delta_rebuild_next(delta);
}

/* A block is in a delta if the base has it at full length, too. */
static bool is_possible(const struct sl_objects_delta *delta, uint32_t block)
{
    const struct sl_objects_manifest *base = &delta->base->manifest;
    return block < base->block_count &&
           sl_objects_manifest_block_bytes(base, block) >=
               sl_objects_manifest_block_bytes(&delta->copy->manifest, block);
}

/* All of the delta is here. */
static void delta_rebuild_next(struct sl_objects_delta *delta)
{
    const struct sl_objects_copy *copy = delta->copy, *of = delta->use.copy;
    const uint32_t from = sl_objects_copy_manifest_blocks(copy);
    uint32_t bytes, count = 0;
    if (delta->is_over) {
        return;
    }
    for (; delta->work.next < copy->manifest.block_count && count < JOB_BLOCKS;
         delta->work.next++, delta->work.next_at += bytes) {
        const uint32_t block = delta->work.next;
        memcpy(&bytes, image_at(of, block * sizeof bytes, sizeof bytes, delta->work.scratch),
               sizeof bytes);
        if (bytes > sl_objects_manifest_block_bytes(&copy->manifest, block) ||
            delta->work.next_at + bytes > of->info.bytes) {
            delta_give_up(delta, "its lengths are wrong");
            return;
        }
        if (bytes > 0 && is_possible(delta, block) &&
            !copy->pooled->blocks[from + block].is_verified) {
            delta->work.blocks[count++] =
                (struct rebuilding){.block = block, .bytes = bytes, .at = delta->work.next_at};
        }
    }
    if (count == 0) {
        delta_cancel(delta);
        return;
    }
    delta->work.count = count;
    delta->work.job = (struct sl_offload_job){.work = delta_rebuild, .done = delta_rebuilt};
    sl_offload_post(delta->node->digests.offload, &delta->work.job);
}

static void delta_grown(struct sl_objects_cache_use *use)
{
    struct sl_objects_delta *delta = SL_CONTAINER_OF(use, struct sl_objects_delta, use);
    if (!delta->is_over) {
        sl_reactor_disarm(delta->node->reactor, &delta->stalled);
        sl_reactor_arm(delta->node->reactor, &delta->stalled, STALL_NS);
    }
}

static void delta_ended(struct sl_objects_cache_use *use, int err, const char *reason)
{
    struct sl_objects_delta *delta = SL_CONTAINER_OF(use, struct sl_objects_delta, use);
    const uint64_t head = delta->copy->manifest.block_count * sizeof(uint32_t);
    if (err != 0 || use->copy->info.bytes < head) {
        delta_give_up(delta, err != 0 ? reason : "it is too short");
    } else if (!delta->is_over) {
        sl_reactor_disarm(delta->node->reactor, &delta->stalled);
        delta->work.next_at = head;
        delta_rebuild_next(delta);
    }
}

/* Start */

static void delta_found(struct sl_objects_ask *ask, const struct sl_objects_message *answer,
                        int err, const char *reason)
{
    struct sl_objects_delta *delta = SL_CONTAINER_OF(ask, struct sl_objects_delta, find);
    struct sl_objects *node = delta->node;
    if (err != 0 || answer->commit.record_count == 0) { /* the version has none */
        delta_cancel(delta);
        return;
    }
    const uint64_t base = strtoull(answer->commit.record.note, NULL, 10);
    delta->base = base != 0 ? sl_objects_delta_find_base(node, delta->copy, base) : NULL;
    if (delta->base == NULL) {
        delta_give_up(delta, "this node does not have its base");
        sl_objects_report_none(node, delta->name, delta->copy->version, 0);
        return;
    }
    sl_objects_pool_pin(&node->pool, delta->base->pooled);
    delta->use.grown = delta_grown;
    delta->use.ended = delta_ended;
    if (sl_objects_cache_get(node, &delta->use, answer, 0, delta->deadline_ns) != 0) {
        delta_give_up(delta, "it cannot be fetched");
    }
}

static struct sl_objects_delta *delta_start(struct sl_objects *node, struct sl_objects_copy *copy,
                                            uint32_t missing_count, uint64_t deadline_ns,
                                            const struct sl_objects_delta_events *events, void *ctx)
{
    if (copy->pooled == NULL || copy->record == NULL || copy->record->origin != SL_ORIGIN_HOST ||
        missing_count < SL_OBJECTS_DELTA_BLOCKS_MIN || sl_objects_delta_is_name(copy->name) ||
        sl_objects_delta_find_base(node, copy, 0) == NULL) {
        return NULL;
    }
    struct sl_objects_delta *delta = calloc(1, sizeof *delta);
    if (delta == NULL || !sl_objects_delta_name(copy->name, copy->part, delta->name) ||
        sl_objects_delta_coder_create(&delta->work.coder) != 0) {
        free(delta);
        return NULL;
    }
    delta->node = node;
    delta->copy = copy;
    delta->events = events;
    delta->ctx = ctx;
    delta->deadline_ns = deadline_ns;
    delta->stalled.run = delta_stalled;
    delta->find.answered = delta_found;
    delta->find.message = (struct sl_objects_message){
        .kind = SL_OBJECTS_FIND, .name = delta->name, .version = copy->version};
    sl_reactor_arm(node->reactor, &delta->stalled, STALL_NS);
    sl_objects_ask(node, &delta->find, deadline_ns);
    return delta;
}

const struct sl_objects_delta_functions sl_objects_delta_functions = {.start = delta_start,
                                                                      .cancel = delta_cancel};

void sl_objects_delta_withdraw(struct sl_objects *node, const char *name, uint64_t version)
{
    const size_t length = strlen(name);
    SL_LIST_EACH (struct sl_objects_copy, copy, link, &node->copies) {
        if (copy->version == version && sl_objects_delta_is_name(copy->name) &&
            strncmp(copy->name, name, length) == 0 &&
            strrchr(copy->name, SUFFIX[0]) == copy->name + length) {
            sl_objects_withdraw(node, copy, "its version is gone");
        }
    }
}
