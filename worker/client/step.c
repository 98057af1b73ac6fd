#include <starling.h>
#include <starling_rows.h>

#include <assert.h>
#include <stdlib.h>

#include "core/array.h"
#include "core/assert.h"
#include "core/clock.h"
#include "core/finite.h"
#include "core/reason.h"
#include "net/session/message_spec.h"
#include "worker/client/client_internal.h"
#include "worker/client/client_metrics.h"
#include "worker/client/encode.h"
#include "worker/client/scatter.h"
#include "worker/client/step_internal.h"
#include "worker/client/table_encoding.h"
#include "worker/client/table_opening.h"
#include "worker/client/wait.h"

static_assert(2 * SL_THREAD_CTX_STEPS_MAX + 64 <= SL_LIMIT_LANE_MAILS, "a lane is never full");

/* Creation and reuse */

static int step_create(struct sl_client *client, struct sl_thread_ctx *thread_ctx,
                       struct sl_step **out)
{
    struct sl_step *step = calloc(1, sizeof *step + client->io_count * sizeof *step->substeps);
    if (step == NULL) {
        return sl_reason_report(SL_ERR_NO_MEMORY, "step: no memory");
    }
    step->client = client;
    step->wire.arena = client->io_options.send_arena;
    step->thread_ctx = thread_ctx;
    if (thread_ctx->steps == NULL) {
        sl_client_metrics_add_thread(client, thread_ctx);
        thread_ctx->random = sl_clock_now_ns(client->clock) + ((uint64_t)client->task_index << 48);
    }
    step->next_of_thread_ctx = thread_ctx->steps;
    thread_ctx->steps = step;
    for (uint32_t i = 0; i < client->io_count; i++) {
        step->substeps[i].io = &client->ios[i];
        step->substeps[i].step = step;
    }
    *out = step;
    return 0;
}

static void free_step(struct sl_step *step)
{
    sl_assert(step->state == SL_STEP_FREE); /* the caller must destroy every step */
    sl_scratch_fini(&step->wire);
    sl_scratch_fini(&step->notes);
    free(step->operations.items);
    free(step);
}

void sl_step_free_all(struct sl_port *port)
{
    struct sl_thread_ctx *thread_ctx = sl_thread_ctx_of(port);
    while (thread_ctx->steps != NULL) {
        struct sl_step *step = thread_ctx->steps;
        thread_ctx->steps = step->next_of_thread_ctx;
        free_step(step);
    }
}

int sl_step_begin(struct sl_client *client, uint32_t clock, struct sl_step **out)
{
    sl_assert(client != NULL);
    sl_assert(out != NULL);
    if (client->stage != SL_CLIENT_RUNNING) {
        return sl_reason_report(SL_ERR_CLOSED, "step: the client is closed");
    }
    struct sl_port *port;
    int err = sl_port_here(client->ports, &port);
    if (err != 0) {
        return err == SL_ERR_TOO_LARGE ? SL_ERR_NO_MEMORY : err;
    }
    struct sl_thread_ctx *thread_ctx = sl_thread_ctx_of(port);
    struct sl_step *step = thread_ctx->free_steps;
    if (step != NULL) {
        thread_ctx->free_steps = step->next_free;
    } else {
        err = step_create(client, thread_ctx, &step);
        if (err != 0) {
            return err;
        }
    }
    step->state = SL_STEP_BUILDING;
    step->bad = step->wants_finite = step->next.has_encoding = false;
    step->tick = SL_TICK_NONE;
    step->clock = clock;
    step->priority = 0;
    step->next.rate_bits = 0;
    step->on_done.call = NULL;
    step->operations.count = 0;
    step->err = 0;
    step->error = "";
    step->staleness = 0;
    step->ended_ns = 0;
    *out = step;
    return 0;
}

static void recycle(struct sl_step *step)
{
    sl_scratch_reset(&step->wire);
    sl_scratch_reset(&step->notes);
    step->next_free = step->thread_ctx->free_steps;
    step->thread_ctx->free_steps = step;
}

void sl_step_destroy(struct sl_step **step)
{
    sl_assert(step != NULL);
    struct sl_step *ended = *step;
    if (ended == NULL) {
        return;
    }
    *step = NULL;
    if (sl_port_set_is_forked(ended->client->ports)) {
        return;
    }
    sl_assert(ended->state == SL_STEP_BUILDING || ended->state == SL_STEP_COMPLETE);
    ended->state = SL_STEP_FREE;
    if (ended->substeps_out == 0) {
        recycle(ended);
    }
}

/* Operations */

static bool is_building(const struct sl_step *step)
{
    return step->state == SL_STEP_BUILDING && !sl_port_set_is_forked(step->client->ports);
}

int sl_step_refuse(struct sl_step *step)
{
    step->bad = true;
    int err = sl_port_set_check(step->client->ports);
    return err != 0 ? err : SL_ERR_INVALID;
}

int sl_step_add(struct sl_step *step, const struct sl_operation *operation)
{
    const struct sl_table_spec *spec = &operation->table->spec;
    if (sl_request_takes_rate((uint8_t)operation->op) &&
        !sl_rate_suits(operation->command, &spec->optimizer)) {
        sl_reason_set(
            sl_reason_last(),
            "table %s, lr %g, rate %g: accepts products that are finite and above 0 in f32",
            spec->name, (double)spec->optimizer.lr, (double)sl_rate_from_bits(operation->command));
        return sl_step_refuse(step);
    }
    if (!sl_array_make_room(&step->operations.items, &step->operations.capacity,
                            step->operations.count, sizeof *step->operations.items)) {
        step->bad = true;
        return sl_reason_report(SL_ERR_NO_MEMORY, "step: no memory for operation %u",
                                step->operations.count);
    }
    struct sl_operation *added = &step->operations.items[step->operations.count];
    const struct sl_encoding *encoding =
        step->next.has_encoding ? &step->next.encoding : &operation->table->encoding;
    *added = *operation;
    if (encoding->pull != SL_PRECISION_F32 || encoding->push != SL_PRECISION_F32) {
        const int err = sl_table_encoding_apply(step, encoding, added);
        if (err != 0) {
            step->bad = true;
            return err;
        }
    }
    step->operations.count++;
    step->wants_finite |= spec->reject_nonfinite || added->push == SL_PRECISION_INT8;
    return 0;
}

bool sl_step_takes(const struct sl_step *step, const struct sl_table *table,
                   enum sl_table_kind kind)
{
    sl_assert(step != NULL);
    sl_assert(table != NULL);
    static const char *const names[] = {"sparse", "dense", "KV"};
    if (!is_building(step)) {
        sl_reason_set(sl_reason_last(), "table %s: the step is submitted already: begin another",
                      table->spec.name);
    } else if (table->client != step->client) {
        sl_reason_set(sl_reason_last(), "table %s was opened by another client than the step's",
                      table->spec.name);
    } else if (table->spec.kind != kind) {
        sl_reason_set(sl_reason_last(), "table %s is %s: the call accepts %s tables",
                      table->spec.name, names[table->spec.kind], names[kind]);
    } else {
        return true;
    }
    return false;
}

static int add_sparse(struct sl_step *step, const struct sl_operation *operation, bool complete)
{
    if (!sl_step_takes(step, operation->table, SL_TABLE_SPARSE)) {
        return sl_step_refuse(step);
    }
    if (operation->key_count > 0 && (operation->keys == NULL || !complete)) {
        sl_reason_set(sl_reason_last(), "table %s: %u keys, and %s NULL",
                      operation->table->spec.name, operation->key_count,
                      operation->keys == NULL ? "the array of keys is" : "an array of rows is");
        return sl_step_refuse(step);
    }
    return sl_step_add(step, operation);
}

/* Of the operation that is added next. */
static uint32_t rate_bits_of(const struct sl_step *step, enum sl_request_op op)
{
    sl_assert(step != NULL);
    return sl_request_takes_rate((uint8_t)op) ? step->next.rate_bits : 0;
}

int sl_step_add_rows(struct sl_step *step, enum sl_request_op op, const struct sl_table *table,
                     const uint64_t *keys, uint32_t key_count, const float *gradients, float *rows)
{
    const struct sl_operation operation = {.op = op,
                                           .table = table,
                                           .keys = keys,
                                           .key_count = key_count,
                                           .gradients = gradients,
                                           .command = rate_bits_of(step, op),
                                           .values = rows};
    return add_sparse(step, &operation,
                      (op == SL_REQUEST_PULL || gradients != NULL) &&
                          (op == SL_REQUEST_PUSH || op == SL_REQUEST_ASSIGN || rows != NULL));
}

int sl_step_pull(struct sl_step *step, struct sl_table *table, const uint64_t *keys,
                 uint32_t key_count, float *rows)
{
    return sl_step_add_rows(step, SL_REQUEST_PULL, table, keys, key_count, NULL, rows);
}

int sl_step_push(struct sl_step *step, struct sl_table *table, const uint64_t *keys,
                 uint32_t key_count, const float *gradients)
{
    return sl_step_add_rows(step, SL_REQUEST_PUSH, table, keys, key_count, gradients, NULL);
}

int sl_step_push_pull(struct sl_step *step, struct sl_table *table, const uint64_t *keys,
                      uint32_t key_count, const float *gradients, float *rows)
{
    return sl_step_add_rows(step, SL_REQUEST_PUSH_PULL, table, keys, key_count, gradients, rows);
}

int sl_step_assign(struct sl_step *step, struct sl_table *table, const uint64_t *keys,
                   uint32_t key_count, const float *rows)
{
    return sl_step_add_rows(step, SL_REQUEST_ASSIGN, table, keys, key_count, rows, NULL);
}

int sl_step_erase(struct sl_step *step, struct sl_table *table, const uint64_t *keys,
                  uint32_t key_count)
{
    const struct sl_operation operation = {
        .op = SL_REQUEST_ERASE, .table = table, .keys = keys, .key_count = key_count};
    return add_sparse(step, &operation, true);
}

int sl_step_find(struct sl_step *step, struct sl_table *table, const uint64_t *keys,
                 uint32_t key_count, float *rows, uint8_t *found)
{
    const struct sl_operation operation = {.op = SL_REQUEST_FIND,
                                           .table = table,
                                           .keys = keys,
                                           .key_count = key_count,
                                           .values = rows,
                                           .found = found};
    sl_assert(table != NULL);
    const int err = sl_table_check_knows(table, SL_MESSAGE_SPEC_KNOWS_ROWS, "find");
    if (err != 0) {
        (void)sl_step_refuse(step);
        return err;
    }
    return add_sparse(step, &operation, rows != NULL && found != NULL);
}

static bool are_bag_ends(const uint32_t *bag_ends, uint32_t bag_count, uint32_t key_count)
{
    uint32_t end = 0;
    for (uint32_t bag = 0; bag < bag_count; bag++) {
        if (bag_ends[bag] < end) {
            return false;
        }
        end = bag_ends[bag];
    }
    return end == key_count;
}

int sl_step_pull_pooled(struct sl_step *step, struct sl_table *table, const uint64_t *keys,
                        uint32_t key_count, const uint32_t *bag_ends, uint32_t bag_count,
                        enum sl_pooling pooling, float *pooled)
{
    const struct sl_operation operation = {.op = SL_REQUEST_PULL_POOLED,
                                           .pooling = pooling,
                                           .table = table,
                                           .keys = keys,
                                           .key_count = key_count,
                                           .bag_ends = bag_ends,
                                           .bag_count = bag_count,
                                           .values = pooled};
    sl_assert(table != NULL);
    const char *wrong =
        pooling != SL_POOLING_SUM && pooling != SL_POOLING_MEAN ? "pooling is neither sum nor mean"
        : bag_count > 0 && (bag_ends == NULL || pooled == NULL) ? "bag_ends or pooled is NULL"
        : !are_bag_ends(bag_ends, bag_count, key_count)
            ? "bag_ends must ascend and end with key_count"
            : NULL;
    if (wrong != NULL) {
        sl_reason_set(sl_reason_last(), "table %s, %u keys in %u bags: %s", table->spec.name,
                      key_count, bag_count, wrong);
        return sl_step_refuse(step);
    }
    return add_sparse(step, &operation, true);
}

static int add_dense(struct sl_step *step, enum sl_request_op op, const struct sl_table *table,
                     uint64_t start, uint64_t count, const float *gradients, float *values)
{
    const struct sl_operation operation = {.op = op,
                                           .table = table,
                                           .start = start,
                                           .count = count,
                                           .gradients = gradients,
                                           .command = rate_bits_of(step, op),
                                           .values = values};
    const bool complete =
        (op == SL_REQUEST_DENSE_PULL || gradients != NULL) &&
        (op == SL_REQUEST_DENSE_PUSH || op == SL_REQUEST_DENSE_ASSIGN || values != NULL);
    if (!sl_step_takes(step, table, SL_TABLE_DENSE)) {
        return sl_step_refuse(step);
    }
    if (start > table->spec.length || count > table->spec.length - start ||
        (count > 0 && !complete)) {
        sl_reason_set(sl_reason_last(), "table %s, %llu elements from %llu: %s", table->spec.name,
                      (unsigned long long)count, (unsigned long long)start,
                      complete ? "beyond its length" : "an array of values is NULL");
        return sl_step_refuse(step);
    }
    return sl_step_add(step, &operation);
}

int sl_step_dense_pull(struct sl_step *step, struct sl_table *table, uint64_t start, uint64_t count,
                       float *values)
{
    return add_dense(step, SL_REQUEST_DENSE_PULL, table, start, count, NULL, values);
}

int sl_step_dense_push(struct sl_step *step, struct sl_table *table, uint64_t start, uint64_t count,
                       const float *gradients)
{
    return add_dense(step, SL_REQUEST_DENSE_PUSH, table, start, count, gradients, NULL);
}

int sl_step_dense_push_pull(struct sl_step *step, struct sl_table *table, uint64_t start,
                            uint64_t count, const float *gradients, float *values)
{
    return add_dense(step, SL_REQUEST_DENSE_PUSH_PULL, table, start, count, gradients, values);
}

int sl_step_dense_assign(struct sl_step *step, struct sl_table *table, uint64_t start,
                         uint64_t count, const float *values)
{
    return add_dense(step, SL_REQUEST_DENSE_ASSIGN, table, start, count, values, NULL);
}

int sl_step_set_priority(struct sl_step *step, int32_t priority)
{
    sl_assert(step != NULL);
    if (!is_building(step) || (priority != 0 && step->tick != SL_TICK_NONE)) {
        sl_reason_set(sl_reason_last(),
                      "priority %d: the step is submitted, or has a tick or finish", priority);
        return sl_step_refuse(step);
    }
    step->priority = priority;
    return 0;
}

int sl_step_set_rate(struct sl_step *step, float factor)
{
    sl_assert(step != NULL);
    if (!is_building(step) || !sl_rate_is_valid(factor)) {
        sl_reason_set(sl_reason_last(), "rate %g: %s", (double)factor,
                      sl_rate_is_valid(factor) ? "the step is submitted already"
                                               : "accepts finite factors above 0");
        return sl_step_refuse(step);
    }
    step->next.rate_bits = sl_rate_to_bits(factor);
    return 0;
}

int sl_step_set_encoding(struct sl_step *step, enum sl_precision pull, enum sl_precision push)
{
    sl_assert(step != NULL);
    const struct sl_encoding encoding = {.pull = pull, .push = push};
    if (!is_building(step)) {
        sl_reason_set(sl_reason_last(), "encoding: the step is submitted already");
        return sl_step_refuse(step);
    }
    if (sl_table_encoding_check_known("encoding", &encoding) != 0) {
        return sl_step_refuse(step);
    }
    step->next.encoding = encoding;
    step->next.has_encoding = true;
    return 0;
}

int sl_step_tick(struct sl_step *step)
{
    sl_assert(step != NULL);
    if (!is_building(step) || step->client->task_index < 0 || step->tick != SL_TICK_NONE ||
        step->priority != 0 || step->clock == SL_REQUEST_CLOCK_FINISHED) {
        sl_reason_set(sl_reason_last(), "tick of iteration %u: %s", step->clock,
                      step->client->task_index < 0
                          ? "the client has no task_index, so no clock"
                          : "the step is submitted, or has a tick, a finish or a priority");
        return sl_step_refuse(step);
    }
    step->tick = SL_TICK_ITERATION;
    step->tick_at = step->operations.count;
    return 0;
}

int sl_step_finish(struct sl_step *step)
{
    sl_assert(step != NULL);
    if (!is_building(step) || step->client->task_index < 0 || step->tick == SL_TICK_ITERATION ||
        step->priority != 0) {
        sl_reason_set(sl_reason_last(), "finish: %s",
                      step->client->task_index < 0
                          ? "the client has no task_index, so no clock"
                          : "the step is submitted, or has a tick or a priority");
        return sl_step_refuse(step);
    }
    step->tick = SL_TICK_FINISH;
    return 0;
}

/* Completion, on the step's thread */

static void complete(struct sl_step *step)
{
    step->state = SL_STEP_COMPLETE;
    for (uint32_t i = 0; step->err == 0 && i < step->operations.count; i++) {
        if (step->operations.items[i].op == SL_REQUEST_PULL_POOLED) {
            sl_scatter_pool(&step->operations.items[i]);
        }
    }
    if (step->on_done.call != NULL) {
        step->on_done.call(step->on_done.ctx);
    }
}

/* Until a thread that waits for the step runs again; else until the last reply, whose time is that
 * of the begin of a reactor's turn, perhaps before the submission. */
static void count_time(const struct sl_step *step, uint64_t ended_ns)
{
    const uint64_t from_ns = step->submitted_ns;
    sl_cell_record(&step->thread_ctx->cells.step_time, ended_ns > from_ns ? ended_ns - from_ns : 0,
                   1);
}

static void substep_returned(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_substep *substep = ctx;
    struct sl_step *step = substep->step;
    sl_assert(step->substeps_out > 0);
    step->substeps_out--;
    if (step->substeps_out == 0) {
        step->thread_ctx->steps_out--;
        if (step->state == SL_STEP_FREE) {
            recycle(step);
        }
    }
}

static void substep_completed(void *ctx, uint64_t is_returned, uint64_t b)
{
    struct sl_substep *substep = ctx;
    struct sl_step *step = substep->step;
    if (substep->err != 0 && step->err == 0) {
        step->err = substep->err;
        step->error = substep->error;
    }
    step->staleness = substep->staleness > step->staleness ? substep->staleness : step->staleness;
    step->ended_ns = substep->ended_ns > step->ended_ns ? substep->ended_ns : step->ended_ns;
    sl_assert(step->substeps_left > 0);
    step->substeps_left--;
    if (step->substeps_left == 0) {
        if (!step->is_awaited) {
            count_time(step, step->ended_ns);
        }
        complete(step);
    }
    if (is_returned) {
        substep_returned(ctx, 0, 0);
    }
}

/* Submission */

static void append(struct sl_substep *substep, const struct sl_encode_list *list)
{
    if (list->count == 0) {
        return;
    }
    if (substep->requests.last == NULL) {
        substep->requests.first = list->first;
    } else {
        substep->requests.last->next = list->first;
    }
    substep->requests.last = list->last;
    substep->requests.count += list->count;
    for (struct sl_request *request = list->first; request != NULL; request = request->next) {
        request->substep = substep;
    }
}

static int encode(struct sl_step *step)
{
    const struct sl_client *client = step->client;
    const struct sl_encode_plan plan = {
        .wire = &step->wire,
        .notes = &step->notes,
        .operations = step->operations.items,
        .operation_count = step->operations.count,
        .shard_count = client->shard_count,
        .payload_bytes_max = client->payload_bytes_max,
        .over_tcp = client->uses_tcp,
        .clock = step->clock,
        .priority = step->priority,
        .batched = client->protocol == SL_PROTOCOL_BATCHED,
        .tick = step->tick,
        .tick_at = step->tick_at,
    };
    sl_scratch_reset(&step->wire);
    sl_scratch_reset(&step->notes);
    int err = sl_encode_route(&plan);
    for (uint32_t i = 0; i < client->io_count; i++) {
        step->substeps[i].requests = (struct sl_encode_list){0};
    }
    uint32_t shard = 0;
    while (err == 0 && (shard = sl_encode_next(&plan, shard)) < client->shard_count) {
        struct sl_encode_list list = {0};
        err = sl_encode_shard(&plan, shard, &list);
        append(&step->substeps[client->conns[shard].io->index], &list);
        shard++;
    }
    return err;
}

/* The thread of a driven reactor sends at once, in its place in the order of its mail. */
static void start_substep(struct sl_step *step, uint32_t io_index)
{
    struct sl_substep *substep = &step->substeps[io_index];
    struct sl_port *port = &step->thread_ctx->port;
    step->substeps_left++;
    step->substeps_out++;
    if (!sl_port_enter(port, io_index, step->submitted_ns) || !sl_substep_try_start(substep)) {
        sl_port_post(port, io_index, (struct sl_mail){.run = sl_substep_start, .ctx = substep});
    }
}

static void start_substeps(struct sl_step *step, uint32_t timeout_ms)
{
    const struct sl_client *client = step->client;
    uint64_t deadline_ns = step->submitted_ns + timeout_ms * SL_CLOCK_NS_PER_MS;
    struct sl_port *port = &step->thread_ctx->port;
    sl_port_catch_up(port, step->submitted_ns);
    for (uint32_t i = 0; i < client->io_count; i++) {
        struct sl_substep *substep = &step->substeps[i];
        if (substep->requests.count == 0) {
            continue;
        }
        substep->deadline_ns = deadline_ns;
        substep->timeout_ms = timeout_ms;
        substep->answers = port->driven == NULL ? port->lanes[i].from : NULL;
        substep->on_complete = substep_completed;
        substep->on_return = substep_returned;
        substep->completed = false;
        substep->err = 0;
        substep->staleness = 0;
        substep->error[0] = '\0';
        substep->unsent = 0;
        start_substep(step, i);
    }
}

static int check_submission(const struct sl_step *step, uint32_t timeout_ms)
{
    const char *wrong = step->state != SL_STEP_BUILDING ? "the step is submitted already"
                        : step->bad                     ? "an operation was refused before"
                        : step->operations.count == 0 && step->tick == SL_TICK_NONE
                            ? "the step has no operation"
                            : NULL;
    if (wrong != NULL) {
        return sl_reason_report(SL_ERR_INVALID, "submit: %s", wrong);
    }
    if (timeout_ms < 1 || timeout_ms > SL_STEP_TIMEOUT_MS_MAX) {
        return sl_reason_report(SL_ERR_INVALID, "submit: timeout_ms %u: accepts 1 to %u",
                                timeout_ms, SL_STEP_TIMEOUT_MS_MAX);
    }
    return 0;
}

/* Looks for a value that its table refuses. If there is one, the step becomes a push of this row or
 * element alone: its shard refuses, counts and logs it, and nothing of the step takes effect. */
static void reduce_to_refused(struct sl_step *step)
{
    for (uint32_t i = 0; i < step->operations.count; i++) {
        struct sl_operation refused = step->operations.items[i];
        const struct sl_table_spec *spec = &refused.table->spec;
        const bool has_keys = spec->kind == SL_TABLE_SPARSE;
        const uint64_t count = has_keys ? (uint64_t)refused.key_count * spec->dim : refused.count;
        if (!spec->reject_nonfinite || refused.gradients == NULL) {
            continue;
        }
        const uint64_t at = sl_finite_prefix(refused.gradients, count);
        if (at == count) {
            continue;
        }
        const uint64_t row = has_keys ? at / spec->dim : at;
        refused.op = has_keys ? SL_REQUEST_PUSH : SL_REQUEST_DENSE_PUSH;
        refused.gradients = (const float *)refused.gradients + (has_keys ? row * spec->dim : row);
        refused.values = NULL;
        refused.pull = refused.push = SL_PRECISION_F32;
        refused.keys = has_keys ? refused.keys + row : NULL;
        refused.key_count = has_keys;
        refused.start += has_keys ? 0 : row;
        refused.count = has_keys ? 0 : 1;
        step->operations.items[0] = refused;
        step->operations.count = 1;
        step->tick = SL_TICK_NONE;
        return;
    }
}

int sl_step_submit_at(struct sl_step *step, uint32_t timeout_ms, uint64_t now_ns)
{
    int err = sl_port_set_check(step->client->ports);
    err = err != 0 ? err : check_submission(step, timeout_ms);
    if (err != 0) {
        return err;
    }
    if (step->thread_ctx->steps_out == SL_THREAD_CTX_STEPS_MAX) {
        sl_port_drain(&step->thread_ctx->port);
        if (step->thread_ctx->steps_out == SL_THREAD_CTX_STEPS_MAX) {
            return sl_reason_report(SL_ERR_AGAIN, "submit: %d steps of the thread are outstanding",
                                    SL_THREAD_CTX_STEPS_MAX);
        }
    }
    step->submitted_ns = now_ns;
    if (step->wants_finite) {
        reduce_to_refused(step);
        err = sl_table_encoding_check_finite(step);
        if (err != 0) {
            return err;
        }
    }
    err = encode(step);
    if (err != 0) {
        return sl_reason_report(err, "submit: cannot make the messages of %u operations: %s",
                                step->operations.count, sl_err_name(err));
    }
    if (step->tick == SL_TICK_FINISH) {
        step->client->finished = true;
    }
    step->state = SL_STEP_SUBMITTED;
    start_substeps(step, timeout_ms);
    if (step->substeps_out == 0) {
        complete(step); /* no requests: there are no keys */
    } else {
        step->thread_ctx->steps_out++;
    }
    return 0;
}

int sl_step_submit_deferred(struct sl_step *step, uint32_t timeout_ms)
{
    sl_assert(step != NULL);
    return sl_step_submit_at(step, timeout_ms, sl_clock_now_ns(step->client->clock));
}

int sl_step_submit(struct sl_step *step, uint32_t timeout_ms)
{
    int err = sl_step_submit_deferred(step, timeout_ms);
    if (err == 0) {
        sl_port_kick(&step->thread_ctx->port);
    }
    return err;
}

bool sl_step_done(struct sl_step *step)
{
    sl_assert(step != NULL);
    if (sl_port_set_is_forked(step->client->ports)) {
        return true; /* sl_step_wait returns at once */
    }
    if (step->state == SL_STEP_SUBMITTED) {
        sl_port_drain(&step->thread_ctx->port);
    }
    return step->state == SL_STEP_COMPLETE;
}

/* A step that is not complete when the wait begins is awaited. */
static bool client_step_is_complete(void *ctx)
{
    struct sl_step *step = ctx;
    const bool was_awaited = step->is_awaited;
    step->is_awaited = step->state != SL_STEP_COMPLETE;
    if (was_awaited && !step->is_awaited) {
        count_time(step, sl_port_now_ns(&step->thread_ctx->port, step->client->clock));
    }
    return !step->is_awaited;
}

static int wait_until(struct sl_step *step, uint64_t timeout_ns)
{
    sl_assert(step != NULL);
    int err = sl_port_set_check(step->client->ports);
    if (err != 0) {
        return err;
    }
    if (step->state == SL_STEP_BUILDING) {
        return sl_reason_report(SL_ERR_INVALID, "wait: the step was never submitted");
    }
    err = step->state == SL_STEP_SUBMITTED
              ? sl_wait_until(step->client, &step->thread_ctx->port, timeout_ns,
                              client_step_is_complete, step)
              : 0;
    step->is_awaited = false;
    if (err != 0) {
        return sl_reason_report(err, "wait: %s",
                                err == SL_ERR_AGAIN ? "the step is not complete yet"
                                                    : "interrupted: the step continues");
    }
    return step->err == 0 ? 0 : sl_reason_report(step->err, "%s", step->error);
}

int sl_step_wait(struct sl_step *step)
{
    return wait_until(step, SL_CLOCK_NEVER);
}

int sl_step_wait_for(struct sl_step *step, uint32_t timeout_ms)
{
    return wait_until(step, timeout_ms * SL_CLOCK_NS_PER_MS);
}

int sl_step_wait_through(struct sl_step *step)
{
    if (step->state == SL_STEP_SUBMITTED) {
        (void)sl_port_wait_until(&step->thread_ctx->port, SL_CLOCK_NEVER, client_step_is_complete,
                                 step);
    }
    return sl_step_wait(step);
}

const char *sl_step_error(const struct sl_step *step)
{
    sl_assert(step != NULL);
    return step->error;
}

uint32_t sl_step_staleness(const struct sl_step *step)
{
    sl_assert(step != NULL);
    return step->staleness;
}
