#include "ps/process/views.h"

#include <poll.h>
#include <stdlib.h>

#include "reactor/view.h"

#define RENEW_MS 1000

struct sl_process_views {
    struct sl_view *coordinator;
    uint32_t server_count;     /* 0: a scheduler */
    struct sl_view *servers[]; /* by the index in process->servers */
};

int sl_process_views_create(struct sl_process *process)
{
    const bool is_scheduler = process->options.kind == SL_PROCESS_SCHEDULER;
    const uint32_t count = is_scheduler ? 0 : sl_process_server_count(process);
    struct sl_process_views *views = calloc(1, sizeof *views + count * sizeof views->servers[0]);
    if (views == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    process->observer.views = views;
    views->server_count = count;
    int err = sl_view_create(process->reactors[0], sizeof(struct sl_coordinator_view),
                             sl_coordinator_view_fill, &process->coordinator, &views->coordinator);
    for (uint32_t i = 0; i < count && err == 0; i++) {
        err = sl_view_create(process->reactors[sl_process_reactor_of(process, i)],
                             sizeof(struct sl_server_view), sl_server_view_fill,
                             &process->servers[i], &views->servers[i]);
    }
    if (err != 0) {
        sl_process_views_destroy(process);
    }
    return err;
}

void sl_process_views_destroy(struct sl_process *process)
{
    struct sl_process_views *views = process->observer.views;
    if (views == NULL) {
        return;
    }
    for (uint32_t i = 0; i < views->server_count; i++) {
        sl_view_destroy(&views->servers[i]);
    }
    sl_view_destroy(&views->coordinator);
    free(views);
    process->observer.views = NULL;
}

void sl_process_views_request(const struct sl_process *process)
{
    const struct sl_process_views *views = process->observer.views;
    sl_view_request(views->coordinator);
    for (uint32_t i = 0; i < views->server_count; i++) {
        sl_view_request(views->servers[i]);
    }
}

static bool are_answered(const struct sl_process_views *views)
{
    bool answered = sl_view_is_answered(views->coordinator);
    for (uint32_t i = 0; i < views->server_count; i++) {
        answered = answered && sl_view_is_answered(views->servers[i]);
    }
    return answered;
}

void sl_process_views_renew(const struct sl_process *process)
{
    for (int i = 0; i < 2; i++) { /* an open request may be older */
        sl_process_views_request(process);
        for (int ms = 0; ms < RENEW_MS / 2 && !are_answered(process->observer.views); ms++) {
            (void)poll(NULL, 0, 1);
        }
    }
}

const struct sl_server_view *sl_process_views_server(const struct sl_process *process,
                                                     uint32_t index, uint64_t now_ns,
                                                     uint64_t *age_ns)
{
    sl_assert(index < process->observer.views->server_count);
    const struct sl_server_view *view =
        sl_view_read(process->observer.views->servers[index], now_ns, age_ns);
    return view != NULL && view->stage != SL_SERVER_VIEW_NO_SHARD ? view : NULL;
}

const struct sl_coordinator_view *sl_process_views_coordinator(const struct sl_process *process,
                                                               uint64_t now_ns, uint64_t *age_ns)
{
    const struct sl_coordinator_view *view =
        sl_view_read(process->observer.views->coordinator, now_ns, age_ns);
    return view != NULL && view->is_here ? view : NULL;
}

uint32_t sl_process_views_serving(const struct sl_process *process,
                                  const struct sl_server_view *views[2 * SL_LIMIT_REACTORS],
                                  uint64_t now_ns)
{
    uint32_t count = 0;
    uint64_t age_ns;
    for (uint32_t i = 0; i < process->observer.views->server_count; i++) {
        const struct sl_server_view *view = sl_process_views_server(process, i, now_ns, &age_ns);
        if (view != NULL && view->serves) {
            views[count++] = view;
        }
    }
    return count;
}
