#include "config/checkpoint_settings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/number.h"
#include "core/limits.h"

#define PATH_BYTES SL_CHECKPOINT_SETTINGS_PATH_BYTES

_Static_assert(SL_LIMIT_CHECKPOINT_NUMBER == 999999999999,
               "SL_CHECKPOINT_SETTINGS_RESTORE_ACCEPTS");

bool sl_checkpoint_settings_parse_restore(const char *text, void *target)
{
    struct sl_checkpoint_settings *settings = target;
    if (strcmp(text, "newest") == 0) {
        settings->restore = SL_CHECKPOINT_RESTORE_NEWEST;
        return true;
    }
    settings->restore = SL_CHECKPOINT_RESTORE_NUMBER;
    return sl_number_parse_u64(text, 1, SL_LIMIT_CHECKPOINT_NUMBER, &settings->number);
}

bool sl_checkpoint_settings_parse_policy(const char *text, void *target)
{
    enum sl_checkpoint_policy *policy = target;
    *policy = strcmp(text, "keep") == 0 ? SL_CHECKPOINT_POLICY_KEEP : SL_CHECKPOINT_POLICY_NEW;
    return *policy == SL_CHECKPOINT_POLICY_KEEP || strcmp(text, "new") == 0;
}

/* Checks by writing a file: the directory's mode alone does not tell. Returns 0 or errno. */
static int try_writing(const char *dir)
{
    char path[PATH_BYTES + 32];
    (void)snprintf(path, sizeof path, "%s/.starling-%ld", dir, (long)getpid());
    (void)unlink(path); /* left by an earlier process with this id */
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return errno;
    }
    int why = write(fd, "", 1) == 1 ? 0 : errno;
    (void)close(fd);
    (void)unlink(path);
    return why;
}

int sl_checkpoint_settings_prepare_dir(const struct sl_checkpoint_settings *chosen,
                                       struct sl_reason *reason)
{
    if (chosen->dir == NULL) {
        return 0;
    }
    int why = mkdir(chosen->dir, 0777) == 0 || errno == EEXIST ? 0 : errno;
    if (why != 0) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "--checkpoint-dir %s: cannot create it: %s",
                              chosen->dir, strerror(why));
    }
    why = try_writing(chosen->dir);
    if (why != 0) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "--checkpoint-dir %s: cannot write there: %s",
                              chosen->dir, strerror(why));
    }
    return 0;
}

/* Reads the holder's text, "host, process 123", or "another process". */
static void read_holder(int fd, char *text, size_t text_bytes)
{
    const ssize_t got = pread(fd, text, text_bytes - 1, 0);
    text[got > 0 ? got : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (text[0] == '\0') {
        (void)snprintf(text, text_bytes, "another process");
    }
}

static void write_holder(int fd)
{
    char host[128] = "", text[192];
    (void)gethostname(host, sizeof host - 1);
    const int bytes = snprintf(text, sizeof text, "%s, process %ld\n", host, (long)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)bytes, 0) != bytes) {
        return; /* the text is only informative; the lock counts */
    }
}

/* A lock file of another user may be read-only; it can still be locked. */
static int open_lock(const char *path)
{
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    return fd < 0 && errno == EACCES ? open(path, O_RDONLY | O_CLOEXEC) : fd;
}

int sl_checkpoint_settings_lock_dir(const struct sl_checkpoint_settings *chosen,
                                    uint32_t task_index, int *lock, struct sl_reason *reason)
{
    char path[PATH_BYTES + 32], holder[192];
    if (chosen->dir == NULL) {
        *lock = -1;
        return 0;
    }
    (void)snprintf(path, sizeof path, "%s/.ps-%u.lock", chosen->dir, task_index);
    int fd = open_lock(path);
    if (fd < 0) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "--checkpoint-dir %s: cannot open %s: %s",
                              chosen->dir, path, strerror(errno));
    }
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        write_holder(fd);
        *lock = fd;
        return 0;
    }
    const int why = errno;
    read_holder(fd, holder, sizeof holder);
    (void)close(fd);
    if (why != EWOULDBLOCK) {
        *lock = -1; /* a file system without locks */
        return 0;
    }
    return sl_reason_fail(
        reason, SL_ERR_IN_USE,
        "--checkpoint-dir %s: ps/%u of another job, or of an earlier start, writes there (%s): end "
        "it, or use another directory; if its machine is gone, remove %s",
        chosen->dir, task_index, holder, path);
}
