#include "net/dpdk/module/memif_guest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "net/dpdk/module/module.h"

#define GUESTS_MAX   64U
#define MESSAGES_MAX (2U + 256U + 2U * 255U) /* who it is, regions, rings both ways, the end */
/* Of all guests together: most have a descriptor, of which this process needs some itself. */
#define HELD_MAX     MESSAGES_MAX
#define PATIENCE_NS  (5 * SL_CLOCK_NS_PER_S)
#define BURST        16U /* of guests, or of one's messages, in one round */

struct sl_module_memif_listener {
    struct sl_module_memif_listener *next;
    struct sl_module_memif_address address;
    int fd;
    bool is_short; /* of what it takes to let in those that knock: descriptors */
    pid_t pid;     /* whose it is */
    dev_t device;
    ino_t file; /* 0: none */
};

static struct sl_module_memif_listener *listeners;
static struct sl_module_memif_guest *guests; /* in the order of their coming */
static uint32_t guest_count;
static uint32_t held_count; /* messages, of all of them and of those that were let in */

/* ---- Listeners --------------------------------------------------------------------------------
 */

static bool is_same(const struct sl_module_memif_address *a,
                    const struct sl_module_memif_address *b)
{
    return a->is_abstract == b->is_abstract && strcmp(a->path, b->path) == 0;
}

static bool look_at_file(const struct sl_module_memif_listener *listener, struct stat *out)
{
    return !listener->address.is_abstract && lstat(listener->address.path, out) == 0;
}

static void find_file(struct sl_module_memif_listener *listener)
{
    struct stat file;
    if (look_at_file(listener, &file)) {
        listener->device = file.st_dev;
        listener->file = file.st_ino;
    }
}

/* As the process ends: nobody shall dial what is left. Not what others have made in its place, nor
 * when a child of this process ends. */
static void remove_files(void)
{
    for (const struct sl_module_memif_listener *at = listeners; at != NULL; at = at->next) {
        struct stat file;
        if (at->pid == getpid() && look_at_file(at, &file) && file.st_dev == at->device &&
            file.st_ino == at->file) {
            (void)unlink(at->address.path);
        }
    }
}

struct sl_module_memif_listener *
sl_module_memif_guest_listen(const struct sl_module_memif_address *address, int *code)
{
    struct sl_module_memif_listener *listener = listeners;
    while (listener != NULL && !is_same(&listener->address, address)) {
        listener = listener->next;
    }
    if (listener != NULL) {
        return listener;
    }
    listener = calloc(1, sizeof *listener);
    const int fd = listener != NULL ? sl_module_memif_socket_listen(address) : -ENOMEM;
    if (fd < 0) {
        free(listener);
        *code = -fd;
        return NULL;
    }
    *listener = (struct sl_module_memif_listener){
        .next = listeners, .address = *address, .fd = fd, .pid = getpid()};
    find_file(listener);
    if (listeners == NULL) {
        (void)atexit(remove_files);
    }
    listeners = listener;
    return listener;
}

const char *sl_module_memif_guest_path(const struct sl_module_memif_guest *guest)
{
    return guest->listener->address.path;
}

/* ---- What a guest says ------------------------------------------------------------------------
 */

void sl_module_memif_guest_destroy(struct sl_module_memif_guest **guest)
{
    struct sl_module_memif_guest *this = *guest;
    if (this == NULL) {
        return;
    }
    for (uint32_t i = 0; i < this->count; i++) {
        sl_module_memif_socket_close(&this->messages[i].fd);
    }
    sl_module_memif_socket_close(&this->fd);
    held_count -= this->count;
    free(this->messages);
    free(this);
    *guest = NULL;
}

static bool has_room(struct sl_module_memif_guest *guest)
{
    if (guest->count == MESSAGES_MAX || held_count == HELD_MAX) {
        return false;
    }
    if (guest->count == guest->room) {
        const uint32_t room = guest->room == 0 ? 16 : 2 * guest->room;
        void *more = realloc(guest->messages, room * sizeof *guest->messages);
        if (more == NULL) {
            return false;
        }
        guest->messages = more;
        guest->room = room;
    }
    return true;
}

/* False: there is no room; then it is not kept. */
static bool keep(struct sl_module_memif_guest *guest, struct sl_module_memif_message *message)
{
    if (!has_room(guest)) {
        sl_module_memif_socket_close(&message->fd);
        return false;
    }
    held_count++;
    guest->messages[guest->count++] = *message;
    return true;
}

/* False: it may not say this now. */
static bool note(struct sl_module_memif_guest *guest, struct sl_module_memif_message *message)
{
    const uint16_t kind = sl_module_memif_socket_kind(message);
    const bool has_begun = guest->count > 0;
    if (kind == SL_MODULE_MEMIF_INIT && !has_begun) {
        guest->id = sl_module_memif_socket_id(message);
    } else if (kind == SL_MODULE_MEMIF_ADD_RING && has_begun) {
        uint32_t *rings = sl_module_memif_socket_is_c2s(message) ? &guest->c2s : &guest->s2c;
        if (sl_module_memif_socket_ring(message) != *rings) {
            sl_module_memif_socket_close(&message->fd);
            return false;
        }
        (*rings)++;
    } else if (kind == SL_MODULE_MEMIF_CONNECT && has_begun) {
        guest->is_complete = true;
    } else if (kind != SL_MODULE_MEMIF_ADD_REGION || !has_begun) {
        sl_module_memif_socket_close(&message->fd);
        return kind == SL_MODULE_MEMIF_ACK;
    }
    if (!keep(guest, message)) {
        return false;
    }
    if (!guest->is_complete) {
        sl_module_memif_socket_say(guest->fd, SL_MODULE_MEMIF_ACK);
    }
    return true;
}

/* False: it has gone, or is none of ours. */
static bool hear(struct sl_module_memif_guest *guest)
{
    struct sl_module_memif_message message;
    int got = 1;
    for (uint32_t i = 0; i < BURST && got > 0 && !guest->is_complete; i++) {
        got = sl_module_memif_socket_receive(guest->fd, &message);
        if (got > 0 && !note(guest, &message)) {
            return false;
        }
    }
    return got >= 0;
}

int sl_module_memif_guest_repeat(struct sl_module_memif_guest *guest, int driver)
{
    int sent = 1;
    while (sent > 0 && guest->repeated < guest->count) {
        sent = sl_module_memif_socket_send(driver, &guest->messages[guest->repeated]);
        guest->repeated += sent > 0;
    }
    return sent;
}

/* ---- Who comes and goes -----------------------------------------------------------------------
 */

static void add(const struct sl_module_memif_listener *listener, int fd, uint64_t time_ns)
{
    struct sl_module_memif_guest *guest =
        guest_count < GUESTS_MAX ? calloc(1, sizeof *guest) : NULL;
    if (guest == NULL) {
        sl_module_memif_socket_close(&fd);
        return;
    }
    struct sl_module_memif_guest **last = &guests;
    while (*last != NULL) {
        last = &(*last)->next;
    }
    *guest = (struct sl_module_memif_guest){
        .listener = listener, .fd = fd, .deadline_ns = time_ns + PATIENCE_NS};
    *last = guest;
    guest_count++;
    sl_module_memif_socket_say(fd, SL_MODULE_MEMIF_HELLO);
}

/* Those that knock go on knocking while there is nothing to let them in with: to wait for that
 * would be no waiting. */
static void note_short(struct sl_module_memif_listener *listener, int code)
{
    const bool is_short =
        code != 0 && code != EAGAIN && code != EINTR && code != ECONNABORTED && code != EPROTO;
    if (is_short && !listener->is_short) {
        module_log(SL_LOG_WARN, "dpdk: %s: nobody can be let in: %s: tried again all the time%s",
                   listener->address.path, strerror(code),
                   code == EMFILE ? "; `ulimit -n` says how many descriptors a process may have"
                                  : "");
    }
    listener->is_short = is_short;
}

/* False: somebody may knock who cannot be let in. */
static bool let_in(uint64_t time_ns)
{
    bool can_wait = true;
    for (struct sl_module_memif_listener *at = listeners; at != NULL; at = at->next) {
        int fd = 0;
        for (uint32_t i = 0; i < BURST && fd >= 0; i++) {
            fd = sl_module_memif_socket_accept(at->fd);
            if (fd >= 0) {
                add(at, fd, time_ns);
            }
        }
        note_short(at, fd < 0 ? -fd : 0);
        can_wait = can_wait && !at->is_short;
    }
    return can_wait;
}

static void wait_for(int fd, struct pollfd *polled, nfds_t *count, nfds_t count_max)
{
    if (*count < count_max) {
        polled[(*count)++] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
}

bool sl_module_memif_guest_look(
    enum sl_module_memif_fate (*judge)(struct sl_module_memif_guest *guest, uint64_t time_ns),
    uint64_t time_ns, struct pollfd *polled, nfds_t *count, nfds_t count_max)
{
    bool somebody_waits = !let_in(time_ns);
    struct sl_module_memif_guest **at = &guests;
    while (*at != NULL) {
        struct sl_module_memif_guest *guest = *at;
        enum sl_module_memif_fate fate = SL_MODULE_MEMIF_STAYS;
        if (!hear(guest) || (!guest->is_complete && time_ns >= guest->deadline_ns)) {
            fate = SL_MODULE_MEMIF_GOES;
        } else if (guest->is_complete) {
            fate = judge(guest, time_ns);
            somebody_waits |= fate == SL_MODULE_MEMIF_STAYS;
        } else {
            wait_for(guest->fd, polled, count, count_max);
        }
        if (fate == SL_MODULE_MEMIF_STAYS) {
            at = &guest->next;
            continue;
        }
        *at = guest->next;
        guest_count--;
        if (fate == SL_MODULE_MEMIF_GOES) {
            sl_module_memif_guest_destroy(&guest);
        }
    }
    for (const struct sl_module_memif_listener *one = listeners; one != NULL; one = one->next) {
        if (!one->is_short) {
            wait_for(one->fd, polled, count, count_max);
        }
    }
    return somebody_waits;
}
