/* Disk performs the file operations of checkpoints and stored objects through a table of
 * operations. Tests and the simulation replace the real disk by one that fails, fills up, or loses
 * unsynced data.
 *
 * All functions block and keep no state outside their arguments: any thread, one at a time per
 * file; in a server an offload thread, never the reactor. Paths are absolute or relative to the
 * working directory.
 *
 * Guarantees that callers rely on and every disk must keep:
 * - After sync returned 0, a file keeps its content through a crash.
 * - After a crash, the names in a directory are as at its last sync_directory, plus any later
 * changes, each applied completely or not at all. */
#ifndef SL_REACTOR_DISK_H
#define SL_REACTOR_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/reason.h"

#define SL_DISK_PATH_BYTES  1024              /* with NUL */
#define SL_DISK_NAME_BYTES  256               /* of a name in a directory, with NUL */
#define SL_DISK_WHY_BYTES   128               /* of an error text, with NUL */
#define SL_DISK_NAMES_MAX   (1U << 16)        /* in one directory */
#define SL_DISK_WRITE_BYTES ((size_t)1 << 30) /* of one write or read */

enum sl_disk_mode {
    SL_DISK_READ,   /* an existing regular file, not a symbolic link */
    SL_DISK_CREATE, /* a new file, for appending */
};

struct sl_disk_name {
    char name[SL_DISK_NAME_BYTES];
    bool is_subdir; /* false: a file, a link, or anything else */
};

struct sl_disk_names {
    struct sl_disk_name *items; /* allocated; free with sl_disk_names_fini */
    uint32_t count, capacity;
};

/* Each returns 0 or an sl_err: NOT_FOUND, EXISTS, NO_MEMORY, TOO_LARGE (too many names), IO for all
 * else. On an error why[SL_DISK_WHY_BYTES] has the cause, e.g. "No space left on device". */
struct sl_disk_ops {
    int (*open)(void *ctx, const char *path, enum sl_disk_mode mode, void **file, char *why);
    /* Appends all bytes or fails. After a failure the file's length is undefined. */
    int (*write)(void *ctx, void *file, const void *from, size_t bytes, char *why);
    /* *got < bytes only at the end of the file. */
    int (*read)(void *ctx, void *file, uint64_t offset, void *to, size_t bytes, size_t *got,
                char *why);
    int (*size)(void *ctx, void *file, uint64_t *bytes, char *why);
    int (*sync)(void *ctx, void *file, char *why);
    /* The handle is invalid afterwards, also on an error. */
    int (*close)(void *ctx, void *file, char *why);
    /* Within one directory; replaces `to`. */
    int (*rename)(void *ctx, const char *from, const char *to, char *why);
    int (*sync_directory)(void *ctx, const char *path, char *why);
    int (*make_subdir)(void *ctx, const char *path, char *why);
    int (*remove)(void *ctx, const char *path, char *why); /* a file */
    /* EXISTS: the directory is not empty. */
    int (*remove_subdir)(void *ctx, const char *path, char *why);
    /* Unordered, without "." and "..". */
    int (*list)(void *ctx, const char *path, struct sl_disk_names *out, char *why);
};

struct sl_disk {
    const struct sl_disk_ops *ops;
    void *ctx;
};

/* The file systems of this machine. Static storage. Any thread. */
const struct sl_disk *sl_disk_system(void);

/* An open file. Its struct must not move while it is open. */
struct sl_disk_file {
    const struct sl_disk *disk; /* NULL: not open */
    void *handle;
    char path[SL_DISK_PATH_BYTES];
};

/* Wrappers of the operations. On an error reason names the operation, the path and
 * the cause: "cannot write /c/x: No space left on device". */
int sl_disk_open(const struct sl_disk *disk, const char *path, enum sl_disk_mode mode,
                 struct sl_disk_file *out, struct sl_reason *reason);
int sl_disk_write(struct sl_disk_file *file, const void *from, size_t bytes,
                  struct sl_reason *reason);
int sl_disk_read(struct sl_disk_file *file, uint64_t offset, void *to, size_t bytes, size_t *got,
                 struct sl_reason *reason);
int sl_disk_size(struct sl_disk_file *file, uint64_t *bytes, struct sl_reason *reason);
int sl_disk_sync(struct sl_disk_file *file, struct sl_reason *reason);
/* Returns 0 if the file is not open. */
int sl_disk_close(struct sl_disk_file *file, struct sl_reason *reason);
int sl_disk_rename(const struct sl_disk *disk, const char *from, const char *to,
                   struct sl_reason *reason);
int sl_disk_sync_directory(const struct sl_disk *disk, const char *path, struct sl_reason *reason);
int sl_disk_make_subdir(const struct sl_disk *disk, const char *path, struct sl_reason *reason);
int sl_disk_remove(const struct sl_disk *disk, const char *path, struct sl_reason *reason);
int sl_disk_remove_subdir(const struct sl_disk *disk, const char *path, struct sl_reason *reason);
/* Sorted by name. On success *out needs sl_disk_names_fini. */
int sl_disk_list(const struct sl_disk *disk, const char *path, struct sl_disk_names *out,
                 struct sl_reason *reason);

/* For implementations of `list`. Errors: NO_MEMORY, TOO_LARGE (SL_DISK_NAMES_MAX), IO (a name of
 * 256 bytes or more). */
int sl_disk_names_add(struct sl_disk_names *names, const char *name, bool is_subdir, char *why);
void sl_disk_names_fini(struct sl_disk_names *names);

/* Writes subdir/name into path[SL_DISK_PATH_BYTES]. Errors: TOO_LARGE, with a reason. */
int sl_disk_join(const char *subdir, const char *name, char *path, struct sl_reason *reason);

/* Makes a directory and syncs the one above it, so that a crash leaves it there. One that exists is
 * fine. */
int sl_disk_make_directory(const struct sl_disk *disk, const char *path, struct sl_reason *reason);

/* Replaces a small file atomically: writes a temporary file, syncs it, renames it, syncs the
 * directory. After a crash `name` has its old or its new content, never a part. A temporary file
 * left by an earlier attempt is replaced; on an error it is removed. */
int sl_disk_replace(const struct sl_disk *disk, const char *subdir, const char *name,
                    const char *temporary, const void *from, size_t bytes,
                    struct sl_reason *reason);

/* Reads a file of at most bytes_max into *out, allocated, followed by a NUL. Errors also:
 * TOO_LARGE. */
int sl_disk_load(const struct sl_disk *disk, const char *path, size_t bytes_max, char **out,
                 size_t *bytes, struct sl_reason *reason);

#endif
