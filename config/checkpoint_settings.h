/* Checkpoint settings of a server: directory, interval, and the checkpoint to restore. Before
 * start. */
#ifndef SL_CONFIG_CHECKPOINT_SETTINGS_H
#define SL_CONFIG_CHECKPOINT_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/reason.h"

#define SL_CHECKPOINT_SETTINGS_PATH_BYTES 512

enum sl_checkpoint_restore {
    SL_CHECKPOINT_RESTORE_NONE,
    SL_CHECKPOINT_RESTORE_NEWEST,
    SL_CHECKPOINT_RESTORE_NUMBER
};

/* If a client opens a restored table with another policy. */
enum sl_checkpoint_policy {
    SL_CHECKPOINT_POLICY_REFUSE,
    SL_CHECKPOINT_POLICY_KEEP, /* the checkpoint's stays */
    SL_CHECKPOINT_POLICY_NEW   /* the first client's replaces it */
};

struct sl_checkpoint_settings {
    const char *dir;            /* of the flags or the environment; NULL: no checkpoints */
    uint64_t every_ns;          /* 0: only on request */
    uint32_t incrementals_max;  /* between two full ones */
    uint32_t keep;              /* at least 1 */
    uint32_t compression_level; /* of zstd; 0: not compressed */
    enum sl_checkpoint_restore restore;
    uint64_t number; /* RESTORE_NUMBER */
    bool fallback;
    enum sl_checkpoint_policy policy;
    bool fresh; /* starts empty beside checkpoints of an earlier job */
};

/* Parses newest, or a number, into *settings; for the table of options: config/cli.h. */
#define SL_CHECKPOINT_SETTINGS_RESTORE_ACCEPTS                                                     \
    "newest, or the number of a checkpoint, from 1 to 999999999999"
bool sl_checkpoint_settings_parse_restore(const char *text, void *settings);

/* Parses keep or new into *policy, an enum sl_checkpoint_policy; for the table of options, too. */
bool sl_checkpoint_settings_parse_policy(const char *text, void *policy);

/* Creates the directory if needed, and checks that files can be written there. reason: the
 * directory and the cause. Errors: INVALID. */
int sl_checkpoint_settings_prepare_dir(const struct sl_checkpoint_settings *chosen,
                                       struct sl_reason *reason);

/* Locks the directory for ps task_index against other jobs, with flock on DIR/.ps-N.lock, which is
 * not removed. The lock lasts until the descriptor *lock is closed; -1: the file system has no
 * locks, or there is no directory. Before start. reason: the directory and the holder. Errors:
 * IN_USE, INVALID. */
int sl_checkpoint_settings_lock_dir(const struct sl_checkpoint_settings *chosen,
                                    uint32_t task_index, int *lock, struct sl_reason *reason);

#endif
