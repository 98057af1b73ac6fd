/* Checkpoint settings of a ps: directory, interval, and the checkpoint to restore. Set by flags of
 * starling-ps, which starling-launch passes on, or by variables. Before start. */
#ifndef SL_CONFIG_CHECKPOINT_SETTINGS_H
#define SL_CONFIG_CHECKPOINT_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/cli.h"
#include "core/err.h"

/* Values of the flags; NULL: not given. */
struct sl_checkpoint_settings_flags {
    const char *dir, *every, *incrementals_max, *keep, *compression_level, *restore;
    bool fall_back;
};

#define SL_CHECKPOINT_EVERY_DEFAULT        600
#define SL_CHECKPOINT_INCREMENTALS_DEFAULT 7
#define SL_CHECKPOINT_KEEP_DEFAULT         2
#define SL_CHECKPOINT_LEVEL_DEFAULT        1

/* Rows of a table of options (config/cli.h); `flags` is a struct sl_checkpoint_settings_flags. */
#define SL_CHECKPOINT_SETTINGS_OPTIONS(flags)                                                      \
    {.kind = SL_CLI_SECTION, .name = "Checkpoints"},                                               \
        {.kind = SL_CLI_STRING,                                                                    \
         .name = "checkpoint-dir",                                                                 \
         .target = &(flags).dir,                                                                   \
         .metavar = "DIR",                                                                         \
         .help = "Directory of the checkpoints: shared by all servers, or one for each "           \
                 "server. It is created if it is missing. Default: "                               \
                 "STARLING_CHECKPOINT_DIR; else no checkpoints."},                                 \
        {.kind = SL_CLI_STRING,                                                                    \
         .name = "checkpoint-every",                                                               \
         .target = &(flags).every,                                                                 \
         .metavar = "SECONDS",                                                                     \
         .help = "Time between checkpoints; 0: only when a client asks, and at an "                \
                 "orderly end. The coordinator's value applies. Default: "                         \
                 "STARLING_CHECKPOINT_EVERY, else 600."},                                          \
        {.kind = SL_CLI_STRING,                                                                    \
         .name = "checkpoint-adds",                                                                \
         .target = &(flags).incrementals_max,                                                      \
         .metavar = "N",                                                                           \
         .help = "Incremental checkpoints after each full one; 0: every checkpoint is "            \
                 "full. The coordinator's value applies. Default: "                                \
                 "STARLING_CHECKPOINT_ADDS, else 7."},                                             \
        {.kind = SL_CLI_STRING,                                                                    \
         .name = "checkpoint-keep",                                                                \
         .target = &(flags).keep,                                                                  \
         .metavar = "N",                                                                           \
         .help = "Complete checkpoints to keep, with those that they are based on. "               \
                 "Default: STARLING_CHECKPOINT_KEEP, else 2."},                                    \
        {.kind = SL_CLI_STRING,                                                                    \
         .name = "checkpoint-level",                                                               \
         .target = &(flags).compression_level,                                                     \
         .metavar = "N",                                                                           \
         .help = "Level of zstd compression, 1 (fast) to 19 (small); 0: not compressed. "          \
                 "Default: STARLING_CHECKPOINT_LEVEL, else 1."},                                   \
        {.kind = SL_CLI_STRING,                                                                    \
         .name = "restore",                                                                        \
         .target = &(flags).restore,                                                               \
         .metavar = "newest|N",                                                                    \
         .help = "Start from the newest complete checkpoint in the directory, or from "            \
                 "the one with this number. With newest, a directory without one starts "          \
                 "empty. Default: STARLING_RESTORE."},                                             \
    {                                                                                              \
        .kind = SL_CLI_FLAG, .name = "restore-fallback", .target = &(flags).fall_back,             \
        .help = "If the checkpoint is damaged, restore the newest older one that is "              \
                "intact. Every byte is verified before. Without this flag, damage is an "          \
                "error."                                                                           \
    }

enum sl_checkpoint_restore {
    SL_CHECKPOINT_RESTORE_NONE,
    SL_CHECKPOINT_RESTORE_NEWEST,
    SL_CHECKPOINT_RESTORE_NUMBER
};

struct sl_checkpoint_settings {
    const char *dir;            /* of the flags or the environment; NULL: no checkpoints */
    uint32_t every_s;           /* 0: only on request */
    uint32_t incrementals_max;  /* between two full ones */
    uint32_t keep;              /* at least 1 */
    uint32_t compression_level; /* of zstd; 0: not compressed */
    enum sl_checkpoint_restore restore;
    uint64_t number; /* RESTORE_NUMBER */
    bool fall_back;
};

/* Reads flags, else the environment: STARLING_CHECKPOINT_DIR, _EVERY, _ADDS, _KEEP, _LEVEL,
 * STARLING_RESTORE. An empty variable is an error; unset it instead. Without a directory every
 * other setting is an error. Exception: `every` and incrementals_max with `orders`, for a
 * scheduler, which has no directory but starts checkpoints. reason: the flag or variable and what
 * is accepted. Errors: INVALID. */
int sl_checkpoint_settings_read(const struct sl_checkpoint_settings_flags *flags, bool orders,
                                struct sl_checkpoint_settings *out, char *reason,
                                size_t reason_bytes);

/* Creates the directory if needed, and checks that files can be written there. reason: the
 * directory and the cause. Errors: INVALID. */
int sl_checkpoint_settings_check(const struct sl_checkpoint_settings *chosen, char *reason,
                                 size_t reason_bytes);

/* Locks the directory for ps task_index against other jobs, with flock on DIR/.ps-N.lock, which is
 * not removed. The lock lasts until the descriptor *lock is closed; -1: the file system has no
 * locks, or there is no directory. Before start. reason: the directory and the holder. Errors:
 * IN_USE, INVALID. */
int sl_checkpoint_settings_lock(const struct sl_checkpoint_settings *chosen, uint32_t task_index,
                                int *lock, char *reason, size_t reason_bytes);

#endif
