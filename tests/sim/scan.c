#include "tests/sim/scan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "tests/sim/work.h"
#include "worker/client/step_internal.h"

void sl_sim_scan_open(struct sl_sim_scan *scan, uint32_t table, uint32_t shard, uint64_t now_ns)
{
    sl_assert(!scan->is_open);
    *scan = (struct sl_sim_scan){.is_open = true,
                                 .table = table,
                                 .shard = shard,
                                 .begun_ns = now_ns,
                                 .body = {.end = UINT64_MAX}};
}

void sl_sim_scan_close(struct sl_sim_scan *scan)
{
    free(scan->keys);
    *scan = (struct sl_sim_scan){.is_open = false};
}

void sl_sim_scan_add(struct sl_sim_scan *scan, struct sl_sim_work *work)
{
    const uint32_t dim = work->oracle->tables[scan->table].spec.dim;
    const size_t row_bytes =
        sizeof(uint64_t) + sizeof(struct sl_request_scan_mark) + dim * sizeof(float);
    struct sl_sim_operation *operation = &work->operations[work->operation_count++];
    *operation = (struct sl_sim_operation){
        .table = scan->table,
        .values = calloc(1, sizeof(struct sl_request_scanned) + SL_SIM_SCAN_ROWS * row_bytes + 8)};
    sl_assert(operation->values != NULL);
    const struct sl_operation request = {.op = SL_REQUEST_SCAN,
                                         .table = work->tables[scan->table],
                                         .shard = scan->shard,
                                         .scan = &scan->body,
                                         .start = scan->next,
                                         .count = SL_SIM_SCAN_ROWS,
                                         .width = dim,
                                         .values = operation->values};
    const int err = sl_step_add(work->step, &request);
    sl_assert(err == 0);
    work->scan = scan;
}

static uint32_t times(const struct sl_sim_scan *scan, uint64_t key)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < scan->key_count; i++) {
        count += scan->keys[i] == key;
    }
    return count;
}

/* A push that was acknowledged before the scan, whose rows nothing has touched since. */
static bool lived(const struct sl_sim_scan *scan, const struct sl_sim_oracle *oracle,
                  const struct sl_sim_unit *unit, uint32_t which)
{
    const struct sl_sim_oracle_shard *shard = &oracle->shards[unit->shard];
    return unit->acked && unit->ended_ns < scan->begun_ns && unit->fate == SL_SIM_FATE_SURE &&
           unit->epoch_begun == shard->epoch && shard->doubled_ns < scan->begun_ns &&
           oracle->tables[scan->table].spec.consistency.mode != SL_CONSISTENCY_BSP &&
           !sl_sim_oracle_may_lack(unit, which);
}

static uint32_t judge_unit(const struct sl_sim_scan *scan, struct sl_sim_oracle *oracle,
                           const struct sl_sim_unit *unit)
{
    uint32_t known = times(scan, unit->bait);
    for (uint32_t which = 0; which < SL_SIM_BAIT; which++) {
        const uint32_t count = times(scan, unit->witness[which]);
        const bool must = lived(scan, oracle, unit, which);
        known += count;
        if (count > 1 || (must && count == 0)) {
            sl_sim_fail(&oracle->breach, "scan",
                        "a scan of t%u on shard %u, begun at %" PRIu64 " us, gave key %" PRIu64
                        " of worker/%u's push of iteration %u %u times",
                        scan->table, scan->shard, sl_sim_us(scan->begun_ns), unit->witness[which],
                        oracle->instances[unit->instance].task, unit->clock, count);
        }
    }
    return known;
}

static void judge(const struct sl_sim_scan *scan, struct sl_sim_oracle *oracle)
{
    const struct sl_sim_table *table = &oracle->tables[scan->table];
    uint32_t known = 0;
    for (uint32_t i = 0; i < table->shared_count; i++) {
        known += table->shared_shard[i] == scan->shard ? times(scan, table->shared[i]) : 0;
    }
    for (uint32_t i = 0; i < oracle->unit_count; i++) {
        const struct sl_sim_unit *unit = &oracle->units[i];
        if (unit->table == scan->table && unit->shard == scan->shard) {
            known += judge_unit(scan, oracle, unit);
        }
    }
    if (known != scan->key_count && oracle->plan->keys_aside == 0) {
        sl_sim_fail(&oracle->breach, "scan",
                    "a scan of t%u on shard %u gave %u keys, of which %u were pushed", scan->table,
                    scan->shard, scan->key_count, known);
    }
}

void sl_sim_scan_take(struct sl_sim_scan *scan, struct sl_sim_oracle *oracle, const float *reply)
{
    struct sl_request_scanned head;
    memcpy(&head, reply, sizeof head);
    sl_assert(head.row_count <= SL_SIM_SCAN_ROWS);
    if (scan->key_count + head.row_count > scan->key_capacity) {
        scan->key_capacity = 2 * (scan->key_count + head.row_count);
        scan->keys = realloc(scan->keys, scan->key_capacity * sizeof *scan->keys);
        sl_assert(scan->keys != NULL);
    }
    if (head.row_count > 0) {
        memcpy(scan->keys + scan->key_count, (const uint8_t *)reply + sizeof head,
               head.row_count * sizeof *scan->keys);
    }
    scan->key_count += head.row_count;
    scan->next = head.next;
    scan->body.copy = head.copy;
    if (head.next == UINT64_MAX) {
        judge(scan, oracle);
        sl_sim_scan_close(scan);
    }
}
