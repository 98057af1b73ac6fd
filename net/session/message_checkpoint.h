/* The control messages of checkpoints, as part of message.h. */
#ifndef SL_NET_SESSION_MESSAGE_CHECKPOINT_H
#define SL_NET_SESSION_MESSAGE_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "net/session/message_sizes.h"

struct sl_message_checkpoint {
    uint64_t number;   /* 1 to SL_LIMIT_CHECKPOINT_NUMBER */
    uint64_t base;     /* base of this incremental, below number; 0: full checkpoint */
    uint64_t complete; /* newest one that every ps has, below number; 0: unknown */
};

/* File of one shard in the checkpoint's directory. */
struct sl_message_checkpoint_file {
    char name[SL_MESSAGE_NAME_BYTES]; /* not empty; contains no '/', does not begin with '.' */
    uint32_t shard;                   /* index in the cluster */
    uint64_t bytes, hash;             /* hash: XXH3, 64 bits, of the whole file */
    uint64_t rows;                    /* records in the file */
};

struct sl_message_checkpoint_part {
    uint64_t number;
    struct sl_message_checkpoint_file *files; /* owned by the message; by ascending shard */
    uint32_t file_count;                      /* at least 1; if err is set: 0 */
    int err;                                  /* 0, or a negative sl_err */
    char text[SL_MESSAGE_TEXT_BYTES];         /* describes err */
    bool has_worker;                          /* at least one shard had a worker at that time */
};

struct sl_message_checkpoint_publish {
    uint64_t number, base;
    struct sl_message_checkpoint_file *files; /* owned by the message; by ascending shard */
    uint32_t file_count;                      /* at least 1 */
    uint64_t time_ms;                         /* start, since 1970; 0: unknown */
    bool has_worker; /* at least one shard had a worker: the job was not over */
};

#endif
