#include "core/arena_ahead.h"

#include <linux/mempolicy.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/arena_pages.h"
#include "core/assert.h"
#include "core/thread.h"

/* A slot is empty, wanted (by the owner), failed (no memory), or the address of a chunk, whose
 * lowest bit tells whether every page is touched. The owner ends each of these states by one
 * exchange; the thread changes a slot only by compare-exchange. */
#define SLOT_EMPTY    ((uintptr_t)0)
#define SLOT_WANTED   ((uintptr_t)2)
#define SLOT_FAILED   ((uintptr_t)4)
#define SLOT_TOUCHED  ((uintptr_t)1)
#define SLOT_LEAST    ((uintptr_t)4096) /* no chunk has a lower address */

/* Bits of `state`: the current uses of the arena. */
#define STATE_QUEUED  1U /* in the thread's inbox */
#define STATE_WORKING 2U /* in use by the thread */
#define STATE_CLOSING 4U /* the owner waits until both are clear */

#define NODES_MAX     1024

struct sl_arena_ahead {
    size_t chunk_bytes;
    bool huge;
    uint32_t node; /* preferred for the memory */

    uint32_t head;               /* next request to end; owner */
    _Atomic uint32_t tail;       /* next request to make; written by the owner */
    uint32_t served;             /* next request to serve; thread */
    _Atomic uint32_t state;      /* STATE_... */
    struct sl_arena_ahead *next; /* in the inbox */
    _Atomic uintptr_t slots[SL_ARENA_AHEAD_MAX];
};

/* The thread. `lock` guards users and thread, and is never held while memory is mapped or
 * touched. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t let_go; /* signalled for a closing arena */
    uint32_t users;
    pthread_t thread;
    sem_t work;                             /* posted after each change of inbox and stopping */
    _Atomic(struct sl_arena_ahead *) inbox; /* last in, first out */
    _Atomic bool stopping;
} helper = {.lock = PTHREAD_MUTEX_INITIALIZER, .let_go = PTHREAD_COND_INITIALIZER};

/* The thread */

/* Puts the arena into the inbox if it is not there. */
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

/* Touches one huge page at a time, so that a closing owner waits for one page only. */
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

/* Maps a chunk for one slot. Publishes the address before touching the pages: an untouched chunk
 * costs no memory. If the owner has ended the request meanwhile, it has mapped a chunk itself. */
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

/* Serves the oldest request that the owner has not ended. If the owner is a whole round of slots
 * ahead, a request may be served under another number, which is harmless. */
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

/* The thread's last access to the arena. Notifies a closing owner with the lock held: once the
 * owner has the lock back, the thread no longer takes it for this arena, and can be joined. */
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

/* Serves one chunk, then lets the other arenas proceed. */
static void serve(struct sl_arena_ahead *ahead)
{
    atomic_fetch_or(&ahead->state, STATE_WORKING);
    /* A later request queues the arena again; an earlier one is seen below. */
    const uint32_t state = atomic_fetch_and(&ahead->state, ~STATE_QUEUED);
    if ((state & STATE_CLOSING) == 0) {
        serve_one(ahead);
        if (ahead->served != atomic_load(&ahead->tail)) {
            enqueue(ahead);
        }
    }
    let_go(ahead);
}

/* Prefers memory of this node, without requiring it. */
static void prefer_node(uint32_t node)
{
    const size_t bits = 8 * sizeof(unsigned long);
    unsigned long mask[NODES_MAX / (8 * sizeof(unsigned long))] = {0};
    if (node < NODES_MAX) {
        mask[node / bits] = 1UL << node % bits;
        syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask, (unsigned long)NODES_MAX);
    }
}

/* Resets settings inherited from a reactor. Returns whether this module may set the NUMA policy. */
static bool settle_thread(void)
{
    int policy = MPOL_DEFAULT;
    sl_thread_unpin();
    sl_thread_lower_priority();
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
            oldest->next; /* after serve, it may be queued again or freed */
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
    const bool nodes = settle_thread();
    while (!atomic_load(&helper.stopping)) {
        serve_inbox(nodes);
        while (sem_wait(&helper.work) != 0) { /* interrupted */
        }
    }
    return NULL;
}

/* Start and end */

/* With the lock held. */
static int start_thread(void)
{
    sem_init(&helper.work, 0, 0);
    atomic_store(&helper.stopping, false);
    return sl_thread_start(&helper.thread, "sl-arena", helper_main, NULL);
}

/* With the lock held and no arena open: the thread takes the lock only for open arenas. */
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

/* The owner */

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
