/* The multicast mode: datagrams to a group, paced to take most of the time between two pushes.
 * Missing ones come from the trainer by TCP. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "bench/now.h"
#include "bench/staleness.h"
#include "core/hash.h"

#define MAGIC         0x31636d73U
#define PACED_SHARE   0.8 /* of the time between two pushes */
#define PACED_BURST   16  /* datagrams between two looks at other messages */
#define RECEIVE_BYTES (32 << 20)
#define LATE_NS       (10 * SL_CLOCK_NS_PER_MS) /* then datagrams are missing */
#define LAST_NS       SL_CLOCK_NS_PER_MS        /* the same, behind the last one */

struct header {
    uint32_t magic, index;
    uint64_t version;
};

struct datagram {
    struct header header;
    uint8_t bytes[SL_BENCH_STALENESS_PIECE];
};

struct multicast {
    int fd;
    struct sockaddr_in group; /* trainer */
    uint32_t count;           /* datagrams of a version */
    uint64_t pace_ns;         /* between two of them */

    /* Worker. */
    int control; /* for missing ones */
    uint64_t version, due_ns;
    uint32_t got_count;
    bool *got;       /* [count] */
    uint8_t *memory; /* of the version */
    bool is_pending; /* `datagram` is of a later version */
    uint64_t random;
    struct datagram datagram;
    uint32_t missing[]; /* [count] */
};

static struct multicast *create(const struct sl_bench_staleness *run)
{
    const uint32_t count = (uint32_t)(run->bytes / SL_BENCH_STALENESS_PIECE);
    struct multicast *made = calloc(1, sizeof *made + count * sizeof made->missing[0]);
    if (made != NULL) {
        made->count = count;
        made->pace_ns = sl_bench_ns(PACED_SHARE * run->options.push_frequency / count);
        made->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    }
    return made;
}

/* Of the machine alone, datagrams do not leave it. */
static struct in_addr interface_of(const struct sl_bench_staleness *run)
{
    return (struct in_addr){htonl(run->is_distributed ? INADDR_ANY : INADDR_LOOPBACK)};
}

static int fail(const char *what)
{
    sl_log_error("multicast: %s: %s", what, strerror(errno));
    return SL_ERR_IO;
}

/* ---- Trainer --------------------------------------------------------------------------------- */

static int open_trainer(struct sl_bench_staleness *run)
{
    struct multicast *multicast = create(run);
    struct sockaddr_in any = {.sin_family = AF_INET};
    socklen_t length = sizeof any;
    const struct in_addr interface = interface_of(run);
    run->state = multicast;
    /* The group may get the same port as this socket, which receives nothing of the group. */
    if (multicast == NULL ||
        setsockopt(multicast->fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) != 0 ||
        setsockopt(multicast->fd, IPPROTO_IP, IP_MULTICAST_ALL, &(int){0}, sizeof(int)) != 0 ||
        bind(multicast->fd, (struct sockaddr *)&any, sizeof any) != 0 ||
        getsockname(multicast->fd, (struct sockaddr *)&any, &length) != 0 ||
        setsockopt(multicast->fd, IPPROTO_IP, IP_MULTICAST_IF, &interface, sizeof interface) != 0) {
        return fail("no socket");
    }
    multicast->group = any;
    (void)snprintf(run->place.text, sizeof run->place.text, "239.83.%u.%u", getpid() / 256 % 256,
                   getpid() % 256);
    run->place.port = ntohs(any.sin_port);
    (void)inet_pton(AF_INET, run->place.text, &multicast->group.sin_addr);
    return 0;
}

static void close_trainer(struct sl_bench_staleness *run)
{
    struct multicast *multicast = run->state;
    if (multicast != NULL) {
        (void)close(multicast->fd);
    }
    free(multicast);
}

static int push(struct sl_bench_staleness *run, uint64_t version)
{
    struct multicast *multicast = run->state;
    const uint8_t *memory = run->memories[version % SL_BENCH_STALENESS_KEPT];
    const uint64_t begun_ns = sl_bench_now_ns();
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < multicast->count; i++) {
        struct header header = {.magic = MAGIC, .index = i, .version = version};
        struct iovec parts[] = {{&header, sizeof header},
                                {(void *)(uintptr_t)(memory + (size_t)i * SL_BENCH_STALENESS_PIECE),
                                 SL_BENCH_STALENESS_PIECE}};
        const struct msghdr message = {.msg_name = &multicast->group,
                                       .msg_namelen = sizeof multicast->group,
                                       .msg_iov = parts,
                                       .msg_iovlen = 2};
        const ssize_t sent = sendmsg(multicast->fd, &message, 0);
        if (sent < 0 && errno != ENOBUFS) {
            return fail("cannot send");
        }
        run->sent_bytes += sent > 0 ? (uint64_t)sent : 0;
        if (i % PACED_BURST == PACED_BURST - 1) {
            err = sl_bench_staleness_serve(run->trainer, begun_ns + (i + 1) * multicast->pace_ns);
        }
    }
    return err;
}

/* ---- Worker ---------------------------------------------------------------------------------- */

static int open_worker(struct sl_bench_staleness *run)
{
    struct multicast *multicast = create(run);
    run->state = multicast;
    if (multicast == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    multicast->got = calloc(multicast->count, sizeof *multicast->got);
    multicast->memory = malloc(run->bytes);
    multicast->random = (uint64_t)getpid();
    const struct ip_mreq group = {.imr_multiaddr.s_addr = inet_addr(run->place.text),
                                  .imr_interface = interface_of(run)};
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)run->place.port),
                                   .sin_addr = group.imr_multiaddr};
    if (multicast->got == NULL || multicast->memory == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    /* The second needs a right, and goes beyond the system's limit. */
    (void)setsockopt(multicast->fd, SOL_SOCKET, SO_RCVBUF, &(int){RECEIVE_BYTES}, sizeof(int));
    (void)setsockopt(multicast->fd, SOL_SOCKET, SO_RCVBUFFORCE, &(int){RECEIVE_BYTES}, sizeof(int));
    if (setsockopt(multicast->fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) != 0 ||
        bind(multicast->fd, (const struct sockaddr *)&at, sizeof at) != 0 ||
        setsockopt(multicast->fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group) != 0) {
        return fail("cannot join the group");
    }
    return sl_bench_staleness_connect(run->options.trainer, &multicast->control);
}

/* Gets what is missing. Errors: NOT_FOUND (the trainer has it no more), CLOSED. */
static int repair(struct multicast *multicast)
{
    struct sl_bench_staleness_message message = {.kind = SL_BENCH_STALENESS_FETCH,
                                                 .a = multicast->version};
    uint32_t count = 0;
    for (uint32_t i = 0; i < multicast->count; i++) {
        if (!multicast->got[i]) {
            multicast->missing[count++] = i;
        }
    }
    message.bytes = count * (uint32_t)sizeof multicast->missing[0];
    int err = sl_bench_staleness_send(multicast->control, &message, multicast->missing);
    err = err != 0 ? err : sl_bench_staleness_receive(multicast->control, &message);
    if (err == 0 && message.bytes != (uint64_t)count * SL_BENCH_STALENESS_PIECE) {
        return SL_ERR_NOT_FOUND;
    }
    for (uint32_t i = 0; err == 0 && i < count; i++) {
        err = sl_bench_staleness_read(multicast->control,
                                      multicast->memory +
                                          (size_t)multicast->missing[i] * SL_BENCH_STALENESS_PIECE,
                                      SL_BENCH_STALENESS_PIECE);
        multicast->got[multicast->missing[i]] = true;
    }
    multicast->got_count += count;
    return err;
}

static void begin(struct multicast *multicast, uint64_t version)
{
    multicast->version = version;
    multicast->got_count = 0;
    memset(multicast->got, 0, multicast->count * sizeof *multicast->got);
}

/* The next datagram that is valid and not dropped. Errors: DEADLINE, CLOSED. */
static int receive(struct multicast *multicast, double loss, bool waits_for_more)
{
    for (;;) {
        struct pollfd end = {.fd = multicast->fd, .events = POLLIN};
        const uint64_t now_ns = sl_bench_now_ns();
        const int timeout_ms = !waits_for_more ? -1
                               : multicast->due_ns > now_ns
                                   ? (int)((multicast->due_ns - now_ns) / SL_CLOCK_NS_PER_MS) + 1
                                   : 0;
        const int ready = poll(&end, 1, timeout_ms);
        if (ready <= 0) {
            return ready == 0 ? SL_ERR_DEADLINE : SL_ERR_CLOSED;
        }
        const ssize_t got =
            recv(multicast->fd, &multicast->datagram, sizeof multicast->datagram, 0);
        const struct header *header = &multicast->datagram.header;
        const bool is_dropped =
            loss > 0 && (double)(sl_hash_random(&multicast->random) >> 11) * 0x1p-53 < loss;
        if (got == sizeof multicast->datagram && header->magic == MAGIC &&
            header->index < multicast->count && !is_dropped) {
            return 0;
        }
    }
}

static void take(struct multicast *multicast)
{
    const struct header *header = &multicast->datagram.header;
    const uint64_t left = multicast->count - 1 - header->index;
    if (header->version != multicast->version || multicast->got[header->index]) {
        return;
    }
    memcpy(multicast->memory + (size_t)header->index * SL_BENCH_STALENESS_PIECE,
           multicast->datagram.bytes, SL_BENCH_STALENESS_PIECE);
    multicast->got[header->index] = true;
    multicast->got_count++;
    multicast->due_ns =
        sl_bench_now_ns() + left * multicast->pace_ns * 3 / 2 + (left > 0 ? LATE_NS : LAST_NS);
}

static int pull(struct sl_bench_staleness *run, uint64_t above, uint64_t *version,
                const uint8_t **memory)
{
    struct multicast *multicast = run->state;
    int err = 0;
    while (err == 0 && (multicast->version <= above || multicast->got_count < multicast->count)) {
        const bool has_begun = multicast->version > above;
        if (!multicast->is_pending) {
            err = receive(multicast, run->options.loss, has_begun);
        }
        multicast->is_pending = err == 0 && multicast->datagram.header.version > multicast->version;
        if (has_begun && (err == SL_ERR_DEADLINE || multicast->is_pending)) {
            err = repair(multicast);
            if (err == SL_ERR_NOT_FOUND) { /* a later one is on its way */
                err = 0;
                multicast->version = multicast->is_pending ? 0 : above;
            }
        }
        if (multicast->is_pending && multicast->version <= above) {
            multicast->is_pending = false;
            begin(multicast, multicast->datagram.header.version);
        }
        if (err == 0 && !multicast->is_pending) {
            take(multicast);
        }
    }
    *version = multicast->version;
    *memory = multicast->memory;
    return err;
}

const struct sl_bench_staleness_mode sl_bench_staleness_multicast = {
    .name = "multicast",
    .open_trainer = open_trainer,
    .push = push,
    .close_trainer = close_trainer,
    .open_worker = open_worker,
    .pull = pull,
};
