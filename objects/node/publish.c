#include "objects/node/publish.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/array.h"
#include "core/assert.h"
#include "core/log.h"
#include "objects/node/call.h"
#include "objects/node/delta.h"
#include "objects/node/error.h"
#include "objects/node/withdraw.h"

#define POLL_NS   (2 * SL_CLOCK_NS_PER_MS)
#define UNUSED_MS 10000 /* to unregister memory that no peer knows */
#define BEGIN_MS  200   /* to learn of other keepers */

/* Begin */

int sl_publish_check(const struct sl_publish_options *options)
{
    const uint32_t part_count = options->part_count == 0 ? 1 : options->part_count;
    const int err = sl_objects_check_size(options->struct_size, sizeof *options);
    if (err != 0) {
        return err;
    }
    if (options->note != NULL && !sl_objects_text_is_valid(options->note, SL_OBJECTS_NOTE_BYTES)) {
        return sl_objects_fail(SL_ERR_INVALID,
                               "the note is longer than %d bytes, or has control characters",
                               SL_OBJECTS_NOTE_BYTES - 1);
    }
    if ((uint32_t)options->origin > SL_ORIGIN_CALLER) {
        return sl_objects_fail(SL_ERR_INVALID, "origin %d is not known", (int)options->origin);
    }
    if (options->version > INT64_MAX) {
        return sl_objects_fail(SL_ERR_INVALID, "version %" PRIu64 " is not below 2^63",
                               options->version);
    }
    if (part_count > SL_OBJECTS_PARTS_MAX || options->part >= part_count ||
        (part_count > 1 && options->version == 0)) {
        return sl_objects_fail(SL_ERR_INVALID,
                               "part %u of %u: a version has up to %d parts, and its number is "
                               "given if it has several",
                               options->part, part_count, SL_OBJECTS_PARTS_MAX);
    }
    if (options->delta && options->origin != SL_ORIGIN_HOST) {
        return sl_objects_fail(SL_ERR_INVALID, "delta: only with the origin HOST");
    }
    const int wrong = sl_objects_check_name(options->name);
    return wrong != 0 || !sl_objects_delta_is_name(options->name)
               ? wrong
               : sl_objects_fail(SL_ERR_INVALID, "%s is a name of deltas", options->name);
}

static void publish_take_begun(void *ctx, const struct sl_objects_message *answer)
{
    struct sl_publication *publication = ctx;
    publication->version = answer->version;
    publication->epoch = answer->epoch;
    publication->keeper_count = answer->keepers.count;
    for (uint32_t i = 0; i < answer->keepers.count; i++) {
        struct sl_publication_keeper *keeper = &publication->keepers[i];
        publication->is_kept_here |= answer->keepers.peers[i].node == publication->node->id;
        (void)snprintf(keeper->address, sizeof keeper->address, "%s",
                       answer->keepers.peers[i].address);
    }
}

int sl_publish_create(struct sl_objects *objects, const struct sl_publish_options *options,
                      struct sl_publication **out)
{
    struct sl_publication *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return sl_objects_fail(SL_ERR_NO_MEMORY, "out of memory");
    }
    made->node = objects;
    made->origin = options->origin;
    made->part = options->part;
    made->part_count = options->part_count == 0 ? 1 : options->part_count;
    (void)snprintf(made->name, sizeof made->name, "%s", options->name);
    (void)snprintf(made->note, sizeof made->note, "%s", options->note == NULL ? "" : options->note);
    made->delta = options->delta && !sl_objects_delta_is_name(options->name) ? SL_DELTA_WANTED
                                                                             : SL_DELTA_NONE;
    sl_objects_manifest_init(&made->manifest);
    *out = made;
    return 0;
}

int sl_publish_start(struct sl_objects *objects, const struct sl_publish_options *options,
                     uint32_t timeout_ms, struct sl_publication **out)
{
    const uint64_t deadline_ns = sl_objects_deadline_ns(objects, timeout_ms);
    struct sl_publication *made;
    int err = sl_publish_create(objects, options, &made);
    if (err != 0) {
        return err;
    }
    struct sl_objects_message begin = {
        .kind = SL_OBJECTS_BEGIN,
        .name = made->name,
        .version = options->version,
        .part = made->part,
        .part_count = made->part_count,
        .begin.origin = made->origin,
        .begin.options = (options->take_over ? SL_OBJECTS_TAKE_OVER : 0) |
                         (options->new_name ? SL_OBJECTS_NEW_NAME : 0) |
                         (options->delta || strcmp(objects->names.agent, SL_OBJECTS_LOCAL_OFF) == 0
                              ? SL_OBJECTS_NO_AGENT
                              : 0),
    };
    err = sl_objects_ask_and_wait(objects, &begin, sl_objects_ms_left(objects, deadline_ns),
                                  publish_take_begun, made);
    if (err != 0) {
        free(made);
        return err;
    }
    *out = made;
    return sl_objects_succeed();
}

int sl_publish_begin(struct sl_objects *objects, const struct sl_publish_options *options,
                     uint32_t timeout_ms, struct sl_publication **out)
{
    sl_assert(objects != NULL);
    sl_assert(options != NULL);
    sl_assert(out != NULL);
    int err = sl_publish_check(options);
    err = err != 0 ? err : sl_objects_check_timeout(timeout_ms);
    return err != 0 ? err : sl_publish_start(objects, options, timeout_ms, out);
}

/* Layout */

static int check_open(const struct sl_publication *publication)
{
    sl_assert(publication->state != SL_PUBLICATION_COMMITTED);
    return publication->state == SL_PUBLICATION_OPEN
               ? 0
               : sl_objects_fail(SL_ERR_INVALID, "%s: after a commit nothing is added",
                                 publication->name);
}

int sl_publish_group(struct sl_publication *publication, const char *name)
{
    sl_assert(publication != NULL);
    struct sl_reason reason;
    int err = check_open(publication);
    if (err != 0) {
        return err;
    }
    err = name != NULL ? sl_objects_manifest_add_group(&publication->manifest, name, &reason)
                       : sl_reason_fail(&reason, SL_ERR_INVALID, "a group without a name");
    return err == 0 ? sl_objects_succeed() : sl_objects_fail(err, "%s", reason.text);
}

static int add_tensor(struct sl_publication *publication, const struct sl_object_tensor *tensor,
                      const struct sl_object_extent *extents, uint32_t count)
{
    struct sl_objects_manifest *manifest = &publication->manifest;
    struct sl_reason reason;
    int err = check_open(publication);
    if (err != 0) {
        return err;
    }
    if (tensor->name == NULL) {
        return sl_objects_fail(SL_ERR_INVALID, "a tensor without a name");
    }
    if (!sl_array_make_room(&publication->places, &publication->place_capacity,
                            publication->place_count + count, sizeof publication->places[0])) {
        return sl_objects_fail(SL_ERR_NO_MEMORY, "tensor %.128s: out of memory", tensor->name);
    }
    err = sl_objects_manifest_add_tensor(manifest, tensor->name, tensor->type, tensor->rank,
                                         tensor->shape, &reason);
    if (err != 0) {
        return sl_objects_fail(err, "%s", reason.text);
    }
    uint64_t offset = manifest->tensors[manifest->tensor_count - 1].offset;
    for (uint32_t i = 0; i < count; i++) {
        if (extents[i].bytes > 0) {
            publication->places[publication->place_count++] = (struct sl_objects_place){
                .offset = offset, .bytes = extents[i].bytes, .base = extents[i].base};
            offset += extents[i].bytes;
        }
    }
    return sl_objects_succeed();
}

/* The size is checked first: a tensor that was added stays. */
static int check_tensor(const struct sl_object_tensor *tensor)
{
    uint64_t bytes;
    if (!sl_objects_tensor_bytes(tensor->type, tensor->rank, tensor->shape, &bytes) ||
        bytes != tensor->bytes || (tensor->data == NULL && bytes > 0)) {
        return sl_objects_fail(SL_ERR_INVALID,
                               "tensor %.128s: %" PRIu64 " bytes are not those of its type %u and "
                               "its %u dimensions",
                               tensor->name != NULL ? tensor->name : "", tensor->bytes,
                               tensor->type, tensor->rank);
    }
    return 0;
}

int sl_publish_tensor(struct sl_publication *publication, const struct sl_object_tensor *tensor)
{
    sl_assert(publication != NULL);
    sl_assert(tensor != NULL);
    const struct sl_object_extent extent = {.base = (void *)(uintptr_t)tensor->data,
                                            .bytes = tensor->bytes};
    const int err = check_tensor(tensor);
    return err != 0 ? err : add_tensor(publication, tensor, &extent, 1);
}

int sl_publish_bytes(struct sl_publication *publication, const struct sl_object_extent *extents,
                     uint32_t count)
{
    sl_assert(publication != NULL);
    sl_assert(extents != NULL || count == 0);
    struct sl_object_tensor tensor = {.name = "bytes", .type = SL_OBJECT_U8, .rank = 1};
    if (count > SL_OBJECTS_EXTENTS_MAX) {
        return sl_objects_fail(SL_ERR_TOO_LARGE, "%u extents: at most %d", count,
                               SL_OBJECTS_EXTENTS_MAX);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (extents[i].base == NULL && extents[i].bytes > 0) {
            return sl_objects_fail(SL_ERR_INVALID, "extent %u has no memory", i);
        }
        if (__builtin_add_overflow(tensor.shape[0], extents[i].bytes, &tensor.shape[0])) {
            return sl_objects_fail(SL_ERR_TOO_LARGE, "the extents have too many bytes");
        }
    }
    return add_tensor(publication, &tensor, extents, count);
}

/* Commit */

static int hash(struct sl_publication *publication)
{
    struct sl_objects_manifest *manifest = &publication->manifest;
    struct sl_reason reason;
    uint8_t *scratch = malloc(SL_OBJECTS_BLOCK_BYTES);
    int err = scratch != NULL ? sl_objects_manifest_seal(manifest, &reason)
                              : sl_reason_fail(&reason, SL_ERR_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; err == 0 && i < manifest->block_count; i++) {
        const void *block = sl_objects_place_read(
            publication->places, publication->place_count, (uint64_t)i * SL_OBJECTS_BLOCK_BYTES,
            sl_objects_manifest_block_bytes(manifest, i), scratch);
        sl_objects_manifest_hash(manifest, i, block);
    }
    free(scratch);
    if (err != 0) {
        return sl_objects_fail(err, "%s: %s", publication->name, reason.text);
    }
    publication->state = SL_PUBLICATION_SEALED;
    return 0;
}

/* CALLER, and for keepers: the image stays in the caller's memory, which is registered with the
 * manifest. */
static int take_in_place(struct sl_publication *publication)
{
    const uint32_t count = publication->place_count;
    struct sl_object_extent *extents = calloc(count + 1, sizeof *extents);
    if (extents == NULL) {
        return sl_objects_fail(SL_ERR_NO_MEMORY, "out of memory");
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_objects_place *place = &publication->places[i];
        extents[i] = (struct sl_object_extent){.base = place->base, .bytes = place->bytes};
    }
    const int err = sl_objects_copy_register(publication->node->transfer, &publication->copy, 1,
                                             extents, count);
    free(extents);
    return err;
}

struct publish_call {
    struct sl_objects_call call;
    struct sl_objects_copy *copy;
    bool is_uncertain;
    uint64_t deadline_ns;
    struct sl_timer timer;
};

/* Waits for slots of versions that are withdrawn or retired, as long as nodes read them. */
static void try_reserve(struct sl_timer *timer, uint64_t now_ns)
{
    struct publish_call *reserve = SL_CONTAINER_OF(timer, struct publish_call, timer);
    struct sl_objects *node = reserve->call.node;
    struct sl_reason reason = {.text = ""};
    const int err = sl_objects_copy_reserve(node, reserve->copy, &reason);
    if (err == SL_ERR_NO_MEMORY && sl_objects_serve_is_ending(node) &&
        now_ns < reserve->deadline_ns) {
        sl_reactor_arm(node->reactor, timer, POLL_NS);
    } else {
        sl_objects_answer(&reserve->call, err, "%s", reason.text);
    }
}

/* The pool has one copy of a version: a fetch of it would wait for this one. */
static void reserve_here(struct sl_objects *node, struct sl_objects_call *call)
{
    struct publish_call *reserve = SL_CONTAINER_OF(call, struct publish_call, call);
    const struct sl_objects_copy *copy = reserve->copy;
    struct sl_objects_copy *fetched =
        sl_objects_copy_find(node, copy->name, copy->version, copy->part);
    if (fetched != NULL && fetched->pooled != NULL &&
        sl_hash_128_equal(fetched->info.digest, copy->info.digest)) {
        sl_objects_withdraw(node, fetched, "this node publishes it");
    }
    try_reserve(&reserve->timer, sl_reactor_now_ns(node->reactor));
}

/* HOST, and for a keeper here: manifest and image are copied into slots of the pool. A slot that an
 * older version shares has the bytes already. */
static int copy_into_pool(struct sl_publication *publication, uint64_t deadline_ns)
{
    struct sl_objects *node = publication->node;
    struct sl_objects_copy *copy = publication->copy;
    struct publish_call reserve = {.call = {.run = reserve_here},
                                   .copy = copy,
                                   .deadline_ns = deadline_ns,
                                   .timer = {.run = try_reserve}};
    struct sl_objects_place *from = copy->places;
    const uint32_t from_count = copy->place_count;
    copy->places = NULL;
    copy->place_count = 0;
    int err = sl_objects_copy_open_pool(node);
    err = err != 0 ? err : sl_objects_call(node, &reserve.call);
    for (uint32_t i = 0; err == 0 && i < copy->place_count; i++) { /* one for each block */
        const struct sl_objects_place *place = &copy->places[i];
        if (!copy->pooled->blocks[i].is_verified) {
            const void *at = sl_objects_place_read(from, from_count, place->offset,
                                                   (uint32_t)place->bytes, place->base);
            if (at != place->base) {
                memcpy(place->base, at, place->bytes);
            }
        }
    }
    free(from);
    free(copy->stored_manifest);
    copy->stored_manifest = NULL;
    return err;
}

/* Makes the copy that this node will serve. */
static int make_copy(struct sl_publication *publication, uint64_t deadline_ns)
{
    struct sl_objects_manifest *manifest = &publication->manifest;
    const struct sl_objects_part info = {
        .bytes = manifest->image_bytes,
        .holder = publication->keeper_count == 0 ? publication->node->id : 0,
        .manifest_bytes = (uint32_t)manifest->encoded_bytes};
    int err = sl_objects_copy_create(publication->name, publication->version, publication->part,
                                     &info, &publication->copy);
    struct sl_objects_copy *copy = publication->copy;
    err = err != 0
              ? err
              : sl_objects_copy_set_places(copy, publication->places, publication->place_count);
    if (err != 0) {
        return err;
    }
    copy->info.digest = sl_objects_manifest_encode(manifest, copy->stored_manifest);
    copy->manifest = *manifest;
    sl_objects_manifest_init(manifest);
    const bool is_host = publication->origin == SL_ORIGIN_HOST;
    bool is_copied = publication->is_kept_here || (is_host && publication->keeper_count == 0);
    err = is_copied ? 0 : take_in_place(publication);
    is_copied |= is_host && err != 0; /* the agent can read a copy, too */
    err = is_copied ? copy_into_pool(publication, deadline_ns) : err;
    if (err == 0 && sl_objects_copy_add_first(copy, sl_objects_copy_block_count(copy)) != 0) {
        err = sl_objects_fail(SL_ERR_NO_MEMORY, "out of memory");
    }
    copy->counts.verified_bytes = copy->info.bytes;
    publication->state = err == 0 ? SL_PUBLICATION_READY : publication->state;
    return err;
}

/* On the reactor, when the catalogue has acknowledged the commit. */
static void take_committed(void *ctx, const struct sl_objects_message *answer)
{
    struct sl_publication *publication = ctx;
    struct sl_objects_copy *copy = publication->copy;
    sl_objects_copy_set_record(copy, &answer->commit.record);
    if (publication->is_served) {
        return;
    }
    publication->copy = NULL;
    struct sl_objects_copy *fetched =
        sl_objects_copy_find(publication->node, copy->name, copy->version, copy->part);
    sl_objects_copy_keep(copy);
    sl_objects_serve_add(publication->node, copy);
    if (fetched != NULL && fetched->fetch != NULL) { /* peers would wait for that one */
        sl_objects_withdraw(publication->node, fetched, "this node has published it");
    }
    if (copy->pooled != NULL) {
        sl_objects_pool_unpin(&publication->node->pool, copy->pooled);
    }
    if (answer->commit.record.parts[copy->part].holder != publication->node->id) {
        sl_objects_report(publication->node, copy); /* another node published the same bytes */
    }
}

/* STORE to all keepers. If one has ended, the catalogue names another one within its lease. */
static int store(struct sl_publication *publication, const struct sl_objects_record *record,
                 uint64_t deadline_ns)
{
    struct sl_objects_message begin = {.kind = SL_OBJECTS_BEGIN,
                                       .name = publication->name,
                                       .version = publication->version,
                                       .part = publication->part,
                                       .part_count = publication->part_count,
                                       .begin.origin = SL_ORIGIN_PS};
    int err, begin_err = 0;
    while ((err = sl_publish_store_send(publication, record, deadline_ns)) == SL_ERR_AGAIN) {
        const uint32_t left_ms = sl_objects_ms_left(publication->node, deadline_ns);
        if (publication->origin == SL_ORIGIN_PS && !publication->is_kept_here) {
            begin_err = sl_objects_ask_and_wait(publication->node, &begin,
                                                left_ms < BEGIN_MS ? left_ms : BEGIN_MS,
                                                publish_take_begun, publication);
        }
        if (begin_err != 0 && begin_err != SL_ERR_DEADLINE) {
            return begin_err;
        }
    }
    return err;
}

/* Stores the part at its keepers, commits it, and has each keeper record the commit. AGAIN: a
 * keeper has ended in between. */
static int store_and_commit(struct sl_publication *publication, struct sl_objects_message *commit,
                            uint64_t deadline_ns)
{
    const bool is_kept = publication->keeper_count > 0;
    int err = is_kept ? store(publication, &commit->commit.record, deadline_ns) : 0;
    commit->commit.record.epoch = publication->epoch;
    commit->commit.record.keeper_count = publication->keeper_count;
    for (uint32_t i = 0; i < publication->keeper_count; i++) {
        commit->commit.record.keepers[i] = publication->keepers[i].node;
    }
    err = err != 0 ? err
                   : sl_objects_ask_and_wait(publication->node, commit,
                                             sl_objects_ms_left(publication->node, deadline_ns),
                                             take_committed, publication);
    if (err != 0 || !is_kept) {
        return err;
    }
    return publication->copy->record != NULL
               ? sl_publish_store_send(publication, publication->copy->record, deadline_ns)
               : sl_objects_fail(SL_ERR_NO_MEMORY, "%s: no memory for its record",
                                 publication->name);
}

/* Without a delta the version is published all the same. */
static void publish_delta(struct sl_publication *publication, uint64_t deadline_ns)
{
    struct sl_objects *node = publication->node;
    char name[SL_OBJECTS_NAME_BYTES], note[24];
    uint64_t base, version;
    struct sl_object_extent delta;
    delta.base = sl_objects_delta_name(publication->name, publication->part, name)
                     ? sl_objects_delta_make(node, publication->copy, &delta.bytes, &base)
                     : NULL;
    if (delta.base == NULL) {
        return;
    }
    const struct sl_publish_options options = {.struct_size = sizeof options,
                                               .name = name,
                                               .note = note,
                                               .version = publication->version,
                                               .take_over = true,
                                               .delta = true};
    struct sl_publication *own = NULL;
    (void)snprintf(note, sizeof note, "%" PRIu64, base);
    int err = sl_publish_start(node, &options, sl_objects_ms_left(node, deadline_ns), &own);
    err = err != 0 ? err : sl_publish_bytes(own, &delta, 1);
    err = err != 0 ? err : sl_publish_commit(own, sl_objects_ms_left(node, deadline_ns), &version);
    if (err != 0) {
        sl_log_warn("objects: %s@%" PRIu64 " has no delta: %s", publication->name,
                    publication->version, sl_objects_last_error());
    }
    sl_publish_end(&own);
    free(delta.base);
}

/* Whether the version is small, and the agent of this host is to have it. A node with a limited
 * rate lets the agent read it. */
static bool publish_is_small(const struct sl_publication *publication)
{
    const struct sl_objects_manifest *manifest = &publication->manifest;
    return publication->origin == SL_ORIGIN_HOST && publication->part_count == 1 &&
           publication->keeper_count == 1 && !publication->is_kept_here &&
           publication->node->rate_bytes == 0 && manifest->image_bytes > 0 &&
           manifest->image_bytes + manifest->encoded_bytes <= SL_OBJECTS_IMAGE_BYTES;
}

int sl_publish_commit(struct sl_publication *publication, uint32_t timeout_ms, uint64_t *version)
{
    sl_assert(publication != NULL && publication->state != SL_PUBLICATION_COMMITTED);
    sl_assert(version != NULL);
    int err = sl_objects_check_timeout(timeout_ms);
    const uint64_t deadline_ns = sl_objects_deadline_ns(publication->node, timeout_ms);
    if (err == 0 && publication->state == SL_PUBLICATION_OPEN) { /* else it is tried again */
        err = hash(publication);
        if (err == 0 && publish_is_small(publication) &&
            sl_publish_store_put(publication, timeout_ms / 2 + 1) == 0) {
            publication->state = SL_PUBLICATION_COMMITTED;
            *version = publication->version;
            return sl_objects_succeed();
        }
        err = err != 0 ? err : make_copy(publication, deadline_ns);
    } else if (err == 0 && publication->state == SL_PUBLICATION_SEALED) {
        err = sl_objects_fail(SL_ERR_INVALID, "%s: its memory could not be used: begin again",
                              publication->name);
    }
    if (err != 0) {
        return err;
    }
    if (publication->delta == SL_DELTA_WANTED) {
        publication->delta = SL_DELTA_PUBLISHED;
        publish_delta(publication, deadline_ns);
    }
    struct sl_objects_message commit = {
        .kind = SL_OBJECTS_COMMIT,
        .part = publication->part,
        .part_count = publication->part_count,
        .commit.record_count = 1,
        .commit.record = {.name = publication->name,
                          .note = publication->note,
                          .version = publication->version,
                          .epoch = publication->epoch,
                          .origin = publication->origin,
                          .part_count = 1,
                          .parts = {publication->copy->info}},
    };
    do {
        err = store_and_commit(publication, &commit, deadline_ns);
    } while (err == SL_ERR_AGAIN);
    if (err == 0 && publication->is_served) {
        err = sl_publish_store_release(publication, !publication->is_kept_here,
                                       sl_objects_ms_left(publication->node, deadline_ns));
    }
    if (err != 0) {
        publication->state = err == SL_ERR_DEADLINE ? SL_PUBLICATION_UNCERTAIN : publication->state;
        return err;
    }
    publication->state = SL_PUBLICATION_COMMITTED;
    *version = publication->version;
    return sl_objects_succeed();
}

static void release_here(struct sl_objects *node, struct sl_objects_call *call)
{
    const struct publish_call *release = SL_CONTAINER_OF(call, struct publish_call, call);
    struct sl_objects_copy *copy = release->copy;
    if (release->is_uncertain) {
        sl_objects_report_none(node, copy->name, copy->version, copy->part);
    }
    if (copy->pooled != NULL) {
        sl_objects_pool_retire(&node->pool, copy->pooled);
        sl_objects_pool_unpin(&node->pool, copy->pooled);
    }
    sl_objects_answer(call, 0, "released");
}

void sl_publish_end(struct sl_publication **publication)
{
    sl_assert(publication != NULL);
    struct sl_publication *gone = *publication;
    *publication = NULL;
    if (gone == NULL) {
        return;
    }
    const struct sl_reason saved = sl_objects_error_save();
    if (gone->delta == SL_DELTA_PUBLISHED && gone->state != SL_PUBLICATION_COMMITTED) {
        char delta[SL_OBJECTS_NAME_BYTES];
        if (sl_objects_delta_name(gone->name, gone->part, delta)) {
            (void)sl_objects_withdraw_version(gone->node, delta, gone->version, UNUSED_MS);
        }
    }
    if (gone->copy != NULL && gone->is_served) {
        if (sl_publish_store_release(gone, true, UNUSED_MS) != 0) {
            sl_log_error("objects: %s@%" PRIu64 ": a keeper still reads its memory: withdraw it "
                         "before the memory changes: %s",
                         gone->name, gone->version, sl_objects_last_error());
        }
    } else if (gone->copy != NULL) { /* not committed: no peer reads it, so nothing is waited for */
        struct publish_call release = {.call = {.run = release_here},
                                       .copy = gone->copy,
                                       .is_uncertain = gone->state == SL_PUBLICATION_UNCERTAIN};
        (void)sl_objects_call(gone->node, &release.call);
        (void)sl_objects_copy_discard(gone->node, gone->copy, UNUSED_MS);
    }
    sl_objects_manifest_fini(&gone->manifest);
    free(gone->places);
    free(gone);
    sl_objects_error_restore(&saved);
}
