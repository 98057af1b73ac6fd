#include "reactor/outbound_mail.h"

#include <stdlib.h>

#include "core/assert.h"

struct spilled {
    struct spilled *next;
    struct sl_mail mail;
};

struct sl_outbound_mail_peer {
    struct sl_mailbox_lane *lane;
    struct spilled *first, *last;
};

int sl_outbound_mail_open(struct sl_outbound_mail *outbound, uint32_t peer_count)
{
    sl_assert(outbound->ways == NULL);
    outbound->ways = calloc(peer_count, sizeof *outbound->ways);
    if (outbound->ways == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    outbound->peer_count = peer_count;
    return 0;
}

int sl_outbound_mail_open_lane(struct sl_outbound_mail *outbound, uint32_t to,
                               struct sl_mailbox *mailbox)
{
    sl_assert(to < outbound->peer_count);
    sl_assert(outbound->ways[to].lane == NULL);
    return sl_mailbox_lane_open(mailbox, &outbound->ways[to].lane);
}

void sl_outbound_mail_close(struct sl_outbound_mail *outbound)
{
    for (uint32_t to = 0; to < outbound->peer_count; to++) {
        struct sl_outbound_mail_peer *peer = &outbound->ways[to];
        sl_mailbox_lane_close(&peer->lane);
        while (peer->first != NULL) {
            struct spilled *spilled = peer->first;
            peer->first = spilled->next;
            if (spilled->mail.drop != NULL) {
                spilled->mail.drop(spilled->mail.ctx);
            }
            free(spilled);
        }
    }
    free(outbound->ways);
    *outbound = (struct sl_outbound_mail){0};
}

static void spill(struct sl_outbound_mail *outbound, struct sl_outbound_mail_peer *peer,
                  struct sl_mail mail)
{
    struct spilled *spilled = malloc(sizeof *spilled);
    sl_assert(spilled != NULL);
    *spilled = (struct spilled){.mail = mail};
    if (peer->first == NULL) {
        peer->first = spilled;
    } else {
        peer->last->next = spilled;
    }
    peer->last = spilled;
    outbound->spilled_count++;
}

void sl_outbound_mail_post(struct sl_outbound_mail *outbound, uint32_t to, struct sl_mail mail)
{
    sl_assert(to < outbound->peer_count);
    sl_assert(mail.run != NULL);
    struct sl_outbound_mail_peer *peer = &outbound->ways[to];
    if (peer->first != NULL || sl_mailbox_post(peer->lane, mail) != 0) {
        spill(outbound, peer, mail);
    }
}

void sl_outbound_mail_retry(struct sl_outbound_mail *outbound)
{
    for (uint32_t to = 0; to < outbound->peer_count && outbound->spilled_count > 0; to++) {
        struct sl_outbound_mail_peer *peer = &outbound->ways[to];
        struct spilled *spilled;
        while ((spilled = peer->first) != NULL && sl_mailbox_post(peer->lane, spilled->mail) == 0) {
            peer->first = spilled->next;
            outbound->spilled_count--;
            free(spilled);
        }
    }
}
