#include "worker/client/failover.h"

#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "worker/client/shard_conn_connect.h"

int sl_failover_copy(const struct sl_message_cluster *from, struct sl_message_cluster *to)
{
    *to = *from;
    to->ps = malloc(from->ps_count * sizeof *to->ps);
    to->placements = malloc(from->shard_count * sizeof *to->placements);
    if (to->ps == NULL || to->placements == NULL) {
        sl_failover_free(to);
        return SL_ERR_NO_MEMORY;
    }
    memcpy(to->ps, from->ps, from->ps_count * sizeof *to->ps);
    memcpy(to->placements, from->placements, from->shard_count * sizeof *to->placements);
    return 0;
}

void sl_failover_free(struct sl_message_cluster *cluster)
{
    free(cluster->ps);
    free(cluster->placements);
    cluster->ps = NULL;
    cluster->placements = NULL;
}

/* A mail from client_io 0 to another one and back. */
struct move {
    struct sl_client_io *from, *to;
    struct sl_message_cluster cluster;
};

static void move_conns(struct sl_client_io *io, const struct sl_message_cluster *cluster)
{
    for (struct sl_shard_conn *conn = io->own; conn != NULL; conn = conn->next_of_io) {
        struct sl_reactor_address address;
        struct sl_reason reason;
        if (conn->shard >= cluster->shard_count) {
            continue;
        }
        if (sl_shard_conn_find_address(io->options, cluster, conn->shard, &address, &reason) != 0) {
            sl_log_warn("%s: the coordinator tells a new endpoint that is none: %s", conn->name,
                        reason.text);
            continue;
        }
        sl_shard_conn_set_address(conn, &address);
    }
}

static void returned(void *ctx, uint64_t a, uint64_t b)
{
    struct move *move = ctx;
    sl_assert(move->from->mails_out > 0);
    move->from->mails_out--;
    sl_failover_free(&move->cluster);
    free(move);
}

static void apply_mail(void *ctx, uint64_t a, uint64_t b)
{
    struct move *move = ctx;
    move_conns(move->to, &move->cluster);
    sl_reactor_post(move->to->reactor, sl_reactor_index(move->from->reactor),
                    (struct sl_mail){.run = returned, .ctx = move});
}

static void send_to(struct sl_client_io *io, struct sl_client_io *to,
                    const struct sl_message_cluster *cluster)
{
    struct move *move = malloc(sizeof *move);
    if (move == NULL || sl_failover_copy(cluster, &move->cluster) != 0) {
        free(move);
        sl_log_warn("out of memory: some connections do not learn where their server is now");
        return;
    }
    move->from = io;
    move->to = to;
    io->mails_out++;
    sl_reactor_post(io->reactor, sl_reactor_index(to->reactor),
                    (struct sl_mail){.run = apply_mail, .ctx = move});
}

void sl_failover_apply(struct sl_client_io *io, const struct sl_message_cluster *cluster)
{
    sl_assert(io->index == 0);
    move_conns(io, cluster);
    for (uint32_t i = 1; i < io->io_count; i++) {
        send_to(io, io + i, cluster);
    }
}
