#include "ps/observe/cluster_inbox.h"

#include <stdlib.h>
#include <string.h>

void sl_cluster_inbox_init(struct sl_cluster_inbox *inbox)
{
    memset(inbox, 0, sizeof *inbox);
    sl_spsc_init(&inbox->ring, inbox->slots, sizeof inbox->slots[0], SL_CLUSTER_INBOX_REPORTS);
}

void sl_cluster_inbox_fini(struct sl_cluster_inbox *inbox)
{
    struct sl_cluster_mail *mail;
    while ((mail = sl_cluster_inbox_pop(inbox)) != NULL) {
        free(mail);
    }
}

bool sl_cluster_inbox_push(struct sl_cluster_inbox *inbox, const struct sl_cluster_sender *sender,
                           const uint8_t *bytes, uint32_t byte_count)
{
    const uint64_t held = sl_cell_get(&inbox->pushed_bytes) - sl_cell_get(&inbox->popped_bytes);
    struct sl_cluster_mail *mail =
        held + byte_count <= SL_CLUSTER_INBOX_BYTES_MAX ? malloc(sizeof *mail + byte_count) : NULL;
    if (mail == NULL) {
        return false;
    }
    mail->sender = *sender;
    mail->byte_count = byte_count;
    if (byte_count > 0) {
        memcpy(mail->bytes, bytes, byte_count);
    }
    if (!sl_spsc_push(&inbox->ring, &mail)) {
        free(mail);
        return false;
    }
    sl_cell_add(&inbox->pushed_bytes, byte_count);
    return true;
}

struct sl_cluster_mail *sl_cluster_inbox_pop(struct sl_cluster_inbox *inbox)
{
    struct sl_cluster_mail *mail = NULL;
    if (!sl_spsc_pop(&inbox->ring, &mail)) {
        return NULL;
    }
    sl_cell_add(&inbox->popped_bytes, mail->byte_count);
    return mail;
}
