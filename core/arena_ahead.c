#include "core/arena_ahead.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/arena_pages.h"
#include "core/assert.h"
#include "core/clock.h"
#include "core/thread.h"

/* A slot is empty, wanted (by the owner), failed (no memory), or the address of a chunk, whose
 * lowest bit tells whether every page is touched. The owner ends each of these states by one
 * exchange; the thread changes a slot only by compare-exchange. */
#define SLOT_EMPTY      ((uintptr_t)0)
#define SLOT_WANTED     ((uintptr_t)2)
#define SLOT_FAILED     ((uintptr_t)4)
#define SLOT_TOUCHED    ((uintptr_t)1)
#define SLOT_LEAST      ((uintptr_t)4096) /* no chunk has a lower address */

/* Bits of `state`: the current uses of the arena. */
#define STATE_QUEUED    1U /* in the thread's inbox */
#define STATE_WORKING   2U /* in use by the thread */
#define STATE_LATE      4U /* in the thread's list of arenas with late chunks */
#define STATE_CLOSING   8U /* the owner waits until the others are clear */

#define NODES_MAX       1024

#define REFUSED_MAX     8
/* The pause after a try is COLLAPSE_GAP_NS, plus BUSY_GAP times the time that the thread waited for
 * a core; after a round over all late chunks that collapsed no page it is IDLE_GAP_NS. */
#define COLLAPSE_GAP_NS (3 * SL_CLOCK_NS_PER_MS)
#define BUSY_GAP        8
#define IDLE_GAP_NS     SL_CLOCK_NS_PER_S

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

    _Atomic(struct sl_arena_chunk *) late_inbox; /* last in, first out */
    _Atomic(struct sl_arena_chunk *) gone_inbox; /* of chunks to unmap */
    uint32_t late_count;                         /* in late_list; thread */
};

/* The thread. `lock` guards users and thread, and is never held while memory is mapped or
 * touched. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t let_go; /* signalled for a closing arena */
    uint32_t users;
    pthread_t thread;
    bool transparent;                       /* set before the first open returns */
    sem_t work;                             /* posted after each change of inbox and stopping */
    _Atomic(struct sl_arena_ahead *) inbox; /* last in, first out */
    _Atomic bool stopping;
    _Atomic uint64_t refused_count;
} helper = {.lock = PTHREAD_MUTEX_INITIALIZER, .let_go = PTHREAD_COND_INITIALIZER};

/* The thread */

/* Of the thread: whether this module may set the NUMA policy, and the node that it has set. */
static bool may_prefer;
static uint32_t preferred;

/* Prefers memory of this node, without requiring it. */
static void prefer_node(uint32_t node)
{
    const size_t bits = 8 * sizeof(unsigned long);
    unsigned long mask[NODES_MAX / (8 * sizeof(unsigned long))] = {0};
    if (may_prefer && node != preferred && node < NODES_MAX) {
        mask[node / bits] = 1UL << node % bits;
        syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask, (unsigned long)NODES_MAX);
        preferred = node;
    }
}

/* Resets settings inherited from a reactor. */
static void settle_thread(void)
{
    int policy = MPOL_DEFAULT;
    sl_thread_unpin();
    sl_thread_lower_priority();
    may_prefer =
        syscall(SYS_get_mempolicy, &policy, NULL, 0UL, NULL, 0UL) == 0 && policy == MPOL_DEFAULT;
    preferred = NODES_MAX;
}

/* Puts the arena into the inbox if it is not there. */
static void arena_ahead_enqueue(struct sl_arena_ahead *ahead)
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

/* Serves the oldest request that the owner has not ended. The slots are a ring: if the
 * owner is a whole round ahead, a slot holds a newer request, which is like the older one. */
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

/* Late chunks of all arenas, which take turns. Thread. */
static struct {
    struct sl_arena_chunk *first, **end;
    uint32_t count;
    uint32_t fruitless; /* chunks tried since the last huge page */
    uint64_t next_ns;   /* earliest time of the next try */
} late_list = {.end = &late_list.first};

static void late_insert(struct sl_arena_chunk **at, struct sl_arena_chunk *chunk)
{
    chunk->late.next = *at;
    *at = chunk;
    if (late_list.end == at) {
        late_list.end = &chunk->late.next;
    }
    late_list.count++;
    chunk->late.ahead->late_count++;
}

static struct sl_arena_chunk *late_remove(struct sl_arena_chunk **at)
{
    struct sl_arena_chunk *chunk = *at;
    *at = chunk->late.next;
    if (late_list.end == &chunk->late.next) {
        late_list.end = at;
    }
    late_list.count--;
    chunk->late.ahead->late_count--;
    return chunk;
}

static void late_remove_all(const struct sl_arena_ahead *ahead)
{
    struct sl_arena_chunk **at = &late_list.first;
    while (ahead->late_count > 0) {
        if ((*at)->late.ahead == ahead) {
            late_remove(at);
        } else {
            at = &(*at)->late.next;
        }
    }
}

static void take_late(struct sl_arena_ahead *ahead)
{
    struct sl_arena_chunk *late = atomic_exchange(&ahead->late_inbox, NULL);
    while (late != NULL) {
        struct sl_arena_chunk *next = late->late.next;
        late_insert(late_list.end, late);
        late = next;
        late_list.fruitless = 0;
        late_list.next_ns = 0;
    }
}

void sl_arena_chunk_unmap(struct sl_arena_chunk *chunk, size_t chunk_bytes)
{
    sl_arena_pages_count_ordinary((int64_t)chunk->late.collapsed - (int64_t)chunk->ordinary_bytes);
    sl_arena_pages_unmap(chunk->base, chunk_bytes);
    free(chunk);
}

static void unmap_all(const struct sl_arena_ahead *ahead, struct sl_arena_chunk *gone)
{
    while (gone != NULL) {
        struct sl_arena_chunk *next = gone->next;
        sl_arena_chunk_unmap(gone, ahead->chunk_bytes);
        gone = next;
    }
}

/* Takes late chunks, and unmaps those that are gone. A late chunk that is gone was late first, so
 * it is in the list, unless all its pages have been tried. */
static void take_chunks(struct sl_arena_ahead *ahead)
{
    struct sl_arena_chunk *gone = atomic_exchange(&ahead->gone_inbox, NULL);
    take_late(ahead);
    for (struct sl_arena_chunk *chunk = gone; chunk != NULL; chunk = chunk->next) {
        struct sl_arena_chunk **at = &late_list.first;
        while (chunk->late.ahead != NULL && *at != NULL && *at != chunk) {
            at = &(*at)->late.next;
        }
        if (chunk->late.ahead != NULL && *at != NULL) {
            late_remove(at);
        }
    }
    unmap_all(ahead, gone);
}

/* Releases the arena: the thread does not access it any more, unless the arena has late chunks. A
 * closing owner is notified with the lock held: once the owner has the lock again, the thread does
 * not take the lock for this arena any more, and can be joined. */
static void let_go(struct sl_arena_ahead *ahead)
{
    uint32_t state = atomic_load(&ahead->state);
    while ((state & STATE_CLOSING) == 0) {
        const uint32_t late = ahead->late_count > 0 ? STATE_LATE : 0;
        if (atomic_compare_exchange_weak(&ahead->state, &state,
                                         (state & ~(STATE_WORKING | STATE_LATE)) | late)) {
            return;
        }
    }
    late_remove_all(ahead);
    pthread_mutex_lock(&helper.lock);
    atomic_fetch_and(&ahead->state, ~(STATE_WORKING | STATE_LATE));
    pthread_cond_broadcast(&helper.let_go);
    pthread_mutex_unlock(&helper.lock);
}

/* Tries the next page of a late chunk, whose owner touches its pages in ascending order. */
static void collapse_next(struct sl_arena_chunk *chunk)
{
    struct sl_arena_late *late = &chunk->late;
    const enum sl_arena_pages_collapse end = sl_arena_pages_collapse(chunk->base + late->done);
    late_list.fruitless++;
    if (end == SL_ARENA_PAGES_COLLAPSED) {
        late_list.fruitless = 0;
        late->collapsed += SL_ARENA_HUGE_PAGE_BYTES;
        sl_arena_pages_count_ordinary(-(int64_t)SL_ARENA_HUGE_PAGE_BYTES);
    } else if (end == SL_ARENA_PAGES_UNTOUCHED || ++late->refused < REFUSED_MAX) {
        return;
    } else {
        atomic_fetch_add(&helper.refused_count, 1);
    }
    late->refused = 0;
    late->done += SL_ARENA_HUGE_PAGE_BYTES;
}

static uint64_t cpu_ns(void)
{
    struct timespec time = {0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * SL_CLOCK_NS_PER_S + (uint64_t)time.tv_nsec;
}

/* Tries to collapse one page of the first late chunk. If that fails, the chunk moves to the end of
 * the list. If it succeeds, the chunk stays first: a partly collapsed chunk takes two mappings, of
 * which a process has a limited number (vm.max_map_count). A thread that had to wait for a core
 * pauses longer: reactors need the cores. */
static void serve_late(void)
{
    const uint64_t from_ns = sl_clock_now_ns(sl_clock_system()), from_cpu_ns = cpu_ns();
    struct sl_arena_chunk *chunk = late_remove(&late_list.first);
    struct sl_arena_ahead *ahead = chunk->late.ahead;
    prefer_node(ahead->node);
    atomic_fetch_or(&ahead->state, STATE_WORKING);
    if ((atomic_load(&ahead->state) & STATE_CLOSING) == 0) {
        collapse_next(chunk);
        if (chunk->late.done < ahead->chunk_bytes) {
            late_insert(late_list.fruitless == 0 ? &late_list.first : late_list.end, chunk);
        }
    }
    let_go(ahead);
    const bool idle = late_list.fruitless >= late_list.count;
    late_list.fruitless = idle ? 0 : late_list.fruitless;
    const uint64_t now_ns = sl_clock_now_ns(sl_clock_system());
    const uint64_t took_ns = now_ns - from_ns, used_ns = cpu_ns() - from_cpu_ns;
    const uint64_t waited_ns = took_ns > used_ns ? took_ns - used_ns : 0;
    late_list.next_ns = now_ns + (idle ? IDLE_GAP_NS : COLLAPSE_GAP_NS + BUSY_GAP * waited_ns);
}

/* Serves one chunk, then lets the other arenas proceed. */
static void serve(struct sl_arena_ahead *ahead)
{
    atomic_fetch_or(&ahead->state, STATE_WORKING);
    /* A later request queues the arena again; an earlier one is seen below. */
    const uint32_t state = atomic_fetch_and(&ahead->state, ~STATE_QUEUED);
    if ((state & STATE_CLOSING) == 0) {
        take_chunks(ahead);
        serve_one(ahead);
        if (ahead->served != atomic_load(&ahead->tail)) {
            arena_ahead_enqueue(ahead);
        }
    }
    let_go(ahead);
}

static void serve_inbox(void)
{
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
        prefer_node(oldest->node);
        serve(oldest);
        oldest = next;
    }
}

/* Until there is work, or the time of the next late chunk. */
static void wait_for_work(void)
{
    const struct timespec until = {
        .tv_sec = (time_t)(late_list.next_ns / SL_CLOCK_NS_PER_S),
        .tv_nsec = (long)(late_list.next_ns % SL_CLOCK_NS_PER_S),
    };
    const bool timed = late_list.first != NULL;
    while ((timed ? sem_clockwait(&helper.work, CLOCK_MONOTONIC, &until)
                  : sem_wait(&helper.work)) != 0 &&
           errno == EINTR) {
    }
}

static void *helper_main(void *arg)
{
    settle_thread();
    while (!atomic_load(&helper.stopping)) {
        serve_inbox();
        if (atomic_load(&helper.inbox) == NULL && late_list.first != NULL &&
            sl_clock_now_ns(sl_clock_system()) >= late_list.next_ns) {
            serve_late();
        }
        wait_for_work();
    }
    return NULL;
}

/* Start and end */

/* With the lock held. */
static int start_thread(void)
{
    sem_init(&helper.work, 0, 0);
    atomic_store(&helper.stopping, false);
    helper.transparent = sl_arena_pages_transparent();
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
    if ((atomic_fetch_or(&closing->state, STATE_CLOSING) & STATE_LATE) != 0) {
        arena_ahead_enqueue(closing);
    }
    pthread_mutex_lock(&helper.lock);
    while ((atomic_load(&closing->state) & ~STATE_CLOSING) != 0) {
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
    unmap_all(closing, atomic_load(&closing->gone_inbox));
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
    arena_ahead_enqueue(ahead);
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

bool sl_arena_ahead_is_idle(const struct sl_arena_ahead *ahead)
{
    const uint32_t tail = atomic_load_explicit(&ahead->tail, memory_order_relaxed);
    const uintptr_t newest = atomic_load(&ahead->slots[(tail - 1) % SL_ARENA_AHEAD_MAX]);
    return newest != SLOT_WANTED;
}

/* Puts a chunk first in an inbox. *next: the chunk's link in that list. */
static void arena_ahead_hand(struct sl_arena_ahead *ahead, _Atomic(struct sl_arena_chunk *) *inbox,
                             struct sl_arena_chunk *chunk, struct sl_arena_chunk **next)
{
    *next = atomic_load(inbox);
    while (!atomic_compare_exchange_weak(inbox, next, chunk)) {
    }
    arena_ahead_enqueue(ahead);
}

void sl_arena_ahead_add_late(struct sl_arena_ahead *ahead, struct sl_arena_chunk *chunk)
{
    if (!helper.transparent) {
        return;
    }
    chunk->late.ahead = ahead;
    arena_ahead_hand(ahead, &ahead->late_inbox, chunk, &chunk->late.next);
}

void sl_arena_ahead_unmap(struct sl_arena_ahead *ahead, struct sl_arena_chunk *chunk)
{
    arena_ahead_hand(ahead, &ahead->gone_inbox, chunk, &chunk->next);
}

uint64_t sl_arena_ahead_refused_count(void)
{
    return atomic_load(&helper.refused_count);
}
