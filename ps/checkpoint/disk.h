/* Every file operation of checkpoints, behind a table of operations, so that tests and the
 * simulation can put a disk in the place of the real one: one that fails, that fills up, that loses
 * what was not synced.
 *
 * All functions block. They keep no state outside their arguments: any thread, a file one at a
 * time; in a ps the thread beside the reactor (an aside), never the reactor itself. Paths are
 * absolute, or relative to the working directory.
 *
 * What the callers rely on, and a disk has to keep: a file whose sync has returned 0 holds what was
 * written to it after a crash; names of a folder (of made, renamed, removed files and folders) are
 * after a crash as they were at its last sync_folder, or as they were made since, each change
 * wholly or not at all. */
#ifndef SL_PS_CHECKPOINT_DISK_H
#define SL_PS_CHECKPOINT_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

#define SL_DISK_PATH_BYTES  1024              /* of a path, with its NUL */
#define SL_DISK_NAME_BYTES  256               /* of a name in a folder, with its NUL */
#define SL_DISK_WHY_BYTES   128               /* of the reason of an operation, with its NUL */
#define SL_DISK_NAMES_MAX   (1U << 16)        /* that a folder may hold */
#define SL_DISK_WRITE_BYTES ((size_t)1 << 30) /* of one write or read */

enum sl_disk_mode {
    SL_DISK_READ,   /* a regular file that is there; no symbolic link in the path's last part */
    SL_DISK_CREATE, /* one that is not there yet, to append to */
};

struct sl_disk_name {
    char name[SL_DISK_NAME_BYTES];
    bool is_subdir; /* false: a file, a link, or anything else */
};

struct sl_disk_names {
    struct sl_disk_name *items; /* allocated: sl_disk_names_fini */
    uint32_t count, capacity;
};

/* Each returns 0 or an sl_err: NOT_FOUND, EXISTS, NO_MEMORY, TOO_LARGE (more names than the limit),
 * IO for all else; and then writes what is wrong into why[SL_DISK_WHY_BYTES], "No space left on
 * device". */
struct sl_disk_ops {
    int (*open)(void *ctx, const char *path, enum sl_disk_mode mode, void **file, char *why);
    /* Appends all or fails; after a failure the file's end is anyone's guess. */
    int (*write)(void *ctx, void *file, const void *from, size_t bytes, char *why);
    /* *got < bytes at the end of the file only. */
    int (*read)(void *ctx, void *file, uint64_t offset, void *to, size_t bytes, size_t *got,
                char *why);
    int (*size)(void *ctx, void *file, uint64_t *bytes, char *why);
    int (*sync)(void *ctx, void *file, char *why);
    /* The file is gone, also when it fails. */
    int (*close)(void *ctx, void *file, char *why);
    /* Within one folder; what was called `to` is replaced. */
    int (*rename)(void *ctx, const char *from, const char *to, char *why);
    int (*sync_subdir)(void *ctx, const char *path, char *why);
    int (*make_subdir)(void *ctx, const char *path, char *why);
    int (*remove)(void *ctx, const char *path, char *why); /* a file */
    /* EXISTS: it is not empty. */
    int (*remove_subdir)(void *ctx, const char *path, char *why);
    /* In any order; "." and ".." are not among them. */
    int (*list)(void *ctx, const char *path, struct sl_disk_names *out, char *why);
};

struct sl_disk {
    const struct sl_disk_ops *ops;
    void *ctx;
};

/* The machine's file systems. Static storage. Any thread. */
const struct sl_disk *sl_disk_system(void);

/* An open file. Nobody moves it while it is open. */
struct sl_disk_file {
    const struct sl_disk *disk; /* NULL: not open */
    void *handle;
    char path[SL_DISK_PATH_BYTES];
};

/* The operations as they are called. On an error they write into reason[reason_bytes] what could
 * not be done to which path and why: "cannot write /c/x: No space left on device". */
int sl_disk_open(const struct sl_disk *disk, const char *path, enum sl_disk_mode mode,
                 struct sl_disk_file *out, char *reason, size_t reason_bytes);
int sl_disk_write(struct sl_disk_file *file, const void *from, size_t bytes, char *reason,
                  size_t reason_bytes);
int sl_disk_read(struct sl_disk_file *file, uint64_t offset, void *to, size_t bytes, size_t *got,
                 char *reason, size_t reason_bytes);
int sl_disk_size(struct sl_disk_file *file, uint64_t *bytes, char *reason, size_t reason_bytes);
int sl_disk_sync(struct sl_disk_file *file, char *reason, size_t reason_bytes);
/* Of a file that is not open: 0. */
int sl_disk_close(struct sl_disk_file *file, char *reason, size_t reason_bytes);
int sl_disk_rename(const struct sl_disk *disk, const char *from, const char *to, char *reason,
                   size_t reason_bytes);
int sl_disk_sync_folder(const struct sl_disk *disk, const char *path, char *reason,
                        size_t reason_bytes);
int sl_disk_make_folder(const struct sl_disk *disk, const char *path, char *reason,
                        size_t reason_bytes);
int sl_disk_remove(const struct sl_disk *disk, const char *path, char *reason, size_t reason_bytes);
int sl_disk_remove_folder(const struct sl_disk *disk, const char *path, char *reason,
                          size_t reason_bytes);
/* By ascending name. *out needs sl_disk_names_fini, on success only. */
int sl_disk_list(const struct sl_disk *disk, const char *path, struct sl_disk_names *out,
                 char *reason, size_t reason_bytes);

/* For implementations of `list`. Errors: NO_MEMORY, TOO_LARGE (SL_DISK_NAMES_MAX), and IO for a
 * name of 256 bytes and more. */
int sl_disk_names_add(struct sl_disk_names *names, const char *name, bool is_subdir, char *why);
void sl_disk_names_fini(struct sl_disk_names *names);

/* folder/name into path[SL_DISK_PATH_BYTES]. Errors: TOO_LARGE, with a reason. */
int sl_disk_join(const char *subdir, const char *name, char *path, char *reason,
                 size_t reason_bytes);

/* A whole small file, written so that after a crash `name` in the folder is what it was or what it
 * is now, never a part: temporary name, sync, rename, sync of the folder. What is left of an
 * earlier attempt under the temporary name is replaced; on an error it is removed. */
int sl_disk_replace(const struct sl_disk *disk, const char *subdir, const char *name,
                    const char *temporary, const void *from, size_t bytes, char *reason,
                    size_t reason_bytes);

/* The bytes of a file of at most bytes_max, followed by a NUL, allocated. Errors: TOO_LARGE too. */
int sl_disk_load(const struct sl_disk *disk, const char *path, size_t bytes_max, char **out,
                 size_t *bytes, char *reason, size_t reason_bytes);

#endif
