/* Observes a process for operators, on a thread of its own (net/http): serves HTTP (routes.h),
 * and pings every reactor once a second. */
#ifndef SL_PS_PROCESS_OBSERVE_H
#define SL_PS_PROCESS_OBSERVE_H

#include <semaphore.h>
#include <string.h>

#include "net/http/observer.h"
#include "net/http/ping.h"
#include "ps/process/state.h"

#define SL_PROCESS_OBSERVE_WHY_BYTES    256
#define SL_PROCESS_OBSERVE_SERVES_BYTES (5 * SL_LIMIT_ENDPOINT_BYTES)

/* State of reactor 0 for the observer, as of the last answered ping. */
struct sl_process_facts {
    char name[sizeof((struct sl_process *)0)->name];
    uint32_t task_index;
    bool hosts_coordinator, is_store_away;
    char coordinator_http[SL_LIMIT_ENDPOINT_BYTES]; /* HOST:PORT; "": unknown, or none */
    char why[SL_PROCESS_OBSERVE_WHY_BYTES];         /* why clients are not served; "": they are */
};

struct sl_process_observe {
    struct sl_process *process;
    struct sl_observer *observer;
    struct sl_observer_route *routes;
    struct sl_mailbox_lane *from_main;
    struct sl_ping *pings; /* [reactor_count] */
    uint64_t begun_ns;
    char address[SL_LIMIT_ENDPOINT_BYTES];        /* HOST:PORT, or "off" */
    char serves[SL_PROCESS_OBSERVE_SERVES_BYTES]; /* written by main before the process is ready */
    sem_t ended;                                  /* posted by the observer's thread */
    /* The observer's thread. */
    bool is_ready; /* or was once */
    struct sl_process_facts facts;
    struct sl_process_facts visited; /* written by reactor 0 between a ping and its answer */
};

/* Listens. Before the reactors exist. Errors: those of sl_observer_create. The main thread, as for
 * the functions below. */
int sl_process_observe_open(struct sl_process *process, struct sl_reason *reason);

/* HOST:PORT of HTTP, for other processes; "": off. Any thread, after _open. */
static inline const char *sl_process_observe_http(const struct sl_process *process)
{
    const char *address =
        process->observer.observe == NULL ? "off" : process->observer.observe->address;
    return strcmp(address, "off") == 0 ? "" : address;
}

/* Starts the thread, when the reactors exist. Errors: NO_MEMORY, TOO_LARGE. */
int sl_process_observe_start(struct sl_process *process);

/* /readyz answers 200 from now on, unless the process loses the coordinator. The service manager is
 * notified: what the process serves. */
void sl_process_observe_ready(const struct sl_process *process, const char *serves);

/* The job has ended: sends the last report of this process, before it leaves. If the page stays, it
 * shows the job as it is now. */
void sl_process_observe_end(const struct sl_process *process, bool stays);

/* Ends the thread. Before the reactors stop. */
void sl_process_observe_stop(struct sl_process *process);

/* Frees, when the reactors have stopped. */
void sl_process_observe_close(struct sl_process *process);

#endif
