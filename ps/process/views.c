#include "ps/process/views.h"

#include <poll.h>
#include <stdlib.h>

#include "reactor/view.h"

#define RENEW_MS 1000

struct sl_process_views {
    struct sl_view *coordinator;
};

int sl_process_views_create(struct sl_process *process)
{
    struct sl_process_views *views = calloc(1, sizeof *views);
    if (views == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    process->observer.views = views;
    int err = sl_view_create(process->reactors[0], sizeof(struct sl_coordinator_view),
                             sl_coordinator_view_fill, &process->coordinator, &views->coordinator);
    if (err != 0) {
        sl_process_views_destroy(process);
    }
    return err;
}

int sl_process_views_add(struct sl_process_hosted *hosted)
{
    return sl_view_create(hosted->core->reactor, sizeof(struct sl_server_view), sl_server_view_fill,
                          &hosted->server, &hosted->observed.view);
}

void sl_process_views_destroy(struct sl_process *process)
{
    struct sl_process_views *views = process->observer.views;
    if (views == NULL) {
        return;
    }
    SL_PROCESS_FOREACH (hosted, process) {
        sl_view_destroy(&hosted->observed.view);
    }
    sl_view_destroy(&views->coordinator);
    free(views);
    process->observer.views = NULL;
}

void sl_process_views_request(const struct sl_process *process)
{
    sl_view_request(process->observer.views->coordinator);
    SL_PROCESS_FOREACH (hosted, process) {
        sl_view_request(hosted->observed.view);
    }
}

static bool are_answered(const struct sl_process *process)
{
    bool answered = sl_view_is_answered(process->observer.views->coordinator);
    SL_PROCESS_FOREACH (hosted, process) {
        answered = answered && sl_view_is_answered(hosted->observed.view);
    }
    return answered;
}

void sl_process_views_renew(const struct sl_process *process)
{
    for (int i = 0; i < 2; i++) { /* an open request may be older */
        sl_process_views_request(process);
        for (int ms = 0; ms < RENEW_MS / 2 && !are_answered(process); ms++) {
            (void)poll(NULL, 0, 1);
        }
    }
}

const struct sl_server_view *sl_process_views_shard(const struct sl_process_hosted *hosted,
                                                    uint64_t now_ns)
{
    uint64_t age_ns;
    const struct sl_server_view *view = sl_view_read(hosted->observed.view, now_ns, &age_ns);
    return view != NULL && view->stage != SL_SERVER_VIEW_NO_SHARD ? view : NULL;
}

const struct sl_coordinator_view *sl_process_views_coordinator(const struct sl_process *process,
                                                               uint64_t now_ns, uint64_t *age_ns)
{
    const struct sl_coordinator_view *view =
        sl_view_read(process->observer.views->coordinator, now_ns, age_ns);
    return view != NULL && view->is_here ? view : NULL;
}
