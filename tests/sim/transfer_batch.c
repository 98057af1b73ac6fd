#include "tests/sim/transfer_batch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/assert.h"
#include "tests/sim/random.h"
#include "tests/sim/transfer_app.h"

#define LOCAL_FIRST 0x300000000000U
#define LOCAL_STEP  0x100000000U
#define LOCAL_WORDS (32U << 10) /* at most */
#define GUARD_WORDS 8
#define FILL        0xa5a5a5a5a5a5a5a5U
#define SCRIBBLE    0xdededededededede
/* A batch is over so long after its deadline, or after it was cancelled. */
#define GRACE_NS    (50 * SL_CLOCK_NS_PER_MS)
/* A WRITE of the whole memory fits in this. */
#define PROOF_MS    30000

/* Enough for all requests of most batches, and for a proof. */
static uint32_t local_words(const struct sl_sim_transfer_plan *plan)
{
    const uint32_t proof = 2 * (plan->buffer_words + GUARD_WORDS) + GUARD_WORDS;
    const uint32_t all = plan->requests_max * (plan->request_words_max + GUARD_WORDS) + GUARD_WORDS;
    const uint32_t words = all > proof ? all : proof;
    return words < LOCAL_WORDS ? words : LOCAL_WORDS;
}

static struct sl_sim_transfer_oracle *oracle_of(const struct sl_sim_transfer_batch *batch)
{
    return batch->app->options.oracle;
}

void sl_sim_transfer_batch_init(struct sl_sim_transfer_batch *batch,
                                struct sl_sim_transfer_app *app, uint32_t index)
{
    const uint64_t place = app->options.host * SL_SIM_TRANSFER_SLOTS_MAX + index;
    void *wanted = (void *)(uintptr_t)(LOCAL_FIRST + place * LOCAL_STEP);
    *batch =
        (struct sl_sim_transfer_batch){.app = app, .local_words = local_words(app->options.plan)};
    batch->local = mmap(wanted, LOCAL_WORDS * sizeof(uint64_t), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    sl_assert(batch->local == wanted);
    batch->hash = sl_hash_bytes(batch->local, batch->local_words * sizeof(uint64_t), 0);
}

static void free_floors(struct sl_sim_transfer_batch *batch)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        free(batch->requests[i].floors);
        batch->requests[i].floors = NULL;
    }
}

void sl_sim_transfer_batch_fini(struct sl_sim_transfer_batch *batch)
{
    free_floors(batch);
    (void)munmap(batch->local, LOCAL_WORDS * sizeof(uint64_t));
}

void sl_sim_transfer_batch_judge_local(struct sl_sim_transfer_batch *batch)
{
    if (!batch->is_running &&
        batch->hash != sl_hash_bytes(batch->local, batch->local_words * sizeof(uint64_t), 0)) {
        sl_sim_fail(&oracle_of(batch)->breach, "local",
                    "local memory of process %u has changed after its batch was "
                    "over",
                    batch->app->options.host);
    }
}

/* Draw */

static bool draw_peer(struct sl_sim_transfer_app *app, uint32_t *peer)
{
    const uint32_t count = app->options.plan->process_count * SL_SIM_TRANSFER_HANDLES_MAX;
    *peer = sl_sim_below(&app->base.random, count);
    for (uint32_t i = 0; i < count; i++) {
        if (app->segments[*peer] != NULL) {
            return true;
        }
        *peer = (*peer + 1) % count;
    }
    return false;
}

static void set_peer(struct sl_sim_transfer_request *request, uint32_t peer)
{
    request->peer = peer;
    request->target = peer / SL_SIM_TRANSFER_HANDLES_MAX;
}

static void draw_range(struct sl_sim_transfer_app *app, struct sl_sim_transfer_request *request)
{
    const struct sl_sim_transfer_plan *plan = app->options.plan;
    const uint32_t buffer = sl_sim_below(&app->base.random, plan->buffer_count);
    const uint32_t most = sl_sim_chance(&app->base.random, 300) ? 4 : plan->request_words_max;
    request->words = 1 + sl_sim_below(&app->base.random, most);
    request->first = sl_sim_transfer_buffer_at(plan, buffer) +
                     sl_sim_below(&app->base.random, plan->buffer_words - request->words + 1ULL);
    if (plan->hot && sl_sim_chance(&app->base.random, 800)) {
        request->first = sl_sim_transfer_buffer_at(plan, buffer);
    }
    request->is_invalid = sl_sim_chance(&app->base.random, 20);
    if (request->is_invalid) { /* beyond its end */
        request->first =
            sl_sim_transfer_buffer_at(plan, buffer) + plan->buffer_words - request->words + 1;
    }
}

/* One that follows the one before in both memories is joined with it. */
static void draw_request(struct sl_sim_transfer_batch *batch, uint32_t index, uint32_t *used)
{
    struct sl_sim_transfer_app *app = batch->app;
    struct sl_sim_transfer_request *request = &batch->requests[index];
    const struct sl_sim_transfer_request *last = index > 0 ? request - 1 : NULL;
    *request = (struct sl_sim_transfer_request){.op = sl_sim_below(&app->base.random, 2)};
    uint32_t peer;
    (void)draw_peer(app, &peer);
    set_peer(request, peer);
    draw_range(app, request);
    if (last != NULL && !last->is_invalid && sl_sim_chance(&app->base.random, 300)) {
        const struct sl_sim_transfer_plan *plan = app->options.plan;
        const uint32_t at = last->first + last->words;
        const uint32_t into =
            (at - SL_SIM_TRANSFER_GUARD_WORDS) % (plan->buffer_words + SL_SIM_TRANSFER_GUARD_WORDS);
        if (into + request->words <= plan->buffer_words) {
            request->op = last->op;
            set_peer(request, last->peer);
            request->first = at;
            request->is_invalid = false;
        }
    }
    *used += sl_sim_chance(&app->base.random, 500) ? 0 : GUARD_WORDS;
    request->local = *used;
    *used += request->words;
}

static void draw_all(struct sl_sim_transfer_batch *batch)
{
    struct sl_sim_transfer_app *app = batch->app;
    const uint32_t count = 1 + sl_sim_below(&app->base.random, app->options.plan->requests_max);
    uint32_t used = GUARD_WORDS, ignored;
    batch->count = 0;
    while (batch->count < count && draw_peer(app, &ignored)) {
        uint32_t after = used;
        draw_request(batch, batch->count, &after);
        if (after + GUARD_WORDS > batch->local_words) {
            break;
        }
        used = after;
        batch->count++;
    }
}

static void draw_proof(struct sl_sim_transfer_batch *batch, uint32_t peer)
{
    const struct sl_sim_transfer_plan *plan = batch->app->options.plan;
    for (uint32_t i = 0; i < 2; i++) {
        batch->requests[i] = (struct sl_sim_transfer_request){
            .op = i == 0 ? SL_TRANSFER_READ : SL_TRANSFER_WRITE,
            .peer = peer,
            .target = peer / SL_SIM_TRANSFER_HANDLES_MAX,
            .first = sl_sim_transfer_buffer_at(plan, 0),
            .words = plan->buffer_words,
            .local = GUARD_WORDS + i * (plan->buffer_words + GUARD_WORDS)};
    }
    batch->count = 2;
}

/* Submit */

static void prepare(struct sl_sim_transfer_batch *batch, struct sl_sim_transfer_request *request,
                    struct sl_transfer_request *out)
{
    struct sl_sim_transfer_app *app = batch->app;
    struct sl_sim_transfer_oracle *oracle = oracle_of(batch);
    const struct sl_sim_transfer_memory *memory = &oracle->memories[request->target];
    request->target_life = app->lives[request->peer];
    if (request->op == SL_TRANSFER_WRITE) {
        request->origin =
            sl_sim_transfer_oracle_write(oracle, app->life, request->peer, request->target_life,
                                         request->first, request->is_invalid ? 0 : request->words);
        for (uint32_t i = 0; i < request->words; i++) {
            batch->local[request->local + i] =
                sl_sim_transfer_value(request->origin, request->first + i);
        }
    } else {
        const size_t bytes = request->words * sizeof *request->floors;
        request->floors = malloc(bytes);
        sl_assert(request->floors != NULL);
        memcpy(request->floors, &memory->floors[request->first], bytes);
    }
    *out = (struct sl_transfer_request){
        .op = request->op,
        .local = &batch->local[request->local],
        .segment = app->segments[request->peer],
        .remote = (uintptr_t)&memory->words[request->first],
        .bytes = request->words * sizeof(uint64_t),
    };
}

/* All requests are for the target of the first one. */
static void begin_notice(struct sl_sim_transfer_batch *batch)
{
    const struct sl_sim_transfer_app *app = batch->app;
    const uint32_t peer = batch->requests[0].peer;
    batch->notice = sl_sim_transfer_oracle_notice(oracle_of(batch), app->options.host,
                                                  batch->requests[0].target, app->lives[peer]);
    for (uint32_t i = 1; i < batch->count; i++) {
        set_peer(&batch->requests[i], peer);
    }
}

void sl_sim_transfer_batch_begin(struct sl_sim_transfer_batch *batch, bool must_succeed,
                                 uint32_t peer)
{
    struct sl_sim_transfer_app *app = batch->app;
    const struct sl_sim_transfer_plan *plan = app->options.plan;
    struct sl_transfer_request requests[SL_SIM_TRANSFER_REQUESTS_MAX];
    sl_sim_transfer_batch_judge_local(batch);
    if (must_succeed) {
        draw_proof(batch, peer);
    } else {
        draw_all(batch);
    }
    if (batch->count == 0) {
        return;
    }
    for (uint32_t i = 0; i < batch->local_words; i++) {
        batch->local[i] = FILL;
    }
    batch->has_notice = must_succeed || sl_sim_chance(&app->base.random, 300);
    if (batch->has_notice) {
        begin_notice(batch);
    }
    for (uint32_t i = 0; i < batch->count; i++) {
        prepare(batch, &batch->requests[i], &requests[i]);
    }
    if (batch->has_notice) {
        struct sl_sim_transfer_notice *notice = &oracle_of(batch)->notices[batch->notice];
        notice->origin_count = oracle_of(batch)->origin_count - notice->first_origin;
    }
    const bool hurries = !must_succeed && plan->impatient && sl_sim_chance(&app->base.random, 500);
    batch->must_succeed = must_succeed || (plan->calm && !plan->unregisters && !hurries);
    batch->timeout_ms = must_succeed ? PROOF_MS : hurries ? plan->impatient_ms : plan->timeout_ms;
    batch->begun_ns = sl_sim_network_now(app->options.network);
    batch->paused_ns = app->base.process.paused_ns;
    batch->is_cancelled = batch->saw_closed = batch->has_failed = false;
    batch->is_running = true;
    const struct sl_transfer_notice sent = {.name = plan->has_reader ? "objects" : "batch",
                                            .text = &batch->notice,
                                            .bytes = sizeof batch->notice};
    const int err = sl_transfer_batch_submit(batch->batch, requests, batch->count,
                                             batch->timeout_ms, batch->has_notice ? &sent : NULL);
    sl_assert(err == 0);
}

void sl_sim_transfer_batch_cancel(struct sl_sim_transfer_batch *batch)
{
    if (batch->is_running && !batch->is_cancelled) {
        batch->is_cancelled = true;
        batch->must_succeed = false;
        batch->cancelled_ns = sl_sim_network_now(batch->app->options.network);
        sl_transfer_batch_cancel(batch->batch);
    }
}

/* Judge */

static void judge_status(struct sl_sim_transfer_batch *batch, uint32_t index,
                         const struct sl_transfer_status *status)
{
    const struct sl_sim_transfer_request *request = &batch->requests[index];
    struct sl_sim_transfer_oracle *oracle = oracle_of(batch);
    const char *text = sl_transfer_batch_error(batch->batch, index);
    const bool completed = status->state == SL_TRANSFER_COMPLETED;
    const uint64_t bytes = request->words * sizeof(uint64_t);
    if (completed != (status->err == 0) || completed != (text[0] == '\0') ||
        (completed && status->bytes != bytes) || status->state <= SL_TRANSFER_PENDING ||
        (!completed && status->bytes >= bytes)) {
        sl_sim_fail(&oracle->breach, "status",
                    "request %u: state %d, error %d, %" PRIu64 " bytes, \"%s\"", index,
                    (int)status->state, status->err, status->bytes, text);
    }
    if (request->is_invalid && completed) {
        sl_sim_fail(&oracle->breach, "guards", "an invalid request has completed");
    }
    if (!request->is_invalid && !completed && batch->must_succeed) {
        sl_sim_fail(&oracle->breach, "progress", "process %u: %s", batch->app->options.host, text);
    }
    batch->saw_closed = batch->saw_closed || status->err == SL_ERR_CLOSED;
    batch->has_failed = batch->has_failed || !completed;
}

static void judge_request(struct sl_sim_transfer_batch *batch, uint32_t index)
{
    struct sl_sim_transfer_app *app = batch->app;
    struct sl_sim_transfer_request *request = &batch->requests[index];
    struct sl_transfer_status status;
    const int err = sl_transfer_batch_status(batch->batch, index, &status);
    sl_assert(err == 0);
    judge_status(batch, index, &status);
    const bool completed = status.state == SL_TRANSFER_COMPLETED;
    if (request->op == SL_TRANSFER_WRITE) {
        sl_sim_transfer_oracle_written(oracle_of(batch), request->origin, app->options.host,
                                       completed && !request->is_invalid);
    } else if (completed && !request->is_invalid) {
        sl_sim_transfer_oracle_read(oracle_of(batch), app->options.host, request->target,
                                    request->target_life, request->first, request->words,
                                    &batch->local[request->local], request->floors);
    }
}

/* Words that no READ has named must be as they were. */
static void judge_guards(struct sl_sim_transfer_batch *batch)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        struct sl_sim_transfer_request *request = &batch->requests[i];
        uint64_t *at = &batch->local[request->local];
        for (uint32_t word = 0; word < request->words; word++) {
            if (request->op == SL_TRANSFER_WRITE &&
                at[word] != sl_sim_transfer_value(request->origin, request->first + word)) {
                sl_sim_fail(&oracle_of(batch)->breach, "local",
                            "the source of a WRITE has changed");
            }
            at[word] = FILL;
        }
    }
    for (uint32_t i = 0; i < batch->local_words; i++) {
        if (batch->local[i] != FILL) {
            sl_sim_fail(&oracle_of(batch)->breach, "guards",
                        "process %u: word %u of local memory is %016" PRIx64
                        ", and no request has named it",
                        batch->app->options.host, i, batch->local[i]);
        }
        batch->local[i] = SCRIBBLE; /* a read that comes later finds these bytes */
    }
    batch->hash = sl_hash_bytes(batch->local, batch->local_words * sizeof(uint64_t), 0);
}

static void judge_time(struct sl_sim_transfer_batch *batch)
{
    const struct sl_sim_transfer_app *app = batch->app;
    const uint64_t slack_ns = app->base.process.paused_ns - batch->paused_ns + GRACE_NS +
                              4 * app->options.plan->gap_ns + SL_CLOCK_NS_PER_MS;
    uint64_t end_ns = batch->begun_ns + batch->timeout_ms * SL_CLOCK_NS_PER_MS;
    if (batch->is_cancelled && batch->cancelled_ns < end_ns) {
        end_ns = batch->cancelled_ns;
    }
    if (sl_sim_network_now(app->options.network) > end_ns + slack_ns && !app->base.dying) {
        sl_sim_fail(&oracle_of(batch)->breach, "deadline",
                    "a batch of process %u, begun at %" PRIu64 " us with %u ms%s, is not over",
                    app->options.host, sl_sim_us(batch->begun_ns), batch->timeout_ms,
                    batch->is_cancelled ? ", cancelled" : "");
    }
}

void sl_sim_transfer_batch_poll(struct sl_sim_transfer_batch *batch)
{
    if (!batch->is_running) {
        return;
    }
    judge_time(batch);
    if (!sl_transfer_batch_done(batch->batch)) {
        return;
    }
    batch->is_running = false;
    if (!batch->app->base.dying) {
        for (uint32_t i = 0; i < batch->count; i++) {
            judge_request(batch, i);
        }
        judge_guards(batch);
        if (batch->has_notice && sl_transfer_batch_wait(batch->batch) == 0) {
            oracle_of(batch)->notices[batch->notice].confirmed = true;
        }
    }
    free_floors(batch);
}
