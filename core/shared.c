#include "core/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "core/assert.h"
#include "core/log.h"

#define SIZE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

/* What this process has created, the newest first. */
struct created {
    struct sl_shared shared;
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

/* A file that grows beyond the limit on files kills who made it grow; these are files too. */
static int set_size(const struct sl_shared *shared)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < shared->bytes) {
        errno = EFBIG;
        return -1;
    }
    return ftruncate(shared->fd, (off_t)shared->bytes);
}

/* Mapped first: the seal against writing spares what is mapped already, and nothing later. */
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
    struct created *created = malloc(sizeof *created);
    size_t rounded = whole_pages(bytes);
    if (created == NULL || rounded == 0 || rounded > (size_t)INT64_MAX) {
        free(created);
        return SL_ERR_NO_MEMORY;
    }
    created->shared = (struct sl_shared){.bytes = rounded, .access = access};
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

void sl_shared_destroy(struct sl_shared *shared)
{
    if (shared->base == NULL) {
        return;
    }
    struct created *created = take_created(shared->base);
    sl_assert(created != NULL);
    munmap(created->shared.base, created->shared.bytes);
    close(created->shared.fd);
    free(created);
    *shared = (struct sl_shared){.fd = -1};
}

const struct sl_shared *sl_shared_find(const void *at, size_t bytes)
{
    uintptr_t from = (uintptr_t)at;
    const struct sl_shared *found = NULL;
    pthread_mutex_lock(&created_lock);
    for (struct created *created = created_first; created != NULL && found == NULL;
         created = created->next) {
        uintptr_t base = (uintptr_t)created->shared.base;
        bool holds = from >= base && from - base <= created->shared.bytes &&
                     bytes <= created->shared.bytes - (from - base);
        found = holds ? &created->shared : NULL;
    }
    pthread_mutex_unlock(&created_lock);
    return found;
}

/* Huge pages of the administrator's run out when they are touched, which kills whoever touches. */
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

bool sl_shared_hollow(struct sl_shared *attached)
{
    return mmap(attached->base, attached->bytes, protection_of(attached->access),
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

bool sl_shared_move_into(struct sl_shared *attached, struct sl_shared *hollow)
{
    sl_assert(attached->bytes == hollow->bytes);
    sl_assert(attached->access == hollow->access);
    void *moved = mremap(attached->base, attached->bytes, attached->bytes,
                         MREMAP_MAYMOVE | MREMAP_FIXED, hollow->base);
    if (moved == MAP_FAILED) {
        return false;
    }
    attached->base = moved;
    count_out(hollow->bytes);
    *hollow = (struct sl_shared){.fd = -1};
    return true;
}
