#include "ps/shard/admit.h"

#include "core/assert.h"
#include "ps/shard/handler.h"
#include "ps/shard/key_admission.h"

bool sl_shard_buffers_pushes(const struct sl_shard *shard, const struct sl_shard_table *table,
                             const struct sl_shard_client *caller)
{
    return table->spec.consistency.mode == SL_CONSISTENCY_BSP && caller->has_clock &&
           sl_clocks_is_active_in(&shard->clocks, table->clock_group, caller->worker);
}

bool sl_shard_admits(const struct sl_shard *shard, const struct sl_shard_table *table,
                     const struct sl_shard_client *caller, uint32_t clock)
{
    const struct sl_consistency_spec *consistency = &table->spec.consistency;
    uint32_t group = table->clock_group;
    if (!caller->has_clock || consistency->mode == SL_CONSISTENCY_ASP || table->dropped ||
        !sl_clocks_belongs(&shard->clocks, group, caller->worker)) {
        return true;
    }
    uint64_t min_clock = sl_clocks_min(&shard->clocks, group);
    return min_clock + consistency->staleness >= clock || sl_clocks_is_empty(&shard->clocks, group);
}

/* Checks each section: the clock that a pull waits for, the room and the working memory of a push,
 * and a tick, which may make pushes due that precede all later sections. */
static bool sections_ready(const struct sl_shard *shard, const struct sl_shard_request *request)
{
    struct sl_bytes cursor = request->cursor;
    uint32_t clock = request->prefix.clock;
    for (uint32_t i = 0; i < request->sections_left; i++) {
        struct sl_request_section section = request->view.section;
        if (!sl_flags_has(request->flags, SL_SHARD_IN_SECTION)) {
            int err = sl_request_read_section(&cursor, &section);
            sl_assert(err == 0);
        }
        if (section.op == SL_REQUEST_TICK) {
            if (!sl_shard_skips_writes(request) && i + 1 < request->sections_left) {
                return false;
            }
            clock = sl_shard_clock_after(clock);
            continue;
        }
        struct sl_shard_table *table = shard->tables[section.table_id];
        if (sl_shard_op_pulls(section.op) &&
            !sl_shard_admits(shard, table, &request->caller, clock)) {
            return false;
        }
        if (table->dropped) {
            return false;
        }
        const bool may_await = sl_shard_eviction_may_await(table) &&
                               section.op != SL_REQUEST_ERASE &&
                               sl_shard_pushes(request, section.op);
        if (may_await && (request->prefix.section_count > 1 || /* earlier ones may use the room */
                          sl_shard_key_admission_busy(shard, table) ||
                          sl_shard_eviction_awaited(shard, table, section.key_count))) {
            return false;
        }
        if (sl_shard_op_walks(section.op) ||
            (sl_shard_may_ask_again(shard, section.op) && request->prefix.section_count > 1) ||
            (sl_shard_pushes(request, section.op) && shard->large.owner != NULL &&
             sl_shard_push_is_large(&section, table->spec.dim))) {
            return false;
        }
        (void)sl_bytes_take(&cursor, sl_request_body_bytes(&section, table->spec.dim));
    }
    return true;
}

bool sl_shard_ready(const struct sl_shard *shard, const struct sl_shard_request *request,
                    uint64_t budget)
{
    if (request->cost > budget || shard->iteration.due || sl_shard_has_begun(request) ||
        request->write_from > 0) { /* unknown which sections push */
        return false;
    }
    return sl_flags_has(request->flags, SL_SHARD_PLAIN) || sections_ready(shard, request);
}

bool sl_shard_waits(const struct sl_shard *shard, struct sl_shard_request *request)
{
    struct sl_request_section section = request->view.section;
    if (sl_flags_has(request->flags, SL_SHARD_IN_SECTION) &&
        request->phase > SL_SHARD_PHASE_ADMIT) {
        return false;
    }
    if (!sl_flags_has(request->flags, SL_SHARD_IN_SECTION)) {
        struct sl_bytes cursor = request->cursor;
        if (request->sections_left == 0 || sl_request_read_section(&cursor, &section) != 0) {
            return false;
        }
    }
    if (section.op != SL_REQUEST_TICK && shard->tables[section.table_id]->dropped) {
        return false;
    }
    bool waits = sl_shard_op_kv(section.op)
                     ? sl_shard_handler_waits(shard, request)
                     : sl_shard_op_pulls(section.op) &&
                           !sl_shard_admits(shard, shard->tables[section.table_id],
                                            &request->caller, request->prefix.clock);
    if (!waits) {
        return false;
    }
    request->parked_on = section.table_id;
    return true;
}

bool sl_shard_take_wakeup(struct sl_shard *shard)
{
    const bool handler_moved = shard->handler_moved;
    shard->handler_moved = false;
    return sl_clocks_take_moved(&shard->clocks) || handler_moved;
}
