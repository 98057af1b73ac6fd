/* The proofs against values that Python's hmac module computed from the layout of docs/protocol.md,
 * and that each thing they cover counts. */

#include <string.h>

#include "net/session/auth.h"
#include "tests/support/unit.h"

static const char secret_text[] = "the secret of this cluster";

static struct sl_secret secret_of(const void *bytes, uint32_t byte_count)
{
    struct sl_secret secret = {.byte_count = byte_count};
    memcpy(secret.bytes, bytes, byte_count);
    return secret;
}

static struct sl_secret usual_secret(void)
{
    return secret_of(secret_text, sizeof secret_text - 1);
}

/* Nonces of the bytes first, first + 1, ... */
static void count_up(uint8_t nonce[SL_MESSAGE_NONCE_BYTES], uint8_t first)
{
    for (uint8_t i = 0; i < SL_MESSAGE_NONCE_BYTES; i++) {
        nonce[i] = (uint8_t)(first + i);
    }
}

/* Worker 3, to the second shard of a process. */
static struct sl_message_hello usual_hello(void)
{
    struct sl_message_hello hello = {.protocol_version = 1,
                                     .purpose = SL_MESSAGE_PURPOSE_DATA,
                                     .role = SL_MESSAGE_ROLE_WORKER,
                                     .task_index = 3,
                                     .client_id = 0x1122334455667788,
                                     .shard = 1,
                                     .has_nonce = true,
                                     .software = "example 1"};
    count_up(hello.nonce, 0);
    return hello;
}

static void assert_proof(const struct sl_secret *secret, enum sl_auth_side side,
                         const struct sl_message_hello *hello,
                         const uint8_t wanted[SL_MESSAGE_PROOF_BYTES])
{
    uint8_t server_nonce[SL_MESSAGE_NONCE_BYTES];
    count_up(server_nonce, 32);
    uint8_t proof[SL_MESSAGE_PROOF_BYTES];
    assert_int_equal(sl_auth_prove(secret, side, hello, server_nonce, proof), SL_OK);
    assert_memory_equal(proof, wanted, sizeof proof);
    assert_true(sl_auth_check(secret, side, hello, server_nonce, wanted));
}

SL_CASE(auth_prove__is_hmac_sha256_of_the_layout)
{
    static const uint8_t client[] = {0xa2, 0x8a, 0x04, 0x2f, 0x86, 0x01, 0x6d, 0x5d,
                                     0x82, 0xfc, 0x82, 0x31, 0x91, 0x3e, 0xa8, 0x62,
                                     0x73, 0x8b, 0x9f, 0xc2, 0x94, 0x03, 0x70, 0x5d,
                                     0x3b, 0x25, 0x1a, 0x26, 0x16, 0x1e, 0xb2, 0xd8};
    static const uint8_t server[] = {0x94, 0xe2, 0xa1, 0xb2, 0x56, 0x50, 0xe1, 0x06,
                                     0x55, 0x4c, 0xe7, 0xc6, 0x12, 0x7f, 0xae, 0x4b,
                                     0xb0, 0x02, 0x9a, 0x37, 0xc0, 0xa8, 0x49, 0xf8,
                                     0x8f, 0x9a, 0x4a, 0x83, 0x36, 0x92, 0x01, 0x80};
    struct sl_secret secret = usual_secret();
    struct sl_message_hello hello = usual_hello();
    assert_proof(&secret, SL_AUTH_CLIENT, &hello, client);
    assert_proof(&secret, SL_AUTH_SERVER, &hello, server);
}

/* Of lane 2 of a transfer engine. */
static struct sl_message_hello transfer_hello(void)
{
    struct sl_message_hello hello = {.protocol_version = 1,
                                     .purpose = SL_MESSAGE_PURPOSE_TRANSFER,
                                     .role = SL_MESSAGE_ROLE_CLIENT,
                                     .client_id = 0x1122334455667788,
                                     .incarnation = 0x9f3c,
                                     .lane = 2,
                                     .lane_epoch = 5,
                                     .has_nonce = true};
    count_up(hello.nonce, 0);
    return hello;
}

SL_CASE(auth_prove__covers_the_lane_of_a_transfer)
{
    static const uint8_t client[] = {0x2e, 0x89, 0x5d, 0xc0, 0x3e, 0xd0, 0x85, 0xb0,
                                     0x49, 0xa9, 0x8e, 0x40, 0xdc, 0xd9, 0x3d, 0x08,
                                     0xae, 0xd0, 0x65, 0xaf, 0xc0, 0x0c, 0x95, 0x19,
                                     0xa4, 0x45, 0x3b, 0xab, 0xca, 0x0b, 0x40, 0x70};
    struct sl_secret secret = usual_secret();
    struct sl_message_hello hello = transfer_hello();
    uint8_t server_nonce[SL_MESSAGE_NONCE_BYTES];
    count_up(server_nonce, 32);
    assert_proof(&secret, SL_AUTH_CLIENT, &hello, client);
    hello.incarnation++;
    assert_false(sl_auth_check(&secret, SL_AUTH_CLIENT, &hello, server_nonce, client));
    hello = transfer_hello();
    hello.lane++;
    assert_false(sl_auth_check(&secret, SL_AUTH_CLIENT, &hello, server_nonce, client));
    hello = transfer_hello();
    hello.lane_epoch++;
    assert_false(sl_auth_check(&secret, SL_AUTH_CLIENT, &hello, server_nonce, client));
}

/* The usual proof of the client, for a hello or a nonce that somebody changed. */
static bool passes(const struct sl_message_hello *hello, uint8_t server_nonce_first)
{
    struct sl_secret secret = usual_secret();
    struct sl_message_hello usual = usual_hello();
    uint8_t server_nonce[SL_MESSAGE_NONCE_BYTES];
    count_up(server_nonce, 32);
    uint8_t proof[SL_MESSAGE_PROOF_BYTES];
    assert_int_equal(sl_auth_prove(&secret, SL_AUTH_CLIENT, &usual, server_nonce, proof), SL_OK);
    count_up(server_nonce, server_nonce_first);
    return sl_auth_check(&secret, SL_AUTH_CLIENT, hello, server_nonce, proof);
}

SL_CASE(auth_check__covers_what_the_hello_claims)
{
    struct sl_message_hello hello = usual_hello();
    assert_true(passes(&hello, 32));
    assert_false(passes(&hello, 33));
    hello.protocol_version = 2;
    assert_false(passes(&hello, 32));
    hello = usual_hello();
    hello.purpose = SL_MESSAGE_PURPOSE_CONTROL;
    assert_false(passes(&hello, 32));
    hello = usual_hello();
    hello.role = SL_MESSAGE_ROLE_CLIENT;
    assert_false(passes(&hello, 32));
    hello = usual_hello();
    hello.task_index++;
    assert_false(passes(&hello, 32));
    hello = usual_hello();
    hello.client_id ^= 1ULL << 63;
    assert_false(passes(&hello, 32));
    hello = usual_hello();
    hello.shard = 0;
    assert_false(passes(&hello, 32));
    hello = usual_hello();
    hello.checksum = true;
    assert_false(passes(&hello, 32));
    hello = usual_hello();
    hello.join_running = true;
    assert_false(passes(&hello, 32));
    hello = usual_hello();
    hello.any_task = true;
    assert_false(passes(&hello, 32));
    hello = usual_hello();
    hello.nonce[31] ^= 0x80;
    assert_false(passes(&hello, 32));
    hello = usual_hello();
    hello.software[0] = 'E'; /* for log lines only */
    assert_true(passes(&hello, 32));
}

SL_CASE(auth_check__refuses_every_flipped_bit)
{
    struct sl_secret secret = usual_secret();
    struct sl_message_hello hello = usual_hello();
    uint8_t server_nonce[SL_MESSAGE_NONCE_BYTES], proof[SL_MESSAGE_PROOF_BYTES];
    count_up(server_nonce, 32);
    assert_int_equal(sl_auth_prove(&secret, SL_AUTH_CLIENT, &hello, server_nonce, proof), SL_OK);
    for (uint32_t bit = 0; bit < 8 * SL_MESSAGE_PROOF_BYTES; bit++) {
        proof[bit / 8] = (uint8_t)(proof[bit / 8] ^ 1U << bit % 8);
        assert_false(sl_auth_check(&secret, SL_AUTH_CLIENT, &hello, server_nonce, proof));
        proof[bit / 8] = (uint8_t)(proof[bit / 8] ^ 1U << bit % 8);
    }
    secret.byte_count--;
    assert_false(sl_auth_check(&secret, SL_AUTH_CLIENT, &hello, server_nonce, proof));
}
