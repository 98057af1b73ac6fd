#include "net/dpdk/module/memif.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "net/dpdk/module/memif_arguments.h"
#include "net/dpdk/module/memif_guest.h"
#include "net/dpdk/module/memif_private.h"
#include "net/dpdk/module/memif_socket.h"
#include "net/dpdk/module/module.h"

#define DIAL_NS  (500 * SL_CLOCK_NS_PER_MS)
#define SHAKE_NS (5 * SL_CLOCK_NS_PER_S)
#define SOON_MS  5
#define LATER_MS 100
#define PART_S   5
#define POLLED   384U
#define BURST    16U /* messages of one device in one round */

enum state {
    ALONE,    /* the driver has no peer */
    ANSWERED, /* a client's peer is there; the driver is to be started */
    SHAKING,
    UP,
    LEAVING, /* the peer has gone: reactors are to leave the queues */
    DRAINING /* the driver was told, and is about to close its end */
};

struct sl_module_memif {
    struct sl_module_memif *next;
    char name[64];
    bool is_server;
    uint32_t id;
    struct sl_module_memif_address public;
    struct sl_module_memif_private private;
    struct sl_module_memif_listener *listener; /* a server's, at the public address */
    uint32_t queues;                           /* 0: not open */
    enum state state;
    int outer, inner;                    /* to the peer, to the driver; -1: none */
    struct sl_module_memif_guest *guest; /* SHAKING: a server's: what the peer has said */
    uint32_t users;                      /* reactors in the queues */
    uint64_t deadline_ns;                /* SHAKING, ANSWERED */
    uint64_t dial_ns;
    int told_code; /* why dialling failed last */
    char told[SL_MODULE_MEMIF_REASON_BYTES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sl_module_memif *all;
static pthread_cond_t parted = PTHREAD_COND_INITIALIZER;
static int waker = -1;

/* ---- The peer ---------------------------------------------------------------------------------
 */

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SL_CLOCK_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* Without a driver at the other end there is nothing to wait for. */
static void part(struct sl_module_memif *memif)
{
    sl_module_memif_socket_close(&memif->outer);
    sl_module_memif_guest_destroy(&memif->guest);
    memif->dial_ns = now_ns() + DIAL_NS;
    memif->state = memif->inner >= 0 ? LEAVING : ALONE;
}

/* It closes its end when it has unmapped what was the peer's. */
static void drain(struct sl_module_memif *memif)
{
    if (memif->state == LEAVING && memif->users == 0) {
        (void)shutdown(memif->inner, SHUT_WR);
        memif->state = DRAINING;
    }
}

static void note_refused(struct sl_module_memif *memif, const char *who, const char *reason)
{
    if (strncmp(memif->told, reason, sizeof memif->told) != 0) {
        (void)snprintf(memif->told, sizeof memif->told, "%s", reason);
        module_log(SL_LOG_WARN, "dpdk: %s: %s ends it: %s", memif->name, who, reason);
    }
}

static void dial(struct sl_module_memif *memif, uint64_t time_ns)
{
    const int fd = sl_module_memif_socket_dial(&memif->public);
    if (fd >= 0) {
        memif->outer = fd;
        memif->state = ANSWERED;
        memif->deadline_ns = time_ns + SHAKE_NS;
        memif->told_code = 0;
        return;
    }
    memif->dial_ns = time_ns + DIAL_NS;
    if (memif->told_code != fd) {
        module_log(
            SL_LOG_WARN, "dpdk: %s: no server listens at %s%s yet (%s): tried again twice a second",
            memif->name, memif->public.path,
            memif->public.is_abstract ? " (an abstract name: socket-abstract=no for a file)" : "",
            strerror(-fd));
        memif->told_code = fd;
    }
}

/* ---- Messages ---------------------------------------------------------------------------------
 */

static bool pass(int to, struct sl_module_memif_message *message)
{
    const bool passed = to >= 0 && sl_module_memif_socket_send(to, message) == 1;
    sl_module_memif_socket_close(&message->fd);
    return passed;
}

static void come_up(struct sl_module_memif *memif)
{
    sl_module_memif_guest_destroy(&memif->guest);
    memif->state = UP;
    memif->told[0] = '\0';
}

/* A server's peer has said all, before it was let in, but that it goes. */
static void hear_peer(struct sl_module_memif *memif, struct sl_module_memif_message *message)
{
    const uint16_t kind = sl_module_memif_socket_kind(message);
    char reason[SL_MODULE_MEMIF_REASON_BYTES];
    if (kind == SL_MODULE_MEMIF_DISCONNECT) {
        sl_module_memif_socket_reason(message, reason);
        note_refused(memif, "its peer", reason);
        part(memif);
    } else if (!memif->is_server && memif->state == SHAKING) {
        if (!pass(memif->inner, message)) {
            part(memif);
        } else if (kind == SL_MODULE_MEMIF_CONNECTED) {
            come_up(memif);
        }
    }
    sl_module_memif_socket_close(&message->fd);
}

/* A server's has answered to what its peer said as it was let in, but for whether they are one. */
static void hear_driver(struct sl_module_memif *memif, struct sl_module_memif_message *message)
{
    const uint16_t kind = sl_module_memif_socket_kind(message);
    char reason[SL_MODULE_MEMIF_REASON_BYTES];
    const bool is_told = !memif->is_server || kind == SL_MODULE_MEMIF_CONNECTED ||
                         kind == SL_MODULE_MEMIF_DISCONNECT;
    if (kind == SL_MODULE_MEMIF_DISCONNECT) {
        sl_module_memif_socket_reason(message, reason);
        note_refused(memif, "its driver", reason);
    }
    if (memif->state == SHAKING && is_told) {
        if (!pass(memif->outer, message)) {
            part(memif);
        } else if (kind == SL_MODULE_MEMIF_CONNECTED) {
            come_up(memif);
        }
    }
    sl_module_memif_socket_close(&message->fd);
}

static void hear_outer(struct sl_module_memif *memif)
{
    struct sl_module_memif_message message;
    int got = 1;
    for (uint32_t i = 0; i < BURST && got > 0 && memif->outer >= 0; i++) {
        got = sl_module_memif_socket_receive(memif->outer, &message);
        if (got > 0) {
            hear_peer(memif, &message);
        }
    }
    if (got < 0) {
        part(memif);
    }
}

static void hear_inner(struct sl_module_memif *memif)
{
    struct sl_module_memif_message message;
    int got = 1;
    for (uint32_t i = 0; i < BURST && got > 0; i++) {
        got = sl_module_memif_socket_receive(memif->inner, &message);
        if (got > 0) {
            hear_driver(memif, &message);
        }
    }
    if (got < 0) { /* it has unmapped all */
        sl_module_memif_socket_close(&memif->inner);
        part(memif);
    }
}

/* ---- A server's peers -------------------------------------------------------------------------
 */

static struct sl_module_memif *find_server(const struct sl_module_memif_guest *guest)
{
    struct sl_module_memif *memif = all;
    while (memif != NULL && (memif->listener != guest->listener || memif->id != guest->id)) {
        memif = memif->next;
    }
    return memif;
}

/* Returns why not, or NULL. */
static const char *let_in(struct sl_module_memif *memif, struct sl_module_memif_guest *guest,
                          uint64_t time_ns)
{
    static char text[SL_MODULE_MEMIF_REASON_BYTES];
    if (guest->c2s != memif->queues || guest->s2c != memif->queues) {
        (void)snprintf(text, sizeof text,
                       "queues differ: the client has %u and %u, the server %u each way",
                       guest->c2s, guest->s2c, memif->queues);
        note_refused(memif, "a client is refused", text);
        return text;
    }
    memif->inner = sl_module_memif_private_dial(&memif->private);
    if (memif->inner < 0) {
        return "the driver does not answer";
    }
    memif->outer = guest->fd;
    guest->fd = -1;
    memif->guest = guest;
    memif->state = SHAKING;
    memif->deadline_ns = time_ns + SHAKE_NS;
    return NULL;
}

/* One whose device has still its last peer, or is not open yet, waits for it. */
static enum sl_module_memif_fate judge(struct sl_module_memif_guest *guest, uint64_t time_ns)
{
    struct sl_module_memif *memif = find_server(guest);
    const char *refused = NULL;
    if (memif == NULL) {
        refused = "no device with this id here";
        module_log(SL_LOG_WARN, "dpdk: %s: a client asks for id %u, which no device here has",
                   sl_module_memif_guest_path(guest), guest->id);
    } else if (memif->state == ALONE && memif->queues != 0 && memif->users == 0) {
        refused = let_in(memif, guest, time_ns);
        if (refused == NULL) {
            return SL_MODULE_MEMIF_TAKEN;
        }
    } else if (time_ns >= guest->deadline_ns) {
        refused = memif->queues == 0 ? "not open yet" : "already connected";
    }
    if (refused != NULL) {
        sl_module_memif_socket_refuse(guest->fd, refused);
    }
    return refused != NULL ? SL_MODULE_MEMIF_GOES : SL_MODULE_MEMIF_STAYS;
}

/* ---- The thread -------------------------------------------------------------------------------
 */

static void look_at(struct sl_module_memif *memif, uint64_t time_ns)
{
    if (memif->outer >= 0 && memif->state != ANSWERED) {
        hear_outer(memif);
    }
    if (memif->inner >= 0) {
        hear_inner(memif);
    }
    if (memif->state == SHAKING && memif->guest != NULL &&
        sl_module_memif_guest_repeat(memif->guest, memif->inner) < 0) {
        part(memif);
    }
    if ((memif->state == SHAKING || memif->state == ANSWERED) && time_ns >= memif->deadline_ns) {
        note_refused(memif, "its peer does not answer", "given up");
        part(memif);
    }
    if (memif->state == ALONE && !memif->is_server && memif->queues != 0 && memif->users == 0 &&
        time_ns >= memif->dial_ns) {
        dial(memif, time_ns);
    }
    drain(memif);
}

static bool is_settled(const struct sl_module_memif *memif)
{
    return memif->queues == 0 || memif->state == UP || (memif->is_server && memif->state == ALONE);
}

static void wait_for(int fd, struct pollfd *polled, nfds_t *count)
{
    if (fd >= 0 && *count < POLLED) {
        polled[(*count)++] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
}

/* Fills in what is to be waited for; returns for how long, in ms. */
static int look_at_all(struct pollfd *polled, nfds_t *count)
{
    const uint64_t time_ns = now_ns();
    int wait_ms = -1;
    *count = 0;
    wait_for(waker, polled, count);
    for (struct sl_module_memif *memif = all; memif != NULL; memif = memif->next) {
        look_at(memif, time_ns);
    }
    if (sl_module_memif_guest_look(judge, time_ns, polled, count, POLLED)) {
        wait_ms = SOON_MS;
    }
    for (const struct sl_module_memif *memif = all; memif != NULL; memif = memif->next) {
        if (!is_settled(memif) && wait_ms < 0) {
            wait_ms = LATER_MS;
        }
        if (memif->guest != NULL) { /* what the driver had no room for */
            wait_ms = SOON_MS;
        }
        wait_for(memif->state != ANSWERED ? memif->outer : -1, polled, count);
        wait_for(memif->inner, polled, count);
    }
    return *count < POLLED ? wait_ms : SOON_MS;
}

static void *run(void *ctx)
{
    (void)ctx;
    struct pollfd polled[POLLED];
    for (;;) {
        uint64_t woken;
        nfds_t count;
        (void)pthread_mutex_lock(&lock);
        const int wait_ms = look_at_all(polled, &count);
        (void)pthread_cond_broadcast(&parted);
        (void)pthread_mutex_unlock(&lock);
        (void)poll(polled, count, wait_ms);
        (void)!read(waker, &woken, sizeof woken);
    }
    return NULL;
}

static void wake(void)
{
    const uint64_t one = 1;
    (void)!write(waker, &one, sizeof one);
}

/* It takes no signals, and ends with the process. */
static int start_thread(void)
{
    sigset_t set, before;
    pthread_t thread;
    waker = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (waker < 0) {
        return errno;
    }
    (void)sigfillset(&set);
    (void)pthread_sigmask(SIG_SETMASK, &set, &before);
    const int code = pthread_create(&thread, NULL, run, NULL);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0) {
        sl_module_memif_socket_close(&waker);
        return code;
    }
    (void)pthread_setname_np(thread, "dpdk-memif");
    (void)pthread_detach(thread);
    return 0;
}

/* ---- The device is made -----------------------------------------------------------------------
 */

static bool is_taken(const struct sl_module_memif *memif)
{
    for (const struct sl_module_memif *other = all; other != NULL; other = other->next) {
        if (memif->is_server && other->listener == memif->listener && other->id == memif->id) {
            return true;
        }
    }
    return false;
}

static int refuse(const struct sl_module_memif *memif, const char *what, int code)
{
    module_log(SL_LOG_ERROR, "dpdk: %s: %s: %s", memif->name, what, strerror(code));
    return code == ENOMEM ? SL_ERR_NO_MEMORY : SL_ERR_IO;
}

static int listen_publicly(struct sl_module_memif *memif)
{
    int code = 0;
    memif->listener = sl_module_memif_guest_listen(&memif->public, &code);
    if (memif->listener == NULL) {
        module_log(
            SL_LOG_ERROR, "dpdk: %s: cannot listen at %s%s: %s%s", memif->name, memif->public.path,
            memif->public.is_abstract ? ", an abstract name (socket-abstract=no: a file)" : "",
            strerror(code),
            code == EADDRINUSE ? ": another process does"
            : code == ENOENT   ? ": its folder must be there"
                               : "");
        return SL_ERR_IO;
    }
    if (is_taken(memif)) {
        module_log(SL_LOG_ERROR,
                   "dpdk: %s: another device has id %u at %s: give each its own id=", memif->name,
                   memif->id, memif->public.path);
        return SL_ERR_INVALID;
    }
    return 0;
}

static void discard(struct sl_module_memif **memif)
{
    sl_module_memif_private_discard(&(*memif)->private);
    free(*memif);
    *memif = NULL;
}

static int make(struct sl_module_memif *memif, const char *arguments, char *out, size_t out_bytes)
{
    struct sl_module_memif_arguments read;
    const char *wrong = sl_module_memif_arguments_read(arguments, &read);
    if (wrong != NULL) {
        module_log(SL_LOG_ERROR, "dpdk: %s,%s: %s", memif->name, arguments, wrong);
        return SL_ERR_INVALID;
    }
    memif->is_server = read.is_server;
    memif->id = read.id;
    memif->public = read.address;
    const int code = waker < 0 ? start_thread() : 0;
    if (code != 0) {
        return refuse(memif, "no thread for its peers", code);
    }
    const int err = memif->is_server ? listen_publicly(memif) : 0;
    if (err != 0) {
        return err;
    }
    const int failed = sl_module_memif_private_make(&memif->private, memif->is_server);
    if (failed != 0) {
        return refuse(memif, "no private socket for its driver", failed);
    }
    (void)snprintf(out, out_bytes, "%ssocket=%s,socket-abstract=%s", read.tail,
                   memif->private.address.path, memif->private.address.is_abstract ? "yes" : "no");
    return 0;
}

int sl_module_memif_make(const char *name, const char *arguments, char *out, size_t out_bytes,
                         struct sl_module_memif **memif)
{
    struct sl_module_memif *this = calloc(1, sizeof *this);
    if (this == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    *this = (struct sl_module_memif){
        .private = {.listening = -1, .file = -1}, .outer = -1, .inner = -1};
    (void)snprintf(this->name, sizeof this->name, "%s", name);
    (void)pthread_mutex_lock(&lock);
    const int err = make(this, arguments, out, out_bytes);
    (void)pthread_mutex_unlock(&lock);
    if (err != 0) {
        discard(&this);
    }
    *memif = this;
    return err;
}

void sl_module_memif_made(struct sl_module_memif **memif, bool is_there)
{
    if (!is_there || sl_module_memif_private_seal(&(*memif)->private) != 0) {
        discard(memif);
        return;
    }
    (void)pthread_mutex_lock(&lock);
    (*memif)->next = all;
    all = *memif;
    (void)pthread_mutex_unlock(&lock);
    wake(); /* there may be a listener */
}

struct sl_module_memif *sl_module_memif_find(const char *name)
{
    (void)pthread_mutex_lock(&lock);
    struct sl_module_memif *memif = all;
    while (memif != NULL && strcmp(memif->name, name) != 0) {
        memif = memif->next;
    }
    (void)pthread_mutex_unlock(&lock);
    return memif;
}

/* ---- The device's life ------------------------------------------------------------------------
 */

void sl_module_memif_open(struct sl_module_memif *memif, uint32_t queues)
{
    (void)pthread_mutex_lock(&lock);
    memif->queues = queues;
    memif->dial_ns = 0;
    (void)pthread_mutex_unlock(&lock);
    wake();
}

int sl_module_memif_part(struct sl_module_memif *memif)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PART_S;
    int code = 0;
    (void)pthread_mutex_lock(&lock);
    memif->queues = 0;
    if (memif->state != ALONE) {
        sl_module_memif_socket_refuse(memif->outer, "the device is set up anew");
        part(memif);
    }
    wake();
    while (memif->state != ALONE && code == 0) {
        code = pthread_cond_timedwait(&parted, &lock, &until);
    }
    (void)pthread_mutex_unlock(&lock);
    return code != 0 ? refuse(memif, "its driver does not let go", code) : 0;
}

bool sl_module_memif_is_to_start(struct sl_module_memif *memif)
{
    (void)pthread_mutex_lock(&lock);
    const bool is_to = memif->state == ANSWERED;
    (void)pthread_mutex_unlock(&lock);
    return is_to;
}

void sl_module_memif_started(struct sl_module_memif *memif, bool has)
{
    (void)pthread_mutex_lock(&lock);
    memif->inner = has ? sl_module_memif_private_accept(&memif->private) : -1;
    if (memif->state == ANSWERED && memif->inner >= 0) {
        memif->state = SHAKING;
        memif->deadline_ns = now_ns() + SHAKE_NS;
    } else {
        part(memif);
    }
    (void)pthread_mutex_unlock(&lock);
    wake();
}

bool sl_module_memif_enter(struct sl_module_memif *memif)
{
    (void)pthread_mutex_lock(&lock);
    const bool is_up = memif->state == UP;
    memif->users += is_up;
    (void)pthread_mutex_unlock(&lock);
    return is_up;
}

bool sl_module_memif_is_up(struct sl_module_memif *memif)
{
    (void)pthread_mutex_lock(&lock);
    const bool is_up = memif->state == UP;
    (void)pthread_mutex_unlock(&lock);
    return is_up;
}

void sl_module_memif_leave(struct sl_module_memif *memif)
{
    (void)pthread_mutex_lock(&lock);
    memif->users--;
    (void)pthread_mutex_unlock(&lock);
    wake();
}
