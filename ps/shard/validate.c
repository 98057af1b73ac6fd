/* Checks form, tables, dense ranges and reply size of a whole request before any change. */

#include "core/assert.h"
#include "core/rate.h"
#include "core/reason.h"
#include "ps/shard/admit.h"
#include "ps/shard/scan.h"

static bool range_is_ours(const struct sl_shard_table *table,
                          const struct sl_request_section *section)
{
    uint64_t first = sl_dense_table_start(table->dense);
    uint64_t count = sl_dense_table_element_count(table->dense);
    return section->start >= first && section->start - first <= count &&
           section->count <= count - (section->start - first);
}

/* Returns an upper bound of the section's cost in one slice, without its push part, which is
 * *push_cost. Finding repeated keys costs an eighth of a visit. The end of each batch may split a
 * bag. */
static uint64_t section_cost(const struct sl_shard_table *table, const struct sl_request_view *view,
                             uint64_t *push_cost)
{
    const struct sl_request_section *section = &view->section;
    uint64_t once = sl_shard_op_dense(section->op) ? sl_shard_dense_cost(section->count)
                    : sl_shard_op_kv(section->op)  ? sl_shard_kv_cost(section, table->spec.dim)
                    : section->op == SL_REQUEST_SCAN && !table->dropped
                        ? sl_shard_scan_cost(table, view)
                        : (uint64_t)section->key_count * table->key_cost;
    if (section->op == SL_REQUEST_PULL_POOLED) {
        once += section->bag_count + section->key_count / SL_SHARD_BATCH_KEYS + 1;
    }
    const uint32_t counted = table->admits ? section->key_count : 0;
    *push_cost = sl_shard_op_pushes(section->op) ? once + counted + section->key_count / 8 + 1 : 0;
    return 1 + (sl_shard_op_pulls(section->op) ? once : 0);
}

/* Returns true when only the budget decides whether the section can run. */
static bool is_plain(const struct sl_shard *shard, const struct sl_shard_table *table,
                     const struct sl_shard_request *request,
                     const struct sl_request_section *section)
{
    bool may_wait = table->spec.consistency.mode != SL_CONSISTENCY_ASP && request->caller.has_clock;
    return !(may_wait && sl_shard_op_pulls(section->op)) && !sl_shard_op_walks(section->op) &&
           !table->dropped &&
           !(sl_shard_op_pushes(section->op) && (sl_shard_push_is_large(section, table->spec.dim) ||
                                                 sl_shard_eviction_may_await(table))) &&
           !sl_shard_may_ask_again(shard, section->op);
}

/* Reads a section's body. values: place of out-of-line values; NULL: they follow the structure. */
static int read_body(struct sl_bytes *cursor, const struct sl_bytes *values,
                     const struct sl_shard_table *table, struct sl_request_view *view)
{
    const struct sl_request_section section = view->section;
    return values == NULL
               ? sl_request_read_body(cursor, &section, table->spec.dim, view)
               : sl_request_read_body_out_of_line(cursor, *values, &section, table->spec.dim, view);
}

/* Checks one section, whose header is in request->view.section, and adds its cost. */
static int check_section(const struct sl_shard *shard, struct sl_shard_request *request,
                         struct sl_bytes *cursor, const struct sl_bytes *values,
                         struct sl_shard_slice *slice)
{
    struct sl_request_section section = request->view.section;
    if (section.op == SL_REQUEST_TICK) {
        request->cost += 1;
        request->flags |= SL_SHARD_WRITES;
        if (request->sections_left != 1) {
            sl_flags_set(&request->flags, SL_SHARD_PLAIN, false); /* it may make pushes due */
        }
        return request->caller.has_clock ? 0
                                         : sl_shard_fail(shard, request, slice, SL_ERR_PROTOCOL,
                                                         "a client without a clock cannot tick");
    }
    const struct sl_shard_table *table =
        section.table_id < SL_LIMIT_TABLES ? shard->tables[section.table_id] : NULL;
    if (table == NULL) {
        return sl_shard_fail(shard, request, slice, SL_ERR_NOT_FOUND, "no table has id %u here",
                             section.table_id);
    }
    if (sl_shard_op_kind(section.op) != table->spec.kind) {
        static const char *const names[SL_TABLE_KIND_COUNT] = {"sparse", "dense", "KV"};
        return sl_shard_fail(shard, request, slice, SL_ERR_PROTOCOL, "operation %u on a %s table",
                             section.op, names[table->spec.kind]);
    }
    if (sl_request_takes_rate(section.op) &&
        !sl_rate_suits(section.command, &table->spec.optimizer)) {
        return sl_shard_fail(shard, request, slice, SL_ERR_INVALID,
                             "rate %g: its product with lr %g is not finite and above 0 in f32",
                             (double)sl_rate_from_bits(section.command),
                             (double)table->spec.optimizer.lr);
    }
    if (read_body(cursor, values, table, &request->view) != 0) {
        return sl_shard_fail(shard, request, slice, SL_ERR_PROTOCOL,
                             "the body does not fit the section's counts");
    }
    if (table->dense != NULL && !range_is_ours(table, &section)) {
        return sl_shard_fail(shard, request, slice, SL_ERR_WRONG_SHARD,
                             "elements %llu to %llu are not all of this shard",
                             (unsigned long long)section.start,
                             (unsigned long long)(section.start + section.count - 1));
    }
    if (section.op == SL_REQUEST_SCAN) {
        const int err = sl_shard_scan_check(shard, table, request, slice);
        if (err != 0) {
            return err;
        }
    }
    request->flags |= (sl_shard_op_pushes(section.op) ? SL_SHARD_WRITES : 0U) |
                      (table->spec.reject_nonfinite ? SL_SHARD_WANTS_FINITE : 0U);
    uint64_t push_cost;
    request->cost += section_cost(table, &request->view, &push_cost);
    request->cost += push_cost;
    request->push_cost += push_cost;
    if (!is_plain(shard, table, request, &section)) {
        sl_flags_set(&request->flags, SL_SHARD_PLAIN, false);
    }
    request->reply_bytes += sl_request_reply_bytes(&section, table->spec.dim);
    if (request->reply_bytes > SL_LIMIT_FRAME_PAYLOAD_BYTES) {
        return sl_shard_fail(shard, request, slice, SL_ERR_TOO_LARGE,
                             "the reply would be longer than %u bytes",
                             SL_LIMIT_FRAME_PAYLOAD_BYTES);
    }
    return 0;
}

/* cost: of the section that was checked last. */
static void note_main(struct sl_shard_request *request, uint64_t cost)
{
    const struct sl_request_section *section = &request->view.section;
    if (cost > request->main.cost) {
        request->main = (struct sl_shard_main_section){
            .cost = cost,
            .key_count = sl_shard_op_dense(section->op) || section->op == SL_REQUEST_SCAN
                             ? section->count
                             : section->key_count,
            .table_id = section->table_id,
            .op = section->op,
        };
    }
}

/* Other fields are set when a section begins. */
static void request_init(struct sl_shard_request *request, const struct sl_shard_client *caller,
                         const uint8_t *payload, size_t payload_bytes)
{
    request->cursor = sl_bytes_over(payload, payload_bytes);
    request->caller = *caller;
    request->flags = SL_SHARD_READS | SL_SHARD_PLAIN;
    request->write_from = request->effect_end = 0;
    request->write_to = UINT32_MAX;
    request->phase = SL_SHARD_PHASE_NEW;
    request->cost = request->push_cost = request->main.cost = 0;
    request->reply_done = request->reply_bytes = 0;
    request->answer = NULL;
    request->parked_on = 0;
    request->push.scratch = NULL;
    request->push.buffered = NULL;
    request->kept.token = NULL;
    request->kept.whole = NULL;
}

/* Checks the request from its prefix on. */
static int validate_check_request(const struct sl_shard *shard, struct sl_shard_request *request,
                                  const struct sl_bytes *values, struct sl_reason *reason)
{
    struct sl_shard_slice slice = {.reason = reason};
    if (sl_request_read_prefix(&request->cursor, &request->prefix) != 0) {
        return sl_reason_fail(reason, SL_ERR_PROTOCOL, "shard %u: a request has 1 to %d sections",
                              shard->options.index, SL_LIMIT_REQUEST_SECTIONS);
    }
    uint32_t count = request->prefix.section_count;
    if (values != NULL && count != 1) {
        return sl_reason_fail(reason, SL_ERR_PROTOCOL, "shard %u: values apart, of %u sections",
                              shard->options.index, count);
    }
    struct sl_bytes cursor = request->cursor;
    for (uint32_t i = 0; i < count; i++) {
        request->sections_left = count - i;
        if (sl_request_read_section(&cursor, &request->view.section) != 0) {
            return sl_reason_fail(reason, SL_ERR_PROTOCOL,
                                  "shard %u, section %u: not a valid section", shard->options.index,
                                  i);
        }
        const uint64_t cost = request->cost;
        int err = check_section(shard, request, &cursor, values, &slice);
        if (err != 0) {
            return err;
        }
        note_main(request, request->cost - cost);
    }
    if (cursor.left != 0) {
        return sl_reason_fail(reason, SL_ERR_PROTOCOL, "shard %u: %zu bytes after the last section",
                              shard->options.index, cursor.left);
    }
    request->sections_left = count;
    if (count == 1) {
        sl_flags_set(&request->flags, SL_SHARD_IN_SECTION, true); /* already read */
        request->cursor = cursor;
    }
    return 0;
}

int sl_shard_begin(struct sl_shard *shard, const struct sl_shard_client *caller,
                   const uint8_t *payload, size_t payload_bytes, struct sl_shard_request *request,
                   struct sl_reason *reason)
{
    sl_assert((uintptr_t)payload % 8 == 0);
    sl_assert(!caller->has_clock || caller->worker < SL_LIMIT_WORKERS);
    request_init(request, caller, payload, payload_bytes);
    return validate_check_request(shard, request, NULL, reason);
}

int sl_shard_begin_out_of_line(struct sl_shard *shard, const struct sl_shard_client *caller,
                               const uint8_t *structure, size_t structure_bytes,
                               const uint8_t *values, size_t values_bytes,
                               struct sl_shard_request *request, struct sl_reason *reason)
{
    sl_assert((uintptr_t)structure % 8 == 0);
    sl_assert((uintptr_t)values % 8 == 0);
    sl_assert(!caller->has_clock || caller->worker < SL_LIMIT_WORKERS);
    const struct sl_bytes there = sl_bytes_over(values, values_bytes);
    request_init(request, caller, structure, structure_bytes);
    const int err = validate_check_request(shard, request, &there, reason);
    sl_flags_set(&request->flags, SL_SHARD_OUT_OF_LINE, err == 0);
    return err;
}
