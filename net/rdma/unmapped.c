#include "net/rdma/unmapped.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/assert.h"
#include "core/log.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1 /* kernel 5.11; older headers */
#endif

#define FEATURES                                                                                   \
    (UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_REMAP |             \
     UFFD_FEATURE_PAGEFAULT_FLAG_WP)
#define MESSAGES_A_READ 16

struct sl_rdma_unmapped {
    struct sl_rdma_unmapped *prev, *next;
    uintptr_t base, end; /* whole pages */
    atomic_bool seen;
};

/* A process has one: memory can be watched by one descriptor only. */
static struct {
    pthread_mutex_t lock; /* users, watches. Nobody allocates or frees with it */
    uint32_t users;
    int fd, stop_fd;
    pthread_t thread;
    struct sl_rdma_unmapped *watches;
    /* Odd while events are read and not all marked yet: who unmapped may be gone on already. */
    atomic_uint reading;
    atomic_uint count;
} watcher = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1, .stop_fd = -1};

static uintptr_t page_bytes(void)
{
    return (uintptr_t)sysconf(_SC_PAGESIZE);
}

/* ---- The thread -------------------------------------------------------------------------------
 */

static void mark(uintptr_t base, uintptr_t end)
{
    pthread_mutex_lock(&watcher.lock);
    for (struct sl_rdma_unmapped *watch = watcher.watches; watch != NULL; watch = watch->next) {
        if (watch->base < end && base < watch->end && !atomic_load(&watch->seen)) {
            atomic_store(&watch->seen, true);
            atomic_fetch_add(&watcher.count, 1);
        }
    }
    pthread_mutex_unlock(&watcher.lock);
}

static void handle(const struct uffd_msg *message)
{
    switch (message->event) {
    case UFFD_EVENT_UNMAP:
    case UFFD_EVENT_REMOVE:
        mark(message->arg.remove.start, message->arg.remove.end);
        break;
    case UFFD_EVENT_REMAP:
        mark(message->arg.remap.from, message->arg.remap.from + message->arg.remap.len);
        break;
    default:
        break;
    }
}

/* Who unmaps goes on when his event was read, so that from before the read until it is marked
 * everyone else waits (sl_rdma_unmapped_seen). */
static void read_events(void)
{
    struct uffd_msg messages[MESSAGES_A_READ];
    ssize_t bytes;
    do {
        atomic_fetch_add(&watcher.reading, 1);
        bytes = read(watcher.fd, messages, sizeof messages);
        for (ssize_t i = 0; i < bytes / (ssize_t)sizeof messages[0]; i++) {
            handle(&messages[i]);
        }
        atomic_fetch_add(&watcher.reading, 1);
    } while (bytes > 0);
}

static void *run(void *arg)
{
    (void)arg;
    struct pollfd fds[] = {{.fd = watcher.fd, .events = POLLIN},
                           {.fd = watcher.stop_fd, .events = POLLIN}};
    while (poll(fds, 2, -1) < 0 || fds[1].revents == 0) {
        read_events();
    }
    return NULL;
}

/* ---- Open and close ---------------------------------------------------------------------------
 */

static bool start_thread(void)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int err = pthread_create(&watcher.thread, NULL, run, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err == 0) {
        pthread_setname_np(watcher.thread, "rdma-unmapped");
    }
    return err == 0;
}

static void close_descriptors(void)
{
    if (watcher.fd >= 0) {
        close(watcher.fd);
    }
    if (watcher.stop_fd >= 0) {
        close(watcher.stop_fd);
    }
    watcher.fd = watcher.stop_fd = -1;
}

static bool start(void)
{
    struct uffdio_api api = {.api = UFFD_API, .features = FEATURES};
    watcher.fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
    watcher.stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (watcher.fd < 0 || watcher.stop_fd < 0 || ioctl(watcher.fd, UFFDIO_API, &api) != 0 ||
        !start_thread()) {
        close_descriptors();
        return false;
    }
    return true;
}

/* Of open and close alone: both take memory, or give it back. */
static pthread_mutex_t phase = PTHREAD_MUTEX_INITIALIZER;

bool sl_rdma_unmapped_open(void)
{
    pthread_mutex_lock(&phase);
    bool works = watcher.users > 0 || start();
    watcher.users += works;
    pthread_mutex_unlock(&phase);
    return works;
}

void sl_rdma_unmapped_close(void)
{
    pthread_mutex_lock(&phase);
    sl_assert(watcher.users > 0);
    if (--watcher.users == 0) {
        sl_assert(watcher.watches == NULL);
        eventfd_write(watcher.stop_fd, 1);
        pthread_join(watcher.thread, NULL);
        close_descriptors();
    }
    pthread_mutex_unlock(&phase);
}

/* ---- Watches ----------------------------------------------------------------------------------
 */

/* Write-protect mode is the one in which nothing happens as long as no page is write-protected. */
static bool watch_pages(uintptr_t base, uintptr_t end)
{
    struct uffdio_register request = {.range = {.start = base, .len = end - base},
                                      .mode = UFFDIO_REGISTER_MODE_WP};
    return ioctl(watcher.fd, UFFDIO_REGISTER, &request) == 0;
}

struct sl_rdma_unmapped *sl_rdma_unmapped_watch(const void *base, size_t bytes)
{
    uintptr_t page = page_bytes();
    struct sl_rdma_unmapped *watch = calloc(1, sizeof *watch);
    if (watch == NULL) {
        return NULL;
    }
    watch->base = (uintptr_t)base & ~(page - 1);
    watch->end = ((uintptr_t)base + bytes + page - 1) & ~(page - 1);
    pthread_mutex_lock(&watcher.lock);
    watch->next = watcher.watches;
    if (watch->next != NULL) {
        watch->next->prev = watch;
    }
    watcher.watches = watch;
    bool watched = watch_pages(watch->base, watch->end);
    pthread_mutex_unlock(&watcher.lock);
    if (!watched) {
        sl_rdma_unmapped_forget(&watch);
    }
    return watch;
}

/* Of [base, end), the pages that nobody watches. */
static void leave_pages(uintptr_t base, uintptr_t end)
{
    while (base < end) {
        uintptr_t covered = base; /* up to here from base on */
        uintptr_t next = end;     /* where the first watch behind base begins */
        for (struct sl_rdma_unmapped *watch = watcher.watches; watch != NULL; watch = watch->next) {
            if (watch->base <= base && watch->end > covered) {
                covered = watch->end;
            } else if (watch->base > base && watch->base < next) {
                next = watch->base;
            }
        }
        if (covered == base) {
            struct uffdio_range range = {.start = base, .len = next - base};
            (void)ioctl(watcher.fd, UFFDIO_UNREGISTER, &range);
            covered = next;
        }
        base = covered;
    }
}

/* Where something was unmapped another's memory may be by now, which is not ours to leave. */
void sl_rdma_unmapped_forget(struct sl_rdma_unmapped **watch)
{
    struct sl_rdma_unmapped *gone = *watch;
    pthread_mutex_lock(&watcher.lock);
    if (gone->prev != NULL) {
        gone->prev->next = gone->next;
    } else {
        watcher.watches = gone->next;
    }
    if (gone->next != NULL) {
        gone->next->prev = gone->prev;
    }
    if (!atomic_load(&gone->seen)) {
        leave_pages(gone->base, gone->end);
    }
    pthread_mutex_unlock(&watcher.lock);
    free(gone);
    *watch = NULL;
}

static void wait_for_marks(void)
{
    unsigned reading = atomic_load(&watcher.reading);
    while ((reading & 1) != 0 && atomic_load(&watcher.reading) == reading) {
        sched_yield();
    }
}

bool sl_rdma_unmapped_seen(const struct sl_rdma_unmapped *watch)
{
    wait_for_marks();
    return atomic_load(&watch->seen);
}

uint32_t sl_rdma_unmapped_count(void)
{
    wait_for_marks();
    return atomic_load(&watcher.count);
}

/* ---- What the pages are -----------------------------------------------------------------------
 */

#define PAGEMAP_PRESENT (1ULL << 63)
#define PAGEMAP_FILE    (1ULL << 61) /* or shared */
#define PAGES_A_READ    512

bool sl_rdma_unmapped_is_private(const void *base, size_t bytes)
{
    uintptr_t page = page_bytes();
    uintptr_t first = (uintptr_t)base / page;
    uintptr_t end = ((uintptr_t)base + bytes + page - 1) / page;
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    bool is_private = fd >= 0;
    while (is_private && first < end) {
        uint64_t entries[PAGES_A_READ];
        size_t count = end - first < PAGES_A_READ ? end - first : PAGES_A_READ;
        ssize_t wanted = (ssize_t)(count * sizeof entries[0]);
        is_private =
            pread(fd, entries, (size_t)wanted, (off_t)(first * sizeof entries[0])) == wanted;
        for (size_t i = 0; is_private && i < count; i++) {
            is_private = (entries[i] & PAGEMAP_PRESENT) != 0 && (entries[i] & PAGEMAP_FILE) == 0;
        }
        first += count;
    }
    if (fd >= 0) {
        close(fd);
    }
    return is_private;
}
