/* Starts DPDK's environment (EAL), once in a process and for its lifetime. */
#include "net/dpdk/module/eal.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/thread.h"

#define ARGUMENTS_MAX  64
#define TEXT_BYTES     8192
#define PLAIN_MB_LEAST 256U

struct arguments {
    int count;
    char *values[ARGUMENTS_MAX + 1];
    size_t used;
    char text[TEXT_BYTES];
};

struct start {
    const struct sl_dpdk_options *options;
    uint64_t bytes;
    struct arguments given, all;
    bool plain; /* without huge pages */
    int err;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct start start;
static _Thread_local uint32_t joins;
static _Thread_local bool joined_here;

/* Arguments */

static bool eal_add_bytes(struct arguments *arguments, const char *text, size_t bytes)
{
    if (arguments->count == ARGUMENTS_MAX || bytes >= TEXT_BYTES - arguments->used) {
        return false;
    }
    char *at = arguments->text + arguments->used;
    memcpy(at, text, bytes);
    at[bytes] = '\0';
    arguments->used += bytes + 1;
    arguments->values[arguments->count++] = at;
    return true;
}

static bool eal_add(struct arguments *arguments, const char *text)
{
    return eal_add_bytes(arguments, text, strlen(text));
}

static bool add_words(struct arguments *arguments, const char *text)
{
    while (text != NULL && *text != '\0') {
        const size_t blanks = strspn(text, " \t\n");
        const size_t bytes = strcspn(text + blanks, " \t\n");
        if (bytes > 0 && !eal_add_bytes(arguments, text + blanks, bytes)) {
            return false;
        }
        text += blanks + bytes;
    }
    return true;
}

/* Whether an argument begins with one of the names. */
static bool has_any(const struct arguments *arguments, const char *const names[])
{
    for (int i = 0; i < arguments->count; i++) {
        for (const char *const *name = names; *name != NULL; name++) {
            if (strncmp(arguments->values[i], *name, strlen(*name)) == 0) {
                return true;
            }
        }
    }
    return false;
}

/* Memory */

static uint64_t read_free_pages(const char *size)
{
    char path[128];
    unsigned long long count = 0;
    (void)snprintf(path, sizeof path, "/sys/kernel/mm/hugepages/hugepages-%skB/free_hugepages",
                   size);
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        if (fscanf(file, "%llu", &count) != 1) {
            count = 0;
        }
        (void)fclose(file);
    }
    return count;
}

static uint64_t free_huge_bytes(void)
{
    return (read_free_pages("2048") << 21) + (read_free_pages("1048576") << 30);
}

static bool add_memory(struct start *this)
{
    static const char *const said[] = {"--no-huge",    "--in-memory",   "--huge-",
                                       "--socket-mem", "--file-prefix", "-m",
                                       "--legacy-mem", "--single-file", NULL};
    if (has_any(&this->given, said)) {
        return true;
    }
    if (free_huge_bytes() >= this->bytes) {
        return eal_add(&this->all, "--in-memory");
    }
    char mb[32];
    const uint64_t wanted_mb = (this->bytes + (1U << 20) - 1) >> 20;
    (void)snprintf(mb, sizeof mb, "%llu",
                   (unsigned long long)(wanted_mb > PLAIN_MB_LEAST ? wanted_mb : PLAIN_MB_LEAST));
    this->plain = true;
    return eal_add(&this->all, "--no-huge") && eal_add(&this->all, "--no-shconf") &&
           eal_add(&this->all, "-m") && eal_add(&this->all, mb);
}

/* Processors */

/* One main lcore with the affinity of this process: DPDK's threads stay within it, and no core is
 * reserved. */
static bool add_processors(struct start *this)
{
    static const char *const said[] = {"-l", "-c", "--lcores", "-s", "-S", NULL};
    cpu_set_t set;
    char text[TEXT_BYTES / 4];
    if (has_any(&this->given, said) || sched_getaffinity(0, sizeof set, &set) != 0) {
        return true;
    }
    size_t used = (size_t)snprintf(text, sizeof text, "--lcores=0@(");
    const char *comma = "";
    for (size_t i = 0; i < CPU_SETSIZE && used + 16 < sizeof text; i++) {
        if (CPU_ISSET(i, &set)) {
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%zu", comma, i);
            comma = ",";
        }
    }
    (void)snprintf(text + used, sizeof text - used, ")");
    return eal_add(&this->all, text);
}

/* Lets DPDK probe only the named PCI devices. */
static bool add_devices(struct start *this)
{
    static const char *const said[] = {"-a", "-b", "--allow", "--block", "--no-pci", NULL};
    bool any = false, ok = true;
    if (has_any(&this->given, said)) {
        return true;
    }
    for (uint32_t i = 0; i < this->options->device_count && ok; i++) {
        const struct sl_dpdk_device *device = &this->options->devices[i];
        if (device->name == NULL) {
            return true;
        }
        if (device->arguments == NULL && isxdigit((unsigned char)device->name[0]) &&
            strchr(device->name, ':') != NULL) {
            ok = eal_add(&this->all, "-a") && eal_add(&this->all, device->name);
            any = true;
        }
    }
    return ok && (any || eal_add(&this->all, "--no-pci"));
}

static bool add_all(struct start *this)
{
    return add_words(&this->given, this->options->eal_arguments) &&
           add_words(&this->given, getenv("STARLING_DPDK_EAL_ARGS")) &&
           eal_add(&this->all, "starling") && eal_add(&this->all, "--no-telemetry") &&
           add_processors(this) && add_memory(this) && add_devices(this) &&
           add_words(&this->all, this->options->eal_arguments) &&
           add_words(&this->all, getenv("STARLING_DPDK_EAL_ARGS"));
}

/* Log */

/* Most of DPDK's warnings concern optional features: debug level. */
static enum sl_log_level level_of(int level)
{
    return level > 0 && level <= (int)RTE_LOG_ERR ? SL_LOG_WARN : SL_LOG_DEBUG;
}

/* DPDK flushes after each message of one or more lines. */
static ssize_t write_log(void *cookie, const char *text, size_t bytes)
{
    const enum sl_log_level level = level_of(rte_log_cur_msg_loglevel());
    const char *end = text + bytes;
    while (text < end && sl_module_host->log_enabled(level)) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const char *stop = newline != NULL ? newline : end;
        if (stop > text) {
            module_log(level, "dpdk: %.*s", (int)(stop - text), text);
        }
        text = stop + 1;
    }
    return (ssize_t)bytes;
}

static void redirect_log(void)
{
    FILE *stream = fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_log});
    if (stream != NULL) {
        (void)rte_openlog_stream(stream);
    }
}

/* Start */

static int note_failure(const struct start *this)
{
    const int code = rte_errno;
    const char *hint = "the lines above say why";
    if (code == EACCES || code == EPERM) {
        hint = "run it as root, or give the user /dev/vfio and the huge pages' file system";
    } else if (code == ENOMEM) {
        hint = "reserve huge pages: /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
    } else if (code == EINVAL) {
        hint = "look at STARLING_DPDK_EAL_ARGS";
    } else if (code == EALREADY) {
        hint = "this process has started DPDK by itself: only one of both can";
    }
    module_log(SL_LOG_ERROR, "dpdk: cannot start (%s): %s%s", rte_strerror(code), hint,
               sl_module_host->log_enabled(SL_LOG_DEBUG) ? "" : "; STARLING_LOG=debug shows more");
    return code == ENOMEM ? SL_ERR_NO_MEMORY : code == EINVAL ? SL_ERR_INVALID : SL_ERR_IO;
}

/* Runs on a thread of its own, which becomes DPDK's main thread and ends. So the caller keeps its
 * affinity and name, and the threads that DPDK starts here take no signals either. */
static void *run_start(void *ctx)
{
    struct start *this = ctx;
    if (!add_all(this)) {
        module_log(SL_LOG_ERROR, "dpdk: STARLING_DPDK_EAL_ARGS is too long");
        this->err = SL_ERR_INVALID;
        return NULL;
    }
    redirect_log();
    char *values[ARGUMENTS_MAX + 1]; /* which DPDK reorders */
    memcpy(values, this->all.values, sizeof values);
    if (rte_eal_init(this->all.count, values) < 0) {
        this->err = note_failure(this);
        return NULL;
    }
    if (!sl_module_host->log_enabled(SL_LOG_DEBUG)) {
        /* A memif client logs an error for each failed attempt to connect. */
        (void)rte_log_set_level_pattern("pmd.net.memif*", RTE_LOG_CRIT);
    }
    if (this->plain) {
        module_log(SL_LOG_WARN,
                   "dpdk: no huge pages (%llu MB of them are wanted): packets lie in ordinary "
                   "ones, which costs each some address translations, and devices that need "
                   "physical addresses do not work; write a number to "
                   "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages to have them",
                   (unsigned long long)(this->bytes >> 20));
    }
    return NULL;
}

static void start_once(void)
{
    pthread_t thread;
    const int err = sl_thread_start(&thread, NULL, run_start, &start);
    if (err != 0) {
        module_log(SL_LOG_ERROR, "dpdk: no thread to start it on: %s", strerror(err));
        start.err = SL_ERR_NO_MEMORY;
        return;
    }
    (void)pthread_join(thread, NULL);
}

/* Called under the lock of device.c. The first caller's options apply. */
int sl_module_eal_start(const struct sl_dpdk_options *options, uint64_t bytes)
{
    if (start.options == NULL) {
        start.options = options;
        start.bytes = bytes;
    }
    (void)pthread_once(&once, start_once);
    return start.err;
}

int sl_module_eal_join(void)
{
    if (joins == 0 && rte_lcore_id() == LCORE_ID_ANY) {
        if (rte_thread_register() != 0) {
            module_log(SL_LOG_ERROR, "dpdk: it takes no more threads: %s; at most %u",
                       rte_strerror(rte_errno), (unsigned)RTE_MAX_LCORE);
            return SL_ERR_UNSUPPORTED;
        }
        joined_here = true;
    }
    joins++;
    return 0;
}

void sl_module_eal_leave(void)
{
    sl_assert(joins > 0);
    if (--joins == 0 && joined_here) {
        rte_thread_unregister();
        joined_here = false;
    }
}
