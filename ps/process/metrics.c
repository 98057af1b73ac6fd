#include "ps/process/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ps/process/state.h"

static void add_core(struct sl_metrics *registry, struct sl_process_block *block, uint32_t index)
{
    (void)snprintf(block->reactor_label, sizeof block->reactor_label, "reactor=\"%u\"", index);
    block->reactor_source = sl_reactor_metrics_source(&block->reactor, block->reactor_label);
    sl_metrics_add(registry, &block->reactor_source);
}

int sl_process_metrics_init(struct sl_process *process)
{
    struct sl_process_metrics *metrics = &process->metrics;
    const uint32_t count = process->options.reactor_count;
    const size_t bytes = count * sizeof *metrics->blocks;
    metrics->blocks = aligned_alloc(_Alignof(struct sl_process_block), bytes);
    if (metrics->blocks == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    memset(metrics->blocks, 0, bytes);
    sl_metrics_init(&metrics->registry);
    sl_metrics_process_add(&metrics->registry, &metrics->process,
                           process->options.kind == SL_PROCESS_SCHEDULER ? "scheduler" : "ps");
    for (uint32_t i = 0; i < count; i++) {
        add_core(&metrics->registry, &metrics->blocks[i], i);
    }
    return 0;
}

void sl_process_metrics_fini(struct sl_process *process)
{
    if (process->metrics.blocks != NULL) {
        sl_metrics_fini(&process->metrics.registry);
        free(process->metrics.blocks);
        process->metrics.blocks = NULL;
    }
}
