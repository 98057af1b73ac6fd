/* Reports of lost workers, from the thread that has them from the coordinator to the servers. */
#include <stdlib.h>

#include "ps/server/server.h"

struct loss {
    struct sl_server *server;
    struct sl_message_expired lost;
};

static void deliver(void *ctx, uint64_t a, uint64_t b)
{
    (void)a;
    (void)b;
    struct loss *loss = ctx;
    sl_server_on_expired(loss->server, &loss->lost);
    free(loss);
}

/* All but the reason fits into the mail itself. */
static void deliver_briefly(void *ctx, uint64_t client_id, uint64_t who)
{
    const struct sl_message_expired lost = {.role = (enum sl_message_role)(who >> 32),
                                            .task_index = (uint32_t)who,
                                            .client_id = client_id,
                                            .why = "memory is too short to say why"};
    sl_server_on_expired(ctx, &lost);
}

void sl_server_post_expired(struct sl_server *server, struct sl_reactor *from, uint32_t to_index,
                            const struct sl_message_expired *lost)
{
    struct loss *loss = malloc(sizeof *loss);
    if (loss == NULL) {
        sl_reactor_post(from, to_index,
                        (struct sl_mail){.run = deliver_briefly,
                                         .ctx = server,
                                         .a = lost->client_id,
                                         .b = (uint64_t)lost->role << 32 | lost->task_index});
        return;
    }
    *loss = (struct loss){.server = server, .lost = *lost};
    sl_reactor_post(from, to_index, (struct sl_mail){.run = deliver, .ctx = loss, .drop = free});
}
