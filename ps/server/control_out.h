/* Sends control messages. Messages that find no room in the outbox wait on the heap, where equal
 * ones share a payload: the coordinator sends the same message to thousands of members. */
#ifndef SL_PS_SERVER_CONTROL_OUT_H
#define SL_PS_SERVER_CONTROL_OUT_H

#include <stddef.h>
#include <stdint.h>

#include "core/list.h"

struct sl_message;
struct sl_outbox;
struct sl_server_host;
struct sl_server_conn;
struct sl_server_shared_payload;

/* Connections with messages that wait for room, by outbox. */
struct sl_server_pending {
    struct sl_list control, replies, shm;
    uint32_t conn_count;
    struct sl_server_shared_payload *payload_last; /* kept last: the next is often equal */
    size_t bytes;
};

void sl_server_control_out_init(struct sl_server_host *host);
void sl_server_control_out_fini(struct sl_server_host *host);

/* Sends a control message, now or when there is room. Closes a connection with too many unsent
 * answers. */
void sl_server_send(struct sl_server_conn *conn, const struct sl_message *message);

/* Sends an Error message. */
void sl_server_send_error(struct sl_server_conn *conn, uint64_t id, int err, const char *text);

/* The outbox has room again: sends pending messages. */
void sl_server_control_out_resume(struct sl_server_host *host, struct sl_outbox *outbox);

/* The connection has closed: discards its pending messages. */
void sl_server_control_out_drop(struct sl_server_conn *conn);

#endif
