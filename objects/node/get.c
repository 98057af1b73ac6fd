#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/assert.h"
#include "objects/node/call.h"
#include "objects/node/error.h"
#include "objects/node/fetch.h"
#include "objects/node/get.h"
#include "objects/node/node.h"
#include "objects/node/pin.h"
#include "objects/node/withdraw.h"

#define CLOSE_MS 10000 /* to unregister the memory of a get that failed */

/* A get is one fetch for each part, or a pin of the version in the pool. */
struct sl_get {
    struct sl_objects *node;
    char name[SL_OBJECTS_NAME_BYTES];
    uint64_t version, bytes; /* 0: the newest, until FIND is answered */
    uint64_t deadline_ns;
    uint32_t part_count;
    struct sl_objects_copy *copies[SL_OBJECTS_PARTS_MAX]; /* used by the get, too */
    struct sl_objects_pin *pin;                           /* NULL: into memory of the caller */

    int start_err;                   /* why the answer to FIND is of no use */
    struct sl_completion completion; /* begun, until all fetches are over */
    /* The reactor's until then. */
    uint32_t left;
    int err;
    char reason[SL_REASON_BYTES];
};

struct get_call {
    struct sl_objects_call call;
    struct sl_get *get;
    struct sl_get_progress *progress;
};

/* On the reactor */

static void get_cancel(struct sl_get *get, const char *reason)
{
    for (uint32_t i = 0; i < get->part_count; i++) {
        if (get->copies[i]->fetch != NULL) {
            sl_objects_fetch_cancel(get->copies[i]->fetch, reason);
        }
    }
}

static void note_error(struct sl_get *get, int err, const char *reason)
{
    get->err = err;
    (void)snprintf(get->reason, sizeof get->reason, "%s", reason);
}

/* One fetch is over. If it has failed, the others are not needed any more. */
static void get_fetch_over(struct sl_objects *node, struct sl_objects_copy *copy, void *ctx,
                           int err, const char *reason)
{
    struct sl_get *get = ctx;
    if (err != 0 && get->err == 0) {
        note_error(get, err, reason);
        get_cancel(get, reason);
    }
    if (--get->left > 0) {
        return;
    }
    for (uint32_t i = 0; get->err != 0 && i < get->part_count; i++) {
        sl_objects_withdraw(get->node, get->copies[i], get->reason);
    }
    sl_completion_end(&get->completion); /* from here on it may be freed */
}

static void pin_ended(struct sl_objects_pin *pin)
{
    struct sl_get *get = pin->ctx;
    note_error(get, pin->err, pin->reason);
    sl_completion_end(&get->completion);
}

/* The answer to FIND, for a get into the pool. */
static void pin_found(void *ctx, const struct sl_objects_message *answer)
{
    struct sl_get *get = ctx;
    const struct sl_objects_record *record = &answer->commit.record;
    if (answer->commit.record_count == 1) {
        get->version = record->version;
        get->start_err = sl_objects_pin_open(get->node, answer, get->deadline_ns, &get->pin, NULL);
    }
    if (get->pin == NULL) {
        return;
    }
    get->pin->ctx = get;
    get->pin->ended = pin_ended;
    get->part_count = record->part_count;
    for (uint32_t i = 0; i < record->part_count; i++) {
        get->copies[i] = sl_objects_pin_copy(&get->pin->parts[i]);
        get->bytes += record->parts[i].bytes;
    }
    sl_completion_begin(&get->completion);
}

/* The answer to FIND: a copy and a fetch for each part; the first one has a plan. */
static void take_found(void *ctx, const struct sl_objects_message *answer)
{
    struct sl_get *get = ctx;
    const struct sl_objects_record *record = &answer->commit.record;
    get->version = record->version;
    for (uint32_t i = 0;
         get->start_err == 0 && answer->commit.record_count == 1 && i < record->part_count; i++) {
        struct sl_objects_copy *copy;
        get->start_err =
            sl_objects_copy_create(get->name, record->version, i, &record->parts[i], &copy);
        if (get->start_err == 0) {
            get->copies[get->part_count++] = copy;
            get->bytes += record->parts[i].bytes;
            sl_objects_copy_set_record(copy, record);
            get->start_err =
                sl_objects_fetch_create(get->node, copy, get->deadline_ns, get_fetch_over, get);
        }
    }
    if (get->part_count > 0 && get->copies[0]->fetch != NULL) {
        sl_objects_fetch_news(get->copies[0]->fetch, answer);
    }
}

static void get_start_here(struct sl_objects *node, struct sl_objects_call *call)
{
    struct sl_get *get = SL_CONTAINER_OF(call, struct get_call, call)->get;
    if (sl_objects_copy_exists(node, get->name, get->version)) {
        sl_objects_answer(call, SL_ERR_EXISTS,
                          "%s@%" PRIu64
                          ": this node has or fetches it, or it waits for its withdraw",
                          get->name, get->version);
        return;
    }
    get->left = get->part_count;
    sl_completion_begin(&get->completion);
    for (uint32_t i = 0; i < get->part_count; i++) {
        get->copies[i]->uses++;
        sl_objects_serve_add(node, get->copies[i]);
        sl_objects_fetch_start(get->copies[i]->fetch);
    }
    sl_objects_answer(call, 0, "started");
}

static void progress_here(struct sl_objects *node, struct sl_objects_call *call)
{
    const struct get_call *progress = SL_CONTAINER_OF(call, struct get_call, call);
    const struct sl_get *get = progress->get;
    struct sl_get_progress *out = progress->progress;
    *out = (struct sl_get_progress){.version = get->version,
                                    .bytes = get->bytes,
                                    .done = sl_completion_ended(&get->completion)};
    for (uint32_t i = 0; i < get->part_count; i++) {
        const struct sl_objects_fetch_counts *counts = &get->copies[i]->counts;
        out->verified_bytes += counts->verified_bytes;
        out->corrupt_blocks += counts->corrupt_blocks;
        out->replaced_sources += counts->replaced_parents;
    }
    sl_objects_answer(call, 0, "progress");
}

static void abandon_here(struct sl_objects *node, struct sl_objects_call *call)
{
    const struct sl_get *get = SL_CONTAINER_OF(call, struct get_call, call)->get;
    for (uint32_t i = 0; i < get->part_count; i++) {
        sl_objects_report_none(node, get->name, get->version, i);
    }
    sl_objects_answer(call, 0, "abandoned");
}

static void get_cancel_here(struct sl_objects *node, struct sl_objects_call *call)
{
    struct sl_get *get = SL_CONTAINER_OF(call, struct get_call, call)->get;
    get_cancel(get, "the get was closed");
    sl_objects_answer(call, 0, "cancelled");
}

static void get_put_here(struct sl_objects *node, struct sl_objects_call *call)
{
    struct sl_get *get = SL_CONTAINER_OF(call, struct get_call, call)->get;
    for (uint32_t i = 0; get->pin == NULL && i < get->part_count; i++) {
        sl_objects_copy_put(get->copies[i]);
    }
    sl_objects_pin_close(&get->pin);
    sl_objects_answer(call, 0, "put");
}

/* On the application's thread: memory */

/* Cuts the extents into the places of each part's image. */
static int set_places(struct sl_get *get, const struct sl_object_extent *extents, uint32_t count)
{
    struct sl_objects_place *places = calloc(count + 1, sizeof *places);
    uint32_t extent = 0;
    uint64_t within = 0;
    int err = places != NULL ? 0 : sl_objects_fail(SL_ERR_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; err == 0 && i < get->part_count; i++) {
        struct sl_objects_copy *copy = get->copies[i];
        uint64_t offset = 0;
        uint32_t place_count = 0;
        while (offset < copy->info.bytes) {
            const uint64_t left = extents[extent].bytes - within;
            const uint64_t bytes =
                left < copy->info.bytes - offset ? left : copy->info.bytes - offset;
            if (bytes > 0) {
                places[place_count++] =
                    (struct sl_objects_place){.offset = offset,
                                              .bytes = bytes,
                                              .base = (uint8_t *)extents[extent].base + within};
            }
            offset += bytes;
            within += bytes;
            if (within == extents[extent].bytes) {
                extent++;
                within = 0;
            }
        }
        err = sl_objects_copy_set_places(copy, places, place_count);
    }
    free(places);
    return err;
}

static bool overlap(const struct sl_object_extent *a, const struct sl_object_extent *b)
{
    const uint64_t a_begin = (uintptr_t)a->base, a_end = a_begin + a->bytes;
    const uint64_t b_begin = (uintptr_t)b->base, b_end = b_begin + b->bytes;
    return (a_begin > b_begin ? a_begin : b_begin) < (a_end < b_end ? a_end : b_end);
}

static int check_extents(const struct sl_get *get, const struct sl_object_extent *extents,
                         uint32_t count)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (__builtin_add_overflow(bytes, extents[i].bytes, &bytes) ||
            (extents[i].base == NULL && extents[i].bytes > 0)) {
            return sl_objects_fail(SL_ERR_INVALID, "extent %u has no memory, or too many bytes", i);
        }
        for (uint32_t j = 0; j < i; j++) {
            if (overlap(&extents[i], &extents[j])) {
                return sl_objects_fail(SL_ERR_INVALID, "extents %u and %u overlap", j, i);
            }
        }
    }
    return bytes == get->bytes
               ? 0
               : sl_objects_fail(SL_ERR_INVALID,
                                 "%s@%" PRIu64 " has %" PRIu64 " bytes; the extents have %" PRIu64,
                                 get->name, get->version, get->bytes, bytes);
}

static int take_memory(struct sl_get *get, const struct sl_object_extent *extents, uint32_t count)
{
    int err = check_extents(get, extents, count);
    err = err != 0 ? err : set_places(get, extents, count);
    return err != 0 ? err
                    : sl_objects_copy_register(get->node->transfer, get->copies, get->part_count,
                                               extents, count);
}

/* Public */

static int check_start(const char *name, uint32_t count, uint32_t timeout_ms)
{
    if (count > SL_OBJECTS_EXTENTS_MAX) {
        return sl_objects_fail(SL_ERR_TOO_LARGE, "%u extents: at most %d", count,
                               SL_OBJECTS_EXTENTS_MAX);
    }
    const int err = sl_objects_check_name(name);
    return err != 0 ? err : sl_objects_check_timeout(timeout_ms);
}

static int get_find(struct sl_get *get,
                    void (*take)(void *ctx, const struct sl_objects_message *answer))
{
    struct sl_objects_message message = {
        .kind = SL_OBJECTS_FIND, .name = get->name, .version = get->version};
    const int err = sl_objects_ask_and_wait(
        get->node, &message, sl_objects_ms_left(get->node, get->deadline_ns), take, get);
    if (err != 0) {
        return err;
    }
    if (get->start_err == SL_ERR_AGAIN) {
        return sl_objects_fail(SL_ERR_EXISTS, "%s@%" PRIu64 ": another get fetches it just now",
                               get->name, get->version);
    }
    if (get->start_err != 0) {
        return sl_objects_fail(get->start_err, "%s@%" PRIu64 ": there is no memory for it",
                               get->name, get->version);
    }
    return get->part_count > 0 ? 0
                               : sl_objects_fail(SL_ERR_NOT_FOUND, "%s: no version yet", get->name);
}

/* Frees a get that was not started. The catalogue may expect this node to fetch. */
static void abandon(struct sl_get *get)
{
    struct get_call abandoned = {.call = {.run = abandon_here}, .get = get};
    if (get->part_count > 0) {
        (void)sl_objects_call(get->node, &abandoned.call);
    }
    int err = 0; /* after which the others stay: the first copy has the memory of all */
    for (uint32_t i = 0; i < get->part_count; i++) {
        struct sl_objects_copy *copy = get->copies[i];
        sl_objects_fetch_free(copy->fetch);
        err = err != 0 ? err : sl_objects_copy_discard(get->node, copy, CLOSE_MS);
    }
    free(get);
}

/* Into memory of the caller. */
static int start(struct sl_get *get, const struct sl_object_extent *extents, uint32_t count)
{
    struct get_call start = {.call = {.run = get_start_here}, .get = get};
    int err = get_find(get, take_found);
    err = err != 0 ? err : take_memory(get, extents, count);
    return err != 0 ? err : sl_objects_call(get->node, &start.call);
}

static int start_in_pool(struct sl_get *get)
{
    const int err = sl_objects_copy_open_pool(get->node);
    return err != 0 ? err : get_find(get, pin_found);
}

int sl_get_start(struct sl_objects *objects, const char *name, uint64_t version,
                 const struct sl_object_extent *extents, uint32_t count, uint32_t timeout_ms,
                 struct sl_get **out)
{
    sl_assert(objects != NULL);
    sl_assert(extents != NULL || count == 0);
    sl_assert(out != NULL);
    int err = check_start(name, count, timeout_ms);
    if (err != 0) {
        return err;
    }
    const uint64_t deadline_ns = sl_objects_deadline_ns(objects, timeout_ms);
    struct sl_get *get = calloc(1, sizeof *get);
    if (get == NULL) {
        return sl_objects_fail(SL_ERR_NO_MEMORY, "out of memory");
    }
    get->node = objects;
    get->version = version;
    get->deadline_ns = deadline_ns;
    (void)snprintf(get->name, sizeof get->name, "%s", name);
    err = count > 0 ? start(get, extents, count) : start_in_pool(get);
    if (err != 0) {
        const struct sl_reason saved = sl_objects_error_save();
        abandon(get);
        sl_objects_error_restore(&saved);
        return err;
    }
    *out = get;
    return sl_objects_succeed();
}

int sl_get_wait(struct sl_get *get)
{
    sl_assert(get != NULL);
    sl_objects_wait(get->node, &get->completion);
    return get->err == 0 ? sl_objects_succeed() : sl_objects_fail(get->err, "%s", get->reason);
}

int sl_get_progress(struct sl_get *get, struct sl_get_progress *out)
{
    sl_assert(get != NULL);
    sl_assert(out != NULL);
    struct get_call progress = {.call = {.run = progress_here}, .get = get, .progress = out};
    const int err = sl_objects_call(get->node, &progress.call);
    return err != 0 ? err : sl_objects_succeed();
}

int sl_get_next_tensor(struct sl_get *get, uint64_t *cursor, struct sl_object_tensor *out,
                       uint64_t *image_offset)
{
    sl_assert(get != NULL);
    sl_assert(cursor != NULL && out != NULL && image_offset != NULL);
    if (!sl_completion_ended(&get->completion)) {
        return sl_objects_fail(SL_ERR_AGAIN, "the get is still running");
    }
    if (get->err != 0) {
        return sl_objects_fail(get->err, "%s", get->reason);
    }
    uint64_t index = *cursor, image_at = 0;
    for (uint32_t i = 0; i < get->part_count; i++) {
        const struct sl_objects_copy *copy = get->copies[i];
        if (index >= copy->manifest.tensor_count) {
            index -= copy->manifest.tensor_count;
            image_at += copy->info.bytes;
            continue;
        }
        sl_objects_manifest_describe(&copy->manifest, copy->places, copy->place_count,
                                     sl_objects_copy_image_at(copy), (uint32_t)index, out);
        *image_offset = image_at + copy->manifest.tensors[index].offset;
        ++*cursor;
        return sl_objects_succeed();
    }
    return sl_objects_fail(SL_ERR_NOT_FOUND, "there are no more tensors");
}

uint32_t sl_get_part(const struct sl_get *get, uint64_t index)
{
    uint32_t part = 0;
    for (; part + 1 < get->part_count && index >= get->copies[part]->manifest.tensor_count;
         part++) {
        index -= get->copies[part]->manifest.tensor_count;
    }
    return part;
}

void sl_get_close(struct sl_get **get)
{
    sl_assert(get != NULL);
    struct sl_get *gone = *get;
    *get = NULL;
    if (gone == NULL) {
        return;
    }
    const struct sl_reason saved = sl_objects_error_save();
    struct get_call cancelled = {.call = {.run = get_cancel_here}, .get = gone};
    struct get_call put = {.call = {.run = get_put_here}, .get = gone};
    if (gone->pin == NULL && !sl_completion_ended(&gone->completion)) {
        (void)sl_objects_call(gone->node, &cancelled.call);
        sl_objects_wait(gone->node, &gone->completion);
    }
    if (gone->pin == NULL && gone->err != 0) {
        sl_objects_withdraw_failed(gone->node, gone->name, gone->version, CLOSE_MS);
    }
    (void)sl_objects_call(gone->node, &put.call);
    free(gone);
    sl_objects_error_restore(&saved);
}
