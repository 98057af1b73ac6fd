/* The handshake of a connection (net/session/greeting.h): hello, migration to the reactor that it
 * names, proof of the secret, admission, welcome. Then a client attaches shards. Owner reactor. */
#ifndef SL_PS_SERVER_HANDSHAKE_H
#define SL_PS_SERVER_HANDSHAKE_H

#include <stdint.h>

struct sl_message;
struct sl_server;
struct sl_server_conn;

/* Handles the first message, which must be the hello. */
void sl_server_handshake_hello(struct sl_server_conn *conn, const struct sl_message *message);

/* The hello was read; runs on the reactor that the connection is for. Admits the connection, at
 * once or after it has proved the secret. */
void sl_server_handshake_continue(struct sl_server_conn *conn);

/* message: NULL behind the hello, then the answer to the challenge. */
void sl_server_handshake_authenticate(struct sl_server_conn *conn,
                                      const struct sl_message *message);

/* A client attaches the shard that the message's id names. */
void sl_server_handshake_attach(struct sl_server_conn *conn, const struct sl_message *message);

/* Sends the reason to the peer, and closes. */
void sl_server_handshake_refuse(struct sl_server_conn *conn, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Sends both sides' protocol versions to the peer, and closes. */
void sl_server_handshake_refuse_version(struct sl_server_conn *conn, uint32_t version);

#endif
