#include "net/dpdk/module.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "net/dpdk/dpdk.h"

#define PATH_BYTES 1024

static const struct sl_dpdk_port_ops *ports;
static char missing[PATH_BYTES + 512];

/* ---- What the plug-in is lent -----------------------------------------------------------------
 */

static void timer_arm(struct sl_reactor *reactor, struct sl_timer *timer, uint64_t after_ns)
{
    sl_timer_arm(sl_reactor_timers(reactor), timer, sl_reactor_now_ns(reactor) + after_ns);
}

static void timer_disarm(struct sl_reactor *reactor, struct sl_timer *timer)
{
    if (sl_timer_armed(timer)) {
        sl_timer_disarm(sl_reactor_timers(reactor), timer);
    }
}

static const struct sl_dpdk_host host = {
    .version = STARLING_VERSION,
    .log = sl_log_write,
    .log_enabled = sl_log_enabled,
    .reactor_index = sl_reactor_index,
    .reactor_group_count = sl_reactor_group_count,
    .timer_arm = timer_arm,
    .timer_disarm = timer_disarm,
};

/* ---- Where it is ------------------------------------------------------------------------------
 */

/* The folder of the program or library that this code is in. */
static void find_folder(char folder[PATH_BYTES])
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
    (void)snprintf(folder, PATH_BYTES, "%.*s", end != NULL ? (int)(end - path) : 0,
                   end != NULL ? path : "");
    free(path);
}

static bool find_file(char path[PATH_BYTES])
{
    /* Beside a program that was not installed, of a library, of an installed program. */
    static const char *const places[] = {"", "starling/", STARLING_PLUGINS_FROM_PROGRAM "/"};
    const char *named = secure_getenv("STARLING_DPDK_MODULE");
    if (named != NULL && named[0] != '\0') {
        (void)snprintf(path, PATH_BYTES, "%s", named);
        return true;
    }
    char folder[PATH_BYTES];
    find_folder(folder);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const int bytes =
            snprintf(path, PATH_BYTES, "%s/%s" SL_DPDK_MODULE_FILE, folder, places[i]);
        if (bytes < PATH_BYTES && access(path, R_OK) == 0) {
            return true;
        }
    }
    (void)snprintf(missing, sizeof missing,
                   SL_DPDK_MODULE_FILE ": not found in %.900s, nor in %s from there: install "
                                       "libdpdk-dev and build Starling again, or name the file by "
                                       "STARLING_DPDK_MODULE",
                   folder, STARLING_PLUGINS_FROM_PROGRAM);
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
        const char *reason = dlerror(); /* names the file that is missing */
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
