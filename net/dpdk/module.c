#include "net/dpdk/module.h"

#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/limits.h"
#include "net/dpdk/dpdk.h"
#include "reactor/ring.h"

#define PATH_BYTES    1024
#define CLOSE_WAIT_NS (10 * SL_CLOCK_NS_PER_MS)

static const struct sl_dpdk_port_ops *ports;
static char missing[PATH_BYTES + 512];

/* The functions of the host */

struct sl_dpdk_watch {
    struct sl_ring_op op;
    struct sl_ring *ring;
    int fd;
    bool is_set;
};

/* Its only purpose is to wake the reactor. */
static void dpdk_module_on_readable(struct sl_ring_op *op, int32_t result, uint32_t cqe_flags)
{
    ((struct sl_dpdk_watch *)op)->is_set = false;
}

static struct sl_dpdk_watch *watch_open(struct sl_reactor *reactor, int fd)
{
    struct sl_dpdk_watch *watch = calloc(1, sizeof *watch);
    if (watch != NULL) {
        *watch = (struct sl_dpdk_watch){
            .op.complete = dpdk_module_on_readable, .ring = sl_reactor_ring(reactor), .fd = fd};
    }
    return watch;
}

static void watch_set(struct sl_dpdk_watch *watch)
{
    if (!watch->is_set) {
        watch->is_set = true;
        io_uring_prep_poll_add(sl_ring_sqe(watch->ring, &watch->op), watch->fd, POLLIN);
    }
}

static bool watch_is_set(const struct sl_dpdk_watch *watch)
{
    return watch->is_set;
}

static void watch_close(struct sl_dpdk_watch **closing)
{
    struct sl_dpdk_watch *watch = *closing;
    if (watch->is_set) {
        sl_ring_cancel(watch->ring, &watch->op);
    }
    while (watch->is_set) {
        if (sl_ring_reap(watch->ring, SL_LIMIT_TURN_EVENTS) == 0) {
            sl_ring_wait(watch->ring, CLOSE_WAIT_NS);
        }
    }
    free(watch);
    *closing = NULL;
}

static const struct sl_dpdk_host host = {
    .version = STARLING_VERSION,
    .log = sl_log_write,
    .log_enabled = sl_log_enabled,
    .reactor_index = sl_reactor_index,
    .reactor_group_count = sl_reactor_group_count,
    .timer_arm = sl_reactor_arm,
    .timer_disarm = sl_reactor_disarm,
    .watch_open = watch_open,
    .watch_set = watch_set,
    .watch_is_set = watch_is_set,
    .watch_close = watch_close,
};

/* The file of the plug-in */

/* The directory of the program or library that contains this code. */
static void find_directory(char directory[PATH_BYTES])
{
    Dl_info info;
    char *path = NULL;
    if (dladdr((void *)&host, &info) != 0 && info.dli_fname != NULL) {
        path = realpath(info.dli_fname, NULL);
    }
    if (path == NULL) {
        path = realpath("/proc/self/exe", NULL);
    }
    char *end = path != NULL ? strrchr(path, '/') : NULL;
    (void)snprintf(directory, PATH_BYTES, "%.*s", end != NULL ? (int)(end - path) : 0,
                   end != NULL ? path : "");
    free(path);
}

static bool find_file(char path[PATH_BYTES])
{
    /* Beside an uninstalled program, of a library, of an installed program. */
    static const char *const places[] = {"", "starling/", STARLING_PLUGINS_FROM_PROGRAM "/"};
    const char *named = secure_getenv("STARLING_DPDK_MODULE");
    if (named != NULL && named[0] != '\0') {
        (void)snprintf(path, PATH_BYTES, "%s", named);
        return true;
    }
    char directory[PATH_BYTES];
    find_directory(directory);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const int bytes =
            snprintf(path, PATH_BYTES, "%s/%s" SL_DPDK_MODULE_FILE, directory, places[i]);
        if (bytes < PATH_BYTES && access(path, R_OK) == 0) {
            return true;
        }
    }
    (void)snprintf(missing, sizeof missing,
                   SL_DPDK_MODULE_FILE ": not found in %.900s, nor in %s from there: install "
                                       "libdpdk-dev and build Starling again, or name the file by "
                                       "STARLING_DPDK_MODULE",
                   directory, STARLING_PLUGINS_FROM_PROGRAM);
    return false;
}

static void open_module(void)
{
    char path[PATH_BYTES];
    if (!find_file(path)) {
        return;
    }
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        const char *reason = dlerror(); /* names the missing file */
        (void)snprintf(missing, sizeof missing,
                       "%s: install DPDK 22.11 (Debian: librte-eal23, librte-ethdev23, and "
                       "librte-net-... of the devices)",
                       reason != NULL ? reason : path);
        return;
    }
    const struct sl_dpdk_port_ops *(*enter)(const struct sl_dpdk_host *) = NULL;
    void *address = dlsym(handle, SL_DPDK_MODULE_ENTRY);
    memcpy(&enter, &address, sizeof enter);
    ports = enter != NULL ? enter(&host) : NULL;
    if (ports == NULL) {
        (void)snprintf(missing, sizeof missing, "%s: it is not of Starling " STARLING_VERSION,
                       path);
    }
}

const struct sl_dpdk_port_ops *sl_dpdk_module_ports(const char **why)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_module);
    if (ports == NULL) {
        *why = missing;
    }
    return ports;
}

const struct sl_transport_ops *sl_dpdk_find(const char **why)
{
    return sl_dpdk_module_ports(why) != NULL ? &sl_dpdk_ops : NULL;
}
