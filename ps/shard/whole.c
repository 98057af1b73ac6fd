#include "ps/shard/whole.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/list.h"

enum whole_stage {
    WHOLE_COMES,    /* chunks are missing, or nothing asks the handler */
    WHOLE_ASKS,     /* a request does */
    WHOLE_ANSWERED, /* `err` and `values` are valid */
};

struct sl_shard_whole {
    struct sl_list_link link; /* of the shard's, the newest first */
    struct sl_shard *shard;
    uint64_t client, key;
    bool is_orphan; /* the client has left */
    uint32_t table_id;
    bool pushes, pulls;
    uint32_t length;    /* values */
    uint32_t width;     /* bytes of one */
    uint32_t come;      /* values whose chunks have come */
    uint32_t ask_start; /* start of the chunk that asks the handler */
    uint32_t requests;  /* that wait, with the one that asks */
    enum whole_stage stage;
    int err;
    const uint8_t *values;    /* pulled */
    uint8_t *pushed, *pulled; /* NULL: not needed yet */
};

static struct sl_shard_whole *whole_of(struct sl_list_link *link)
{
    return SL_CONTAINER_OF(link, struct sl_shard_whole, link);
}

static size_t whole_bytes(const struct sl_shard_whole *whole)
{
    return (size_t)whole->length * whole->width;
}

/* Returns memory for the array, counted for the limit; NULL: none. */
static uint8_t *whole_memory(const struct sl_shard_whole *whole)
{
    struct sl_shard *shard = whole->shard;
    const size_t bytes = whole_bytes(whole);
    uint8_t *memory = bytes <= sl_shard_memory_left(shard) ? malloc(bytes) : NULL;
    shard->memory_bytes += memory == NULL ? 0 : bytes;
    return memory;
}

static void whole_put(struct sl_shard_whole *whole, uint8_t **memory)
{
    whole->shard->memory_bytes -= *memory == NULL ? 0 : whole_bytes(whole);
    free(*memory);
    *memory = NULL;
}

static void whole_free(struct sl_shard_whole *whole)
{
    whole_put(whole, &whole->pushed);
    whole_put(whole, &whole->pulled);
    sl_list_remove(&whole->link);
    free(whole);
}

static bool is_of(const struct sl_shard_whole *whole, const struct sl_shard_request *request,
                  const struct sl_shard_whole *wanted)
{
    return !whole->is_orphan && whole->client == request->caller.client &&
           whole->table_id == wanted->table_id && whole->key == wanted->key &&
           whole->pushes == wanted->pushes && whole->pulls == wanted->pulls;
}

/* Returns the array that the chunk continues, or whose request asked the handler in vain and comes
 * again. The first chunk of an operation frees what an earlier one has left. */
static struct sl_shard_whole *whole_find(struct sl_shard *shard,
                                         const struct sl_shard_request *request,
                                         const struct sl_shard_whole *wanted)
{
    const uint64_t start = request->view.section.start;
    SL_LIST_FOREACH (link, &shard->wholes) {
        struct sl_shard_whole *whole = whole_of(link);
        if (!is_of(whole, request, wanted)) {
            continue;
        }
        const bool asks_again =
            whole->stage == WHOLE_COMES && whole->ask_start == start && whole->come > start;
        const bool continues = start > 0 && whole->come == start;
        if (whole->length == wanted->length && (asks_again || continues)) {
            whole->come = whole->pushes || whole->requests > 0 ? whole->come : (uint32_t)start;
            return whole;
        }
        if (start == 0 && whole->requests == 0) {
            whole_free(whole);
        }
    }
    return NULL;
}

static struct sl_shard_whole *whole_create(struct sl_shard *shard,
                                           const struct sl_shard_request *request,
                                           const struct sl_shard_whole *wanted)
{
    const struct sl_request_section *section = &request->view.section;
    struct sl_shard_whole *whole = malloc(sizeof *whole);
    if (whole == NULL) {
        return NULL;
    }
    *whole = *wanted;
    whole->shard = shard;
    whole->client = request->caller.client;
    whole->come = (uint32_t)section->start;
    /* Of a push, the chunk that comes last asks. */
    whole->ask_start = whole->pushes ? UINT32_MAX : (uint32_t)section->start;
    sl_list_prepend(&shard->wholes, &whole->link);
    whole->pushed = whole->pushes ? whole_memory(whole) : NULL;
    if (whole->pushes && whole->pushed == NULL) {
        whole_free(whole);
        return NULL;
    }
    return whole;
}

/* The chunk has come. */
static void whole_add(struct sl_shard_whole *whole, const struct sl_shard_request *request)
{
    const struct sl_request_section *section = &request->view.section;
    const uint32_t end = (uint32_t)(section->start + section->count);
    if (end <= whole->come) {
        return; /* it comes again */
    }
    if (whole->pushes) {
        memcpy(whole->pushed + section->start * whole->width, request->view.values,
               section->count * whole->width);
        whole->ask_start = end == whole->length ? (uint32_t)section->start : UINT32_MAX;
    }
    whole->come = end;
}

int sl_shard_whole_attach(struct sl_shard *shard, struct sl_shard_table *table,
                          struct sl_shard_request *request, struct sl_shard_slice *slice)
{
    const struct sl_request_section *section = &request->view.section;
    const struct sl_shard_whole wanted = {
        .table_id = section->table_id,
        .key = request->view.keys[0],
        .pushes = sl_shard_pushes(request, section->op),
        .pulls = sl_shard_op_pulls(section->op),
        .length = section->bag_count,
        .width = table->spec.dim,
    };
    if (request->prefix.section_count != 1 || section->count > section->bag_count ||
        section->start > section->bag_count - section->count) {
        return sl_shard_fail(shard, request, slice, SL_ERR_INVALID,
                             "a chunk is a request of its own, of values of its array");
    }
    const uint64_t bytes_max = shard->options.kv_handler->whole_bytes;
    if (whole_bytes(&wanted) > bytes_max) {
        return sl_shard_fail(shard, request, slice, SL_ERR_TOO_LARGE,
                             "key %" PRIu64 " has an array of %zu bytes, its handler takes up to "
                             "%" PRIu64,
                             wanted.key, whole_bytes(&wanted), bytes_max);
    }
    struct sl_shard_whole *whole = whole_find(shard, request, &wanted);
    if (whole == NULL && wanted.pushes && section->start > 0) {
        return sl_shard_fail(shard, request, slice, SL_ERR_INVALID,
                             "key %" PRIu64 ": the chunk at value %" PRIu64
                             " comes without those before it: they have failed, or two operations "
                             "on the key overlap",
                             wanted.key, section->start);
    }
    whole = whole != NULL ? whole : whole_create(shard, request, &wanted);
    if (whole == NULL) {
        return sl_shard_fail(shard, request, slice, SL_ERR_NO_MEMORY,
                             "no memory for a whole array of %zu bytes: %s", whole_bytes(&wanted),
                             sl_shard_limit_text(shard, (char[64]){0}));
    }
    whole_add(whole, request);
    whole->requests++;
    request->kept.whole = whole;
    if (section->start == whole->ask_start) {
        whole->stage = WHOLE_ASKS;
    }
    return SL_SHARD_DONE;
}

bool sl_shard_whole_asks(const struct sl_shard_request *request)
{
    return request->kept.whole->ask_start == request->view.section.start;
}

bool sl_shard_whole_is_awaited(const struct sl_shard_request *request)
{
    return request->kept.whole->stage != WHOLE_ANSWERED;
}

int sl_shard_whole_call(struct sl_shard *shard, struct sl_shard_request *request,
                        struct sl_kv_request *call)
{
    struct sl_shard_whole *whole = request->kept.whole;
    if (whole->pulls && whole->pulled == NULL && (whole->pulled = whole_memory(whole)) == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    call->value_count = whole->length;
    call->push = whole->pushed;
    call->pull = whole->pulled;
    call->chunk_start = call->array_length = 0;
    return 0;
}

void sl_shard_whole_answered(struct sl_shard *shard, struct sl_shard_request *request, int err,
                             const void *values, bool copies)
{
    struct sl_shard_whole *whole = request->kept.whole;
    whole->stage = WHOLE_ANSWERED;
    whole->err = err;
    whole->values = whole->pulled;
    whole_put(whole, &whole->pushed);
    if (whole->pulls && err == 0 && copies) {
        memcpy(whole->pulled, values, whole_bytes(whole));
    } else if (values != NULL) {
        whole->values = values;
    }
    shard->handler_moved = true; /* other chunks wait */
}

int sl_shard_whole_reply(struct sl_shard *shard, struct sl_shard_request *request, uint8_t *reply)
{
    const struct sl_request_section *section = &request->view.section;
    const struct sl_shard_whole *whole = request->kept.whole;
    const int err = whole->stage == WHOLE_ANSWERED ? whole->err : 0;
    if (whole->pulls && err == 0) {
        memcpy(reply + request->reply_done, whole->values + section->start * whole->width,
               section->count * whole->width);
    }
    sl_shard_whole_leave(shard, request);
    return err;
}

void sl_shard_whole_leave(struct sl_shard *shard, struct sl_shard_request *request)
{
    struct sl_shard_whole *whole = request->kept.whole;
    if (whole == NULL) {
        return;
    }
    request->kept.whole = NULL;
    sl_assert(whole->requests > 0);
    whole->requests--;
    if (whole->stage == WHOLE_ASKS && request->view.section.start == whole->ask_start) {
        const bool comes_again = request->kept.token == NULL;
        whole->stage = comes_again ? WHOLE_COMES : WHOLE_ANSWERED;
        whole->err = SL_ERR_DEADLINE;
    }
    const bool is_done = whole->stage == WHOLE_ANSWERED && whole->come == whole->length;
    if (whole->requests == 0 && (is_done || whole->is_orphan)) {
        whole_free(whole);
    }
}

void sl_shard_whole_client_left(struct sl_shard *shard, uint64_t client)
{
    SL_LIST_FOREACH (link, &shard->wholes) {
        struct sl_shard_whole *whole = whole_of(link);
        if (whole->client == client && whole->requests == 0) {
            whole_free(whole);
        } else if (whole->client == client) {
            whole->is_orphan = true;
        }
    }
}

void sl_shard_whole_fini(struct sl_shard *shard)
{
    while (!sl_list_empty(&shard->wholes)) {
        whole_free(whole_of(sl_list_first(&shard->wholes)));
    }
}
