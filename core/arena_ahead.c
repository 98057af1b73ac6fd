#include "core/arena_ahead.h"

#include <linux/mempolicy.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/arena_pages.h"
#include "core/assert.h"

/* A slot is empty, wanted by the owner, failed (the thread got no memory), or the address of a
 * chunk, whose lowest bit says that every page has been touched. The owner ends each of these by
 * one exchange; the thread changes a slot only from what it has seen there. */
#define SLOT_EMPTY    ((uintptr_t)0)
#define SLOT_WANTED   ((uintptr_t)2)
#define SLOT_FAILED   ((uintptr_t)4)
#define SLOT_TOUCHED  ((uintptr_t)1)
#define SLOT_LEAST    ((uintptr_t)4096) /* below it no chunk begins */

/* Who still holds the arena. */
#define STATE_QUEUED  1U /* it is in the thread's inbox */
#define STATE_WORKING 2U /* the thread is at it */
#define STATE_CLOSING 4U /* the owner waits for both to end */

#define NODES_MAX     1024
#define PRIORITY_NICE                                                                              \
    10 /* behind reactors, but not so far that a busy machine never gets to it                     \
        */

struct sl_arena_ahead {
    size_t chunk_bytes;
    bool huge;
    uint32_t node; /* that memory comes from */

    uint32_t head;               /* next request to end; the owner's */
    _Atomic uint32_t tail;       /* next request to make; written by the owner */
    uint32_t served;             /* next request to look at; the thread's */
    _Atomic uint32_t state;      /* STATE_... */
    struct sl_arena_ahead *next; /* in the inbox */
    _Atomic uintptr_t slots[SL_ARENA_AHEAD_MAX];
};

/* The thread. `lock` guards users and thread; no one holds it while memory is mapped or touched. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t let_go; /* of an arena that is closing */
    uint32_t users;
    pthread_t thread;
    sem_t work;                             /* posted after each change of the two below */
    _Atomic(struct sl_arena_ahead *) inbox; /* last in, first out */
    _Atomic bool stopping;
} helper = {.lock = PTHREAD_MUTEX_INITIALIZER, .let_go = PTHREAD_COND_INITIALIZER};

/* ---- The thread's work ----------------------------------------------------------------------- */

/* Puts the arena into the inbox unless it is there. */
static void enqueue(struct sl_arena_ahead *ahead)
{
    if ((atomic_fetch_or(&ahead->state, STATE_QUEUED) & STATE_QUEUED) != 0) {
        return;
    }
    struct sl_arena_ahead *first = atomic_load(&helper.inbox);
    do {
        ahead->next = first;
    } while (!atomic_compare_exchange_weak(&helper.inbox, &first, ahead));
    sem_post(&helper.work);
}

/* One huge page at a time, so that an owner who closes waits for one only. */
static void touch_chunk(struct sl_arena_ahead *ahead, uint8_t *base)
{
    for (size_t at = 0; at < ahead->chunk_bytes; at += SL_ARENA_HUGE_PAGE_BYTES) {
        const size_t left = ahead->chunk_bytes - at;
        if ((atomic_load(&ahead->state) & STATE_CLOSING) != 0) {
            return;
        }
        sl_arena_pages_touch(base + at,
                             left < SL_ARENA_HUGE_PAGE_BYTES ? left : SL_ARENA_HUGE_PAGE_BYTES);
    }
}

/* A chunk for one slot. Its address is given away before its pages are touched: then it costs no
 * memory yet, and an owner who has ended the request meanwhile has the chunk of his own only. */
static void fill_slot(struct sl_arena_ahead *ahead, _Atomic uintptr_t *slot)
{
    void *base = sl_arena_pages_map(ahead->chunk_bytes, ahead->huge);
    uintptr_t expected = SLOT_WANTED;
    if (base == NULL) {
        atomic_compare_exchange_strong(slot, &expected, SLOT_FAILED);
        return;
    }
    if (!atomic_compare_exchange_strong(slot, &expected, (uintptr_t)base)) {
        sl_arena_pages_unmap(base, ahead->chunk_bytes);
        return;
    }
    touch_chunk(ahead, base);
    expected = (uintptr_t)base;
    atomic_compare_exchange_strong(slot, &expected, (uintptr_t)base | SLOT_TOUCHED);
}

/* Serves the oldest request that the owner has not ended. Where the owner has overtaken the thread
 * by a whole round of slots, one request may be served under the number of another: no matter. */
static void serve_one(struct sl_arena_ahead *ahead)
{
    while (ahead->served != atomic_load(&ahead->tail)) {
        _Atomic uintptr_t *slot = &ahead->slots[ahead->served++ % SL_ARENA_AHEAD_MAX];
        if (atomic_load(slot) == SLOT_WANTED) {
            fill_slot(ahead, slot);
            return;
        }
    }
}

/* The thread's last access to the arena. An owner who closes is told with the lock held: once he
 * has the lock back, the thread wants it no more on his account, and may be joined. */
static void let_go(struct sl_arena_ahead *ahead)
{
    uint32_t state = atomic_load(&ahead->state);
    while ((state & STATE_CLOSING) == 0) {
        if (atomic_compare_exchange_weak(&ahead->state, &state, state & ~STATE_WORKING)) {
            return;
        }
    }
    pthread_mutex_lock(&helper.lock);
    atomic_fetch_and(&ahead->state, ~STATE_WORKING);
    pthread_cond_broadcast(&helper.let_go);
    pthread_mutex_unlock(&helper.lock);
}

/* One chunk, then the arenas behind get theirs. */
static void serve(struct sl_arena_ahead *ahead)
{
    atomic_fetch_or(&ahead->state, STATE_WORKING);
    /* A request made from here on queues the arena again; one made before is seen below. */
    const uint32_t state = atomic_fetch_and(&ahead->state, ~STATE_QUEUED);
    if ((state & STATE_CLOSING) == 0) {
        serve_one(ahead);
        if (ahead->served != atomic_load(&ahead->tail)) {
            enqueue(ahead);
        }
    }
    let_go(ahead);
}

/* Takes memory from this node as long as it has any. */
static void prefer_node(uint32_t node)
{
    const size_t bits = 8 * sizeof(unsigned long);
    unsigned long mask[NODES_MAX / (8 * sizeof(unsigned long))] = {0};
    if (node < NODES_MAX) {
        mask[node / bits] = 1UL << node % bits;
        syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask, (unsigned long)NODES_MAX);
    }
}

/* What the thread has inherited from a reactor and should not have: its core. None of this is
 * needed for the work, so that failures are none. Returns whether the NUMA policy is ours to set.
 */
static bool settle_thread(void)
{
    cpu_set_t cores;
    int policy = MPOL_DEFAULT;
    pthread_setname_np(pthread_self(), "sl-arena");
    if (sched_getaffinity(getpid(), sizeof cores, &cores) ==
        0) { /* the main thread's: not pinned */
        sched_setaffinity(0, sizeof cores, &cores);
    }
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), PRIORITY_NICE);
    return syscall(SYS_get_mempolicy, &policy, NULL, 0UL, NULL, 0UL) == 0 && policy == MPOL_DEFAULT;
}

static void serve_inbox(bool nodes)
{
    static const uint32_t no_node = UINT32_MAX;
    uint32_t node = no_node;
    struct sl_arena_ahead *newest = atomic_exchange(&helper.inbox, NULL);
    struct sl_arena_ahead *oldest = NULL;
    while (newest != NULL) {
        struct sl_arena_ahead *older = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = older;
    }
    while (oldest != NULL) {
        struct sl_arena_ahead *next =
            oldest->next; /* once served, it may be queued again, or gone */
        if (nodes && oldest->node != node) {
            node = oldest->node;
            prefer_node(node);
        }
        serve(oldest);
        oldest = next;
    }
}

static void *helper_main(void *arg)
{
    (void)arg;
    const bool nodes = settle_thread();
    while (!atomic_load(&helper.stopping)) {
        serve_inbox(nodes);
        while (sem_wait(&helper.work) != 0) { /* interrupted */
        }
    }
    return NULL;
}

/* ---- Life ------------------------------------------------------------------------------------ */

/* The process's signals are for other threads. Called with the lock held. */
static int start_thread(void)
{
    sigset_t all;
    sigset_t before;
    sem_init(&helper.work, 0, 0);
    atomic_store(&helper.stopping, false);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&helper.thread, NULL, helper_main, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

/* Called with the lock held, when no arena is open: the thread takes the lock for those only. */
static void stop_thread(void)
{
    atomic_store(&helper.stopping, true);
    sem_post(&helper.work);
    pthread_join(helper.thread, NULL);
    sem_destroy(&helper.work);
}

struct sl_arena_ahead *sl_arena_ahead_open(size_t chunk_bytes, bool huge)
{
    struct sl_arena_ahead *ahead = calloc(1, sizeof *ahead);
    if (ahead == NULL) {
        return NULL;
    }
    ahead->chunk_bytes = chunk_bytes;
    ahead->huge = huge;
    if (getcpu(NULL, &ahead->node) != 0) {
        ahead->node = 0;
    }
    pthread_mutex_lock(&helper.lock);
    const int failed = helper.users == 0 ? start_thread() : 0;
    helper.users += failed == 0;
    pthread_mutex_unlock(&helper.lock);
    if (failed != 0) {
        free(ahead);
        return NULL;
    }
    return ahead;
}

void sl_arena_ahead_close(struct sl_arena_ahead **ahead)
{
    struct sl_arena_ahead *closing = *ahead;
    if (closing == NULL) {
        return;
    }
    atomic_fetch_or(&closing->state, STATE_CLOSING);
    pthread_mutex_lock(&helper.lock);
    while ((atomic_load(&closing->state) & (STATE_QUEUED | STATE_WORKING)) != 0) {
        pthread_cond_wait(&helper.let_go, &helper.lock);
    }
    helper.users--;
    if (helper.users == 0) {
        stop_thread();
    }
    pthread_mutex_unlock(&helper.lock);
    while (closing->head != atomic_load(&closing->tail)) {
        bool touched;
        void *base = sl_arena_ahead_take(closing, &touched);
        if (base != NULL) {
            sl_arena_pages_unmap(base, closing->chunk_bytes);
        }
    }
    free(closing);
    *ahead = NULL;
}

/* ---- The owner ------------------------------------------------------------------------------- */

void sl_arena_ahead_request(struct sl_arena_ahead *ahead)
{
    const uint32_t tail = atomic_load_explicit(&ahead->tail, memory_order_relaxed);
    sl_assert(tail - ahead->head < SL_ARENA_AHEAD_MAX);
    atomic_store(&ahead->slots[tail % SL_ARENA_AHEAD_MAX], SLOT_WANTED);
    atomic_store(&ahead->tail, tail + 1);
    enqueue(ahead);
}

void *sl_arena_ahead_take(struct sl_arena_ahead *ahead, bool *touched)
{
    sl_assert(ahead->head != atomic_load_explicit(&ahead->tail, memory_order_relaxed));
    const uintptr_t slot =
        atomic_exchange(&ahead->slots[ahead->head++ % SL_ARENA_AHEAD_MAX], SLOT_EMPTY);
    *touched = (slot & SLOT_TOUCHED) != 0;
    return slot < SLOT_LEAST ? NULL : (void *)(slot & ~SLOT_TOUCHED);
}

bool sl_arena_ahead_ready(const struct sl_arena_ahead *ahead)
{
    const uintptr_t slot = atomic_load(&ahead->slots[ahead->head % SL_ARENA_AHEAD_MAX]);
    return (slot & SLOT_TOUCHED) != 0;
}
