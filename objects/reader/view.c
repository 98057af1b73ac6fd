#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/array.h"
#include "core/assert.h"
#include "objects/node/call.h"
#include "objects/node/error.h"
#include "objects/reader/mapping.h"
#include "objects/reader/rows.h"
#include "objects/reader/subscription.h"

#define CLOSE_MS 10000
/* A wait first looks whether the bytes have come: often they are on their way, and the agent, which
 * verifies others, answers late. */
#define LOOKS    100
#define LOOK_US  50

struct sl_view {
    struct sl_subscription *subscription;
    struct sl_objects_connection *connection;
    uint64_t id, version;
    char note[SL_OBJECTS_NOTE_BYTES];
    struct sl_objects_mapping mapping;
    struct view_table { /* that sl_view_rows has looked up last */
        char name[SL_OBJECTS_TENSOR_NAME_BYTES];
        struct sl_objects_rows_shard *shards;
        uint32_t shard_count, shard_capacity, dim;
    } table;
};

/* Open and close */

static void close_at_agent(struct sl_objects_connection *connection, uint64_t id)
{
    const struct sl_objects_session_request request = {
        .kind = SL_OBJECTS_SESSION_CLOSE, .timeout_ms = CLOSE_MS, .view = id};
    struct sl_objects_session_answer answer;
    int fds[SL_OBJECTS_SESSION_FDS_MAX];
    (void)sl_objects_connection_call(connection, &request, &answer, fds);
}

static int check_options(const struct sl_view_options *options)
{
    const int err = sl_objects_check_size(options->struct_size, sizeof *options);
    if (err != 0) {
        return err;
    }
    if (options->stop_count > SL_OBJECTS_SESSION_STOPS_MAX) {
        return sl_objects_fail(SL_ERR_INVALID, "%u stops: at most %d", options->stop_count,
                               SL_OBJECTS_SESSION_STOPS_MAX);
    }
    return 0;
}

static int ask_for_view(struct sl_subscription *subscription, const struct sl_view_options *options,
                        uint32_t timeout_ms, struct sl_objects_session_answer *answer,
                        int fds[SL_OBJECTS_SESSION_FDS_MAX])
{
    struct sl_objects_session_request request = {.kind = SL_OBJECTS_SESSION_OPEN,
                                                 .version = options->version,
                                                 .behind_max = options->behind_max,
                                                 .options =
                                                     options->stream ? SL_OBJECTS_OPEN_STREAM : 0,
                                                 .stop_count = options->stop_count};
    if (options->stop_count > 0) {
        memcpy(request.stops, options->stops, sizeof *options->stops * options->stop_count);
    }
    return sl_objects_subscription_call(subscription, &request,
                                        sl_objects_deadline_ns(subscription->node, timeout_ms),
                                        answer, fds);
}

int sl_view_open(struct sl_subscription *subscription, const struct sl_view_options *options,
                 uint32_t timeout_ms, struct sl_view **out)
{
    const struct sl_view_options standard = {.struct_size = sizeof standard};
    struct sl_objects_session_answer answer;
    struct sl_reason reason;
    int fds[SL_OBJECTS_SESSION_FDS_MAX] = {-1, -1};
    sl_assert(subscription != NULL);
    sl_assert(out != NULL);
    options = options != NULL ? options : &standard;
    int err = sl_objects_check_timeout(timeout_ms);
    err = err != 0 ? err : check_options(options);
    if (err != 0) {
        return err;
    }
    struct sl_view *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return sl_objects_fail(SL_ERR_NO_MEMORY, "out of memory");
    }
    err = ask_for_view(subscription, options, timeout_ms, &answer, fds);
    if (err != 0) {
        free(made);
        return err;
    }
    made->subscription = subscription;
    made->connection = subscription->connection;
    made->id = answer.view;
    made->version = answer.version;
    (void)snprintf(made->note, sizeof made->note, "%s", answer.text);
    err = sl_objects_mapping_open(&made->mapping, fds[0], answer.fd_count > 1 ? fds[1] : -1,
                                  made->connection->session != NULL, &reason);
    for (uint32_t i = 0; i < answer.fd_count; i++) {
        (void)close(fds[i]);
    }
    if (err != 0) {
        close_at_agent(made->connection, made->id);
        free(made);
        return sl_objects_fail(err, "%s: %s", subscription->name, reason.text);
    }
    made->connection->uses++;
    subscription->view_count++;
    sl_objects_subscription_use(subscription, made->version);
    *out = made;
    return sl_objects_succeed();
}

void sl_view_close(struct sl_view **view)
{
    sl_assert(view != NULL);
    struct sl_view *gone = *view;
    *view = NULL;
    if (gone == NULL) {
        return;
    }
    const struct sl_reason saved = sl_objects_error_save();
    sl_objects_mapping_close(&gone->mapping); /* before its slots can be used again */
    close_at_agent(gone->connection, gone->id);
    sl_objects_connection_put(gone->connection);
    gone->subscription->view_count--;
    free(gone->table.shards);
    free(gone);
    sl_objects_error_restore(&saved);
}

uint64_t sl_view_version(const struct sl_view *view)
{
    sl_assert(view != NULL);
    return view->version;
}

const char *sl_view_note(const struct sl_view *view)
{
    sl_assert(view != NULL);
    return view->note;
}

static bool come_soon(const struct sl_view *view, uint64_t image_bytes, uint32_t timeout_ms)
{
    const bool is_agents = view->connection->session == NULL;
    bool have_come = sl_objects_mapping_verified(&view->mapping) >= image_bytes;
    for (uint32_t i = 0; is_agents && !have_come && i < LOOKS && i * LOOK_US < timeout_ms * 1000ULL;
         i++) {
        (void)nanosleep(&(struct timespec){.tv_nsec = LOOK_US * 1000}, NULL);
        have_come = sl_objects_mapping_verified(&view->mapping) >= image_bytes;
    }
    return have_come;
}

int sl_view_wait(struct sl_view *view, uint64_t image_bytes, uint32_t timeout_ms)
{
    sl_assert(view != NULL);
    const struct sl_objects_session_request request = {.kind = SL_OBJECTS_SESSION_WAIT_VIEW,
                                                       .timeout_ms = timeout_ms,
                                                       .view = view->id,
                                                       .image_bytes = image_bytes};
    struct sl_objects_session_answer answer;
    int fds[SL_OBJECTS_SESSION_FDS_MAX];
    uint64_t all = 0;
    for (uint32_t i = 0; i < view->mapping.image_count; i++) {
        all += view->mapping.images[i].bytes;
    }
    int err = sl_objects_check_timeout(timeout_ms);
    const uint64_t wanted = image_bytes < all ? image_bytes : all;
    if (err == 0 && !come_soon(view, wanted, timeout_ms)) {
        err = sl_objects_connection_call(view->connection, &request, &answer, fds);
    }
    return err != 0 ? err : sl_objects_succeed();
}

/* Tensors and groups */

static void reader_view_describe(const struct sl_objects_mapping_image *image, uint32_t index,
                                 uint64_t at, struct sl_object_tensor *out, uint64_t *image_offset)
{
    sl_objects_manifest_describe(image->manifest, image->places, image->place_count,
                                 image->image_at, index, out);
    if (image_offset != NULL) {
        *image_offset = at + image->manifest->tensors[index].offset;
    }
}

/* How many parts have a tensor with the name; describes the last one's. */
static uint32_t reader_view_find_tensor(const struct sl_view *view, const char *name,
                                        struct sl_object_tensor *out, uint64_t *image_offset)
{
    uint64_t at = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < view->mapping.image_count; i++) {
        const struct sl_objects_mapping_image *image = &view->mapping.images[i];
        const uint32_t index = sl_objects_manifest_find(image->manifest, name);
        if (index < image->manifest->tensor_count) {
            reader_view_describe(image, index, at, out, image_offset);
            count++;
        }
        at += image->bytes;
    }
    return count;
}

/* No tensor or group has the name, or several have it. */
static int fail_to_find(const struct sl_view *view, const char *what, const char *name,
                        uint32_t count)
{
    const char *of = view->subscription->name;
    const unsigned long long version = view->version;
    return count == 0
               ? sl_objects_fail(SL_ERR_NOT_FOUND, "%s@%llu has no %s %s", of, version, what, name)
               : sl_objects_fail(SL_ERR_EXISTS,
                                 "%s@%llu has %u times a %s %s: read the tensors in order, "
                                 "with sl_view_next_tensor",
                                 of, version, count, what, name);
}

int sl_view_tensor(const struct sl_view *view, const char *name, struct sl_object_tensor *out,
                   uint64_t *image_offset)
{
    sl_assert(view != NULL);
    sl_assert(name != NULL);
    sl_assert(out != NULL);
    struct sl_object_tensor found;
    uint64_t at;
    const uint32_t count = reader_view_find_tensor(view, name, &found, &at);
    if (count != 1) {
        return fail_to_find(view, "tensor", name, count);
    }
    *out = found;
    if (image_offset != NULL) {
        *image_offset = at;
    }
    return sl_objects_succeed();
}

int sl_view_next_tensor(const struct sl_view *view, uint64_t *cursor, struct sl_object_tensor *out,
                        uint64_t *image_offset)
{
    sl_assert(view != NULL);
    sl_assert(cursor != NULL);
    sl_assert(out != NULL);
    uint64_t index = *cursor, at = 0;
    for (uint32_t i = 0; i < view->mapping.image_count; i++) {
        const struct sl_objects_mapping_image *image = &view->mapping.images[i];
        if (index < image->manifest->tensor_count) {
            reader_view_describe(image, (uint32_t)index, at, out, image_offset);
            ++*cursor;
            return sl_objects_succeed();
        }
        index -= image->manifest->tensor_count;
        at += image->bytes;
    }
    return sl_objects_fail(SL_ERR_NOT_FOUND, "there are no more tensors");
}

int sl_view_group(const struct sl_view *view, const char *name, uint64_t *image_offset,
                  uint64_t *bytes)
{
    sl_assert(view != NULL);
    sl_assert(name != NULL);
    sl_assert(image_offset != NULL && bytes != NULL);
    uint64_t at = 0, begin = 0, end = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < view->mapping.image_count; i++) {
        const struct sl_objects_manifest *manifest = view->mapping.images[i].manifest;
        for (uint32_t g = 0; g < manifest->group_count; g++) {
            const struct sl_objects_group *group = &manifest->groups[g];
            if (strcmp(sl_objects_manifest_text(manifest, group->name), name) == 0) {
                const uint32_t next = g + 1 < manifest->group_count ? manifest->groups[g + 1].first
                                                                    : manifest->tensor_count;
                const struct sl_objects_tensor *last = &manifest->tensors[next - 1];
                begin = at + manifest->tensors[group->first].offset;
                end = at + last->offset + last->bytes;
                count++;
            }
        }
        at += view->mapping.images[i].bytes;
    }
    if (count != 1) {
        return fail_to_find(view, "group", name, count);
    }
    *image_offset = begin;
    *bytes = end - begin;
    return sl_objects_succeed();
}

/* Rows */

/* Tensor TABLE/KIND.SHARD; returns as find_tensor. */
static uint32_t find_shard_tensor(const struct sl_view *view, const char *table, const char *kind,
                                  uint32_t shard, struct sl_object_tensor *out)
{
    char name[SL_OBJECTS_TENSOR_NAME_BYTES + 32];
    (void)snprintf(name, sizeof name, "%s/%s.%u", table, kind, shard);
    return reader_view_find_tensor(view, name, out, NULL);
}

static int find_table(const struct sl_view *view, const char *name, struct view_table *table)
{
    struct sl_object_tensor keys, rows;
    struct sl_objects_rows_shard shard;
    uint64_t dim;
    table->shard_count = 0;
    table->dim = 0;
    table->name[0] = '\0';
    uint32_t count;
    for (uint32_t i = 0; (count = find_shard_tensor(view, name, "keys", i, &keys)) > 0; i++) {
        if (count > 1 || find_shard_tensor(view, name, "rows", i, &rows) != 1 ||
            !sl_objects_rows_take(&keys, &rows, &shard, &dim) || (i > 0 && dim != table->dim) ||
            (keys.bytes > 0 && (keys.data == NULL || (rows.bytes > 0 && rows.data == NULL)))) {
            return sl_objects_fail(SL_ERR_CORRUPT, "%s/keys.%u and %s/rows.%u are not of one table",
                                   name, i, name, i);
        }
        if (!sl_array_make_room(&table->shards, &table->shard_capacity, i, sizeof *table->shards)) {
            return sl_objects_fail(SL_ERR_NO_MEMORY, "out of memory");
        }
        table->shards[table->shard_count++] = shard;
        table->dim = (uint32_t)dim;
    }
    (void)snprintf(table->name, sizeof table->name, "%s", name);
    return 0;
}

int sl_view_rows(struct sl_view *view, const char *table, const uint64_t *keys, uint64_t count,
                 uint32_t dim, float *rows, uint8_t *found)
{
    sl_assert(view != NULL);
    sl_assert(table != NULL && table[0] != '\0');
    sl_assert((keys != NULL && rows != NULL && found != NULL) || count == 0);
    int err = strcmp(view->table.name, table) == 0 ? 0 : find_table(view, table, &view->table);
    if (err != 0) {
        return err;
    }
    if (view->table.shard_count == 0) {
        return sl_objects_fail(SL_ERR_NOT_FOUND, "%s@%llu has no table %s",
                               view->subscription->name, (unsigned long long)view->version, table);
    }
    if (view->table.dim != dim) {
        return sl_objects_fail(SL_ERR_INVALID, "rows of %s have %u values, not %u", table,
                               view->table.dim, dim);
    }
    sl_objects_rows_copy(view->table.shards, view->table.shard_count, dim, keys, count, rows,
                         found);
    return sl_objects_succeed();
}
