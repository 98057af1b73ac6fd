#include "worker/client/table_encoding.h"

#include <stdio.h>

#include "core/assert.h"
#include "core/finite.h"
#include "core/hash.h"
#include "core/reason.h"
#include "core/struct_size.h"
#include "core/table_names.h"
#include "net/session/message_spec.h"
#include "worker/client/error_feedback.h"
#include "worker/client/table_opening.h"

/* Whether the values that an operation pushes or returns may have another precision. */
enum { PUSHES = 1, RETURNS = 2 };
static const uint8_t carried[] = {
    [SL_REQUEST_PULL] = RETURNS,
    [SL_REQUEST_PULL_POOLED] = RETURNS,
    [SL_REQUEST_PUSH] = PUSHES,
    [SL_REQUEST_PUSH_PULL] = PUSHES | RETURNS,
    [SL_REQUEST_DENSE_PULL] = RETURNS,
    [SL_REQUEST_DENSE_PUSH] = PUSHES,
    [SL_REQUEST_DENSE_PUSH_PULL] = PUSHES | RETURNS,
    [SL_REQUEST_KV_PUSH] = PUSHES,
    [SL_REQUEST_KV_PULL] = RETURNS,
    [SL_REQUEST_KV_PUSH_PULL] = PUSHES | RETURNS,
    [SL_REQUEST_EVICT] = 0,
};

int sl_table_encoding_check_known(const char *what, const struct sl_encoding *encoding)
{
    const bool is_pull = (uint32_t)encoding->pull >= SL_PRECISION_COUNT;
    return !is_pull && (uint32_t)encoding->push < SL_PRECISION_COUNT
               ? 0
               : sl_reason_report(SL_ERR_INVALID,
                                  "%s: %s is %d: accepts 0 (f32), 1 (f16), 2 (bf16), 3 (int8)",
                                  what, is_pull ? "pull" : "push",
                                  (int)(is_pull ? encoding->pull : encoding->push));
}

/* Reports INVALID if the table does not have a precision, VERSION if a server does not know it. */
static int encoding_check(const struct sl_table *table, const struct sl_encoding *encoding)
{
    static const char *const kinds[] = {"sparse", "dense", "KV"};
    const struct sl_table_spec *spec = &table->spec;
    const bool is_narrow = encoding->pull != SL_PRECISION_F32 || encoding->push != SL_PRECISION_F32;
    if (is_narrow && spec->kind == SL_TABLE_KV && spec->dim != sizeof(float)) {
        return sl_reason_report(SL_ERR_INVALID,
                                "table %s: pull is %s and push is %s: a KV table with values of %u "
                                "bytes accepts f32 alone",
                                spec->name, sl_table_names_precision[encoding->pull],
                                sl_table_names_precision[encoding->push], spec->dim);
    }
    if (encoding->pull == SL_PRECISION_INT8 && spec->kind != SL_TABLE_SPARSE) {
        return sl_reason_report(SL_ERR_INVALID,
                                "table %s: pull is int8: a %s table accepts f32, f16, bf16",
                                spec->name, kinds[spec->kind]);
    }
    return is_narrow ? sl_table_check_knows(table, SL_MESSAGE_SPEC_KNOWS_PRECISION,
                                            "another precision than f32")
                     : 0;
}

int sl_table_encoding_apply(struct sl_step *step, const struct sl_encoding *encoding,
                            struct sl_operation *operation)
{
    const uint8_t carries =
        operation->op < sizeof carried && operation->lengths == NULL ? carried[operation->op] : 0;
    const struct sl_encoding own = {
        .pull = (carries & RETURNS) != 0 ? encoding->pull : SL_PRECISION_F32,
        .push = (carries & PUSHES) != 0 ? encoding->push : SL_PRECISION_F32,
    };
    operation->pull = own.pull;
    operation->push = own.push;
    operation->seed = own.push == SL_PRECISION_F32 ? 0 : sl_hash_random(&step->thread_ctx->random);
    return encoding_check(operation->table, &own);
}

/* The key that value `at` of the operation belongs to. */
static uint64_t encoding_key_of(const struct sl_operation *operation, uint64_t at)
{
    if (operation->table->spec.kind == SL_TABLE_SPARSE) {
        return operation->keys[at / operation->table->spec.dim];
    }
    if (operation->lens == NULL) {
        return operation->keys[at / (operation->count / operation->key_count)];
    }
    uint32_t key = 0;
    for (; at >= operation->lens[key]; key++) {
        at -= operation->lens[key];
    }
    return operation->keys[key];
}

int sl_table_encoding_check_finite(const struct sl_step *step)
{
    for (uint32_t i = 0; i < step->operations.count; i++) {
        const struct sl_operation *operation = &step->operations.items[i];
        const struct sl_table_spec *spec = &operation->table->spec;
        const bool is_sparse = spec->kind == SL_TABLE_SPARSE;
        const uint64_t count =
            is_sparse ? (uint64_t)operation->key_count * spec->dim : operation->count;
        const float *gradients = operation->gradients;
        const uint64_t at =
            operation->push == SL_PRECISION_INT8 ? sl_finite_prefix(gradients, count) : count;
        if (at < count) {
            const bool is_dense = spec->kind == SL_TABLE_DENSE;
            return sl_reason_report(
                SL_ERR_INVALID, "table %s, %s %llu: a gradient is %g: int8 accepts finite values",
                spec->name, is_dense ? "element" : "key",
                (unsigned long long)(is_dense ? operation->start + at
                                              : encoding_key_of(operation, at)),
                (double)gradients[at]);
        }
    }
    return 0;
}

static int encoding_create_feedback(const struct sl_table *table, uint64_t bytes,
                                    struct sl_error_feedback **out)
{
    const struct sl_table_spec *spec = &table->spec;
    if (bytes == 0) {
        return 0;
    }
    if (spec->kind == SL_TABLE_KV) {
        return sl_reason_report(SL_ERR_INVALID,
                                "table %s: error_feedback_bytes is %llu: a KV table accepts 0",
                                spec->name, (unsigned long long)bytes);
    }
    const uint64_t least = sl_error_feedback_bytes_min(spec);
    if (bytes < least) {
        return sl_reason_report(
            SL_ERR_INVALID, "table %s: error_feedback_bytes is %llu: accepts 0, and %llu or more",
            spec->name, (unsigned long long)bytes, (unsigned long long)least);
    }
    return sl_error_feedback_create(spec, bytes, out) == 0
               ? 0
               : sl_reason_report(SL_ERR_NO_MEMORY,
                                  "table %s: no memory for %llu bytes of error feedback",
                                  spec->name, (unsigned long long)bytes);
}

int sl_table_set_encoding(struct sl_table *table, const struct sl_encoding_options *options)
{
    sl_assert(table != NULL);
    sl_assert(options != NULL);
    struct sl_reason reason;
    struct sl_encoding_options own;
    int err = sl_struct_size_read(options, &own, sizeof own, "SL_ENCODING_OPTIONS_INIT", &reason);
    if (err != 0) {
        return sl_reason_report(err, "table %s: %s", table->spec.name, reason.text);
    }
    const struct sl_encoding encoding = {.pull = own.pull, .push = own.push};
    char what[SL_TABLE_NAME_BYTES + 8];
    (void)snprintf(what, sizeof what, "table %s", table->spec.name);
    err = sl_table_encoding_check_known(what, &encoding);
    err = err != 0 ? err : encoding_check(table, &encoding);
    struct sl_error_feedback *feedback = NULL;
    err = err != 0 ? err : encoding_create_feedback(table, own.error_feedback_bytes, &feedback);
    if (err == 0) {
        sl_error_feedback_destroy(&table->feedback);
        table->encoding = encoding;
        table->feedback = feedback;
    }
    return err;
}
