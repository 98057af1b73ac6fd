#include "ps/process/hosted.h"

#include <stdlib.h>
#include <string.h>

#include "ps/process/main_thread.h"
#include "ps/process/views.h"

/* Entries */

static struct sl_process_core *core_of(const struct sl_process *process, uint32_t shard)
{
    return &process->cores[shard % process->options.reactors.count];
}

/* Adds an entry behind the last one of a lower number. NULL: no memory. */
static struct sl_process_hosted *hosted_add(struct sl_process *process, uint32_t shard,
                                            _Atomic(struct sl_process_hosted *) *at)
{
    struct sl_process_hosted *hosted =
        aligned_alloc(_Alignof(struct sl_process_hosted), sizeof *hosted);
    if (hosted == NULL) {
        return NULL;
    }
    memset(hosted, 0, sizeof *hosted);
    hosted->process = process;
    hosted->shard = shard;
    hosted->core = core_of(process, shard);
    if (process->observer.views != NULL && sl_process_views_add(hosted) != 0) {
        free(hosted);
        return NULL;
    }
    atomic_store_explicit(&hosted->next, atomic_load_explicit(at, memory_order_relaxed),
                          memory_order_relaxed);
    atomic_store_explicit(at, hosted, memory_order_release);
    return hosted;
}

struct sl_process_hosted *sl_process_hosted_find(struct sl_process *process, uint32_t shard,
                                                 bool adds)
{
    _Atomic(struct sl_process_hosted *) *at = &process->shards.first;
    struct sl_process_hosted *hosted = sl_process_hosted_first(process);
    while (hosted != NULL && hosted->shard < shard) {
        at = &hosted->next;
        hosted = sl_process_hosted_next(hosted);
    }
    return hosted != NULL && hosted->shard == shard ? hosted
           : adds                                   ? hosted_add(process, shard, at)
                                                    : NULL;
}

void sl_process_hosted_mail(const struct sl_process_hosted *hosted, struct sl_mail mail)
{
    sl_reactor_post(hosted->process->reactors[0], hosted->core->index, mail);
}

uint32_t sl_process_hosted_post(struct sl_process *process, sl_mail_fn *run, uint64_t a, uint64_t b)
{
    uint32_t count = 0;
    SL_PROCESS_FOREACH (hosted, process) {
        if (hosted->is_here) {
            sl_process_hosted_mail(hosted,
                                   (struct sl_mail){.run = run, .ctx = hosted, .a = a, .b = b});
            count++;
        }
    }
    return count;
}

void sl_process_hosted_free(struct sl_process *process)
{
    struct sl_process_hosted *hosted = sl_process_hosted_first(process);
    while (hosted != NULL) {
        struct sl_process_hosted *next = sl_process_hosted_next(hosted);
        struct sl_message stats = {.kind = SL_MESSAGE_STATS, .stats = hosted->stats};
        sl_message_fini(&stats);
        free(hosted);
        hosted = next;
    }
    atomic_store_explicit(&process->shards.first, NULL, memory_order_relaxed);
}

/* Start and end */

void sl_process_hosted_started(struct sl_process *process)
{
    if (--process->shards.starts_left == 0) {
        sl_process_answer(&process->cores[0], 0);
    }
}

/* True if the coordinator knows that the backup is in sync, or will know before it reads this
 * server's Goodbye: the report was sent earlier on the same connection. */
static bool is_known_in_sync(const struct sl_process_hosted *hosted)
{
    const struct sl_process *process = hosted->process;
    return hosted->notified_epoch == hosted->placement.epoch &&
           hosted->report == SL_PROCESS_REPORT_IN_SYNC &&
           (hosted->placement.in_sync ||
            (process->agent != NULL && !sl_agent_has_news(process->agent)));
}

uint32_t sl_process_hosted_end(struct sl_process *process, sl_mail_fn *run)
{
    uint32_t count = 0;
    SL_PROCESS_FOREACH (hosted, process) {
        if (hosted->is_here) {
            const bool switches_over =
                sl_process_hosted_is_primary(hosted) && is_known_in_sync(hosted);
            sl_process_hosted_mail(hosted,
                                   (struct sl_mail){.run = run, .ctx = hosted, .a = switches_over});
            count++;
        }
    }
    return count;
}

void sl_process_hosted_set_switchover(struct sl_process_hosted *hosted, bool may_switch_over)
{
    if (hosted->server != NULL && !hosted->end.is_ending) {
        sl_replication_set_switchover(hosted->server, may_switch_over);
    }
}

bool sl_process_hosted_is_empty(const struct sl_process *process)
{
    bool is_empty = true;
    SL_PROCESS_FOREACH (hosted, process) {
        is_empty = is_empty && !hosted->is_here;
    }
    return is_empty;
}

bool sl_process_hosted_has_tables(const struct sl_process *process)
{
    SL_PROCESS_FOREACH (hosted, process) {
        if (hosted->core->index == 0 && hosted->server != NULL &&
            sl_server_has_tables(hosted->server)) {
            return true;
        }
    }
    return false;
}

void sl_process_hosted_expired(void *ctx, const struct sl_message_expired *expired)
{
    struct sl_process *process = ctx;
    SL_PROCESS_FOREACH (hosted, process) {
        if (hosted->is_here) {
            sl_server_post_expired(&hosted->server, process->reactors[0], hosted->core->index,
                                   expired);
        }
    }
}
