/* An eviction that is asked for: one request to every shard, in one step. */
#include <math.h>
#include <starling_rows.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/struct_size.h"
#include "net/session/message_spec.h"
#include "worker/client/client_internal.h"
#include "worker/client/step_internal.h"
#include "worker/client/table_opening.h"

#define TIMEOUT_MS_DEFAULT 60000

static int evict_read_options(const struct sl_evict_options *options, struct sl_evict_options *own)
{
    struct sl_reason reason;
    const struct sl_evict_options defaults = SL_EVICT_OPTIONS_INIT;
    const int err = sl_struct_size_read(options == NULL ? &defaults : options, own, sizeof *own,
                                        "SL_EVICT_OPTIONS_INIT", &reason);
    if (err != 0) {
        return sl_reason_report(err, "evict: %s", reason.text);
    }
    if (own->ttl_steps > SL_REQUEST_EVICT_STEPS_MAX) {
        return sl_reason_report(SL_ERR_INVALID, "evict: ttl_steps is %u; accepted is 0 to %u",
                                own->ttl_steps, SL_REQUEST_EVICT_STEPS_MAX);
    }
    if (!isfinite(own->l2_below) || own->l2_below < 0) {
        return sl_reason_report(SL_ERR_INVALID,
                                "evict: l2_below is %g; accepted is a finite number >= 0",
                                (double)own->l2_below);
    }
    own->timeout_ms = own->timeout_ms == 0 ? TIMEOUT_MS_DEFAULT : own->timeout_ms;
    return 0;
}

/* Asks every shard. counts: of the shards. */
static int evict_ask(struct sl_client *client, struct sl_table *table,
                     const struct sl_evict_options *options, uint64_t *counts)
{
    struct sl_step *step;
    uint32_t l2_bits;
    memcpy(&l2_bits, &options->l2_below, sizeof l2_bits);
    int err = sl_step_begin(client, 0, &step);
    if (err != 0) {
        return err;
    }
    for (uint32_t shard = 0; err == 0 && shard < client->shard_count; shard++) {
        const struct sl_operation operation = {
            .op = SL_REQUEST_EVICT,
            .table = table,
            .shard = shard,
            .command = options->ttl_steps,
            .width = options->count_below,
            .start = l2_bits & ~(1U << 31), /* -0 is 0 */
            .values = &counts[shard],
        };
        err = sl_step_takes(step, table, SL_TABLE_SPARSE) ? sl_step_add(step, &operation)
                                                          : sl_step_refuse(step);
    }
    err = err != 0 ? err : sl_step_submit_deferred(step, options->timeout_ms);
    err = err != 0 ? err : sl_step_wait_through(step);
    sl_step_destroy(&step);
    return err;
}

int sl_client_table_evict(struct sl_client *client, struct sl_table *table,
                          const struct sl_evict_options *options, uint64_t *evicted)
{
    sl_assert(client != NULL);
    sl_assert(table != NULL);
    sl_assert(evicted != NULL);
    struct sl_evict_options own;
    int err = evict_read_options(options, &own);
    err = err != 0 ? err : sl_table_check_knows(table, SL_MESSAGE_SPEC_KNOWS_EVICT, "evict");
    if (err != 0) {
        return err;
    }
    uint64_t *counts = calloc(client->shard_count, sizeof *counts);
    if (counts == NULL) {
        return sl_reason_report(SL_ERR_NO_MEMORY, "evict: no memory");
    }
    err = evict_ask(client, table, &own, counts);
    uint64_t sum = 0;
    for (uint32_t shard = 0; err == 0 && shard < client->shard_count; shard++) {
        sum += counts[shard];
    }
    free(counts);
    if (err == 0) {
        *evicted = sum;
    }
    return err;
}
