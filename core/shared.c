#include "core/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "core/assert.h"
#include "core/log.h"

#define SIZE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

struct sl_shared_hold {
    atomic_bool is_pinned, is_revoked; /* never reset */
    bool is_private;                   /* the base no longer shares pages with peers */
    uint8_t *at_peers;                 /* the second, shared mapping once revoked */
};

/* Memory created by this process, newest first. */
struct created {
    struct sl_shared shared;
    struct sl_shared_hold hold;
    struct created *next;
};

static pthread_mutex_t created_lock = PTHREAD_MUTEX_INITIALIZER;
static struct created *created_first;

static pthread_mutex_t attached_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t attached_bytes;
static uint32_t attached_count;

static size_t whole_pages(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return bytes > SIZE_MAX - page ? 0 : (bytes + page - 1) / page * page;
}

static int system_err(const char *what)
{
    int error = errno;
    sl_log_error("shared memory: %s failed: %s", what, sl_err_name(sl_err_from_errno(error)));
    return error == ENOMEM || error == ENOSPC ? SL_ERR_NO_MEMORY : SL_ERR_IO;
}

/* Growing a file beyond RLIMIT_FSIZE kills the process by SIGXFSZ; a memfd is a file too. */
static int set_size(const struct sl_shared *shared)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < shared->bytes) {
        errno = EFBIG;
        return -1;
    }
    return ftruncate(shared->fd, (off_t)shared->bytes);
}

/* Maps before sealing: F_SEAL_FUTURE_WRITE keeps existing writable mappings, but allows no new
 * ones. */
static int make(const char *name, struct sl_shared *shared)
{
    shared->fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (shared->fd < 0) {
        return system_err("memfd_create");
    }
    int err = 0;
    int seals = SIZE_SEALS | F_SEAL_SEAL;
    if (shared->access == SL_SHARED_READ) {
        seals |= F_SEAL_FUTURE_WRITE;
    }
    if (set_size(shared) != 0) {
        err = system_err("ftruncate");
    }
    void *base = MAP_FAILED;
    if (err == 0) {
        base = mmap(NULL, shared->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shared->fd, 0);
        err = base == MAP_FAILED ? system_err("mmap") : 0;
    }
    if (err == 0 && fcntl(shared->fd, F_ADD_SEALS, seals) != 0) {
        err = system_err("sealing");
        munmap(base, shared->bytes);
    }
    if (err != 0) {
        close(shared->fd);
        return err;
    }
    shared->base = base;
    return 0;
}

int sl_shared_create(const char *name, size_t bytes, enum sl_shared_access access,
                     struct sl_shared *out)
{
    sl_assert(bytes > 0);
    struct created *created = calloc(1, sizeof *created);
    size_t rounded = whole_pages(bytes);
    if (created == NULL || rounded == 0 || rounded > (size_t)INT64_MAX) {
        free(created);
        return SL_ERR_NO_MEMORY;
    }
    created->shared =
        (struct sl_shared){.bytes = rounded, .access = access, .hold = &created->hold};
    int err = make(name, &created->shared);
    if (err != 0) {
        free(created);
        return err;
    }
    *out = created->shared;
    pthread_mutex_lock(&created_lock);
    created->next = created_first;
    created_first = created;
    pthread_mutex_unlock(&created_lock);
    return 0;
}

static struct created *take_created(const uint8_t *base)
{
    pthread_mutex_lock(&created_lock);
    struct created **at = &created_first;
    while (*at != NULL && (*at)->shared.base != base) {
        at = &(*at)->next;
    }
    struct created *created = *at;
    if (created != NULL) {
        *at = created->next;
    }
    pthread_mutex_unlock(&created_lock);
    return created;
}

void sl_shared_keep(struct sl_shared *shared)
{
    struct created *created = take_created(shared->base);
    sl_assert(created != NULL);
    if (created->hold.at_peers != NULL) {
        munmap(created->hold.at_peers, created->shared.bytes);
    }
    close(created->shared.fd);
    free(created);
    *shared = (struct sl_shared){.fd = -1};
}

void sl_shared_destroy(struct sl_shared *shared)
{
    const struct sl_shared gone = *shared;
    if (gone.base != NULL) {
        sl_shared_keep(shared);
        munmap(gone.base, gone.bytes);
    }
}

static bool shared_holds(const struct sl_shared *shared, const void *at, size_t bytes)
{
    uintptr_t from = (uintptr_t)at;
    uintptr_t base = (uintptr_t)shared->base;
    return from >= base && from - base <= shared->bytes && bytes <= shared->bytes - (from - base);
}

/* With the lock held. */
static struct created *shared_find(const void *at, size_t bytes)
{
    struct created *created = created_first;
    while (created != NULL && !shared_holds(&created->shared, at, bytes)) {
        created = created->next;
    }
    return created;
}

const struct sl_shared *sl_shared_find(const void *at, size_t bytes)
{
    pthread_mutex_lock(&created_lock);
    const struct created *created = shared_find(at, bytes);
    const bool is_found = created != NULL && !atomic_load(&created->hold.is_revoked);
    pthread_mutex_unlock(&created_lock);
    return is_found ? &created->shared : NULL;
}

/* Revoking */

void sl_shared_pin(const void *at, size_t bytes)
{
    pthread_mutex_lock(&created_lock);
    struct created *created = shared_find(at, bytes);
    if (created != NULL) {
        atomic_store(&created->hold.is_pinned, true);
    }
    pthread_mutex_unlock(&created_lock);
}

bool sl_shared_is_revoked(const struct sl_shared *shared)
{
    return shared->hold != NULL &&
           atomic_load_explicit(&shared->hold->is_revoked, memory_order_acquire);
}

bool sl_shared_may_land(const struct sl_shared *shared)
{
    return shared->access == SL_SHARED_WRITE && shared->hold != NULL &&
           !atomic_load_explicit(&shared->hold->is_pinned, memory_order_relaxed) &&
           !sl_shared_is_revoked(shared);
}

uint8_t *sl_shared_at_peers(const struct sl_shared *shared)
{
    return sl_shared_is_revoked(shared) ? shared->hold->at_peers : shared->base;
}

/* Sets the flag first: peers' data must not be read from the base once the base may lack it. Then
 * one atomic mremap replaces the shared mapping by a private one. A private page is that of the
 * file until it is written. */
static int make_private(struct sl_shared_hold *hold, const struct sl_shared *shared)
{
    void *at_peers = mmap(NULL, shared->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shared->fd, 0);
    void *private = mmap(NULL, shared->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE,
                         shared->fd, 0);
    if (at_peers == MAP_FAILED || private == MAP_FAILED) {
        (void)(at_peers != MAP_FAILED && munmap(at_peers, shared->bytes));
        (void)(private != MAP_FAILED && munmap(private, shared->bytes));
        return SL_ERR_NO_MEMORY;
    }
    hold->at_peers = at_peers;
    atomic_store(&hold->is_revoked, true);
    if (mremap(private, shared->bytes, shared->bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
               shared->base) == MAP_FAILED) {
        munmap(private, shared->bytes);
        return SL_ERR_NO_MEMORY; /* the base is still shared */
    }
    hold->is_private = true;
    return 0;
}

/* Rewrites one byte per page atomically with its own value: the system copies the page, and no
 * write of another thread is lost. */
static void copy_pages(uint8_t *at, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const uintptr_t end = (uintptr_t)at + bytes;
    uint8_t *next = at - (uintptr_t)at % page;
    for (; (uintptr_t)next < end; next += page) {
        uint8_t seen = __atomic_load_n(next, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n(next, &seen, seen, true, __ATOMIC_RELAXED,
                                            __ATOMIC_RELAXED)) {
        }
    }
}

int sl_shared_revoke(const struct sl_shared *shared, const void *at, size_t bytes)
{
    struct sl_shared_hold *hold = shared->hold;
    sl_assert(hold != NULL);
    sl_assert(shared->access == SL_SHARED_WRITE);
    sl_assert(shared_holds(shared, at, bytes));
    pthread_mutex_lock(&created_lock);
    int err = hold->is_private                 ? 0
              : atomic_load(&hold->is_pinned)  ? SL_ERR_UNSUPPORTED
              : atomic_load(&hold->is_revoked) ? SL_ERR_NO_MEMORY
                                               : make_private(hold, shared);
    if (err == 0) {
        copy_pages(shared->base + ((const uint8_t *)at - shared->base), bytes);
    }
    pthread_mutex_unlock(&created_lock);
    return err;
}

/* Rejects hugetlbfs: its pages may run out at first touch, which kills the process. */
static bool is_safe(int fd, size_t bytes)
{
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat status;
    struct statfs system;
    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(fd, &status) == 0 &&
           status.st_size >= 0 && (size_t)status.st_size == bytes && fstatfs(fd, &system) == 0 &&
           system.f_type == TMPFS_MAGIC;
}

static bool count_in(uint64_t bytes)
{
    pthread_mutex_lock(&attached_lock);
    bool fits = attached_count < SL_SHARED_ATTACHED_MAX &&
                bytes <= SL_SHARED_ATTACHED_BYTES_MAX - attached_bytes;
    attached_count += fits;
    attached_bytes += fits ? bytes : 0;
    pthread_mutex_unlock(&attached_lock);
    return fits;
}

static void count_out(uint64_t bytes)
{
    pthread_mutex_lock(&attached_lock);
    attached_count--;
    attached_bytes -= bytes;
    pthread_mutex_unlock(&attached_lock);
}

static int protection_of(enum sl_shared_access access)
{
    return access == SL_SHARED_WRITE ? PROT_READ | PROT_WRITE : PROT_READ;
}

int sl_shared_attach(int fd, size_t bytes, size_t bytes_max, enum sl_shared_access access,
                     struct sl_shared *out)
{
    if (bytes > bytes_max) {
        return SL_ERR_TOO_LARGE;
    }
    if (bytes == 0 || whole_pages(bytes) != bytes || !is_safe(fd, bytes)) {
        return SL_ERR_INVALID;
    }
    if (!count_in(bytes)) {
        return SL_ERR_NO_MEMORY;
    }
    void *base = mmap(NULL, bytes, protection_of(access), MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        int error = errno;
        count_out(bytes);
        return error == ENOMEM ? SL_ERR_NO_MEMORY : SL_ERR_INVALID;
    }
    close(fd);
    *out = (struct sl_shared){.base = base, .bytes = bytes, .fd = -1, .access = access};
    return 0;
}

void sl_shared_detach(struct sl_shared *shared)
{
    if (shared->base != NULL) {
        munmap(shared->base, shared->bytes);
        count_out(shared->bytes);
        *shared = (struct sl_shared){.fd = -1};
    }
}

bool sl_shared_unmap_in_place(struct sl_shared *attached)
{
    return mmap(attached->base, attached->bytes, protection_of(attached->access),
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

bool sl_shared_move_into(struct sl_shared *attached, struct sl_shared *placeholder)
{
    sl_assert(attached->bytes == placeholder->bytes);
    sl_assert(attached->access == placeholder->access);
    void *moved = mremap(attached->base, attached->bytes, attached->bytes,
                         MREMAP_MAYMOVE | MREMAP_FIXED, placeholder->base);
    if (moved == MAP_FAILED) {
        return false;
    }
    attached->base = moved;
    count_out(placeholder->bytes);
    *placeholder = (struct sl_shared){.fd = -1};
    return true;
}

bool sl_shared_split(struct sl_shared *placeholder, size_t bytes, struct sl_shared *rest)
{
    sl_assert(bytes < placeholder->bytes);
    sl_assert(bytes == whole_pages(bytes));
    if (!count_in(0)) {
        return false;
    }
    *rest = (struct sl_shared){.base = placeholder->base + bytes,
                               .bytes = placeholder->bytes - bytes,
                               .fd = -1,
                               .access = placeholder->access};
    placeholder->bytes = bytes;
    return true;
}

bool sl_shared_join(struct sl_shared *first, struct sl_shared *second)
{
    if (second->base == NULL || first->base + first->bytes != second->base ||
        first->access != second->access) {
        return false;
    }
    first->bytes += second->bytes;
    count_out(0);
    *second = (struct sl_shared){.fd = -1};
    return true;
}
