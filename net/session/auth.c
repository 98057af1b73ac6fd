#include "net/session/auth.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <string.h>

#include "core/assert.h"

#define LABEL_BYTES    16

/* Label, client nonce, server nonce, then the hello's claims, little-endian. */
#define TEXT_BYTES     (LABEL_BYTES + 2 * SL_MESSAGE_NONCE_BYTES + 5 * 4 + 8 + 2)

/* If the hello is of a primary: epoch and state of its shard. If it is of a transfer engine:
 * incarnation, lane and lane_epoch. */
#define MORE_BYTES_MAX (2 * 8 + 4)

int sl_auth_nonce(uint8_t nonce[SL_MESSAGE_NONCE_BYTES])
{
    return RAND_bytes(nonce, SL_MESSAGE_NONCE_BYTES) == 1 ? 0 : SL_ERR_IO;
}

static uint8_t *put(uint8_t *at, uint64_t value, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) {
        at[i] = (uint8_t)(value >> (8 * i));
    }
    return at + bytes;
}

/* Returns the length of the text. */
static size_t write_text(enum sl_auth_side side, const struct sl_message_hello *hello,
                         const uint8_t *server_nonce, uint8_t text[TEXT_BYTES + MORE_BYTES_MAX])
{
    static const char labels[2][LABEL_BYTES] = {
        [SL_AUTH_CLIENT] = "starling client",
        [SL_AUTH_SERVER] = "starling server",
    };
    uint8_t *at = text;
    memcpy(at, labels[side], LABEL_BYTES);
    at += LABEL_BYTES;
    memcpy(at, hello->nonce, SL_MESSAGE_NONCE_BYTES);
    at += SL_MESSAGE_NONCE_BYTES;
    memcpy(at, server_nonce, SL_MESSAGE_NONCE_BYTES);
    at += SL_MESSAGE_NONCE_BYTES;
    at = put(at, hello->protocol_version, 4);
    at = put(at, (uint64_t)hello->purpose, 4);
    at = put(at, (uint64_t)hello->role, 4);
    at = put(at, hello->task_index, 4);
    at = put(at, hello->shard, 4);
    at = put(at, hello->client_id, 8);
    at = put(at, hello->checksum, 1);
    at = put(at, (hello->join_running ? 1U : 0U) | (hello->any_task ? 2U : 0U), 1);
    sl_assert(at == text + TEXT_BYTES);
    if (hello->purpose == SL_MESSAGE_PURPOSE_REPLICA) {
        at = put(at, hello->epoch, 8);
        at = put(at, hello->state, 8);
    } else if (hello->purpose == SL_MESSAGE_PURPOSE_TRANSFER) {
        at = put(at, hello->incarnation, 8);
        at = put(at, hello->lane, 4);
        at = put(at, hello->lane_epoch, 8);
    }
    return (size_t)(at - text);
}

int sl_auth_prove(const struct sl_secret *secret, enum sl_auth_side side,
                  const struct sl_message_hello *hello,
                  const uint8_t server_nonce[SL_MESSAGE_NONCE_BYTES],
                  uint8_t proof[SL_MESSAGE_PROOF_BYTES])
{
    sl_assert(secret->byte_count > 0);
    sl_assert(secret->byte_count <= SL_SECRET_BYTES_MAX);
    sl_assert(hello->has_nonce);
    uint8_t text[TEXT_BYTES + MORE_BYTES_MAX];
    const size_t text_bytes = write_text(side, hello, server_nonce, text);
    unsigned int bytes = 0;
    if (HMAC(EVP_sha256(), secret->bytes, (int)secret->byte_count, text, text_bytes, proof,
             &bytes) == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sl_assert(bytes == SL_MESSAGE_PROOF_BYTES);
    return 0;
}

bool sl_auth_check(const struct sl_secret *secret, enum sl_auth_side side,
                   const struct sl_message_hello *hello,
                   const uint8_t server_nonce[SL_MESSAGE_NONCE_BYTES],
                   const uint8_t proof[SL_MESSAGE_PROOF_BYTES])
{
    uint8_t wanted[SL_MESSAGE_PROOF_BYTES];
    return sl_auth_prove(secret, side, hello, server_nonce, wanted) == 0 &&
           CRYPTO_memcmp(wanted, proof, sizeof wanted) == 0;
}
