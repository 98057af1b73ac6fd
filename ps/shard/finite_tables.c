#include "ps/shard/finite_tables.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/assert.h"
#include "core/finite.h"
#include "core/limits.h"
#include "ps/shard/state.h"

/* Returns the value as text. Other than printf's, that of NaN has no sign. */
static const char *name_of(float value)
{
    return value > 0 ? "infinite" : value < 0 ? "-infinite" : "NaN";
}

/* Returns the position of the first value that is not finite, and the value; without any, `count`.
 * row: values of an encoded row. */
static uint64_t find_nonfinite(const struct sl_request_view *view, uint64_t count, uint32_t row,
                               float *value)
{
    if (view->encoded == NULL) {
        const uint64_t at = sl_finite_prefix(view->gradients, count);
        *value = at < count ? view->gradients[at] : 0;
        return at;
    }
    const struct sl_precision_kernels *kernels = sl_precision_kernels(SL_PRECISION_SIMD_BEST);
    const enum sl_precision precision = sl_request_pushed(&view->section);
    const uint8_t *from = view->encoded;
    for (uint64_t done = 0; done < count; done += row) {
        float values[SL_LIMIT_DIM];
        const uint32_t here = count - done < row ? (uint32_t)(count - done) : row;
        kernels->widen(precision, from, here, values);
        const uint64_t at = sl_finite_prefix(values, here);
        if (at < here) {
            *value = values[at];
            return done + at;
        }
        from += sl_precision_row_bytes(precision, row);
    }
    return count;
}

static int check_section(const struct sl_shard *shard, const struct sl_request_view *view,
                         struct sl_reason *reason)
{
    const struct sl_request_section *section = &view->section;
    const struct sl_table_spec *spec = &shard->tables[section->table_id]->spec;
    if (!spec->reject_nonfinite || !sl_request_pushes(section->op)) {
        return 0;
    }
    const bool has_keys = spec->kind == SL_TABLE_SPARSE;
    const uint64_t count = has_keys ? (uint64_t)section->key_count * spec->dim : section->count;
    float value = 0;
    const uint64_t at =
        find_nonfinite(view, count, has_keys ? spec->dim : SL_PRECISION_ARRAY_ROW, &value);
    if (at == count) {
        return 0;
    }
    char place[64];
    if (has_keys) {
        (void)snprintf(place, sizeof place, "column %" PRIu64 " of key %" PRIu64, at % spec->dim,
                       view->keys[at / spec->dim]);
    } else {
        (void)snprintf(place, sizeof place, "element %" PRIu64, section->start + at);
    }
    return sl_reason_fail(reason, SL_ERR_INVALID,
                          "table %s: the value of %s is %s; accepted with reject_nonfinite are "
                          "finite values; nothing was changed",
                          spec->name, place, name_of(value));
}

int sl_shard_check_finite(const struct sl_shard *shard, const struct sl_shard_request *request,
                          struct sl_reason *reason)
{
    if (sl_flags_has(request->flags, SL_SHARD_IN_SECTION)) {
        return check_section(shard, &request->view, reason);
    }
    struct sl_bytes cursor = request->cursor;
    int err = 0;
    for (uint32_t i = 0; i < request->sections_left && err == 0; i++) {
        struct sl_request_view view;
        struct sl_request_section section;
        err = sl_request_read_section(&cursor, &section);
        sl_assert(err == 0); /* sl_shard_begin has read it */
        if (section.op != SL_REQUEST_TICK) {
            err = sl_request_read_body(&cursor, &section, shard->tables[section.table_id]->spec.dim,
                                       &view);
            sl_assert(err == 0);
            err = check_section(shard, &view, reason);
        }
    }
    return err;
}
