#include "ps/process/embedding.h"

#include <signal.h>

#include "ps/process/main_thread.h"

void sl_process_embedding_stop(struct sl_process *process)
{
    process->main.signal = process->main.signal != 0 ? process->main.signal : SIGTERM;
}

static void take_handler(void *ctx, uint64_t handler, uint64_t b)
{
    const struct sl_process_hosted *hosted = ctx;
    if (hosted->server != NULL) {
        sl_server_set_handler(hosted->server, (const struct sl_kv_handler *)(uintptr_t)handler);
    }
}

/* Reactor 0. */
static void core_set_handler(void *ctx, uint64_t handler, uint64_t b)
{
    struct sl_process *process = ((const struct sl_process_core *)ctx)->process;
    process->shards.handler.is_set = true;
    process->shards.handler.set = (const struct sl_kv_handler *)(uintptr_t)handler;
    (void)sl_process_hosted_post(process, take_handler, handler, 0);
}

void sl_process_embedding_handle(struct sl_process *process, const struct sl_kv_handler *handler)
{
    sl_process_post(&process->cores[0], core_set_handler, (uintptr_t)handler);
}

void sl_process_embedding_registered(void *ctx, uint32_t task_index)
{
    const struct sl_process *process = ctx;
    const struct sl_process_embedding *embedding = process->options.embedding;
    if (embedding != NULL) {
        embedding->registered(embedding->ctx, task_index);
    }
}

void sl_process_embedding_created(const struct sl_process_hosted *hosted)
{
    const struct sl_process *process = hosted->process;
    if (process->shards.handler.is_set) {
        sl_process_hosted_mail(hosted,
                               (struct sl_mail){.run = take_handler,
                                                .ctx = (void *)(uintptr_t)hosted,
                                                .a = (uintptr_t)process->shards.handler.set});
    }
}
