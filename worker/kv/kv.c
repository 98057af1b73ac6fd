#include "worker/kv/kv.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "core/partition.h"
#include "core/reason.h"
#include "net/session/message_spec.h"
#include "worker/client/control.h"
#include "worker/client/step_internal.h"
#include "worker/client/table_opening.h"
#include "worker/kv/engine.h"
#include "worker/kv/serve.h"

#define TIMEOUT_MS 60000U

/* Roles */

int sl_kv_role(enum sl_kv_role *out)
{
    sl_assert(out != NULL);
    return sl_serve_role_of(NULL, out);
}

/* Tables */

static_assert(SL_KV_F16 == (SL_PRECISION_F16 << 8 | 2) &&
                  SL_KV_BF16 == (SL_PRECISION_BF16 << 8 | 2),
              "precision and bytes");

static int kv_check_options(const struct sl_kv_options *options, struct sl_table_spec *spec,
                            uint32_t *timeout_ms)
{
    const char *name = options->name == NULL ? "kv" : options->name;
    const uint32_t bytes = options->value_bytes == 0 ? sizeof(float) : options->value_bytes;
    *timeout_ms = options->timeout_ms == 0 ? TIMEOUT_MS : options->timeout_ms;
    if (strlen(name) >= sizeof spec->name ||
        (bytes != 1 && bytes != sizeof(float) && bytes != SL_KV_F16 && bytes != SL_KV_BF16) ||
        *timeout_ms > SL_STEP_TIMEOUT_MS_MAX) {
        return sl_reason_report(
            SL_ERR_INVALID,
            "kv: table %.80s with values of %u bytes and a timeout of %u ms: accepts "
            "names of up to %zu bytes, values of 1, 4, SL_KV_F16 or SL_KV_BF16, up to %u ms",
            name, bytes, *timeout_ms, sizeof spec->name - 1, SL_STEP_TIMEOUT_MS_MAX);
    }
    *spec = (struct sl_table_spec){.kind = SL_TABLE_KV,
                                   .dim = bytes & 0xff,
                                   .values = (enum sl_precision)(bytes >> 8),
                                   .optimizer = {.kind = SL_OPTIMIZER_SUM}};
    snprintf(spec->name, sizeof spec->name, "%s", name);
    return 0;
}

struct open_job {
    struct sl_engine_job job; /* must be first: the engine casts it back */
    const struct sl_table_spec *spec;
    uint32_t timeout_ms;
    bool begun;
    struct sl_table_opening opening;
    struct sl_table *table;
};

static int poll_open(struct sl_engine *engine, struct sl_engine_job *job)
{
    struct open_job *open = (struct open_job *)(void *)job;
    if (!open->begun) {
        int err =
            sl_table_opening_begin(&open->opening, engine->client, open->spec, open->timeout_ms);
        open->begun = err == 0;
        return err == 0 ? SL_ERR_AGAIN : err;
    }
    return sl_table_opening_poll(&open->opening, &open->table);
}

/* spec NULL: the kv has no table. */
static int kv_open_table(struct sl_engine *engine, const struct sl_table_spec *spec,
                         uint32_t timeout_ms, bool zeros, struct sl_kv **out)
{
    struct open_job open = {.job.poll = poll_open, .spec = spec, .timeout_ms = timeout_ms};
    struct sl_kv *kv = calloc(1, sizeof *kv);
    if (kv == NULL) {
        return sl_reason_report(SL_ERR_NO_MEMORY, "kv: no memory for a table");
    }
    int err = spec == NULL ? 0 : sl_engine_run_job(engine, &open.job);
    if (err == 0 && open.table != NULL && zeros) {
        err = sl_table_check_knows(open.table, SL_MESSAGE_SPEC_KNOWS_LENGTHS, "zeros");
    }
    if (err != 0) {
        free(kv);
        return err;
    }
    *kv = (struct sl_kv){
        .engine = engine, .table = open.table, .timeout_ms = timeout_ms, .zeros = zeros};
    *out = kv;
    return 0;
}

int sl_kv_join(const struct sl_kv_options *options, const char *const *variables, uint32_t beside,
               struct sl_kv **out)
{
    struct sl_table_spec spec;
    struct sl_client_options client;
    struct sl_engine *engine;
    uint32_t timeout_ms;
    int err = kv_check_options(options, &spec, &timeout_ms);
    err = err != 0 ? err : sl_join_read(variables, beside != 0, &client);
    if (err != 0) {
        return err;
    }
    err = sl_engine_create(&client, beside, options->manual_progress, &engine);
    sl_client_options_fini(&client);
    if (err != 0) {
        return err;
    }
    if (beside == 0) {
        char name[32];
        snprintf(name, sizeof name, "worker/%d", engine->client->task_index);
        sl_log_rename(name);
    }
    err = kv_open_table(engine, beside == 0 ? &spec : NULL, timeout_ms, options->zeros, out);
    if (err != 0) {
        sl_engine_destroy(&engine);
        return err;
    }
    (*out)->owns_engine = true;
    return 0;
}

int sl_kv_create(const struct sl_kv_options *options, struct sl_kv **out)
{
    sl_assert(options != NULL);
    sl_assert(out != NULL);
    const struct sl_kv_server *server = options->beside;
    if (server == NULL) {
        return sl_kv_join(options, options->variables, 0, out);
    }
    const uint32_t beside = sl_serve_role(server) == SL_KV_SCHEDULER
                                ? SL_MESSAGE_BESIDE_SCHEDULER
                                : SL_MESSAGE_BESIDE_PS + sl_kv_server_rank(server);
    return sl_kv_join(options, sl_serve_variables(server), beside, out);
}

int sl_kv_open(struct sl_kv *kv, const struct sl_kv_options *options, struct sl_kv **out)
{
    sl_assert(kv != NULL);
    sl_assert(options != NULL);
    sl_assert(out != NULL);
    struct sl_table_spec spec;
    uint32_t timeout_ms;
    int err = kv_check_options(options, &spec, &timeout_ms);
    return err == 0 ? kv_open_table(kv->engine, &spec, timeout_ms, options->zeros, out) : err;
}

void sl_kv_destroy(struct sl_kv **kv)
{
    sl_assert(kv != NULL);
    struct sl_kv *closing = *kv;
    if (closing == NULL) {
        return;
    }
    sl_engine_drain(closing);
    if (closing->owns_engine) {
        sl_engine_destroy(&closing->engine);
    }
    *kv = NULL; /* only now: callbacks may begin calls through *kv */
    free(closing);
}

/* A kv beside a server has no table. */
static int check_table(const struct sl_kv *kv)
{
    return kv->table != NULL
               ? 0
               : sl_reason_report(SL_ERR_INVALID,
                                  "kv: it is beside a server or the scheduler and has no table: "
                                  "open one with sl_kv_open");
}

struct encoding_job {
    struct sl_engine_job job; /* must be first */
    struct sl_table *table;
    struct sl_encoding_options options;
};

static int poll_encoding(struct sl_engine *engine, struct sl_engine_job *job)
{
    struct encoding_job *encoding = (struct encoding_job *)(void *)job;
    return sl_table_set_encoding(encoding->table, &encoding->options);
}

int sl_kv_set_encoding(struct sl_kv *kv, enum sl_precision pull, enum sl_precision push)
{
    sl_assert(kv != NULL);
    struct encoding_job encoding = {
        .job.poll = poll_encoding,
        .table = kv->table,
        .options = {.struct_size = sizeof encoding.options, .pull = pull, .push = push}};
    return check_table(kv) != 0 ? SL_ERR_INVALID : sl_engine_run_job(kv->engine, &encoding.job);
}

/* Calls */

static int kv_begin(struct sl_kv *kv, const struct sl_kv_call *call, uint32_t *lengths,
                    uint64_t *timestamp)
{
    if (check_table(kv) != 0) {
        return SL_ERR_INVALID;
    }
    int err = sl_engine_begin(kv, call, lengths, timestamp);
    return err == 0 ? 0 : sl_reason_report(err, "kv: begin: %s", sl_err_name(err));
}

int sl_kv_begin(struct sl_kv *kv, const struct sl_kv_call *call, uint64_t *timestamp)
{
    sl_assert(kv != NULL);
    sl_assert(call != NULL);
    sl_assert(timestamp != NULL);
    const struct sl_kv_batch *batch = &call->batch;
    const bool is_given = batch->push != NULL || batch->pull != NULL || batch->lens != NULL ||
                          batch->value_count != 0 || batch->key_count == 0 || batch->keys == NULL;
    if (call->place != NULL && is_given) {
        return sl_reason_report(SL_ERR_INVALID,
                                "kv: begin: with `place` the batch has keys, and no "
                                "push, pull, lens or value_count");
    }
    if (call->place != NULL ? !sl_step_kv_ascend(batch->keys, batch->key_count)
                            : !sl_step_kv_is_valid(batch)) {
        return SL_ERR_INVALID;
    }
    return kv_begin(kv, call, NULL, timestamp);
}

int sl_kv_wait(struct sl_kv *kv, uint64_t timestamp)
{
    sl_assert(kv != NULL);
    int err = sl_engine_wait(kv->engine, timestamp);
    if (err != 0) {
        char text[SL_ENGINE_TEXT_BYTES];
        (void)sl_engine_result(kv->engine, timestamp, text, sizeof text);
        sl_reason_set(sl_reason_last(), "kv: timestamp %llu: %s", (unsigned long long)timestamp,
                      text[0] != '\0'         ? text
                      : err == SL_ERR_INVALID ? "never begun, or waited for in a callback"
                                              : sl_err_name(err));
    }
    return err;
}

bool sl_kv_done(struct sl_kv *kv, uint64_t timestamp)
{
    sl_assert(kv != NULL);
    return sl_engine_done(kv->engine, timestamp);
}

void sl_kv_error(struct sl_kv *kv, uint64_t timestamp, char *text, size_t text_bytes)
{
    sl_assert(kv != NULL);
    sl_assert(text != NULL);
    (void)sl_engine_result(kv->engine, timestamp, text, text_bytes);
}

static int kv_run(struct sl_kv *kv, struct sl_kv_batch batch)
{
    uint64_t timestamp;
    int err = sl_kv_begin(kv, &(struct sl_kv_call){.batch = batch}, &timestamp);
    return err == 0 ? sl_kv_wait(kv, timestamp) : err;
}

int sl_kv_push(struct sl_kv *kv, const uint64_t *keys, uint32_t key_count, const uint32_t *lens,
               const void *values, uint64_t value_count)
{
    return kv_run(kv, (struct sl_kv_batch){.keys = keys,
                                           .lens = lens,
                                           .key_count = key_count,
                                           .value_count = value_count,
                                           .push = values});
}

int sl_kv_pull(struct sl_kv *kv, const uint64_t *keys, uint32_t key_count, const uint32_t *lens,
               void *values, uint64_t value_count)
{
    return kv_run(kv, (struct sl_kv_batch){.keys = keys,
                                           .lens = lens,
                                           .key_count = key_count,
                                           .value_count = value_count,
                                           .pull = values});
}

int sl_kv_push_pull(struct sl_kv *kv, const uint64_t *keys, uint32_t key_count,
                    const uint32_t *lens, const void *push, void *pull, uint64_t value_count)
{
    return kv_run(kv, (struct sl_kv_batch){.keys = keys,
                                           .lens = lens,
                                           .key_count = key_count,
                                           .value_count = value_count,
                                           .push = push,
                                           .pull = pull});
}

int sl_kv_lengths(struct sl_kv *kv, const uint64_t *keys, uint32_t key_count, uint32_t *lens)
{
    sl_assert(kv != NULL);
    if (key_count > 0 && (keys == NULL || lens == NULL)) {
        return sl_reason_report(SL_ERR_INVALID, "kv: keys or lens is NULL");
    }
    if (!sl_step_kv_ascend(keys, key_count)) {
        return SL_ERR_INVALID;
    }
    const struct sl_kv_call call = {.batch = {.keys = keys, .key_count = key_count}};
    uint64_t timestamp;
    int err = key_count == 0 ? 0 : kv_begin(kv, &call, lens, &timestamp);
    return err == 0 && key_count > 0 ? sl_kv_wait(kv, timestamp) : err;
}

/* Buffers, barriers and queries */

struct buffer_job {
    struct sl_engine_job job; /* must be first */
    size_t bytes;
    void *buffer;
};

static int poll_buffer_create(struct sl_engine *engine, struct sl_engine_job *job)
{
    struct buffer_job *create = (struct buffer_job *)(void *)job;
    return sl_client_buffer_create(engine->client, create->bytes, &create->buffer);
}

static int poll_buffer_free(struct sl_engine *engine, struct sl_engine_job *job)
{
    struct buffer_job *release = (struct buffer_job *)(void *)job;
    sl_client_buffer_free(engine->client, &release->buffer);
    return 0;
}

static int poll_buffer_register(struct sl_engine *engine, struct sl_engine_job *job)
{
    struct buffer_job *registration = (struct buffer_job *)(void *)job;
    return sl_client_buffer_register(engine->client, registration->buffer, registration->bytes);
}

static int poll_buffer_unregister(struct sl_engine *engine, struct sl_engine_job *job)
{
    struct buffer_job *registration = (struct buffer_job *)(void *)job;
    sl_client_buffer_unregister(engine->client, registration->buffer);
    return 0;
}

int sl_kv_buffer_create(struct sl_kv *kv, size_t bytes, void **out)
{
    sl_assert(kv != NULL);
    sl_assert(out != NULL);
    struct buffer_job create = {.job.poll = poll_buffer_create, .bytes = bytes};
    int err = sl_engine_run_job(kv->engine, &create.job);
    if (err == 0) {
        *out = create.buffer;
    }
    return err;
}

void sl_kv_buffer_free(struct sl_kv *kv, void **buffer)
{
    sl_assert(kv != NULL);
    sl_assert(buffer != NULL);
    if (*buffer == NULL) {
        return;
    }
    struct buffer_job release = {.job.poll = poll_buffer_free, .buffer = *buffer};
    int err = sl_engine_run_job(kv->engine, &release.job);
    sl_assert(err == 0); /* fails in a callback, or without memory to wait */
    *buffer = NULL;
}

int sl_kv_buffer_register(struct sl_kv *kv, void *base, size_t bytes)
{
    sl_assert(kv != NULL);
    struct buffer_job registration = {
        .job.poll = poll_buffer_register, .bytes = bytes, .buffer = base};
    return sl_engine_run_job(kv->engine, &registration.job);
}

void sl_kv_buffer_unregister(struct sl_kv *kv, void *base)
{
    sl_assert(kv != NULL);
    struct buffer_job registration = {.job.poll = poll_buffer_unregister, .buffer = base};
    int err = sl_engine_run_job(kv->engine, &registration.job);
    sl_assert(err == 0); /* fails in a callback, or without memory to wait */
}

struct barrier_job {
    struct sl_engine_job job; /* must be first */
    struct sl_control_op call;
    bool posted;
};

static int poll_barrier(struct sl_engine *engine, struct sl_engine_job *job)
{
    struct barrier_job *barrier = (struct barrier_job *)(void *)job;
    if (!barrier->posted) {
        barrier->posted = true;
        barrier->call.io = &engine->client->ios[0];
        sl_control_op_post(&barrier->call, engine->driver.port);
    }
    return barrier->call.done ? barrier->call.err : SL_ERR_AGAIN;
}

static int kv_barrier(struct sl_kv *kv, const char *name, uint32_t groups, uint32_t timeout_ms)
{
    sl_assert(kv != NULL);
    sl_assert(name != NULL);
    if (name[0] == '\0' || strlen(name) >= SL_MESSAGE_NAME_BYTES) {
        return sl_reason_report(SL_ERR_INVALID, "barrier %.*s: accepts names of 1 to %d bytes",
                                SL_MESSAGE_NAME_BYTES, name, SL_MESSAGE_NAME_BYTES - 1);
    }
    struct sl_engine *engine = kv->engine;
    struct barrier_job barrier = {
        .job.poll = poll_barrier,
        .call = {.run = sl_control_barrier,
                 .deadline_ns =
                     sl_clock_now_ns(engine->client->clock) + timeout_ms * SL_CLOCK_NS_PER_MS,
                 .name = name,
                 .barrier = {.groups = groups}},
    };
    int err = sl_engine_run_job(engine, &barrier.job);
    if (err != 0) {
        return sl_reason_report(err, "barrier %s: %s", name,
                                barrier.call.text[0] == '\0' ? sl_err_name(err)
                                                             : barrier.call.text);
    }
    return 0;
}

int sl_kv_barrier(struct sl_kv *kv, const char *name, uint32_t timeout_ms)
{
    return kv_barrier(kv, name, 0, timeout_ms);
}

int sl_kv_barrier_of(struct sl_kv *kv, const char *name, uint32_t groups, uint32_t timeout_ms)
{
    if (groups == 0 || groups > SL_MESSAGE_GROUPS) {
        return sl_reason_report(SL_ERR_INVALID,
                                "barrier %.63s: groups %u: accepts a sum of SL_KV_SCHEDULER_GROUP, "
                                "SL_KV_SERVER_GROUP and SL_KV_WORKER_GROUP",
                                name, groups);
    }
    return kv_barrier(kv, name, groups, timeout_ms);
}

uint32_t sl_kv_rank(const struct sl_kv *kv)
{
    sl_assert(kv != NULL);
    const struct sl_client *client = kv->engine->client;
    const uint32_t beside = client->io_options.hello.beside;
    return beside == 0                             ? (uint32_t)client->task_index
           : beside == SL_MESSAGE_BESIDE_SCHEDULER ? 0
                                                   : beside - SL_MESSAGE_BESIDE_PS;
}

uint32_t sl_kv_worker_count(const struct sl_kv *kv)
{
    sl_assert(kv != NULL);
    return kv->engine->client->cluster.worker_count;
}

uint32_t sl_kv_server_count(const struct sl_kv *kv)
{
    sl_assert(kv != NULL);
    return kv->engine->client->shard_count;
}

void sl_kv_server_range(const struct sl_kv *kv, uint32_t server, uint64_t *first, uint64_t *last)
{
    uint32_t count = sl_kv_server_count(kv);
    sl_assert(server < count);
    *first = sl_partition_kv_first(server, count);
    *last = server + 1 == count ? UINT64_MAX : sl_partition_kv_first(server + 1, count) - 1;
}

struct sl_client *sl_kv_client(struct sl_kv *kv)
{
    sl_assert(kv != NULL);
    return kv->engine->has_thread ? NULL : kv->engine->client;
}
