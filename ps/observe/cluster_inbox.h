/* Inbox carries reports of members from the coordinator's reactor to the observer's thread: a queue
 * with one producer and one consumer, bounded in reports and in bytes. */
#ifndef SL_PS_OBSERVE_CLUSTER_INBOX_H
#define SL_PS_OBSERVE_CLUSTER_INBOX_H

#include <stdbool.h>
#include <stdint.h>

#include "core/cell.h"
#include "core/spsc.h"
#include "net/session/message.h"

#define SL_CLUSTER_INBOX_REPORTS   4096 /* two seconds at the coordinator's limit */
#define SL_CLUSTER_INBOX_BYTES_MAX (8U << 20)

/* The member that sent a report. */
struct sl_cluster_sender {
    enum sl_message_role role;
    uint32_t task_index; /* server and worker */
    uint64_t client_id;
};

struct sl_cluster_mail {
    struct sl_cluster_sender sender;
    uint32_t byte_count;
    uint8_t bytes[]; /* an encoded report, not validated */
};

struct sl_cluster_inbox {
    struct sl_spsc ring;
    struct sl_cluster_mail *slots[SL_CLUSTER_INBOX_REPORTS];
    struct sl_cell pushed_bytes; /* written by the producer */
    struct sl_cell popped_bytes; /* written by the consumer */
};

/* Before start. */
void sl_cluster_inbox_init(struct sl_cluster_inbox *inbox);

/* Frees the reports that are left. Both threads have ended. */
void sl_cluster_inbox_fini(struct sl_cluster_inbox *inbox);

/* Copies a report. False: it is full, or there is no memory. Producer. */
bool sl_cluster_inbox_push(struct sl_cluster_inbox *inbox, const struct sl_cluster_sender *sender,
                           const uint8_t *bytes, uint32_t byte_count);

/* Returns the next report, which the caller frees; NULL: none. Consumer. */
struct sl_cluster_mail *sl_cluster_inbox_pop(struct sl_cluster_inbox *inbox);

#endif
