/* Posts expirations of workers from the thread of the coordinator's client to the servers. */
#include <stdlib.h>

#include "ps/server/server.h"

struct expiry {
    struct sl_server *server;
    struct sl_message_expired expired;
};

static void deliver(void *ctx, uint64_t a, uint64_t b)
{
    (void)a;
    (void)b;
    struct expiry *expiry = ctx;
    sl_server_on_expired(expiry->server, &expiry->expired);
    free(expiry);
}

/* Without memory: everything except the reason fits into the mail. */
static void deliver_briefly(void *ctx, uint64_t client_id, uint64_t who)
{
    const struct sl_message_expired expired = {.role = (enum sl_message_role)(who >> 32),
                                               .task_index = (uint32_t)who,
                                               .client_id = client_id,
                                               .why = "memory is too short to say why"};
    sl_server_on_expired(ctx, &expired);
}

void sl_server_post_expired(struct sl_server *server, struct sl_reactor *from, uint32_t to_index,
                            const struct sl_message_expired *expired)
{
    struct expiry *expiry = malloc(sizeof *expiry);
    if (expiry == NULL) {
        sl_reactor_post(from, to_index,
                        (struct sl_mail){.run = deliver_briefly,
                                         .ctx = server,
                                         .a = expired->client_id,
                                         .b = (uint64_t)expired->role << 32 | expired->task_index});
        return;
    }
    *expiry = (struct expiry){.server = server, .expired = *expired};
    sl_reactor_post(from, to_index, (struct sl_mail){.run = deliver, .ctx = expiry, .drop = free});
}
