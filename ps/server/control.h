/* Control messages of welcomed connections: tables, counters, clocks, goodbye; and of members to
 * the coordinator. Owner reactor. */
#ifndef SL_PS_SERVER_CONTROL_H
#define SL_PS_SERVER_CONTROL_H

struct sl_server_conn;
struct sl_transport_message;

/* Handles a control frame: the hello, or a later one. */
void sl_server_control(struct sl_server_conn *conn, const struct sl_transport_message *message);

#endif
