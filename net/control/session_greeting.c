#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/log.h"
#include "net/control/auth.h"
#include "net/control/session_internal.h"

#define REFUSAL_LOG_NS (60 * SL_CLOCK_NS_PER_S)

static bool has_secret(const struct sl_session *session)
{
    return sl_auth_is_required(session->options.secret);
}

/* Messages before the peer's proof */

static bool is_unproved(const struct sl_session *session)
{
    return has_secret(session) && !session->proved;
}

/* Whether an error from the peer may end the session (see sl_session_options.secret). */
static bool is_trusted(const struct sl_session *session)
{
    return has_secret(session) ? session->proved : !session->was_welcomed;
}

/* Without a secret no refusal can be proved. A session that is refused for refusal_wait_ns still
 * ends: another process may have replaced this member. */
static bool is_refused_for_long(const struct sl_session *session)
{
    const uint64_t since_ns = session->refused_since_ns;
    return !has_secret(session) && since_ns != 0 &&
           sl_reactor_now_ns(session->reactor) - since_ns >= session->refusal_wait_ns;
}

static void log_refusal(struct sl_session *session, const char *why)
{
    const uint64_t now_ns = sl_reactor_now_ns(session->reactor);
    if (now_ns < session->refusal_log_ns) {
        return;
    }
    session->refusal_log_ns = now_ns + REFUSAL_LOG_NS;
    sl_log_warn("%s (%s): %s; retrying, since the peer has not proved that it is a member%s",
                session->peer_name, session->peer, why,
                has_secret(session) ? ": compare the secret files of both ends" : "");
}

void sl_session_reject(struct sl_session *session, int err, const char *why)
{
    if (is_trusted(session) || is_refused_for_long(session)) {
        sl_session_end_because(session, err, why);
        return;
    }
    const uint64_t now_ns = sl_reactor_now_ns(session->reactor);
    const uint64_t since_ns = session->refused_since_ns;
    sl_session_break(session, err, why);
    sl_session_set_last_error(session, why);
    session->refused_since_ns = since_ns != 0 ? since_ns : now_ns;
    session->refused_at = session->options.endpoint;
    session->refusal_err = err;
    log_refusal(session, why);
}

/* The handshake */

/* With a secret, each hello has a fresh nonce: a proof cannot be replayed on another connection. */
void sl_session_greet(struct sl_session *session)
{
    struct sl_message message = {.kind = SL_MESSAGE_HELLO};
    session->options.hello.has_nonce = has_secret(session);
    if (has_secret(session) && sl_auth_nonce(session->options.hello.nonce) != SL_OK) {
        sl_session_break(session, SL_ERR_IO, "the system has no random bytes");
        return;
    }
    message.hello = session->options.hello;
    if (sl_session_send(session, &message) != SL_OK) {
        sl_session_break(session, SL_ERR_NO_MEMORY, "outgoing buffers are full");
    }
}

void sl_session_note_waiting(struct sl_session *session, const struct sl_message_waiting *waiting)
{
    char *names = session->waited_for;
    size_t used = 0;
    names[0] = '\0';
    for (uint32_t i = 0; i < waiting->missing_count; i++) {
        int more = snprintf(names + used, sizeof session->waited_for - used, "%s%s",
                            i == 0 ? "" : ", ", waiting->missing[i]);
        used += (size_t)more;
        sl_assert(used < sizeof session->waited_for);
    }
    sl_log_info("waiting for %s (says %s)", used == 0 ? "others" : names, session->peer_name);
}

void sl_session_reject_version(struct sl_session *session, uint32_t version, const char *software)
{
    char why[128];
    (void)snprintf(why, sizeof why,
                   "it speaks protocol version %" PRIu32 "%s%.40s, this program version %d",
                   version, software[0] == '\0' ? "" : " as ", software, SL_FRAME_PROTOCOL_VERSION);
    sl_session_reject(session, SL_ERR_VERSION, why);
}

static void challenged(struct sl_session *session, const struct sl_message_challenge *challenge)
{
    const struct sl_session_options *options = &session->options;
    if (!has_secret(session)) {
        sl_session_reject(session, SL_ERR_REFUSED, "this cluster asks for a secret: --secret-file");
        return;
    }
    if (session->challenged) {
        sl_session_reject(session, SL_ERR_PROTOCOL, "it sent two challenges");
        return;
    }
    session->challenged = true;
    memcpy(session->challenge, challenge->nonce, sizeof session->challenge);
    struct sl_message proof = {.kind = SL_MESSAGE_PROOF};
    if (sl_auth_prove(options->secret, SL_AUTH_CLIENT, &options->hello, challenge->nonce,
                      proof.proof.proof) != SL_OK ||
        sl_session_send(session, &proof) != SL_OK) {
        sl_session_break(session, SL_ERR_NO_MEMORY, "no memory for a proof");
    }
}

static void proved(struct sl_session *session, const struct sl_message_proof *proof)
{
    const struct sl_session_options *options = &session->options;
    if (!session->challenged || session->proved) {
        sl_session_reject(session, SL_ERR_PROTOCOL, "its proof answers no challenge");
        return;
    }
    if (!sl_auth_check(options->secret, SL_AUTH_SERVER, &options->hello, session->challenge,
                       proof->proof)) {
        sl_session_reject(session, SL_ERR_REFUSED,
                          "it did not prove that it has the secret: its own is another");
        return;
    }
    session->proved = true;
}

static void welcome(struct sl_session *session, const struct sl_message_welcome *message)
{
    if (message->protocol_version != SL_FRAME_PROTOCOL_VERSION) {
        sl_session_reject_version(session, message->protocol_version, message->software);
        return;
    }
    if (is_unproved(session)) {
        sl_session_reject(session, SL_ERR_REFUSED,
                          "it did not prove that it has the secret: it asks for none");
        return;
    }
    const enum sl_message_purpose purpose = session->options.hello.purpose;
    if (purpose != SL_MESSAGE_PURPOSE_CONTROL && purpose != SL_MESSAGE_PURPOSE_TRANSFER &&
        message->shard_count == 0) {
        sl_session_reject(session, SL_ERR_PROTOCOL, "its welcome names no shard");
        return;
    }
    struct sl_message_hello *hello = &session->options.hello;
    if (hello->any_task) { /* keep the assigned task across reconnects */
        hello->any_task = false;
        hello->task_index = message->task_index;
    }
    session->state = SL_SESSION_WELCOMED;
    session->was_welcomed = true;
    if (session->next_target == SL_SESSION_NEXT_CANDIDATE) {
        session->next_target = SL_SESSION_NEXT_SAME;
    }
    session->refused_since_ns = session->refusal_log_ns = 0;
    session->welcomed_ns = sl_reactor_now_ns(session->reactor);
    sl_session_note_lease(session, message->lease_ms);
    sl_session_disarm_all(session);
    sl_session_path_welcomed(session);
    session->options.events->welcomed(session->options.ctx, session, message);
    if (session->state == SL_SESSION_WELCOMED) {
        sl_session_request_send_all(session);
    }
}

static void refused(struct sl_session *session, const struct sl_message_error *error)
{
    char why[SL_MESSAGE_TEXT_BYTES + 32];
    (void)snprintf(why, sizeof why, "it refuses this process: %s", error->text);
    const uint64_t since_ns = session->refused_since_ns;
    if (!is_unproved(session) && sl_session_follow_redirect(session, error->coordinator)) {
        sl_session_break(session, SL_ERR_AGAIN, why);
        /* The redirect may lead back to the endpoint that refused. */
        session->refused_since_ns = since_ns;
    } else if (is_unproved(session) || sl_session_is_final(error->err)) {
        sl_session_reject(session, error->err, why);
    } else {
        sl_session_break(session, error->err, why);
    }
}

void sl_session_greeted(struct sl_session *session, const struct sl_message *message)
{
    switch (message->kind) {
    case SL_MESSAGE_WELCOME:
        welcome(session, &message->welcome);
        break;
    case SL_MESSAGE_CHALLENGE:
        challenged(session, &message->challenge);
        break;
    case SL_MESSAGE_PROOF:
        proved(session, &message->proof);
        break;
    case SL_MESSAGE_WAITING:
        if (is_unproved(session)) {
            sl_session_reject(session, SL_ERR_PROTOCOL, "it did not prove that it has the secret");
        } else {
            sl_session_note_waiting(session, &message->waiting);
        }
        break;
    case SL_MESSAGE_ERROR:
        refused(session, &message->error);
        break;
    default:
        sl_session_reject(session, SL_ERR_PROTOCOL, "its first message is no welcome");
        break;
    }
}
