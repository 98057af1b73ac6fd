#include "config/checkpoint_settings.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/env.h"
#include "core/limits.h"

#define EVERY_MAX  (31 * 86400)
#define ADDS_MAX   63
#define KEEP_MAX   1000
#define LEVEL_MAX  19
#define PATH_BYTES 512

/* A setting and its source, a flag or else a variable. */
struct setting {
    const char *source, *value; /* value NULL: not set */
};

static struct setting setting_of(const char *flag_value, const char *flag, const char *variable)
{
    struct setting setting = {.source = flag, .value = flag_value};
    if (flag_value == NULL) {
        setting = (struct setting){.source = variable, .value = getenv(variable)};
    }
    return setting;
}

static int read_number(struct setting setting, uint32_t least, uint32_t most, const char *what,
                       uint32_t *out, char *reason, size_t reason_bytes)
{
    if (setting.value == NULL || sl_env_parse_u32(setting.value, least, most, out)) {
        return 0;
    }
    (void)snprintf(reason, reason_bytes, "%s=%.80s: accepts %s from %u to %u", setting.source,
                   setting.value, what, least, most);
    return SL_ERR_INVALID;
}

static int read_restore(struct setting setting, struct sl_checkpoint_settings *out, char *reason,
                        size_t reason_bytes)
{
    uint64_t number;
    if (setting.value == NULL) {
        return 0;
    }
    if (strcmp(setting.value, "newest") == 0) {
        out->restore = SL_CHECKPOINT_RESTORE_NEWEST;
        return 0;
    }
    if (sl_env_parse_u64(setting.value, 1, SL_LIMIT_CHECKPOINT_NUMBER, &number)) {
        out->restore = SL_CHECKPOINT_RESTORE_NUMBER;
        out->number = number;
        return 0;
    }
    (void)snprintf(reason, reason_bytes,
                   "%s=%.80s: accepts newest, or the number of a checkpoint, from 1 to %" PRIu64,
                   setting.source, setting.value, (uint64_t)SL_LIMIT_CHECKPOINT_NUMBER);
    return SL_ERR_INVALID;
}

/* All settings except the directory. */
struct settings {
    struct setting every, incrementals_max, keep, compression_level, restore;
};

static struct settings settings_of(const struct sl_checkpoint_settings_flags *flags)
{
    return (struct settings){
        .every = setting_of(flags->every, "--checkpoint-every", "STARLING_CHECKPOINT_EVERY"),
        .incrementals_max =
            setting_of(flags->incrementals_max, "--checkpoint-adds", "STARLING_CHECKPOINT_ADDS"),
        .keep = setting_of(flags->keep, "--checkpoint-keep", "STARLING_CHECKPOINT_KEEP"),
        .compression_level =
            setting_of(flags->compression_level, "--checkpoint-level", "STARLING_CHECKPOINT_LEVEL"),
        .restore = setting_of(flags->restore, "--restore", "STARLING_RESTORE"),
    };
}

/* Finds a setting that has no effect without a directory; source NULL: none. A scheduler has no
 * directory but starts checkpoints, and shares its environment with servers that have one. */
static struct setting find_lonely(const struct settings *settings, bool fall_back, bool orders)
{
    const struct setting *const all[] = {&settings->keep, &settings->compression_level,
                                         &settings->restore, &settings->every,
                                         &settings->incrementals_max};
    const size_t count = orders ? 3 : sizeof all / sizeof all[0];
    for (size_t i = 0; i < count; i++) {
        const bool is_flag = strncmp(all[i]->source, "--", 2) == 0;
        if (all[i]->value != NULL && (is_flag || !orders)) {
            return *all[i];
        }
    }
    return (struct setting){.source = fall_back ? "--restore-fallback" : NULL, .value = "true"};
}

static int read_numbers(const struct settings *settings, struct sl_checkpoint_settings *out,
                        char *reason, size_t reason_bytes)
{
    int err =
        read_number(settings->every, 0, EVERY_MAX, "seconds", &out->every_s, reason, reason_bytes);
    if (err == 0) {
        err = read_number(settings->incrementals_max, 0, ADDS_MAX, "a number",
                          &out->incrementals_max, reason, reason_bytes);
    }
    if (err == 0) {
        err =
            read_number(settings->keep, 1, KEEP_MAX, "a number", &out->keep, reason, reason_bytes);
    }
    if (err == 0) {
        err = read_number(settings->compression_level, 0, LEVEL_MAX, "a level",
                          &out->compression_level, reason, reason_bytes);
    }
    return err;
}

int sl_checkpoint_settings_read(const struct sl_checkpoint_settings_flags *flags, bool orders,
                                struct sl_checkpoint_settings *out, char *reason,
                                size_t reason_bytes)
{
    const struct settings settings = settings_of(flags);
    const struct setting dir =
        setting_of(flags->dir, "--checkpoint-dir", "STARLING_CHECKPOINT_DIR");
    struct sl_checkpoint_settings chosen = {
        .dir = dir.value,
        .every_s = SL_CHECKPOINT_EVERY_DEFAULT,
        .incrementals_max = SL_CHECKPOINT_INCREMENTALS_DEFAULT,
        .keep = SL_CHECKPOINT_KEEP_DEFAULT,
        .compression_level = SL_CHECKPOINT_LEVEL_DEFAULT,
        .fall_back = flags->fall_back,
    };
    const struct setting lonely =
        dir.value == NULL ? find_lonely(&settings, flags->fall_back, orders) : (struct setting){0};
    if (dir.value != NULL && (dir.value[0] == '\0' || strlen(dir.value) >= PATH_BYTES)) {
        (void)snprintf(reason, reason_bytes,
                       "%s=%.80s: accepts the path of a directory, of 1 to %d bytes", dir.source,
                       dir.value, PATH_BYTES - 1);
        return SL_ERR_INVALID;
    }
    if (lonely.source != NULL) {
        (void)snprintf(reason, reason_bytes,
                       "%s=%.80s has no effect without --checkpoint-dir (or "
                       "STARLING_CHECKPOINT_DIR)",
                       lonely.source, lonely.value);
        return SL_ERR_INVALID;
    }
    int err = read_numbers(&settings, &chosen, reason, reason_bytes);
    if (err == 0) {
        err = read_restore(settings.restore, &chosen, reason, reason_bytes);
    }
    if (err == 0 && chosen.fall_back && chosen.restore == SL_CHECKPOINT_RESTORE_NONE) {
        (void)snprintf(reason, reason_bytes,
                       "--restore-fallback has no effect without --restore (or STARLING_RESTORE)");
        err = SL_ERR_INVALID;
    }
    if (err == 0) {
        *out = chosen;
    }
    return err;
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

int sl_checkpoint_settings_check(const struct sl_checkpoint_settings *chosen, char *reason,
                                 size_t reason_bytes)
{
    if (chosen->dir == NULL) {
        return 0;
    }
    int why = mkdir(chosen->dir, 0777) == 0 || errno == EEXIST ? 0 : errno;
    if (why != 0) {
        (void)snprintf(reason, reason_bytes, "--checkpoint-dir %s: it cannot be made: %s",
                       chosen->dir, strerror(why));
        return SL_ERR_INVALID;
    }
    why = try_writing(chosen->dir);
    if (why != 0) {
        (void)snprintf(reason, reason_bytes,
                       "--checkpoint-dir %s: nothing can be written there: %s", chosen->dir,
                       strerror(why));
        return SL_ERR_INVALID;
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

int sl_checkpoint_settings_lock(const struct sl_checkpoint_settings *chosen, uint32_t task_index,
                                int *lock, char *reason, size_t reason_bytes)
{
    char path[PATH_BYTES + 32], holder[192];
    if (chosen->dir == NULL) {
        *lock = -1;
        return 0;
    }
    (void)snprintf(path, sizeof path, "%s/.ps-%u.lock", chosen->dir, task_index);
    int fd = open_lock(path);
    if (fd < 0) {
        (void)snprintf(reason, reason_bytes, "--checkpoint-dir %s: cannot open %s: %s", chosen->dir,
                       path, strerror(errno));
        return SL_ERR_INVALID;
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
    (void)snprintf(
        reason, reason_bytes,
        "--checkpoint-dir %s: ps %u of another job, or of an earlier start, writes there (%s): end "
        "it, or use another directory; if its machine is gone, remove %s",
        chosen->dir, task_index, holder, path);
    return SL_ERR_IN_USE;
}
