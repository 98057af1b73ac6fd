/* The file systems of this machine. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reactor/disk.h"

static int disk_system_fail(int system_errno, char *why)
{
    char text[SL_DISK_WHY_BYTES];
    const char *said = strerror_r(system_errno, text, sizeof text);
    (void)snprintf(why, SL_DISK_WHY_BYTES, "%s", said);
    switch (system_errno) {
    case ENOENT:
    case ENOTDIR:
        return SL_ERR_NOT_FOUND;
    case EEXIST:
    case ENOTEMPTY:
        return SL_ERR_EXISTS;
    case ENOMEM:
        return SL_ERR_NO_MEMORY;
    default:
        return SL_ERR_IO;
    }
}

/* The handle is the descriptor + 1, so that it is not NULL. */
static int descriptor(void *file)
{
    return (int)(intptr_t)file - 1;
}

static int check_regular(int fd, char *why)
{
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return disk_system_fail(errno, why);
    }
    if (!S_ISREG(info.st_mode)) {
        (void)snprintf(why, SL_DISK_WHY_BYTES, "it is not a regular file");
        return SL_ERR_IO;
    }
    return 0;
}

/* O_NONBLOCK: opening a special file, such as a pipe, must not block. */
static int disk_open(void *ctx, const char *path, enum sl_disk_mode mode, void **file, char *why)
{
    const int flags = mode == SL_DISK_READ ? O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC
                                           : O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int fd = open(path, flags, 0666);
    if (fd < 0) {
        if (errno == ELOOP) {
            (void)snprintf(why, SL_DISK_WHY_BYTES, "it is a symbolic link");
            return SL_ERR_IO;
        }
        return disk_system_fail(errno, why);
    }
    int err = check_regular(fd, why);
    if (err != 0) {
        (void)close(fd);
        return err;
    }
    *file = (void *)(intptr_t)(fd + 1);
    return 0;
}

/* Per system call: a kernel without preemption (PREEMPT_NONE) would keep a reactor off its core for
 * the whole copy. */
#define WRITE_BYTES_MAX ((size_t)64 << 10)

static int disk_write(void *ctx, void *file, const void *from, size_t bytes, char *why)
{
    const uint8_t *next = from;
    while (bytes > 0) {
        ssize_t done =
            write(descriptor(file), next, bytes < WRITE_BYTES_MAX ? bytes : WRITE_BYTES_MAX);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return disk_system_fail(done < 0 ? errno : EIO, why);
        }
        next += done;
        bytes -= (size_t)done;
    }
    return 0;
}

static int disk_read(void *ctx, void *file, uint64_t offset, void *to, size_t bytes, size_t *got,
                     char *why)
{
    size_t all = 0;
    while (all < bytes && offset + all <= INT64_MAX) {
        ssize_t done =
            pread(descriptor(file), (uint8_t *)to + all, bytes - all, (off_t)(offset + all));
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done < 0) {
            return disk_system_fail(errno, why);
        }
        if (done == 0) {
            break;
        }
        all += (size_t)done;
    }
    *got = all;
    return 0;
}

static int disk_size(void *ctx, void *file, uint64_t *bytes, char *why)
{
    struct stat info;
    if (fstat(descriptor(file), &info) != 0) {
        return disk_system_fail(errno, why);
    }
    *bytes = (uint64_t)info.st_size;
    return 0;
}

static int disk_sync(void *ctx, void *file, char *why)
{
    return fsync(descriptor(file)) == 0 ? 0 : disk_system_fail(errno, why);
}

static int disk_close(void *ctx, void *file, char *why)
{
    /* After EINTR the descriptor is closed as well. */
    return close(descriptor(file)) == 0 || errno == EINTR ? 0 : disk_system_fail(errno, why);
}

static int disk_rename(void *ctx, const char *from, const char *to, char *why)
{
    return rename(from, to) == 0 ? 0 : disk_system_fail(errno, why);
}

static int disk_sync_subdir(void *ctx, const char *path, char *why)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return disk_system_fail(errno, why);
    }
    /* EINVAL: the file system does not support this, and makes names durable in its own way. */
    int err = fsync(fd) == 0 || errno == EINVAL ? 0 : disk_system_fail(errno, why);
    (void)close(fd);
    return err;
}

static int disk_make_subdir(void *ctx, const char *path, char *why)
{
    return mkdir(path, 0777) == 0 ? 0 : disk_system_fail(errno, why);
}

static int disk_remove(void *ctx, const char *path, char *why)
{
    return unlink(path) == 0 ? 0 : disk_system_fail(errno, why);
}

static int disk_remove_subdir(void *ctx, const char *path, char *why)
{
    return rmdir(path) == 0 ? 0 : disk_system_fail(errno, why);
}

static bool is_subdir(int fd, const struct dirent *entry)
{
    struct stat info;
    if (entry->d_type != DT_UNKNOWN) {
        return entry->d_type == DT_DIR;
    }
    return fstatat(fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode);
}

static int disk_list(void *ctx, const char *path, struct sl_disk_names *out, char *why)
{
    DIR *subdir = opendir(path);
    if (subdir == NULL) {
        return disk_system_fail(errno, why);
    }
    int err = 0;
    const struct dirent *entry;
    errno = 0;
    while (err == 0 && (entry = readdir(subdir)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            err = sl_disk_names_add(out, entry->d_name, is_subdir(dirfd(subdir), entry), why);
        }
        errno = 0;
    }
    if (err == 0 && errno != 0) {
        err = disk_system_fail(errno, why);
    }
    (void)closedir(subdir);
    return err;
}

static const struct sl_disk_ops system_ops = {
    .open = disk_open,
    .write = disk_write,
    .read = disk_read,
    .size = disk_size,
    .sync = disk_sync,
    .close = disk_close,
    .rename = disk_rename,
    .sync_directory = disk_sync_subdir,
    .make_subdir = disk_make_subdir,
    .remove = disk_remove,
    .remove_subdir = disk_remove_subdir,
    .list = disk_list,
};

const struct sl_disk *sl_disk_system(void)
{
    static const struct sl_disk system = {.ops = &system_ops};
    return &system;
}
