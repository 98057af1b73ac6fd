/* Batches small pulls. A small pull spends most of its time on cache misses: a line of the table's
 * index, then a row. So the pulls of a turn are collected and their keys looked up together.
 * Meanwhile nothing else happens on their channels and no clock moves, so each reply is the same
 * as an immediate one. Owner reactor. */
#ifndef SL_PS_SERVER_PULL_BATCH_H
#define SL_PS_SERVER_PULL_BATCH_H

#include <assert.h>

#include "net/outbox.h"
#include "net/transport.h"
#include "ps/shard/pull.h"

struct sl_server;
struct sl_server_channel;

struct sl_server_pull {
    struct sl_server_channel *channel;   /* NULL: closed since */
    struct sl_transport_message message; /* owned until answered */
    uint32_t reply_bytes;
    uint16_t key_count;
    uint16_t table_id;
};
static_assert(sizeof(struct sl_server_pull) == 64, "a pull is a cache line");

#define SL_SERVER_PULLS SL_OUTBOX_RUN_FRAMES_MAX

/* Pulls in order of arrival; their keys are contiguous. */
struct sl_server_pull_batch {
    uint32_t count, key_count;
    uint32_t cost; /* of all pulls */
    struct sl_server_pull pulls[SL_SERVER_PULLS];
    uint64_t keys[SL_SHARD_PULL_BATCH_KEYS];
};

/* Takes the request if it is a small pull that may run at once. False: handle it separately, after
 * sl_server_pull_batch_before. */
bool sl_server_pull_batch_take(struct sl_server_channel *channel,
                               const struct sl_transport_message *message);

/* Answers all pulls of the batch. */
void sl_server_pull_batch_answer(struct sl_server *server);

/* Call before anything else happens on the channel: answers its earlier pulls. */
void sl_server_pull_batch_before(struct sl_server_channel *channel);

/* The connection of the channel, if there is one, has closed: discards its pulls. */
void sl_server_pull_batch_drop(struct sl_server_channel *channel);

#endif
