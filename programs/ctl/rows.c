/* Rows of sparse tables, and elements of dense ones: get, set, erase, evict. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/number.h"
#include "core/log.h"
#include "programs/ckpt/tensor_writer.h"
#include "programs/ctl/ctl.h"

#define TTL_STEPS_MAX (1U << 31) /* of sl_client_table_evict */

/* The words behind the table as keys or elements; allocated. */
static int parse_keys(struct sl_ctl *ctl, const struct sl_table_spec *spec, uint32_t count,
                      uint64_t **out)
{
    const uint64_t most = spec->kind == SL_TABLE_DENSE ? spec->length - 1 : UINT64_MAX;
    uint64_t *keys = calloc(count, sizeof *keys);
    if (keys == NULL) {
        return sl_reason_fail(&ctl->reason, SL_ERR_NO_MEMORY, "no memory");
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!sl_number_parse_u64(ctl->words[1 + i], 0, most, &keys[i])) {
            free(keys);
            return sl_reason_fail(
                &ctl->reason, SL_ERR_INVALID, "\"%.80s\": accepted is a %s from 0 to %" PRIu64,
                ctl->words[1 + i], spec->kind == SL_TABLE_DENSE ? "number of an element" : "key",
                most);
        }
    }
    *out = keys;
    return 0;
}

static int open_rows(struct sl_ctl *ctl, bool is_sparse, struct sl_table **table,
                     struct sl_table_spec *spec)
{
    const int err = sl_ctl_open_table(ctl, table, spec);
    if (err != 0 || spec->kind == SL_TABLE_SPARSE || (!is_sparse && spec->kind == SL_TABLE_DENSE)) {
        return err;
    }
    return sl_reason_fail(&ctl->reason, SL_ERR_UNSUPPORTED,
                          "table %s is %s: accepted is a sparse%s table", spec->name,
                          spec->kind == SL_TABLE_KV ? "a KV table" : "dense",
                          is_sparse ? "" : " or dense");
}

/* Submits the step, waits, and destroys it. err: of its operations. */
static int run_step(struct sl_ctl *ctl, struct sl_step **step, int err)
{
    err = err != 0 ? err : sl_step_submit(*step, sl_ctl_time_left_ms(ctl));
    if (err == 0 && (err = sl_step_wait(*step)) != 0) {
        (void)sl_reason_fail(&ctl->reason, err, "%s", sl_step_error(*step));
    } else if (err != 0) {
        (void)sl_ctl_failed(ctl, err);
    }
    sl_step_destroy(step);
    return err;
}

static bool parse_f32(const char *text, float *out)
{
    char *end;
    *out = strtof(text, &end);
    return end != text && *end == '\0' && isfinite(*out);
}

static json_t *describe_values(const float *values, uint32_t count)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < count; i++) {
        /* JSON has no NaN and no infinity. */
        (void)json_array_append_new(list, isfinite(values[i]) ? json_real((double)values[i])
                                                              : json_null());
    }
    return list;
}

int sl_ctl_get(struct sl_ctl *ctl, json_t **out)
{
    struct sl_table *table;
    struct sl_table_spec spec;
    struct sl_step *step = NULL;
    uint64_t *keys = NULL;
    const uint32_t count = ctl->word_count - 1;
    int err = open_rows(ctl, false, &table, &spec);
    err = err != 0 ? err : parse_keys(ctl, &spec, count, &keys);
    if (err != 0) {
        return err;
    }
    const bool is_dense = spec.kind == SL_TABLE_DENSE;
    const uint32_t width = is_dense ? 1 : spec.dim;
    float *rows = calloc((size_t)count * width, sizeof *rows);
    uint8_t *found = calloc(count, 1);
    if (rows == NULL || found == NULL) {
        err = sl_reason_fail(&ctl->reason, SL_ERR_NO_MEMORY, "no memory for %u rows", count);
    } else if ((err = sl_step_begin(ctl->client, 0, &step)) == 0) {
        err = is_dense ? 0 : sl_step_find(step, table, keys, count, rows, found);
        for (uint32_t i = 0; err == 0 && is_dense && i < count; i++) {
            err = sl_step_dense_pull(step, table, keys[i], 1, &rows[i]);
        }
        err = run_step(ctl, &step, err);
    }
    *out = err == 0 ? json_array() : NULL;
    for (uint32_t i = 0; err == 0 && i < count; i++) {
        json_t *row = json_object();
        (void)json_object_set_new(row, "key", json_sprintf("%" PRIu64, keys[i]));
        if (!is_dense) {
            (void)json_object_set_new(row, "found", json_boolean(found[i]));
        }
        (void)json_object_set_new(row, "values", describe_values(rows + (size_t)i * width, width));
        (void)json_array_append_new(*out, row);
    }
    free(found);
    free(rows);
    free(keys);
    return err;
}

int sl_ctl_set(struct sl_ctl *ctl, json_t **out)
{
    struct sl_table *table;
    struct sl_table_spec spec;
    struct sl_step *step;
    uint64_t *key = NULL;
    char what[256];
    const uint32_t count = ctl->word_count - 2;
    int err = open_rows(ctl, false, &table, &spec);
    err = err != 0 ? err : parse_keys(ctl, &spec, 1, &key);
    float *values = calloc(count, sizeof *values);
    const uint64_t room =
        spec.kind == SL_TABLE_DENSE && key != NULL ? spec.length - *key : spec.dim;
    if (err == 0 && values == NULL) {
        err = sl_reason_fail(&ctl->reason, SL_ERR_NO_MEMORY, "no memory");
    } else if (err == 0 && (spec.kind == SL_TABLE_DENSE ? count > room : count != room)) {
        err = sl_reason_fail(&ctl->reason, SL_ERR_INVALID, "%u values: table %s accepts %s%" PRIu64,
                             count, spec.name, spec.kind == SL_TABLE_DENSE ? "at most " : "", room);
    }
    for (uint32_t i = 0; err == 0 && i < count; i++) {
        if (!parse_f32(ctl->words[2 + i], &values[i])) {
            err = sl_reason_fail(&ctl->reason, SL_ERR_INVALID,
                                 "\"%.80s\": accepted is a finite number", ctl->words[2 + i]);
        }
    }
    if (err == 0) {
        (void)snprintf(what, sizeof what, "set %u value%s of key %" PRIu64 " of table %s", count,
                       sl_log_plural(count), *key, spec.name);
        err = sl_ctl_confirm(ctl, what);
    }
    if (err == 0 && (err = sl_step_begin(ctl->client, 0, &step)) == 0) {
        err = run_step(ctl, &step,
                       spec.kind == SL_TABLE_DENSE
                           ? sl_step_dense_assign(step, table, *key, count, values)
                           : sl_step_assign(step, table, key, 1, values));
        *out = err == 0 ? json_pack("{s:s}", "done", what) : NULL;
    }
    free(values);
    free(key);
    return err;
}

int sl_ctl_erase(struct sl_ctl *ctl, json_t **out)
{
    struct sl_table *table;
    struct sl_table_spec spec;
    struct sl_step *step;
    uint64_t *keys = NULL;
    char what[256];
    const uint32_t count = ctl->word_count - 1;
    int err = open_rows(ctl, true, &table, &spec);
    err = err != 0 ? err : parse_keys(ctl, &spec, count, &keys);
    if (err == 0) {
        (void)snprintf(what, sizeof what, "erase %u key%s of table %s, from %" PRIu64 " on", count,
                       sl_log_plural(count), spec.name, keys[0]);
        err = sl_ctl_confirm(ctl, what);
    }
    if (err == 0 && (err = sl_step_begin(ctl->client, 0, &step)) == 0) {
        err = run_step(ctl, &step, sl_step_erase(step, table, keys, count));
        *out = err == 0 ? json_pack("{s:s}", "done", what) : NULL;
    }
    free(keys);
    return err;
}

/* Reads the words "ttl_steps=8" behind the table. */
static int parse_thresholds(struct sl_ctl *ctl, struct sl_evict_options *options)
{
    for (uint32_t i = 1; i < ctl->word_count; i++) {
        const char *word = ctl->words[i], *end = strchr(word, '=');
        const size_t length = end == NULL ? 0 : (size_t)(end - word);
        uint64_t number = 0;
        bool is_valid = false;
        if (length == 9 && memcmp(word, "ttl_steps", length) == 0) {
            is_valid = sl_number_parse_u64(end + 1, 1, TTL_STEPS_MAX, &number);
            options->ttl_steps = (uint32_t)number;
        } else if (length == 11 && memcmp(word, "count_below", length) == 0) {
            is_valid = sl_number_parse_u64(end + 1, 1, UINT32_MAX, &number);
            options->count_below = (uint32_t)number;
        } else if (length == 8 && memcmp(word, "l2_below", length) == 0) {
            is_valid = parse_f32(end + 1, &options->l2_below) && options->l2_below > 0;
        }
        if (!is_valid) {
            return sl_reason_fail(&ctl->reason, SL_ERR_INVALID,
                                  "\"%.80s\": accepted is ttl_steps=N with N from 1 to %u, "
                                  "count_below=N with N from 1 to %u, l2_below=X with X above 0",
                                  word, TTL_STEPS_MAX, UINT32_MAX);
        }
    }
    return 0;
}

int sl_ctl_evict(struct sl_ctl *ctl, json_t **out)
{
    struct sl_table *table;
    struct sl_table_spec spec;
    struct sl_evict_options options = SL_EVICT_OPTIONS_INIT;
    char what[256];
    uint64_t evicted;
    int err = parse_thresholds(ctl, &options);
    err = err != 0 ? err : open_rows(ctl, true, &table, &spec);
    if (err != 0) {
        return err;
    }
    int length = snprintf(what, sizeof what, "evict rows of table %s by %s", spec.name,
                          ctl->word_count == 1 ? "its policy" : "thresholds:");
    for (uint32_t i = 1; i < ctl->word_count && length < (int)sizeof what; i++) {
        length += snprintf(what + length, sizeof what - (size_t)length, " %s", ctl->words[i]);
    }
    err = sl_ctl_confirm(ctl, what);
    if (err != 0) {
        return err;
    }
    options.timeout_ms = sl_ctl_time_left_ms(ctl);
    err = sl_client_table_evict(ctl->client, table, &options, &evicted);
    *out = err == 0 ? json_pack("{s:s, s:I}", "done", what, "evicted", (json_int_t)evicted) : NULL;
    return err == 0 ? 0 : sl_ctl_failed(ctl, err);
}
