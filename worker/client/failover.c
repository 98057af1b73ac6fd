#include "worker/client/failover.h"

#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "worker/client/shard_conn_connect.h"

/* A mail from client_io 0 to another one and back. */
struct move {
    struct sl_client_io *from, *to;
    uint32_t ps_count;
    struct sl_message_ps ps[];
};

static void move_conns(struct sl_client_io *io, const struct sl_message_ps *ps, uint32_t ps_count)
{
    for (uint32_t shard = io->first_shard; shard < io->shard_count; shard += io->shard_stride) {
        struct sl_shard_conn *conn = sl_client_io_conn(io, shard);
        const struct sl_message_ps *now = sl_shard_conn_find_ps(ps, ps_count, conn->ps_task);
        struct sl_shard_address address;
        struct sl_reason reason;
        if (now == NULL) {
            continue;
        }
        if (sl_shard_conn_find_address(io->options, ps, ps_count, now, &address, &reason) != 0) {
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
    free(move);
}

static void apply_mail(void *ctx, uint64_t a, uint64_t b)
{
    struct move *move = ctx;
    move_conns(move->to, move->ps, move->ps_count);
    sl_reactor_post(move->to->reactor, sl_reactor_index(move->from->reactor),
                    (struct sl_mail){.run = returned, .ctx = move});
}

static void send_to(struct sl_client_io *io, struct sl_client_io *to,
                    const struct sl_message_cluster *cluster)
{
    size_t ps_bytes = cluster->ps_count * sizeof *cluster->ps;
    struct move *move = malloc(sizeof *move + ps_bytes);
    if (move == NULL) {
        sl_log_warn("out of memory: some connections do not learn where their server is now");
        return;
    }
    *move = (struct move){.from = io, .to = to, .ps_count = cluster->ps_count};
    memcpy(move->ps, cluster->ps, ps_bytes);
    io->mails_out++;
    sl_reactor_post(io->reactor, sl_reactor_index(to->reactor),
                    (struct sl_mail){.run = apply_mail, .ctx = move});
}

void sl_failover_apply(struct sl_client_io *io, const struct sl_message_cluster *cluster)
{
    sl_assert(io->index == 0);
    move_conns(io, cluster->ps, cluster->ps_count);
    for (uint32_t i = 1; i < io->io_count; i++) {
        send_to(io, io + i, cluster);
    }
}
