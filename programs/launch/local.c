#include "programs/launch/local.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "core/endpoint.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/text_file.h"

#define EPHEMERAL_FILE "/proc/sys/net/ipv4/ip_local_port_range"
#define PORT_FIRST     10000U /* well-known services are below */
#define PORT_LAST      65535U

/* Reads the kernel's port range for outgoing connections; default: Linux's. */
static void read_ephemeral(unsigned *first, unsigned *last)
{
    *first = 32768;
    *last = 60999;
    char line[64];
    unsigned low, high;
    if (sl_text_file_line(EPHEMERAL_FILE, line, sizeof line) &&
        sscanf(line, "%u %u", &low, &high) == 2) {
        *first = low;
        *last = high;
    }
}

/* Returns a socket bound to the port, or a negative errno. */
static int hold_port(const char *address, uint16_t port)
{
    struct sl_endpoint endpoint = {.port = port};
    struct sockaddr_storage bound;
    socklen_t bytes;
    snprintf(endpoint.host, sizeof endpoint.host, "%s", address);
    if (sl_endpoint_resolve(&endpoint, true, &bound, &bytes, NULL) != 0) {
        return -EADDRNOTAVAIL;
    }
    const int fd = socket(bound.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && bind(fd, (const struct sockaddr *)&bound, bytes) == 0) {
        return fd;
    }
    const int failure = errno;
    if (fd >= 0) {
        close(fd);
    }
    return -failure;
}

/* Reserves the port among the launchers of this machine, by an abstract Unix socket, until this
 * launcher ends: for some time nothing listens at the port. False: another launcher has it. */
static bool reserve_port(const char *address, unsigned port)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const int bytes = snprintf(name.sun_path + 1, sizeof name.sun_path - 1,
                               "starling-launch/%.64s/%u", address, port);
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 &&
        bind(fd, (const struct sockaddr *)&name,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)bytes)) != 0) {
        close(fd);
        return false;
    }
    return true;
}

/* Searches ports from a random start and holds free ones until all are found. Returns how many;
 * *failure: errno that stopped the search, or 0. */
static uint32_t hold_ports(const char *address, unsigned first, unsigned last, uint32_t count,
                           int *held, uint16_t *ports, int *failure)
{
    uint64_t seed = (uint64_t)getpid() << 32 ^ (uint64_t)time(NULL);
    const unsigned range = PORT_LAST - PORT_FIRST + 1;
    unsigned start = 0;
    /* Redraw while in the kernel's range; otherwise many launchers would start right after it. */
    for (int draw = 0; draw < 64; draw++) {
        start = (unsigned)(sl_hash_random(&seed) % range);
        if (PORT_FIRST + start < first || PORT_FIRST + start > last) {
            break;
        }
    }
    uint32_t found = 0;
    *failure = 0;
    for (unsigned i = 0; i < range && found < count && *failure == 0; i++) {
        const unsigned port = PORT_FIRST + (start + i) % range;
        if (port >= first && port <= last) {
            continue;
        }
        const int fd = hold_port(address, (uint16_t)port);
        if (fd >= 0 && !reserve_port(address, port)) {
            close(fd);
        } else if (fd >= 0) {
            ports[found] = (uint16_t)port;
            held[found++] = fd;
        } else if (fd != -EADDRINUSE && fd != -EACCES) {
            *failure = -fd;
        }
    }
    return found;
}

int sl_local_free_ports(const char *address, uint32_t count, uint16_t *ports,
                        struct sl_reason *reason)
{
    unsigned first, last;
    int failure;
    read_ephemeral(&first, &last);
    int *held = malloc(count * sizeof *held);
    if (held == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "out of memory");
    }
    const uint32_t found = hold_ports(address, first, last, count, held, ports, &failure);
    for (uint32_t i = 0; i < found; i++) {
        close(held[i]);
    }
    free(held);
    if (failure != 0) {
        sl_reason_set(reason, "cannot listen at %s: %s", address, strerror(failure));
        return sl_err_from_errno(failure);
    }
    if (found < count) {
        return sl_reason_fail(
            reason, SL_ERR_IN_USE,
            "only %u of %u ports are free on %s from %u to %u outside %u to %u (" EPHEMERAL_FILE
            ")",
            found, count, address, PORT_FIRST, PORT_LAST, first, last);
    }
    return 0;
}

static int list_hosts(const struct sl_launch_options *options, struct sl_plan_hosts *hosts,
                      struct sl_reason *reason)
{
    const bool ipv6 = strchr(options->bind, ':') != NULL;
    const uint32_t count = (uint32_t)options->ps.count;
    const uint32_t port_count = options->objects ? 2 * count : count;
    uint16_t *ports = calloc(port_count + 1, sizeof *ports); /* the last one: MASTER_PORT */
    char host[64];
    snprintf(host, sizeof host, ipv6 ? "[%s]" : "%s", options->bind);
    sl_reason_set(reason, "out of memory");
    int err = ports == NULL ? SL_ERR_NO_MEMORY
                            : sl_local_free_ports(options->bind, port_count + 1, ports, reason);
    for (uint32_t i = 0; err == 0 && i < count; i++) {
        err = sl_plan_hosts_append(hosts, options, host, ports[i], ports[port_count - 1 - i]);
    }
    for (uint64_t i = 0; err == 0 && i < options->worker.count; i++) {
        err = sl_words_append(&hosts->workers, host);
    }
    if (err == 0) {
        hosts->master_port = options->master_port != 0 ? options->master_port : ports[port_count];
    }
    hosts->agent_count = options->agents;
    free(ports);
    return err;
}

/* Warns if polling reactors exceed the cores: they would take turns and delay everything. */
static void check_polling(const struct sl_launch_options *options)
{
    const uint64_t polling =
        (options->ps.polling ? options->ps.count * options->ps.reactors : 0) +
        (options->worker.polling ? options->worker.count * options->worker.reactors : 0);
    if (polling > options->core_count) {
        sl_log_warn("%llu reactors of this job poll on %u cores and take the cores from each "
                    "other: use fewer, or unset STARLING_PS_POLLING and STARLING_WORKER_POLLING "
                    "(PS_ENABLE_POLLING, WORKER_ENABLE_POLLING)",
                    (unsigned long long)polling, options->core_count);
    }
}

int sl_local_plan(const struct sl_launch_options *options, struct sl_plan *plan,
                  struct sl_reason *reason)
{
    struct sl_plan_hosts hosts = {0};
    check_polling(options);
    int err = list_hosts(options, &hosts, reason);
    err = err != 0 ? err : sl_plan_fill(plan, options, &hosts, reason);
    sl_plan_hosts_fini(&hosts);
    return err;
}
