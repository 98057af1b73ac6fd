#include "config/checkpoint_choice.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/env.h"

#define EVERY_MAX  (31 * 86400)
#define ADDS_MAX   63
#define KEEP_MAX   1000
#define LEVEL_MAX  19
#define NUMBER_MAX 999999999 /* what a manifest's folder is called has no more digits */
#define PATH_BYTES 512

static const char *value_of(const char *name)
{
    const char *value = getenv(name);
    return value == NULL || value[0] == '\0' ? NULL : value;
}

/* What is set, by a flag or else by a variable, and which of them it is. */
struct setting {
    const char *source, *value; /* value NULL: neither */
};

static struct setting setting_of(const char *flag_value, const char *flag, const char *variable)
{
    struct setting setting = {.source = flag, .value = flag_value};
    if (flag_value == NULL) {
        setting = (struct setting){.source = variable, .value = value_of(variable)};
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

static int read_restore(struct setting setting, struct sl_checkpoint_choice *out, char *reason,
                        size_t reason_bytes)
{
    uint32_t number;
    if (setting.value == NULL) {
        return 0;
    }
    if (strcmp(setting.value, "newest") == 0) {
        out->restore = SL_CHECKPOINT_RESTORE_NEWEST;
        return 0;
    }
    if (sl_env_parse_u32(setting.value, 1, NUMBER_MAX, &number)) {
        out->restore = SL_CHECKPOINT_RESTORE_NUMBER;
        out->number = number;
        return 0;
    }
    (void)snprintf(reason, reason_bytes,
                   "%s=%.80s: accepts newest, or the number of a checkpoint, from 1 to %d",
                   setting.source, setting.value, NUMBER_MAX);
    return SL_ERR_INVALID;
}

/* A flag of something that cannot be without a folder; NULL: there is none. */
static const char *lonely_flag(const struct sl_checkpoint_choice_flags *flags, bool orders)
{
    if (!orders && flags->every != NULL) {
        return "--checkpoint-every";
    }
    if (!orders && flags->adds != NULL) {
        return "--checkpoint-adds";
    }
    if (flags->keep != NULL) {
        return "--checkpoint-keep";
    }
    if (flags->level != NULL) {
        return "--checkpoint-level";
    }
    if (flags->restore != NULL) {
        return "--restore";
    }
    return flags->fall_back ? "--restore-fallback" : NULL;
}

static int read_numbers(const struct sl_checkpoint_choice_flags *flags,
                        struct sl_checkpoint_choice *out, char *reason, size_t reason_bytes)
{
    int err =
        read_number(setting_of(flags->every, "--checkpoint-every", "STARLING_CHECKPOINT_EVERY"), 0,
                    EVERY_MAX, "seconds", &out->every_s, reason, reason_bytes);
    if (err == 0) {
        err = read_number(setting_of(flags->adds, "--checkpoint-adds", "STARLING_CHECKPOINT_ADDS"),
                          0, ADDS_MAX, "a number", &out->adds, reason, reason_bytes);
    }
    if (err == 0) {
        err = read_number(setting_of(flags->keep, "--checkpoint-keep", "STARLING_CHECKPOINT_KEEP"),
                          1, KEEP_MAX, "a number", &out->keep, reason, reason_bytes);
    }
    if (err == 0) {
        err =
            read_number(setting_of(flags->level, "--checkpoint-level", "STARLING_CHECKPOINT_LEVEL"),
                        0, LEVEL_MAX, "a level", &out->level, reason, reason_bytes);
    }
    return err;
}

int sl_checkpoint_choice_read(const struct sl_checkpoint_choice_flags *flags, bool orders,
                              struct sl_checkpoint_choice *out, char *reason, size_t reason_bytes)
{
    struct sl_checkpoint_choice choice = {
        .dir = setting_of(flags->dir, "--checkpoint-dir", "STARLING_CHECKPOINT_DIR").value,
        .every_s = SL_CHECKPOINT_EVERY_DEFAULT,
        .adds = SL_CHECKPOINT_ADDS_DEFAULT,
        .keep = SL_CHECKPOINT_KEEP_DEFAULT,
        .level = SL_CHECKPOINT_LEVEL_DEFAULT,
        .fall_back = flags->fall_back,
    };
    int err = 0;
    const char *lonely = choice.dir == NULL ? lonely_flag(flags, orders) : NULL;
    if (choice.dir != NULL && (choice.dir[0] == '\0' || strlen(choice.dir) >= PATH_BYTES)) {
        (void)snprintf(reason, reason_bytes,
                       "--checkpoint-dir=%.80s: accepts the path of a folder, of 1 to %d bytes",
                       choice.dir, PATH_BYTES - 1);
        return SL_ERR_INVALID;
    }
    if (lonely != NULL) {
        (void)snprintf(reason, reason_bytes,
                       "%s says nothing without --checkpoint-dir (or STARLING_CHECKPOINT_DIR)",
                       lonely);
        return SL_ERR_INVALID;
    }
    if (choice.dir != NULL || orders) {
        err = read_numbers(flags, &choice, reason, reason_bytes);
    }
    if (err == 0 && choice.dir != NULL) {
        err = read_restore(setting_of(flags->restore, "--restore", "STARLING_RESTORE"), &choice,
                           reason, reason_bytes);
    }
    if (err == 0 && choice.fall_back && choice.restore == SL_CHECKPOINT_RESTORE_NONE) {
        (void)snprintf(reason, reason_bytes,
                       "--restore-fallback says nothing without --restore (or STARLING_RESTORE)");
        err = SL_ERR_INVALID;
    }
    if (err == 0) {
        *out = choice;
    }
    return err;
}

/* By writing: what a folder's mode says is not all. Returns 0 or errno. */
static int try_writing(const char *dir)
{
    char path[PATH_BYTES + 32];
    (void)snprintf(path, sizeof path, "%s/.starling-%ld", dir, (long)getpid());
    (void)unlink(path); /* of a process of this number, long ago */
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return errno;
    }
    int why = write(fd, "", 1) == 1 ? 0 : errno;
    (void)close(fd);
    (void)unlink(path);
    return why;
}

int sl_checkpoint_choice_check(const struct sl_checkpoint_choice *choice, char *reason,
                               size_t reason_bytes)
{
    if (choice->dir == NULL) {
        return 0;
    }
    int why = mkdir(choice->dir, 0777) == 0 || errno == EEXIST ? 0 : errno;
    if (why != 0) {
        (void)snprintf(reason, reason_bytes, "--checkpoint-dir %s: it cannot be made: %s",
                       choice->dir, strerror(why));
        return SL_ERR_INVALID;
    }
    why = try_writing(choice->dir);
    if (why != 0) {
        (void)snprintf(reason, reason_bytes,
                       "--checkpoint-dir %s: nothing can be written there: %s", choice->dir,
                       strerror(why));
        return SL_ERR_INVALID;
    }
    return 0;
}
