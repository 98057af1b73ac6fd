/* Observes a process for operators, on a thread of its own (observe/http): serves HTTP (routes.h),
 * and pings every reactor once a second. */
#ifndef SL_PS_PROCESS_OBSERVE_H
#define SL_PS_PROCESS_OBSERVE_H

#include "observe/http/observer.h"
#include "ps/process/state.h"

#define SL_PROCESS_OBSERVE_WHY_BYTES 256

/* What the observer needs of reactor 0, as of its last answer. */
struct sl_process_facts {
    char name[sizeof((struct sl_process *)0)->name];
    uint32_t task_index;
    bool hosts_coordinator;
    char coordinator_http[SL_LIMIT_ENDPOINT_BYTES]; /* HOST:PORT; "": unknown, or none */
    char why[SL_PROCESS_OBSERVE_WHY_BYTES];         /* why clients are not served; "": they are */
};

/* Of one reactor. Used by the observer's thread; by the reactor between a ping and its answer. */
struct sl_process_ping {
    struct sl_process_core *core;
    struct sl_mailbox_lane *to, *from; /* to the reactor, by the observer; back, by the reactor */
    bool is_pending;
    uint64_t sent_ns, answered_ns;
    struct sl_process_facts facts; /* of reactor 0 only */
    /* The observer's. */
    uint64_t busy_ns, busy_at_ns; /* at the last tick */
    double busy;                  /* share of the last second */
};

struct sl_process_observe {
    struct sl_process *process;
    struct sl_observer *observer;
    struct sl_observer_route *routes;
    struct sl_mailbox_lane *from_main;
    struct sl_process_ping *pings; /* [reactor_count] */
    uint64_t begun_ns;
    char address[SL_LIMIT_ENDPOINT_BYTES]; /* HOST:PORT, or "off" */
    /* The observer's thread. */
    bool is_ready; /* or was once */
    struct sl_process_facts facts;
};

/* Listens. Before the reactors exist. Errors: those of sl_observer_create. The main thread, as for
 * the functions below. */
int sl_process_observe_open(struct sl_process *process, struct sl_reason *reason);

/* Starts the thread, when the reactors exist. Errors: NO_MEMORY, TOO_LARGE. */
int sl_process_observe_start(struct sl_process *process);

/* /readyz answers 200 from now on, unless the process loses the coordinator. */
void sl_process_observe_ready(struct sl_process *process);

/* Ends the thread. Before the reactors stop. */
void sl_process_observe_stop(struct sl_process *process);

/* Frees, when the reactors have stopped. */
void sl_process_observe_close(struct sl_process *process);

/* For how long the reactor has not answered; 0: it has. The observer's thread. */
static inline uint64_t sl_process_observe_waited_ns(const struct sl_process_ping *ping,
                                                    uint64_t now_ns)
{
    return ping->is_pending && now_ns > ping->sent_ns ? now_ns - ping->sent_ns : 0;
}

#endif
