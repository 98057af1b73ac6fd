#include "reactor/mailbox.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/limits.h"
#include "core/spsc.h"
#include "reactor/spin.h"

/* Replies often arrive within this time, which is about the cost of a sleep and a wake-up. */
#define WAIT_SPIN_NS 10000

/* A receiver that falls asleep must not miss a post. The receiver stores `sleeping`, then checks
 * the lanes; the sender stores `posted`, then checks `sleeping`. All four accesses are sequentially
 * consistent, so at least one side sees the other's store.
 *
 * Likewise an idle receiver checks only `rung`, not every lane: it clears `rung`, then checks
 * `posted` and `closed` of the lanes; the sender stores one of these, then sets `rung` unless it is
 * set. */

struct sl_mailbox_lane {
    struct sl_spsc ring;
    _Alignas(SL_SPSC_CACHE_LINE) struct sl_mailbox *mailbox;
    _Atomic uint32_t posted; /* mails pushed so far, equal to the ring's tail; ordered as above */
    _Atomic bool closed;     /* the sender's last write */
    _Alignas(SL_SPSC_CACHE_LINE) struct sl_mail mails[SL_LIMIT_LANE_MAILS];
};

struct sl_mailbox {
    _Atomic bool sleeping;
    _Atomic bool rung; /* a lane may have news; see above */
    int eventfd;
    struct sl_spin spin;       /* of sl_mailbox_wait; the receiver's, like first_slot */
    uint32_t first_slot;       /* start of the next drain */
    _Atomic uint32_t slot_end; /* above every slot ever used; never shrinks */
    pthread_mutex_t lock;      /* for opening and closing; guards references */
    uint32_t references;       /* the receiver and each open lane */

    /* The sender fills a slot under the lock; the receiver empties it without. */
    _Atomic(struct sl_mailbox_lane *) slots[SL_LIMIT_LANES];
};

int sl_mailbox_create(struct sl_mailbox **out)
{
    struct sl_mailbox *mailbox = calloc(1, sizeof *mailbox);
    if (mailbox == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    mailbox->eventfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (mailbox->eventfd < 0) {
        free(mailbox);
        return SL_ERR_IO;
    }
    pthread_mutex_init(&mailbox->lock, NULL);
    mailbox->references = 1;
    sl_spin_init(&mailbox->spin, WAIT_SPIN_NS);
    *out = mailbox;
    return 0;
}

static void lane_drop(struct sl_mailbox_lane *lane)
{
    struct sl_mail mail;
    while (lane != NULL && sl_spsc_pop(&lane->ring, &mail)) {
        if (mail.drop != NULL) {
            mail.drop(mail.ctx);
        }
    }
    free(lane);
}

static void mailbox_free(struct sl_mailbox *mailbox)
{
    uint32_t end = atomic_load(&mailbox->slot_end);
    for (uint32_t slot = 0; slot < end; slot++) {
        lane_drop(atomic_load(&mailbox->slots[slot]));
    }
    pthread_mutex_destroy(&mailbox->lock);
    close(mailbox->eventfd);
    free(mailbox);
}

static void mailbox_unref(struct sl_mailbox *mailbox)
{
    pthread_mutex_lock(&mailbox->lock);
    sl_assert(mailbox->references > 0);
    bool last = --mailbox->references == 0;
    pthread_mutex_unlock(&mailbox->lock);
    if (last) {
        mailbox_free(mailbox);
    }
}

void sl_mailbox_destroy(struct sl_mailbox **mailbox)
{
    if (*mailbox != NULL) {
        mailbox_unref(*mailbox);
        *mailbox = NULL;
    }
}

void sl_mailbox_wake(struct sl_mailbox *mailbox)
{
    int saved_errno = errno;
    uint64_t one = 1;
    /* Fails only if the count is at its maximum: the eventfd is readable anyway. */
    ssize_t written = write(mailbox->eventfd, &one, sizeof one);
    (void)written;
    errno = saved_errno;
}

/* Signals that a sender has stored something. Of several senders that see the receiver asleep, one
 * makes the system call. */
static void ring(struct sl_mailbox *mailbox)
{
    if (!atomic_load(&mailbox->rung)) {
        atomic_store(&mailbox->rung, true);
    }
    if (atomic_load(&mailbox->sleeping) && atomic_exchange(&mailbox->sleeping, false)) {
        sl_mailbox_wake(mailbox);
    }
}

/* Puts the lane into a free slot. With the lock held. */
static int lane_publish(struct sl_mailbox *mailbox, struct sl_mailbox_lane *lane)
{
    uint32_t end = atomic_load(&mailbox->slot_end);
    for (uint32_t slot = 0; slot < SL_LIMIT_LANES; slot++) {
        if (atomic_load(&mailbox->slots[slot]) == NULL) {
            atomic_store(&mailbox->slots[slot], lane);
            if (slot >= end) {
                atomic_store(&mailbox->slot_end, slot + 1);
            }
            mailbox->references++;
            return 0;
        }
    }
    return SL_ERR_TOO_LARGE;
}

int sl_mailbox_lane_open(struct sl_mailbox *mailbox, struct sl_mailbox_lane **out)
{
    struct sl_mailbox_lane *lane = aligned_alloc(SL_SPSC_CACHE_LINE, sizeof *lane);
    if (lane == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    /* Leaves the items untouched: an unused lane takes hardly any memory. */
    memset(lane, 0, offsetof(struct sl_mailbox_lane, mails));
    sl_spsc_init(&lane->ring, lane->mails, sizeof lane->mails[0], SL_LIMIT_LANE_MAILS);
    lane->mailbox = mailbox;

    pthread_mutex_lock(&mailbox->lock);
    int err = lane_publish(mailbox, lane);
    pthread_mutex_unlock(&mailbox->lock);
    if (err != 0) {
        free(lane);
        return err;
    }
    *out = lane;
    return 0;
}

void sl_mailbox_lane_close(struct sl_mailbox_lane **lane)
{
    if (*lane == NULL) {
        return;
    }
    struct sl_mailbox *mailbox = (*lane)->mailbox;
    atomic_store(&(*lane)->closed, true);
    /* From here on the receiver owns the lane. */
    *lane = NULL;
    ring(mailbox);
    mailbox_unref(mailbox);
}

int sl_mailbox_post(struct sl_mailbox_lane *lane, struct sl_mail mail)
{
    if (!sl_spsc_push(&lane->ring, &mail)) {
        return SL_ERR_AGAIN;
    }
    uint32_t posted = atomic_load_explicit(&lane->posted, memory_order_relaxed);
    atomic_store(&lane->posted, posted + 1);
    ring(lane->mailbox);
    return 0;
}

static uint32_t lane_drain(struct sl_mailbox_lane *lane, uint32_t budget)
{
    struct sl_mail mail;
    uint32_t ran = 0;
    uint32_t taken = atomic_load_explicit(&lane->ring.head, memory_order_relaxed);
    if (atomic_load(&lane->posted) == taken) {
        return 0;
    }
    while (ran < budget && sl_spsc_pop(&lane->ring, &mail)) {
        mail.run(mail.ctx, mail.a, mail.b);
        ran++;
    }
    return ran;
}

static uint32_t slot_drain(struct sl_mailbox *mailbox, uint32_t slot, uint32_t budget)
{
    struct sl_mailbox_lane *lane =
        atomic_load_explicit(&mailbox->slots[slot], memory_order_acquire);
    if (lane == NULL) {
        return 0;
    }
    /* Read first: a closed lane gets no more mail after this. */
    bool closed = atomic_load(&lane->closed);
    uint32_t ran = lane_drain(lane, budget);
    if (closed && sl_spsc_empty(&lane->ring)) {
        atomic_store_explicit(&mailbox->slots[slot], NULL, memory_order_release);
        free(lane);
    }
    return ran;
}

bool sl_mailbox_is_rung(const struct sl_mailbox *mailbox)
{
    return atomic_load_explicit(&mailbox->rung, memory_order_relaxed);
}

uint32_t sl_mailbox_drain(struct sl_mailbox *mailbox, uint32_t budget)
{
    if (!sl_mailbox_is_rung(mailbox)) {
        return 0;
    }
    atomic_store(&mailbox->rung, false);
    uint32_t end = atomic_load_explicit(&mailbox->slot_end, memory_order_acquire);
    uint32_t slot = mailbox->first_slot;
    uint32_t ran = 0;
    for (uint32_t visited = 0; visited < end && ran < budget; visited++) {
        slot = slot < end ? slot : 0;
        ran += slot_drain(mailbox, slot, budget - ran);
        slot++;
    }
    mailbox->first_slot = slot;
    if (ran == budget) {
        atomic_store(&mailbox->rung, true); /* perhaps not all was drained */
    }
    return ran;
}

bool sl_mailbox_pending(const struct sl_mailbox *mailbox)
{
    uint32_t end = atomic_load(&mailbox->slot_end);
    for (uint32_t slot = 0; slot < end; slot++) {
        struct sl_mailbox_lane *lane = atomic_load(&mailbox->slots[slot]);
        if (lane == NULL) {
            continue;
        }
        uint32_t taken = atomic_load_explicit(&lane->ring.head, memory_order_relaxed);
        if (atomic_load(&lane->posted) != taken || atomic_load(&lane->closed)) {
            return true;
        }
    }
    return false;
}

bool sl_mailbox_arm(struct sl_mailbox *mailbox)
{
    atomic_store(&mailbox->sleeping, true);
    if (sl_mailbox_pending(mailbox)) {
        atomic_store(&mailbox->sleeping, false);
        return false;
    }
    return true;
}

void sl_mailbox_awake(struct sl_mailbox *mailbox)
{
    atomic_store(&mailbox->sleeping, false);
}

void sl_mailbox_disarm(struct sl_mailbox *mailbox)
{
    sl_mailbox_awake(mailbox);
    uint64_t count;
    ssize_t taken = read(mailbox->eventfd, &count, sizeof count);
    (void)taken; /* empty if something else woke the receiver */
}

int sl_mailbox_fd(const struct sl_mailbox *mailbox)
{
    return mailbox->eventfd;
}

/* True if there is mail or the time is over; false if spinning no longer pays. */
static bool spin(struct sl_mailbox *mailbox, uint64_t begin_ns, uint64_t until_ns)
{
    uint64_t now_ns = begin_ns;
    while (sl_spin_idle(&mailbox->spin, now_ns) && now_ns < until_ns) {
        if (sl_mailbox_pending(mailbox)) {
            return true;
        }
        now_ns = sl_clock_now_ns(sl_clock_system());
    }
    return now_ns >= until_ns;
}

static void sleep_until_readable(struct sl_mailbox *mailbox, uint64_t timeout_ns)
{
    struct timespec timeout = {
        .tv_sec = (time_t)(timeout_ns / SL_CLOCK_NS_PER_S),
        .tv_nsec = (long)(timeout_ns % SL_CLOCK_NS_PER_S),
    };
    struct pollfd readable = {.fd = mailbox->eventfd, .events = POLLIN};
    ppoll(&readable, 1, timeout_ns == SL_CLOCK_NEVER ? NULL : &timeout, NULL);
    sl_mailbox_disarm(mailbox);
}

void sl_mailbox_wait(struct sl_mailbox *mailbox, uint64_t timeout_ns)
{
    uint64_t begin_ns = sl_clock_now_ns(sl_clock_system());
    uint64_t until_ns =
        timeout_ns < SL_CLOCK_NEVER - begin_ns ? begin_ns + timeout_ns : SL_CLOCK_NEVER;
    if (!spin(mailbox, begin_ns, until_ns) && sl_mailbox_arm(mailbox)) {
        sleep_until_readable(mailbox, timeout_ns);
    }
    if (sl_mailbox_pending(mailbox)) {
        sl_spin_busy(&mailbox->spin, sl_clock_now_ns(sl_clock_system()));
    }
}
