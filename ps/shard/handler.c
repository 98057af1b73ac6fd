/* KV sections that an application's handler executes in place of the KV table. */
#include "ps/shard/handler.h"

#include <inttypes.h>
#include <starling_kv.h>
#include <string.h>

#include "core/table_names.h"
#include "ps/shard/kv_measured.h"
#include "ps/shard/lookup.h"
#include "ps/shard/whole.h"

void sl_shard_handler_lengths(const struct sl_shard *shard, const struct sl_shard_table *table,
                              const uint64_t *keys, uint32_t count, uint32_t *lengths)
{
    const struct sl_kv_handler *handler = shard->options.kv_handler;
    for (uint32_t i = 0; i < count; i++) {
        lengths[i] =
            handler->length == NULL ? 0 : handler->length(handler->ctx, table->spec.name, keys[i]);
    }
}

/* A section that ran before is passed without its push. */
static struct sl_kv_request call_of(const struct sl_shard *shard,
                                    const struct sl_shard_table *table,
                                    const struct sl_shard_request *request, uint8_t *reply,
                                    const void **answer)
{
    const struct sl_request_view *view = &request->view;
    const struct sl_request_section *section = &view->section;
    return (struct sl_kv_request){
        .table = table->spec.name,
        .server = shard->options.index,
        .server_count = shard->options.count,
        .worker = request->caller.has_clock ? (int32_t)request->caller.worker : -1,
        .command = section->command,
        .value_bytes = table->spec.dim,
        .key_count = section->key_count,
        .keys = view->keys,
        .lens = view->lens,
        .value_count = section->count,
        .lens_wanted = sl_shard_asks_lengths(section),
        .push = sl_shard_pushes(request, section->op) ? view->values : NULL,
        .pull = sl_shard_op_pulls(section->op) ? reply + request->reply_done : NULL,
        .reply = answer,
        .chunk_start = section->start,
        .array_length = section->bag_count,
        .token = request->prefix.section_count == 1 ? shard->token : NULL,
    };
}

/* The client receives an sl_err, whatever value the handler returns. */
static int error_of(int result)
{
    return result < 0 && result >= SL_ERR_CANCELLED ? result : SL_ERR_INVALID;
}

int sl_shard_handler_ask_again(struct sl_shard *shard, struct sl_shard_request *request)
{
    sl_flags_set(&request->flags, SL_SHARD_ASKS_AGAIN, true);
    request->handled_seen = shard->handled;
    request->parked_on = request->view.section.table_id;
    shard->asks_again++;
    return SL_SHARD_PARKED;
}

void sl_shard_handler_stop_waiting(struct sl_shard *shard, struct sl_shard_request *request)
{
    if (sl_flags_has(request->flags, SL_SHARD_ASKS_AGAIN)) {
        sl_flags_set(&request->flags, SL_SHARD_ASKS_AGAIN, false);
        shard->asks_again--;
    }
}

/* The handler has dealt with a request: those that it has put off are passed again. */
static void note_handled(struct sl_shard *shard)
{
    shard->handled++;
    shard->handler_moved = shard->asks_again > 0;
}

static void count(struct sl_shard *shard, struct sl_shard_table *table,
                  const struct sl_shard_request *request, const struct sl_kv_request *call)
{
    sl_shard_see_keys(shard, table, call->keys, call->key_count);
    const bool pushes = call->push != NULL;
    table->step += pushes;
    table->pushed_rows += pushes ? call->key_count : 0;
    table->pulled_rows += sl_shard_op_pulls(request->view.section.op) ? call->key_count : 0;
}

/* A reply that needs no padding is sent from the handler's memory. */
static void take_answer(struct sl_shard_request *request, void *pull, const void *answer,
                        uint64_t bytes)
{
    if (bytes == request->reply_bytes && (uintptr_t)answer % 8 == 0) {
        request->answer = answer;
    } else {
        memcpy(pull, answer, bytes);
    }
}

/* Writes the answer to a request for lengths. lens NULL: the same for each key. */
static int take_measured(struct sl_shard *shard, const struct sl_shard_table *table,
                         struct sl_shard_request *request, uint8_t *reply,
                         struct sl_shard_slice *slice, const struct sl_kv_answer *answer)
{
    const uint32_t key_count = request->view.section.key_count;
    const uint64_t each = answer->value_count / key_count;
    uint64_t sum = answer->lens == NULL ? each * key_count : 0;
    for (uint32_t i = 0; answer->lens != NULL && i < key_count; i++) {
        sum += answer->lens[i];
    }
    if (sum != answer->value_count || each > UINT32_MAX || (sum > 0 && answer->values == NULL)) {
        return sl_shard_fail(shard, request, slice, SL_ERR_INVALID,
                             "its handler answered %" PRIu64 " values, with lengths of %" PRIu64
                             " for %u keys",
                             answer->values == NULL ? 0 : answer->value_count, sum, key_count);
    }
    const uint8_t *values = answer->values;
    for (uint32_t i = 0; i < key_count; i++) {
        const uint32_t length = answer->lens == NULL ? (uint32_t)each : answer->lens[i];
        sl_shard_kv_measured_write(table, request, i, values, length, reply);
        values = length == 0 ? values : values + (uint64_t)length * table->spec.dim;
    }
    return SL_SHARD_DONE;
}

/* The request waits for its answer. What it pushes counts as done, so that later writes of its
 * client need not wait. */
static int keep(struct sl_shard_request *request, struct sl_kv_token *token)
{
    const bool pushes = sl_shard_pushes(request, request->view.section.op);
    request->kept.token = token;
    request->kept.answer = NULL;
    request->parked_on = request->view.section.table_id;
    request->write_to = 0;
    sl_flags_set(&request->flags, SL_SHARD_KEPT, true);
    sl_flags_set(&request->flags, SL_SHARD_KEPT_PUSH, pushes);
    return SL_SHARD_PARKED;
}

void sl_shard_handler_set(struct sl_shard *shard, const struct sl_kv_handler *handler)
{
    shard->options.kv_handler = handler;
    note_handled(shard);
}

void sl_shard_handler_offer(struct sl_shard *shard, struct sl_kv_token *token)
{
    shard->token = token;
}

/* Returns the error that the answer is for the request. */
static int check_answer(const struct sl_shard *shard, const struct sl_shard_request *request,
                        struct sl_shard_slice *slice)
{
    const struct sl_kv_answer *answer = request->kept.answer;
    const struct sl_request_section *section = &request->view.section;
    const uint64_t asked = request->kept.whole != NULL ? section->bag_count : section->count;
    const uint64_t given = answer->values == NULL ? 0 : answer->value_count;
    if (answer->err != 0) {
        return sl_shard_fail(shard, request, slice, error_of(answer->err),
                             "its handler answered %d (%s)", answer->err, sl_err_name(answer->err));
    }
    const bool is_any = request->kept.whole == NULL && sl_shard_asks_lengths(section);
    if (sl_shard_op_pulls(section->op) && !is_any && given != asked) {
        return sl_shard_fail(shard, request, slice, SL_ERR_INVALID,
                             "its handler answered %" PRIu64 " values, asked for are %" PRIu64,
                             given, asked);
    }
    return 0;
}

/* A request that waited for sl_kv_reply. */
static int run_kept(struct sl_shard *shard, const struct sl_shard_table *table,
                    struct sl_shard_request *request, uint8_t *reply, struct sl_shard_slice *slice)
{
    const struct sl_kv_answer *answer = request->kept.answer;
    if (answer == NULL) {
        return SL_SHARD_PARKED;
    }
    note_handled(shard);
    const int err = check_answer(shard, request, slice);
    if (request->kept.whole != NULL) {
        slice->spent += (uint32_t)sl_shard_kv_cost(&request->view.section, table->spec.dim);
        sl_shard_whole_answered(shard, request, err, answer->values, true);
    }
    if (err != 0) {
        return err;
    }
    if (request->kept.whole != NULL) {
        return sl_shard_whole_reply(shard, request, reply);
    }
    if (sl_shard_asks_lengths(&request->view.section)) {
        return take_measured(shard, table, request, reply, slice, answer);
    }
    if (sl_shard_op_pulls(request->view.section.op)) {
        take_answer(request, reply + request->reply_done, answer->values,
                    request->view.section.count * table->spec.dim);
    }
    return SL_SHARD_DONE;
}

/* A chunk of a whole array, about which another one asks the handler. */
static int run_chunk(struct sl_shard *shard, const struct sl_shard_table *table,
                     struct sl_shard_request *request, uint8_t *reply, struct sl_shard_slice *slice)
{
    slice->spent += (uint32_t)sl_shard_kv_cost(&request->view.section, table->spec.dim);
    if (sl_shard_op_pulls(request->view.section.op) && sl_shard_whole_is_awaited(request)) {
        return keep(request, NULL);
    }
    const int err = sl_shard_whole_reply(shard, request, reply);
    return err == 0 ? SL_SHARD_DONE
                    : sl_shard_fail(shard, request, slice, err,
                                    "its handler has not accepted the whole array (%s)",
                                    sl_err_name(err));
}

/* Passes the request to the handler. */
static int ask(struct sl_shard *shard, struct sl_shard_table *table,
               struct sl_shard_request *request, uint8_t *reply, struct sl_shard_slice *slice)
{
    const struct sl_kv_handler *handler = shard->options.kv_handler;
    const bool is_whole = request->kept.whole != NULL;
    const void *answer = NULL;
    struct sl_kv_request call = call_of(shard, table, request, reply, &answer);
    if (is_whole && sl_shard_whole_call(shard, request, &call) != 0) {
        return sl_shard_fail(shard, request, slice, SL_ERR_NO_MEMORY,
                             "no memory for a whole array: %s",
                             sl_shard_limit_text(shard, (char[64]){0}));
    }
    sl_shard_handler_stop_waiting(shard, request);
    const int result = handler->handle(handler->ctx, &call);
    if (result == SL_ERR_AGAIN) {
        return sl_shard_handler_ask_again(shard, request);
    }
    note_handled(shard);
    slice->spent += (uint32_t)(call.key_count +
                               call.value_count * call.value_bytes / SL_SHARD_KV_BYTES_PER_COST);
    if (result == SL_KV_LATER && call.token != NULL) {
        count(shard, table, request, &call);
        shard->token = NULL;
        return keep(request, call.token);
    }
    if (is_whole) {
        sl_shard_whole_answered(shard, request, result == 0 ? 0 : error_of(result), answer, false);
    }
    if (result != 0) {
        return sl_shard_fail(shard, request, slice, error_of(result),
                             "its handler returned %d (%s)", result, sl_err_name(result));
    }
    count(shard, table, request, &call);
    if (is_whole) {
        (void)sl_shard_whole_reply(shard, request, reply);
    } else if (call.lens_wanted) { /* the values in `pull` are in their places already */
        const struct sl_kv_answer whole = {.values = answer != NULL ? answer : call.pull,
                                           .value_count = call.value_count};
        return take_measured(shard, table, request, reply, slice, &whole);
    } else if (call.pull != NULL && answer != NULL) {
        take_answer(request, call.pull, answer, call.value_count * call.value_bytes);
    }
    return SL_SHARD_DONE;
}

int sl_shard_handler_run(struct sl_shard *shard, struct sl_shard_table *table,
                         struct sl_shard_request *request, uint8_t *reply,
                         struct sl_shard_slice *slice)
{
    const struct sl_request_section *section = &request->view.section;
    if (request->kept.token != NULL) {
        return run_kept(shard, table, request, reply, slice);
    }
    if (sl_flags_has(request->flags, SL_SHARD_KEPT)) {
        return run_chunk(shard, table, request, reply, slice);
    }
    if ((section->flags &
         ~(SL_REQUEST_FLAG_LENS | SL_REQUEST_FLAG_LENGTHS | SL_REQUEST_FLAG_ZEROS)) != 0) {
        return sl_shard_fail(
            shard, request, slice, SL_ERR_INVALID,
            "the precision is %s pushed and %s returned; accepted by a handler is f32",
            sl_table_names_precision[sl_request_pushed(section)],
            sl_table_names_precision[sl_request_returned(section)]);
    }
    if (!sl_shard_pushes(request, section->op) && !sl_shard_op_pulls(section->op)) {
        return SL_SHARD_DONE; /* a push that the handler has received before */
    }
    int err =
        sl_shard_check_kv_owner(shard, request, slice, request->view.keys, section->key_count);
    if (err == 0 && sl_shard_whole_is_wanted(shard, section) && request->kept.whole == NULL) {
        err = sl_shard_whole_attach(shard, table, request, slice);
    }
    if (err != 0) {
        return err;
    }
    if (request->kept.whole != NULL && !sl_shard_whole_asks(request)) {
        return run_chunk(shard, table, request, reply, slice);
    }
    return ask(shard, table, request, reply, slice);
}

bool sl_shard_handler_waits(const struct sl_shard *shard, const struct sl_shard_request *request)
{
    if (request->kept.token != NULL) {
        return request->kept.answer == NULL;
    }
    if (sl_flags_has(request->flags, SL_SHARD_KEPT)) {
        return sl_shard_whole_is_awaited(request);
    }
    return sl_flags_has(request->flags, SL_SHARD_ASKS_AGAIN) &&
           request->handled_seen == shard->handled;
}
