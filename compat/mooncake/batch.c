#include "compat/mooncake/batch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "compat/mooncake/notice.h"
#include "compat/mooncake/segment.h"

#define BATCHES_MAX  65535
#define INDEX_BITS   16
#define INDEX_MASK   ((1U << INDEX_BITS) - 1)
#define KNOWN_MS     1000 /* until a peer is known to have registered memory */
#define BYTES_PER_MS 1000000
#define WAIT_NS      1000000
#define STATES_COMPARED                                                                            \
    (SL_TRANSFER_COMPLETED == STATUS_COMPLETED && SL_TRANSFER_FAILED == STATUS_FAILED)

_Static_assert(STATES_COMPARED, "states have Mooncake's numbers");

/* One submission: tasks `first` and on. */
struct part {
    struct part *next;
    struct sl_transfer_batch *batch;
    struct sl_transfer_request *requests;
    size_t first, count;
    notify_msg_t message; /* its own; no name: none */
    uint64_t begun_ms, deadline_ms;
    bool is_settled, is_logged; /* what its requests have come to; why one has failed */
    uint32_t peer_count;
    struct sl_mooncake_peer *peers[]; /* that its requests name */
};

struct sl_mooncake_batch {
    batch_id_t id; /* its serial number, and its place in engine->batches */
    size_t capacity, reserved, count;
    uint32_t submitting; /* calls */
    struct part *parts;  /* the last one first */
};

/* Under the lock. Logs if there is none. */
static struct sl_mooncake_batch *mooncake_batch_find(const struct sl_mooncake_engine *engine,
                                                     batch_id_t id, const char *function)
{
    const uint64_t index = id & INDEX_MASK;
    struct sl_mooncake_batch *found = index < engine->batch_count ? engine->batches[index] : NULL;
    if (found != NULL && found->id == id) {
        return found;
    }
    (void)sl_mooncake_fail(SL_MOONCAKE_INVALID, function, "there is no batch %" PRIu64, id);
    return NULL;
}

/* Under the lock. Returns the place, or BATCHES_MAX. */
static uint32_t free_place(struct sl_mooncake_engine *engine)
{
    uint32_t index = 0;
    while (index < engine->batch_count && engine->batches[index] != NULL) {
        index++;
    }
    if (index < engine->batch_count || index == BATCHES_MAX) {
        return index;
    }
    struct sl_mooncake_batch **larger =
        realloc(engine->batches, (index + 1) * sizeof(struct sl_mooncake_batch *));
    if (larger == NULL) {
        return BATCHES_MAX;
    }
    larger[index] = NULL;
    engine->batches = larger;
    engine->batch_count++;
    return index;
}

batch_id_t allocateBatchID(transfer_engine_t handle, size_t batch_size)
{
    struct sl_mooncake_engine *engine = sl_mooncake_engine(handle, __func__);
    struct sl_mooncake_batch *batch = engine != NULL ? calloc(1, sizeof *batch) : NULL;
    if (batch == NULL) {
        return INVALID_BATCH;
    }
    batch->capacity = batch_size;
    pthread_mutex_lock(&engine->lock);
    const uint32_t index = free_place(engine);
    const bool has_place = index < BATCHES_MAX;
    if (has_place) {
        batch->id = ++engine->serial << INDEX_BITS | index;
        engine->batches[index] = batch;
    }
    pthread_mutex_unlock(&engine->lock);
    if (!has_place) {
        free(batch);
        (void)sl_mooncake_fail(SL_MOONCAKE_TOO_MANY, __func__, "no memory, or %d batches exist",
                               BATCHES_MAX);
        return INVALID_BATCH;
    }
    return batch->id;
}

/* Submissions */

/* Without the lock. Its struct sl_transfer_batch, if there is one, is over. */
static void part_free(struct sl_mooncake_engine *engine, struct part *part)
{
    if (part == NULL) {
        return;
    }
    sl_transfer_batch_free(&part->batch); /* before the segments that it names */
    for (uint32_t i = 0; i < part->peer_count; i++) {
        sl_mooncake_segment_release(engine, part->peers[i]);
    }
    free(part->message.name);
    free(part->message.msg);
    free(part->requests);
    free(part);
}

/* message: NULL: none. Returns NULL if there is no memory. */
static struct part *part_create(struct sl_mooncake_engine *engine,
                                const struct transfer_request *entries, size_t count,
                                const notify_msg_t *message)
{
    size_t changes = 1;
    for (size_t i = 1; i < count; i++) {
        changes += entries[i].target_id != entries[i - 1].target_id ? 1 : 0;
    }
    struct part *part = calloc(1, sizeof *part + changes * sizeof part->peers[0]);
    struct sl_transfer_request *requests = calloc(count, sizeof *requests);
    if (part == NULL || requests == NULL) {
        free(requests);
        free(part);
        return NULL;
    }
    part->count = count;
    part->requests = requests;
    if (message != NULL) {
        part->message.name = strdup(message->name != NULL ? message->name : "");
        part->message.msg = strdup(message->msg != NULL ? message->msg : "");
    }
    if (message != NULL && (part->message.name == NULL || part->message.msg == NULL)) {
        part_free(engine, part);
        part = NULL;
    }
    return part;
}

/* Under the lock. The part uses the peer of this request's segment. NULL: that is not open. */
static struct sl_mooncake_peer *use_peer(struct sl_mooncake_engine *engine, struct part *part,
                                         const struct transfer_request *entries, size_t index)
{
    if (index > 0 && entries[index].target_id == entries[index - 1].target_id) {
        return part->peers[part->peer_count - 1];
    }
    struct sl_mooncake_peer *peer = sl_mooncake_segment_use(engine, entries[index].target_id);
    if (peer != NULL) {
        part->peers[part->peer_count++] = peer;
    }
    return peer;
}

/* Under the lock. */
static int fill(struct sl_mooncake_engine *engine, struct part *part,
                const struct transfer_request *entries, const char *function)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < part->count; i++) {
        const struct transfer_request *from = &entries[i];
        const struct sl_mooncake_peer *peer = use_peer(engine, part, entries, i);
        if (peer == NULL) {
            return sl_mooncake_fail(SL_MOONCAKE_INVALID, function,
                                    "request %zu: segment %d is not open", i, from->target_id);
        }
        if (from->opcode != OPCODE_READ && from->opcode != OPCODE_WRITE) {
            return sl_mooncake_fail(SL_MOONCAKE_INVALID, function,
                                    "request %zu: opcode %d is neither READ nor WRITE", i,
                                    from->opcode);
        }
        part->requests[i] = (struct sl_transfer_request){
            .op = from->opcode == OPCODE_READ ? SL_TRANSFER_READ : SL_TRANSFER_WRITE,
            .local = from->source,
            .segment = peer->segment,
            .remote = from->target_offset,
            .bytes = from->length,
        };
        bytes += from->length / BYTES_PER_MS;
    }
    part->begun_ms = sl_mooncake_now_ms();
    part->deadline_ms = part->begun_ms + engine->timeout_ms + bytes;
    return 0;
}

/* Makes room in the batch, which cannot be freed from now on, and lets the part use its peers. */
static int reserve(struct sl_mooncake_engine *engine, batch_id_t id, struct part *part,
                   const struct transfer_request *entries, const char *function)
{
    int result = SL_MOONCAKE_INVALID;
    pthread_mutex_lock(&engine->lock);
    struct sl_mooncake_batch *batch = mooncake_batch_find(engine, id, function);
    if (batch != NULL && part->count > batch->capacity - batch->reserved) {
        result = sl_mooncake_fail(SL_MOONCAKE_TOO_MANY, function,
                                  "%zu requests: the batch has room for %zu", part->count,
                                  batch->capacity - batch->reserved);
    } else if (batch != NULL) {
        result = fill(engine, part, entries, function);
    }
    if (result == 0) {
        batch->reserved += part->count;
        batch->submitting++;
    }
    pthread_mutex_unlock(&engine->lock);
    return result;
}

/* The part belongs to the batch now, or was not started. */
static void end_reservation(struct sl_mooncake_engine *engine, batch_id_t id, struct part *part,
                            bool is_started)
{
    pthread_mutex_lock(&engine->lock);
    struct sl_mooncake_batch *batch = engine->batches[id & INDEX_MASK];
    batch->submitting--;
    if (is_started) {
        part->first = batch->count;
        part->next = batch->parts;
        batch->parts = part;
        batch->count += part->count;
    } else {
        batch->reserved -= part->count;
    }
    pthread_mutex_unlock(&engine->lock);
}

/* Does not wait. */
static int part_submit(struct part *part)
{
    const uint64_t now_ms = sl_mooncake_now_ms();
    const uint64_t left_ms = part->deadline_ms > now_ms ? part->deadline_ms - now_ms : 1;
    const struct sl_transfer_notice notice = sl_mooncake_notice(part->message);
    return sl_transfer_batch_submit(
        part->batch, part->requests, (uint32_t)part->count,
        left_ms < SL_TRANSFER_TIMEOUT_MS_MAX ? (uint32_t)left_ms : SL_TRANSFER_TIMEOUT_MS_MAX,
        part->message.name != NULL ? &notice : NULL);
}

static int submit(transfer_engine_t handle, batch_id_t id, const struct transfer_request *entries,
                  size_t count, const notify_msg_t *message, const char *function)
{
    struct sl_mooncake_engine *engine = sl_mooncake_engine(handle, function);
    if (engine == NULL || (entries == NULL && count > 0)) {
        return SL_MOONCAKE_INVALID;
    }
    if (count == 0 || count > SL_TRANSFER_REQUESTS_MAX) {
        return count == 0 && message == NULL
                   ? 0
                   : sl_mooncake_fail(SL_MOONCAKE_TOO_MANY, function,
                                      "%zu requests: accepted are 1 to %d", count,
                                      SL_TRANSFER_REQUESTS_MAX);
    }
    for (size_t i = 0; i < count; i++) {
        sl_mooncake_segment_open_local(engine, entries[i].target_id);
    }
    struct part *part = part_create(engine, entries, count, message);
    int result = part != NULL ? reserve(engine, id, part, entries, function) : SL_MOONCAKE_INVALID;
    if (result == 0) {
        int err = sl_transfer_batch_create(engine->transfer, (uint32_t)count, &part->batch);
        err = err != 0 ? err : part_submit(part);
        if (err != 0) {
            result = sl_mooncake_fail(err == SL_ERR_TOO_LARGE ? SL_MOONCAKE_TOO_MANY
                                                              : SL_MOONCAKE_INVALID,
                                      function, "%s", sl_transfer_last_error());
        }
        end_reservation(engine, id, part, result == 0);
    }
    if (result != 0) {
        part_free(engine, part);
    }
    return result;
}

int submitTransfer(transfer_engine_t handle, batch_id_t batch_id, struct transfer_request *entries,
                   size_t count)
{
    return submit(handle, batch_id, entries, count, NULL, __func__);
}

int submitTransferWithNotify(transfer_engine_t handle, batch_id_t batch_id,
                             struct transfer_request *entries, size_t count,
                             notify_msg_t notify_msg)
{
    return submit(handle, batch_id, entries, count, &notify_msg, __func__);
}

/* Results */

static struct part *part_of(const struct sl_mooncake_batch *batch, size_t task)
{
    struct part *part = task < batch->count ? batch->parts : NULL;
    while (part != NULL && task < part->first) {
        part = part->next;
    }
    return part;
}

/* Whether the results are final. Memory that the peer seems not to have registered, or not any more
 * (NOT_FOUND), may have been registered a moment ago: all requests are submitted again. */
static bool is_settled(struct part *part)
{
    if (part->is_settled || !sl_transfer_batch_done(part->batch)) {
        return part->is_settled;
    }
    struct sl_transfer_status found = {0};
    bool is_refused = false;
    for (uint32_t i = 0; !is_refused && i < part->count; i++) {
        (void)sl_transfer_batch_status(part->batch, i, &found);
        is_refused = found.state == SL_TRANSFER_INVALID || found.err == SL_ERR_NOT_FOUND;
    }
    part->is_settled =
        !is_refused || sl_mooncake_now_ms() > part->begun_ms + KNOWN_MS || part_submit(part) != 0;
    return part->is_settled;
}

/* Callers know FAILED: some take another state for success, or wait on. A message that the peer has
 * not got is a failure of each request. */
static void describe(struct part *part, uint32_t request, struct transfer_status *out)
{
    struct sl_transfer_status found = {.state = SL_TRANSFER_FAILED};
    *out = (struct transfer_status){.status = STATUS_PENDING};
    if (!is_settled(part)) {
        return;
    }
    (void)sl_transfer_batch_status(part->batch, request, &found);
    const bool is_moved = found.state == SL_TRANSFER_COMPLETED;
    const bool is_lost =
        is_moved && part->message.name != NULL && sl_transfer_batch_wait(part->batch) != 0;
    out->status = is_moved && !is_lost ? STATUS_COMPLETED : STATUS_FAILED;
    out->transferred_bytes = found.bytes;
    if (out->status == STATUS_FAILED && !part->is_logged) {
        part->is_logged = true;
        (void)sl_mooncake_fail(SL_MOONCAKE_INVALID, "getTransferStatus", "%s",
                               is_lost ? sl_transfer_last_error()
                                       : sl_transfer_batch_error(part->batch, request));
    }
}

int getTransferStatus(transfer_engine_t handle, batch_id_t batch_id, size_t task_id,
                      struct transfer_status *status)
{
    struct sl_mooncake_engine *engine = sl_mooncake_engine(handle, __func__);
    if (engine == NULL || status == NULL) {
        return SL_MOONCAKE_INVALID;
    }
    int result = SL_MOONCAKE_INVALID;
    pthread_mutex_lock(&engine->lock);
    struct sl_mooncake_batch *batch = mooncake_batch_find(engine, batch_id, __func__);
    if (batch != NULL) {
        struct part *part = part_of(batch, task_id);
        result = part != NULL ? 0
                              : sl_mooncake_fail(SL_MOONCAKE_INVALID, __func__,
                                                 "task %zu: %zu requests were submitted", task_id,
                                                 batch->count);
        if (part != NULL) {
            describe(part, (uint32_t)(task_id - part->first), status);
        }
    }
    pthread_mutex_unlock(&engine->lock);
    return result;
}

/* Under the lock. */
static bool is_running(const struct sl_mooncake_batch *batch)
{
    bool runs = batch->submitting > 0;
    for (const struct part *part = batch->parts; !runs && part != NULL; part = part->next) {
        runs = !sl_transfer_batch_done(part->batch);
    }
    return runs;
}

int freeBatchID(transfer_engine_t handle, batch_id_t batch_id)
{
    struct sl_mooncake_engine *engine = sl_mooncake_engine(handle, __func__);
    if (engine == NULL) {
        return SL_MOONCAKE_INVALID;
    }
    pthread_mutex_lock(&engine->lock);
    struct sl_mooncake_batch *batch = mooncake_batch_find(engine, batch_id, __func__);
    const int result = batch == NULL       ? SL_MOONCAKE_INVALID
                       : is_running(batch) ? SL_MOONCAKE_BUSY
                                           : 0;
    if (result == 0) {
        engine->batches[batch_id & INDEX_MASK] = NULL;
    }
    pthread_mutex_unlock(&engine->lock);
    while (result == 0 && batch->parts != NULL) {
        struct part *part = batch->parts;
        batch->parts = part->next;
        part_free(engine, part);
    }
    free(result == 0 ? batch : NULL);
    return result;
}

bool sl_mooncake_batch_wait_all(struct sl_mooncake_engine *engine, uint64_t until_ms)
{
    const struct timespec pause = {.tv_nsec = WAIT_NS};
    bool runs = true, is_late = false;
    while (runs && !is_late) {
        runs = false;
        pthread_mutex_lock(&engine->lock);
        for (uint32_t i = 0; !runs && i < engine->batch_count; i++) {
            runs = engine->batches[i] != NULL && is_running(engine->batches[i]);
        }
        pthread_mutex_unlock(&engine->lock);
        is_late = sl_mooncake_now_ms() >= until_ms;
        if (runs && !is_late) {
            (void)nanosleep(&pause, NULL);
        }
    }
    return !runs;
}

void sl_mooncake_batch_free_all(struct sl_mooncake_engine *engine)
{
    for (uint32_t i = 0; i < engine->batch_count; i++) {
        struct sl_mooncake_batch *batch = engine->batches[i];
        while (batch != NULL && batch->parts != NULL) {
            struct part *part = batch->parts;
            batch->parts = part->next;
            part->batch = NULL; /* gone with the engine, like the segments */
            for (uint32_t k = 0; k < part->peer_count; k++) {
                sl_mooncake_segment_forget(part->peers[k]);
            }
            part->peer_count = 0;
            part_free(engine, part);
        }
        free(batch);
    }
    free(engine->batches);
}
