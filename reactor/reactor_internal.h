/* The struct of a reactor, shared by reactor.c (its parts and one turn), reactor_loop.c (the loop
 * and its threads) and offload.c. */
#ifndef SL_REACTOR_REACTOR_INTERNAL_H
#define SL_REACTOR_REACTOR_INTERNAL_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "reactor/cpu_yield.h"
#include "reactor/metrics.h"
#include "reactor/outbound_mail.h"
#include "reactor/reactor.h"
#include "reactor/ring.h"
#include "reactor/spin.h"
#include "reactor/stall.h"

enum sl_reactor_thread {
    SL_REACTOR_THREAD_NONE,
    SL_REACTOR_THREAD_OWN,    /* sl_reactor_start */
    SL_REACTOR_THREAD_CALLERS /* sl_reactor_attach */
};

struct sl_reactor {
    struct sl_reactor_head head; /* first: reactor.h reads it there */
    struct sl_reactor_options options;
    const struct sl_clock *clock;
    _Atomic bool stopping;

    uint64_t random_state;
    bool in_turn;
    struct sl_spin spin;
    struct sl_cpu_yield cpu_yield;
    struct sl_reactor_cells *cells; /* of the options, or own_cells */
    struct sl_reactor_cells own_cells;
    _Atomic(const char *) stall_phase; /* of the last stall */

    struct sl_reactor_source *sources;
    struct sl_reactor_source *next_source; /* next in the current walk */

    struct sl_mailbox *mailbox;
    struct sl_outbound_mail outbound;

    bool ring_ready;
    struct {
        enum sl_reactor_thread kind;
        pthread_t id;
        sem_t start_done;
        int start_result;
        int (*on_start)(void *ctx);
        void *on_start_ctx;
        void (*on_stop)(void *ctx);
        void *on_stop_ctx;
    } thread;

    struct sl_ring ring;
    struct sl_ring_watch mailbox_watch;
    struct sl_stall stall;
    const char *last_phase; /* charged with the time after the last mark */
    struct {
        bool (*done)(void *ctx); /* NULL: sl_reactor_drive_until does not run */
        void *ctx;
    } wait;
    struct {
        bool has_submitted;     /* to the ring */
        uint64_t began_ns;      /* events since then wait to be taken in */
        uint32_t untimed_count; /* turns since the clock was last read */
    } last_turn;
    struct sl_timer_wheel timers;
};

/* Makes the calling thread, or none, the owner. */
void sl_reactor_own(struct sl_reactor *reactor);
void sl_reactor_disown(struct sl_reactor *reactor);

/* One turn without timers. Owner. */
uint32_t sl_reactor_turn_untimed(struct sl_reactor *reactor, uint64_t now_ns);

/* Arms the sources until one refuses. Owner. */
bool sl_reactor_arm_sources(struct sl_reactor *reactor);

#endif
