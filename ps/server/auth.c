/* Server side of the proof that both ends have the cluster's secret (net/control/auth.h). Runs
 * after the migration, on the owning reactor: no frame may be in flight during a migration. */
#include <string.h>

#include "core/assert.h"
#include "net/control/auth.h"
#include "ps/server/internal.h"

static const struct sl_secret *secret_of(const struct sl_server_conn *conn)
{
    const struct sl_secret *secret = conn->server->options.secret;
    return secret == NULL || secret->byte_count == 0 ? NULL : secret;
}

void sl_server_authenticate(struct sl_server_conn *conn)
{
    const struct sl_secret *secret = secret_of(conn);
    if (secret == NULL) {
        sl_server_admit(conn);
        return;
    }
    if (!conn->hello.has_nonce) {
        sl_server_refuse(conn, SL_ERR_REFUSED,
                         "this cluster needs a secret: give the same --secret-file");
        return;
    }
    struct sl_message message = {.kind = SL_MESSAGE_CHALLENGE, .id = conn->hello_id};
    const int err = sl_auth_nonce(conn->challenge);
    if (err != 0) {
        sl_server_refuse(conn, err, "the system of the ps has no random bytes");
        return;
    }
    memcpy(message.challenge.nonce, conn->challenge, sizeof message.challenge.nonce);
    conn->kind = SL_SERVER_CONN_CHALLENGED;
    sl_server_send(conn, &message);
}

void sl_server_auth_message(struct sl_server_conn *conn, const struct sl_message *message)
{
    if (message->kind != SL_MESSAGE_PROOF) {
        sl_server_drop(conn, SL_ERR_PROTOCOL, "it does not answer the challenge");
        return;
    }
    if (!sl_auth_check(secret_of(conn), SL_AUTH_CLIENT, &conn->hello, conn->challenge,
                       message->proof.proof)) {
        sl_server_refuse(conn, SL_ERR_REFUSED,
                         "this cluster needs a secret: the one that was used is another");
        return;
    }
    struct sl_message proof = {.kind = SL_MESSAGE_PROOF, .id = conn->hello_id};
    if (sl_auth_prove(secret_of(conn), SL_AUTH_SERVER, &conn->hello, conn->challenge,
                      proof.proof.proof) != 0) {
        sl_server_refuse(conn, SL_ERR_NO_MEMORY, "the ps has no memory for a proof");
        return;
    }
    sl_server_send(conn, &proof);
    sl_server_admit(conn);
}
