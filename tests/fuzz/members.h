/* Members of a coordinator for fuzz targets, who send it what the input says, and are held against
 * what it does: nobody is sent anything who has not said hello, or was closed. */
#ifndef SL_TESTS_FUZZ_MEMBERS_H
#define SL_TESTS_FUZZ_MEMBERS_H

#include "core/bytes.h"
#include "ps/coordinator/leader.h"

#define FUZZ_MEMBERS 6

struct fuzz_members {
    struct sl_coordinator *coordinator;
    struct sl_leader *leader; /* that runs the coordinator; NULL: none */
    bool here[FUZZ_MEMBERS];  /* has said hello */
    uint64_t now_ns;
};

/* The coordinator's `send` and `close`; ctx: the members. */
void fuzz_members_send(void *ctx, sl_coordinator_peer peer, const struct sl_message *message);
void fuzz_members_close(void *ctx, sl_coordinator_peer peer, const char *why);

/* One step: a message (checked before, unless `check` is NULL), a broken connection, or the passing
 * of time. */
void fuzz_members_step(struct fuzz_members *members, struct sl_bytes *input,
                       void (*check)(const struct sl_message *message));

#endif
