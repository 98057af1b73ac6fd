#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "net/session/auth.h"
#include "net/session/session_internal.h"

#define ATTEMPTS_A_LEASE 10

static bool is_unproved(const struct sl_session *session)
{
    return sl_session_has_secret(session) && session->proof.state != SL_SESSION_PROVED;
}

/* The handshake */

/* With a secret, each hello has a fresh nonce: a proof cannot be replayed on another connection. */
void sl_session_greet(struct sl_session *session)
{
    struct sl_message message = {.kind = SL_MESSAGE_HELLO};
    session->options.hello.has_nonce = sl_session_has_secret(session);
    if (sl_session_has_secret(session) && sl_auth_nonce(session->options.hello.nonce) != SL_OK) {
        sl_session_break(session, SL_ERR_IO, "the system has no random bytes");
        return;
    }
    message.hello = session->options.hello;
    if (sl_session_send(session, &message) != SL_OK) {
        sl_session_break(session, SL_ERR_NO_MEMORY, "outgoing buffers are full");
    }
}

static void challenged(struct sl_session *session, const struct sl_message_challenge *challenge)
{
    const struct sl_session_options *options = &session->options;
    if (!sl_session_has_secret(session)) {
        sl_session_reject(session, SL_ERR_REFUSED, "this cluster asks for a secret: --secret-file");
        return;
    }
    if (session->proof.state != SL_SESSION_UNPROVED) {
        sl_session_reject(session, SL_ERR_PROTOCOL, "it sent two challenges");
        return;
    }
    session->proof.state = SL_SESSION_CHALLENGED;
    memcpy(session->proof.challenge, challenge->nonce, sizeof session->proof.challenge);
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
    if (session->proof.state != SL_SESSION_CHALLENGED) {
        sl_session_reject(session, SL_ERR_PROTOCOL, "its proof answers no challenge");
        return;
    }
    if (!sl_auth_check(options->secret, SL_AUTH_SERVER, &options->hello, session->proof.challenge,
                       proof->proof)) {
        sl_session_reject(session, SL_ERR_REFUSED,
                          "it did not prove that it has the secret: its own is another");
        return;
    }
    session->proof.state = SL_SESSION_PROVED;
}

/* Adapts the back-off to the welcome. A peer expires a silent member after one lease: several
 * attempts must fit into it. */
static void note_lease(struct sl_session *session, uint32_t lease_ms, uint32_t spread_ms)
{
    struct sl_backoff *backoff = &session->retry.backoff;
    const uint64_t max_ns = lease_ms * SL_CLOCK_NS_PER_MS / ATTEMPTS_A_LEASE;
    session->refusal.wait_ns =
        lease_ms == 0 ? SL_SESSION_GREETING_NS : lease_ms * SL_CLOCK_NS_PER_MS;
    backoff->most_ns =
        lease_ms == 0 || max_ns > SL_SESSION_BACK_OFF_MAX_NS ? SL_SESSION_BACK_OFF_MAX_NS : max_ns;
    backoff->least_ns = spread_ms * SL_CLOCK_NS_PER_MS > SL_SESSION_BACK_OFF_MIN_NS
                            ? spread_ms * SL_CLOCK_NS_PER_MS
                            : SL_SESSION_BACK_OFF_MIN_NS;
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
    if (session->options.hello.purpose == SL_MESSAGE_PURPOSE_REPLICA && message->shard_count == 0) {
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
    if (session->candidate.next == SL_SESSION_NEXT_CANDIDATE) {
        session->candidate.next = SL_SESSION_NEXT_SAME;
    }
    session->refusal.since_ns = session->refusal.log_ns = 0;
    session->welcomed_ns = sl_reactor_now_ns(session->reactor);
    note_lease(session, message->lease_ms, message->spread_ms);
    sl_session_disarm_all(session);
    sl_session_path_welcomed(session);
    session->options.events->welcomed(session->options.ctx, session, message);
    if (session->state == SL_SESSION_WELCOMED) {
        sl_session_request_send_all(session);
    }
}

/* Follows a redirect to the coordinator. False: the endpoint does not suit this session. */
static bool follow_redirect(struct sl_session *session, const char *endpoint)
{
    struct sl_endpoint where;
    if (!session->options.follows || endpoint[0] == '\0' ||
        sl_endpoint_parse(endpoint, &where, NULL) != 0 ||
        where.scheme != session->options.endpoint.scheme) {
        return false;
    }
    session->options.endpoint = where;
    session->candidate.next = SL_SESSION_NEXT_NAMED;
    return true;
}

static void refused(struct sl_session *session, const struct sl_message_error *error)
{
    char why[SL_MESSAGE_TEXT_BYTES + 32];
    (void)snprintf(why, sizeof why, "it refuses this process: %s", error->text);
    const uint64_t since_ns = session->refusal.since_ns;
    if (!is_unproved(session) && follow_redirect(session, error->coordinator)) {
        sl_session_break(session, SL_ERR_AGAIN, why);
        /* The redirect may lead back to the endpoint that refused. */
        session->refusal.since_ns = since_ns;
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
