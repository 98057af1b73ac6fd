/* TLS between two channels in memory: what fails says why, keys are renewed, nothing is lost. */

#include <stdlib.h>
#include <string.h>

#include "authority.h"
#include "core/hash.h"
#include "core/log.h"
#include "net/tcp/tls.h"
#include "tests/support/unit.h"

struct pair {
    struct sl_tcp_tls_context *contexts[2];
    struct sl_tcp_tls *server, *client;
};

static struct pair pair_open(const struct sl_transport_tls *server,
                             const struct sl_transport_tls *client, const char *host)
{
    struct pair pair;
    assert_int_equal(sl_tcp_tls_context_open(server, &pair.contexts[0]), 0);
    assert_int_equal(sl_tcp_tls_context_open(client, &pair.contexts[1]), 0);
    assert_int_equal(sl_tcp_tls_create(pair.contexts[0], NULL, &pair.server), 0);
    assert_int_equal(sl_tcp_tls_create(pair.contexts[1], host, &pair.client), 0);
    return pair;
}

/* The channels live on without their contexts. */
static void pair_close(struct pair *pair)
{
    sl_tcp_tls_context_close(&pair->contexts[0]);
    sl_tcp_tls_context_close(&pair->contexts[1]);
    sl_tcp_tls_destroy(&pair->server);
    sl_tcp_tls_destroy(&pair->client);
}

/* Moves what one has to send to the other, which has read all that came before. */
static void carry(struct sl_tcp_tls *from, struct sl_tcp_tls *to)
{
    uint32_t bytes = sl_tcp_tls_output_bytes(from);
    bytes = bytes < SL_TCP_TLS_INPUT_BYTES ? bytes : SL_TCP_TLS_INPUT_BYTES;
    if (bytes > 0) {
        memcpy(sl_tcp_tls_input(to), from->out + from->out_at, bytes);
        sl_tcp_tls_add_input(to, bytes);
        sl_tcp_tls_take_output(from, bytes);
    }
}

/* Until both are done, or one fails, or nothing moves; returns what each came to. */
static void shake(struct pair *pair, int *server_err, int *client_err)
{
    *server_err = *client_err = SL_ERR_AGAIN;
    for (int i = 0; i < 10; i++) {
        if (*client_err == SL_ERR_AGAIN) {
            *client_err = sl_tcp_tls_shake(pair->client);
        }
        carry(pair->client, pair->server);
        if (*server_err == SL_ERR_AGAIN) {
            *server_err = sl_tcp_tls_shake(pair->server);
        }
        if (*client_err == SL_ERR_AGAIN) {
            carry(pair->server, pair->client);
        }
    }
}

static void expect_reason(enum authority_who server_who, enum authority_who client_who,
                          const char *host, const char *client_reason, const char *server_reason)
{
    int server_err, client_err;
    struct pair pair = pair_open(authority_files(server_who), authority_files(client_who), host);
    shake(&pair, &server_err, &client_err);
    assert_int_equal(client_err, client_reason[0] != '\0' ? SL_ERR_REFUSED : 0);
    assert_string_equal(pair.client->reason, client_reason);
    assert_int_equal(server_err, SL_ERR_REFUSED);
    assert_string_equal(pair.server->reason, server_reason);
    pair_close(&pair);
}

SL_CASE(shake__says_what_is_wrong)
{
    expect_reason(AUTHORITY_NODE, AUTHORITY_STRANGER, "127.0.0.1",
                  "its certificate is not accepted: it is signed by an unknown authority",
                  "it does not know the authority that has signed our certificate");
    expect_reason(AUTHORITY_NODE, AUTHORITY_IMPOSTOR, "127.0.0.1", "",
                  "its certificate is not accepted: it is signed by an unknown authority");
    expect_reason(AUTHORITY_EXPIRED, AUTHORITY_NODE, "127.0.0.1",
                  "its certificate is not accepted: it has expired",
                  "it says that our certificate has expired");
    expect_reason(AUTHORITY_NODE, AUTHORITY_EXPIRED, "127.0.0.1", "",
                  "its certificate is not accepted: it has expired");
    expect_reason(AUTHORITY_NODE, AUTHORITY_NODE, "10.9.8.7",
                  "its certificate does not name 10.9.8.7", "it does not accept our certificate");
    expect_reason(AUTHORITY_ELSEWHERE, AUTHORITY_NODE, "other.example",
                  "its certificate does not name other.example",
                  "it does not accept our certificate");
}

SL_CASE(shake__with_who_speaks_no_tls)
{
    static const char http[] = "GET / HTTP/1.1\r\n\r\n";
    uint8_t frame[SL_FRAME_HEADER_BYTES];
    sl_frame_encode(&(struct sl_frame){.type = SL_FRAME_CONTROL, .payload_bytes = 70}, frame);
    for (int i = 0; i < 2; i++) {
        struct pair pair =
            pair_open(authority_files(AUTHORITY_NODE), authority_files(AUTHORITY_NODE), "::1");
        memcpy(sl_tcp_tls_input(pair.server), i == 0 ? (const void *)http : frame, 18);
        sl_tcp_tls_add_input(pair.server, 18);
        assert_int_equal(sl_tcp_tls_shake(pair.server), SL_ERR_REFUSED);
        assert_string_equal(pair.server->reason, "it speaks no TLS");
        pair_close(&pair);
    }
}

static struct pair open_shaken(void)
{
    int server_err, client_err;
    struct pair pair =
        pair_open(authority_files(AUTHORITY_NODE), authority_files(AUTHORITY_NODE), "localhost");
    shake(&pair, &server_err, &client_err);
    assert_int_equal(server_err, 0);
    assert_int_equal(client_err, 0);
    return pair;
}

/* Reads what comes of `left` bytes at `expected`. */
static uint32_t read_some(struct sl_tcp_tls *tls, const uint8_t *expected, uint32_t left,
                          uint32_t at_a_time)
{
    static uint8_t piece[SL_TCP_TLS_RECORD_BYTES];
    uint32_t got, total = 0;
    while (left > 0 &&
           sl_tcp_tls_read(tls, piece, at_a_time < left ? at_a_time : left, &got) == 0) {
        assert_memory_equal(piece, expected + total, got);
        total += got;
        left -= got;
    }
    return total;
}

/* Sends all of `bytes`, in pieces of random sizes. */
static void send_all(struct sl_tcp_tls *from, struct sl_tcp_tls *to, const uint8_t *bytes,
                     uint32_t byte_count, uint64_t *random)
{
    uint32_t sent = 0, received = 0;
    while (received < byte_count) {
        uint32_t room = sl_tcp_tls_room(from);
        while (room > 0 && sent < byte_count) {
            uint32_t count = 1 + (uint32_t)(sl_hash_random(random) % 30000);
            count = count < room ? count : room;
            count = count < byte_count - sent ? count : byte_count - sent;
            assert_int_equal(sl_tcp_tls_write(from, bytes + sent, count), 0);
            sent += count;
            room -= count;
        }
        assert_int_equal(sl_tcp_tls_flush(from), 0);
        assert_true(sl_tcp_tls_output_bytes(from) > 0);
        while (sl_tcp_tls_output_bytes(from) > 0) {
            carry(from, to);
            received += read_some(to, bytes + received, byte_count - received,
                                  1 + (uint32_t)(sl_hash_random(random) % 16384));
        }
    }
}

SL_CASE(keys__are_renewed_in_time)
{
    enum { BYTES = 1000000 };
    uint64_t random = 7;
    uint8_t *bytes = malloc(BYTES);
    for (uint32_t i = 0; i < BYTES; i++) {
        bytes[i] = (uint8_t)sl_hash_random(&random);
    }
    struct pair pair = open_shaken();
    pair.client->key_records = 5;
    send_all(pair.client, pair.server, bytes, BYTES, &random);
    assert_true(pair.client->records <= 5);
    send_all(pair.server, pair.client, bytes, BYTES, &random);
    assert_true(pair.server->records >= BYTES / SL_TCP_TLS_RECORD_BYTES);
    pair_close(&pair);
    free(bytes);
}

SL_CASE(notify__ends_in_order)
{
    struct pair pair = open_shaken();
    uint8_t byte = 1;
    uint32_t got;
    assert_int_equal(sl_tcp_tls_read(pair.server, &byte, 1, &got), SL_ERR_AGAIN);
    assert_false(sl_tcp_tls_has_part(pair.server));
    assert_int_equal(sl_tcp_tls_write(pair.client, &byte, 1), 0);
    assert_int_equal(sl_tcp_tls_flush(pair.client), 0);
    sl_tcp_tls_notify(pair.client);
    carry(pair.client, pair.server);
    assert_int_equal(sl_tcp_tls_read(pair.server, &byte, 1, &got), 0);
    assert_int_equal(sl_tcp_tls_read(pair.server, &byte, 1, &got), SL_ERR_CLOSED);
    assert_true(pair.server->ended);
    pair_close(&pair);
}

/* Every part of a record counts as one, and the whole does not. */
SL_CASE(has_part__at_every_byte)
{
    uint8_t byte = 1;
    uint32_t got;
    struct pair pair = open_shaken();
    assert_int_equal(sl_tcp_tls_write(pair.client, &byte, 1), 0);
    assert_int_equal(sl_tcp_tls_flush(pair.client), 0);
    uint32_t bytes = sl_tcp_tls_output_bytes(pair.client);
    assert_int_equal(sl_tcp_tls_read(pair.server, &byte, 1, &got), SL_ERR_AGAIN);
    for (uint32_t i = 0; i < bytes; i++) {
        assert_int_equal(sl_tcp_tls_has_part(pair.server), i > 0);
        *sl_tcp_tls_input(pair.server) = pair.client->out[pair.client->out_at + i];
        sl_tcp_tls_add_input(pair.server, 1);
        assert_int_equal(sl_tcp_tls_read(pair.server, &byte, 1, &got),
                         i + 1 < bytes ? SL_ERR_AGAIN : 0);
    }
    assert_int_equal(sl_tcp_tls_read(pair.server, &byte, 1, &got), SL_ERR_AGAIN);
    assert_false(sl_tcp_tls_has_part(pair.server));
    pair_close(&pair);
}

/* Each bit of a record, one after the other: it is never opened. */
SL_CASE(read__nothing_that_was_changed)
{
    static const uint8_t text[40] = "the same forty bytes, again and again";
    for (uint32_t at = 5; at < 5 + sizeof text; at += 3) {
        struct pair pair = open_shaken();
        uint8_t got_bytes[sizeof text];
        uint32_t got;
        assert_int_equal(sl_tcp_tls_read(pair.server, got_bytes, 40, &got), SL_ERR_AGAIN);
        assert_int_equal(sl_tcp_tls_write(pair.client, text, sizeof text), 0);
        assert_int_equal(sl_tcp_tls_flush(pair.client), 0);
        pair.client->out[pair.client->out_at + at] ^= (uint8_t)(1U << at % 8);
        carry(pair.client, pair.server);
        assert_int_equal(sl_tcp_tls_read(pair.server, got_bytes, 40, &got), SL_ERR_PROTOCOL);
        pair_close(&pair);
    }
}

int main(void)
{
    sl_log_setup(SL_LOG_OFF, "tcp channel");
    authority_make();
    return sl_unit_run("tcp channel", __FILE__);
}
