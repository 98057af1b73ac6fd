#include "reactor/outbound.h"

#include <stdlib.h>

#include "core/assert.h"

struct spilled {
    struct spilled *next;
    struct sl_mail mail;
};

struct sl_outbound_peer {
    struct sl_mailbox_lane *lane;
    struct spilled *first, *last;
};

int sl_outbound_open(struct sl_outbound *outbound, uint32_t way_count)
{
    sl_assert(outbound->ways == NULL);
    outbound->ways = calloc(way_count, sizeof *outbound->ways);
    if (outbound->ways == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    outbound->way_count = way_count;
    return 0;
}

int sl_outbound_open_way(struct sl_outbound *outbound, uint32_t to, struct sl_mailbox *mailbox)
{
    sl_assert(to < outbound->way_count);
    sl_assert(outbound->ways[to].lane == NULL);
    return sl_mailbox_lane_open(mailbox, &outbound->ways[to].lane);
}

void sl_outbound_close(struct sl_outbound *outbound)
{
    for (uint32_t to = 0; to < outbound->way_count; to++) {
        struct sl_outbound_peer *way = &outbound->ways[to];
        sl_mailbox_lane_close(&way->lane);
        while (way->first != NULL) {
            struct spilled *spilled = way->first;
            way->first = spilled->next;
            if (spilled->mail.drop != NULL) {
                spilled->mail.drop(spilled->mail.ctx);
            }
            free(spilled);
        }
    }
    free(outbound->ways);
    *outbound = (struct sl_outbound){0};
}

static void spill(struct sl_outbound *outbound, struct sl_outbound_peer *way, struct sl_mail mail)
{
    struct spilled *spilled = malloc(sizeof *spilled);
    sl_assert(spilled != NULL);
    *spilled = (struct spilled){.mail = mail};
    if (way->first == NULL) {
        way->first = spilled;
    } else {
        way->last->next = spilled;
    }
    way->last = spilled;
    outbound->spilled_count++;
}

void sl_outbound_post(struct sl_outbound *outbound, uint32_t to, struct sl_mail mail)
{
    sl_assert(to < outbound->way_count);
    sl_assert(mail.run != NULL);
    struct sl_outbound_peer *way = &outbound->ways[to];
    if (way->first != NULL || sl_mailbox_post(way->lane, mail) != 0) {
        spill(outbound, way, mail);
    }
}

void sl_outbound_retry(struct sl_outbound *outbound)
{
    for (uint32_t to = 0; to < outbound->way_count && outbound->spilled_count > 0; to++) {
        struct sl_outbound_peer *way = &outbound->ways[to];
        struct spilled *spilled;
        while ((spilled = way->first) != NULL && sl_mailbox_post(way->lane, spilled->mail) == 0) {
            way->first = spilled->next;
            outbound->spilled_count--;
            free(spilled);
        }
    }
}
