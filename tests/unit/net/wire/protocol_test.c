/* docs/protocol.md says what travels, byte for byte; this builds the same frames with the code and
 * compares, and decodes what the page shows. */

#include <inttypes.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/partition.h"
#include "net/control/auth.h"
#include "net/control/message.h"
#include "net/wire/frame.h"
#include "net/wire/request.h"
#include "tests/support/unit.h"

#define BLOCK_BYTES 4096

/* ---- The page -------------------------------------------------------------------------------- */

/* Opens the page and stands behind the line that begins the block. */
static FILE *open_block(const char *info)
{
    FILE *page = fopen(PROTOCOL_PAGE, "r");
    assert_non_null(page);
    char wanted[64];
    snprintf(wanted, sizeof wanted, "```%s\n", info);
    char line[1024];
    while (fgets(line, sizeof line, page) != NULL) {
        if (strcmp(line, wanted) == 0) {
            return page;
        }
    }
    fail_msg("the page has no block %s", info);
    return NULL;
}

static bool next_line(FILE *page, char *line, int line_bytes)
{
    return fgets(line, line_bytes, page) != NULL && strncmp(line, "```", 3) != 0;
}

struct block {
    _Alignas(8) uint8_t bytes[BLOCK_BYTES];
    size_t length;
};

/* Reads a dump: lines of an offset, a colon, and bytes in hex. */
static void read_dump(const char *info, struct block *block)
{
    FILE *page = open_block(info);
    block->length = 0;
    char line[256];
    while (next_line(page, line, sizeof line)) {
        char *at = line;
        assert_int_equal(strtoul(at, &at, 16), block->length);
        assert_int_equal(*at++, ':');
        for (;;) {
            char *end;
            unsigned long byte = strtoul(at, &end, 16);
            if (end == at) {
                break;
            }
            assert_true(byte <= 0xff && block->length < BLOCK_BYTES);
            block->bytes[block->length++] = (uint8_t)byte;
            at = end;
        }
    }
    fclose(page);
}

/* The dump of a frame. */
static void read_hex(const char *name, struct block *block)
{
    char info[64];
    snprintf(info, sizeof info, "hex %s", name);
    read_dump(info, block);
    assert_true(block->length >= SL_FRAME_HEADER_BYTES);
}

static void assert_block(const char *name, struct sl_frame frame, const void *payload,
                         size_t payload_bytes, bool seal)
{
    struct block block;
    read_hex(name, &block);
    uint8_t built[BLOCK_BYTES];
    frame.payload_bytes = (uint32_t)payload_bytes;
    sl_frame_encode(&frame, built);
    if (payload_bytes != 0) {
        memcpy(built + SL_FRAME_HEADER_BYTES, payload, payload_bytes);
    }
    if (seal) {
        sl_frame_seal(built, payload, payload_bytes, NULL, 0);
    }
    assert_int_equal(block.length, SL_FRAME_HEADER_BYTES + payload_bytes);
    assert_memory_equal(block.bytes, built, block.length);
    struct sl_frame decoded;
    assert_int_equal(sl_frame_decode(block.bytes, &decoded), SL_OK);
    assert_int_equal(sl_frame_verify(&decoded, block.bytes + SL_FRAME_HEADER_BYTES), SL_OK);
}

static void assert_control(const char *name, const struct sl_message *message)
{
    uint8_t payload[BLOCK_BYTES];
    size_t bytes = sl_message_encoded_bytes(message);
    assert_true(bytes <= sizeof payload);
    sl_message_encode(message, payload);
    assert_block(name, (struct sl_frame){.type = SL_FRAME_CONTROL}, payload, bytes, false);
    struct sl_message decoded;
    assert_int_equal(sl_message_decode(payload, bytes, &decoded), SL_OK);
    assert_int_equal(decoded.kind, message->kind);
    sl_message_fini(&decoded);
}

/* ---- Cases ----------------------------------------------------------------------------------- */

SL_CASE(protocol_page__shows_a_checksum)
{
    assert_block(
        "credit",
        (struct sl_frame){.type = SL_FRAME_CREDIT, .credit_bytes = 4096, .credit_requests = 2},
        NULL, 0, true);
}

static const struct sl_message_hello example_hello = {.protocol_version = 1,
                                                      .purpose = SL_MESSAGE_PURPOSE_DATA,
                                                      .role = SL_MESSAGE_ROLE_WORKER,
                                                      .task_index = 3,
                                                      .client_id = 0x1122334455667788,
                                                      .shard = 1,
                                                      .software = "example 1"};

SL_CASE(protocol_page__shows_control_messages)
{
    assert_control("hello",
                   &(struct sl_message){.kind = SL_MESSAGE_HELLO, .id = 1, .hello = example_hello});
    assert_control("welcome", &(struct sl_message){.kind = SL_MESSAGE_WELCOME,
                                                   .id = 1,
                                                   .welcome = {.protocol_version = 1,
                                                               .credit_bytes = 16 << 20,
                                                               .credit_requests = 256,
                                                               .shard = 1,
                                                               .shard_count = 2,
                                                               .payload_bytes_max = 4 << 20,
                                                               .incarnation = 0x99aabbccddeeff00,
                                                               .counts = true,
                                                               .software = "starling 0.1.0"}});
    assert_control(
        "register",
        &(struct sl_message){.kind = SL_MESSAGE_REGISTER, .id = 2, .reg = {.worker_count = 4}});
    struct sl_message_ps ps[] = {
        {.task_index = 0, .shard_count = 1, .data_endpoint = "tcp://10.0.0.1:5555"},
        {.task_index = 1, .shard_count = 1, .data_endpoint = "tcp://10.0.0.2:5555"},
    };
    assert_control("cluster",
                   &(struct sl_message){.kind = SL_MESSAGE_CLUSTER,
                                        .id = 2,
                                        .cluster = {.ps = ps, .ps_count = 2, .worker_count = 4}});
    assert_control("goodbye", &(struct sl_message){.kind = SL_MESSAGE_GOODBYE});
}

SL_CASE(protocol_page__shows_leases_barriers_and_joins)
{
    assert_control("heartbeat", &(struct sl_message){.kind = SL_MESSAGE_HEARTBEAT});
    assert_control("lost", &(struct sl_message){.kind = SL_MESSAGE_EXPIRED,
                                                .expired = {.role = SL_MESSAGE_ROLE_WORKER,
                                                            .task_index = 2,
                                                            .client_id = 0x8877665544332211,
                                                            .why = "not heard for 10 s"}});
    assert_control("barrier",
                   &(struct sl_message){.kind = SL_MESSAGE_BARRIER,
                                        .id = 4,
                                        .barrier = {.name = "epoch 3", .timeout_ms = 30000}});
    assert_control(
        "ended", &(struct sl_message){.kind = SL_MESSAGE_ENDED, .why = "all 4 workers have left"});
    assert_control("join", &(struct sl_message){.kind = SL_MESSAGE_JOIN, .id = 5, .clock = 7});
    assert_control("joined", &(struct sl_message){.kind = SL_MESSAGE_JOINED, .id = 5, .clock = 8});
}

SL_CASE(protocol_page__shows_a_checkpoint)
{
    assert_control("checkpoint",
                   &(struct sl_message){.kind = SL_MESSAGE_CHECKPOINT,
                                        .checkpoint = {.number = 12, .base = 11, .complete = 11}});
    struct sl_message_checkpoint_file files[] = {
        {"shard-0000-of-0002.slc", 0, 70123, 0x0123456789abcdef, 512},
        {"shard-0001-of-0002.slc", 1, 69980, 0x0fedcba987654321, 510},
    };
    assert_control("checkpoint_part",
                   &(struct sl_message){
                       .kind = SL_MESSAGE_CHECKPOINT_PART,
                       .checkpoint_part = {
                           .number = 12, .files = &files[1], .file_count = 1, .has_worker = true}});
    assert_control("checkpoint_complete",
                   &(struct sl_message){.kind = SL_MESSAGE_CHECKPOINT_COMPLETE,
                                        .checkpoint_complete = {.number = 12,
                                                                .base = 11,
                                                                .files = files,
                                                                .file_count = 2,
                                                                .time_ms = 1795363200000,
                                                                .has_worker = true}});
    assert_control("checkpoint_done", &(struct sl_message){.kind = SL_MESSAGE_CHECKPOINT_DONE,
                                                           .checkpoint_number = 12});
    assert_control(
        "checkpoint_ask",
        &(struct sl_message){.kind = SL_MESSAGE_CHECKPOINT_ASK, .id = 6, .timeout_ms = 30000});
}

/* The proof of a side is the HMAC of what the page says that it hashes. */
static void assert_hashed(const char *info, const struct sl_secret *secret,
                          const uint8_t proof[SL_MESSAGE_PROOF_BYTES])
{
    struct block hashed;
    read_dump(info, &hashed);
    uint8_t of_page[EVP_MAX_MD_SIZE];
    unsigned int bytes = 0;
    assert_non_null(HMAC(EVP_sha256(), secret->bytes, (int)secret->byte_count, hashed.bytes,
                         hashed.length, of_page, &bytes));
    assert_int_equal(bytes, SL_MESSAGE_PROOF_BYTES);
    assert_memory_equal(of_page, proof, bytes);
}

SL_CASE(protocol_page__shows_a_secret_being_proved)
{
    static const struct sl_secret secret = {.byte_count = 26,
                                            .bytes = "the secret of this cluster"};
    struct sl_message hello = {.kind = SL_MESSAGE_HELLO, .id = 1, .hello = example_hello};
    struct sl_message challenge = {.kind = SL_MESSAGE_CHALLENGE, .id = 1};
    struct sl_message proof = {.kind = SL_MESSAGE_PROOF, .id = 1};
    struct sl_message server_proof = {.kind = SL_MESSAGE_PROOF, .id = 1};
    hello.hello.has_nonce = true;
    for (uint8_t i = 0; i < SL_MESSAGE_NONCE_BYTES; i++) {
        hello.hello.nonce[i] = i;
        challenge.challenge.nonce[i] = (uint8_t)(32 + i);
    }
    assert_int_equal(sl_auth_prove(&secret, SL_AUTH_SERVER, &hello.hello, challenge.challenge.nonce,
                                   server_proof.proof.proof),
                     SL_OK);
    assert_int_equal(sl_auth_prove(&secret, SL_AUTH_CLIENT, &hello.hello, challenge.challenge.nonce,
                                   proof.proof.proof),
                     SL_OK);
    assert_control("hello-with-nonce", &hello);
    assert_control("challenge", &challenge);
    assert_control("proof-of-the-client", &proof);
    assert_control("proof-of-the-server", &server_proof);
    assert_hashed("hashed by the client", &secret, proof.proof.proof);
    assert_hashed("hashed by the server", &secret, server_proof.proof.proof);
}

SL_CASE(protocol_page__shows_a_table_being_opened)
{
    struct sl_message open = {
        .kind = SL_MESSAGE_TABLE_OPEN,
        .id = 3,
        .table_open = {.spec = {.name = "emb",
                                .kind = SL_TABLE_SPARSE,
                                .dim = 3,
                                .optimizer = {.kind = SL_OPTIMIZER_SGD, .lr = 0.1f},
                                .initializer = {.kind = SL_INITIALIZER_UNIFORM,
                                                .low = -0.05f,
                                                .high = 0.05f,
                                                .seed = 1},
                                .consistency = {.mode = SL_CONSISTENCY_BSP, .worker_count = 4}},
                       .table_id = 5}};
    assert_control("table-open", &open);
    assert_control("table-opened",
                   &(struct sl_message){.kind = SL_MESSAGE_TABLE_OPENED, .id = 3, .table_id = 5});
}

static size_t put_section(uint8_t *to, size_t at, struct sl_request_section section)
{
    memcpy(to + at, &section, sizeof section);
    return at + sizeof section;
}

SL_CASE(protocol_page__shows_a_pull_and_its_reply)
{
    static const uint64_t keys[] = {2, 4, 5};
    uint8_t request[96] = {1};
    size_t bytes = put_section(
        request, 8,
        (struct sl_request_section){.op = SL_REQUEST_PULL, .table_id = 5, .key_count = 3});
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(sl_partition_owner(keys[i], 2), 1);
    }
    memcpy(request + bytes, keys, sizeof keys);
    bytes += sizeof keys;
    assert_block("pull-request",
                 (struct sl_frame){.type = SL_FRAME_REQUEST, .request_id = 1, .budget_us = 5000000},
                 request, bytes, false);

    static const float rows[10] = {0.5f, -0.5f, 1, 2, 0.25f, -1, 0, 3, 8};
    assert_block(
        "pull-reply",
        (struct sl_frame){.type = SL_FRAME_REPLY,
                          .request_id = 1,
                          .credit_bytes = (uint32_t)sl_request_credit_bytes(bytes, sizeof rows),
                          .credit_requests = 1},
        rows, sizeof rows, false);
}

SL_CASE(protocol_page__shows_a_push_and_a_tick)
{
    const uint64_t key = 2;
    const float gradients[4] = {0.125f, 0, -1};
    uint8_t request[128] = {2};
    size_t bytes = put_section(
        request, 8,
        (struct sl_request_section){.op = SL_REQUEST_PUSH, .table_id = 5, .key_count = 1});
    memcpy(request + bytes, &key, sizeof key);
    memcpy(request + bytes + sizeof key, gradients, sizeof gradients);
    bytes += sizeof key + sizeof gradients;
    bytes = put_section(request, bytes, (struct sl_request_section){.op = SL_REQUEST_TICK});
    assert_block("push-request",
                 (struct sl_frame){.type = SL_FRAME_REQUEST, .request_id = 2, .budget_us = 5000000},
                 request, bytes, false);
    assert_block("push-reply",
                 (struct sl_frame){.type = SL_FRAME_REPLY,
                                   .request_id = 2,
                                   .budget_us = 1,
                                   .credit_bytes = (uint32_t)sl_request_credit_bytes(bytes, 0),
                                   .credit_requests = 1},
                 NULL, 0, false);
}

static size_t put(uint8_t *to, size_t at, const void *from, size_t bytes)
{
    memcpy(to + at, from, bytes);
    return at + bytes;
}

SL_CASE(protocol_page__shows_arrays_being_pushed)
{
    const uint64_t keys[] = {1ULL << 63, 3ULL << 62 | 1};
    const uint64_t absent = UINT64_MAX;
    const uint32_t lens[] = {1, 3};
    const float pushed[] = {0.5f, 1, 2, -1};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(sl_partition_kv_owner(keys[i], 2), 1);
    }
    uint8_t request[256] = {2};
    size_t bytes = put_section(request, 8,
                               (struct sl_request_section){.op = SL_REQUEST_KV_PUSH_PULL,
                                                           .flags = SL_REQUEST_FLAG_LENS,
                                                           .table_id = 6,
                                                           .key_count = 2,
                                                           .command = 7,
                                                           .count = 4});
    bytes = put(request, bytes, keys, sizeof keys);
    bytes = put(request, bytes, lens, sizeof lens);
    bytes = put(request, bytes, pushed, sizeof pushed);
    bytes = put_section(
        request, bytes,
        (struct sl_request_section){.op = SL_REQUEST_KV_LENGTHS, .table_id = 6, .key_count = 1});
    bytes = put(request, bytes, &absent, sizeof absent);
    assert_block("kv-request",
                 (struct sl_frame){.type = SL_FRAME_REQUEST, .request_id = 4, .budget_us = 5000000},
                 request, bytes, false);
    static const float reply[6] = {1.5f, 1, 2, 0, 0, 0};
    assert_block(
        "kv-reply",
        (struct sl_frame){.type = SL_FRAME_REPLY,
                          .request_id = 4,
                          .budget_us = 1,
                          .credit_bytes = (uint32_t)sl_request_credit_bytes(bytes, sizeof reply),
                          .credit_requests = 1},
        reply, sizeof reply, false);
}

/* What the page shows as requests is what a shard takes apart. */
SL_CASE(protocol_page__shows_requests_that_are_valid)
{
    static const char *const names[] = {"pull-request", "push-request", "kv-request"};
    static const uint32_t dims[] = {3, 3, 4};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct block block;
        read_hex(names[i], &block);
        struct sl_bytes cursor = sl_bytes_over(block.bytes + SL_FRAME_HEADER_BYTES,
                                               block.length - SL_FRAME_HEADER_BYTES);
        struct sl_request_prefix prefix;
        assert_int_equal(sl_request_read_prefix(&cursor, &prefix), SL_OK);
        for (uint32_t s = 0; s < prefix.section_count; s++) {
            struct sl_request_section section;
            struct sl_request_view view;
            assert_int_equal(sl_request_read_section(&cursor, &section), SL_OK);
            assert_int_equal(sl_request_read_body(&cursor, &section, dims[i], &view), SL_OK);
        }
        assert_int_equal(cursor.left, 0);
    }
}

SL_CASE(protocol_page__shows_an_error_reply)
{
    static const char text[] = "shard 1, section 0 (table emb): key 7 belongs to shard 0 of 2";
    assert_block("error-reply",
                 (struct sl_frame){.type = SL_FRAME_REPLY,
                                   .request_id = 3,
                                   .budget_us = 1,
                                   .credit_bytes = 96,
                                   .credit_requests = 1,
                                   .status = (uint8_t)-SL_ERR_WRONG_SHARD},
                 text, sizeof text - 1, false);
    assert_int_equal(sl_partition_owner(7, 2), 0);
}

SL_CASE(protocol_page__tells_the_owners_of_keys)
{
    FILE *page = open_block("partition");
    char line[256];
    int lines = 0;
    while (next_line(page, line, sizeof line)) {
        uint64_t key, hash;
        uint32_t owners[4];
        assert_int_equal(sscanf(line, "%" SCNu64 " %" SCNx64 " %u %u %u %u", &key, &hash,
                                &owners[0], &owners[1], &owners[2], &owners[3]),
                         6);
        assert_true(hash == sl_hash_key(key));
        static const uint32_t counts[4] = {2, 3, 7, 4096};
        for (size_t i = 0; i < 4; i++) {
            assert_int_equal(owners[i], sl_partition_owner(key, counts[i]));
        }
        lines++;
    }
    fclose(page);
    assert_true(lines > 3);
}

SL_CASE(protocol_page__tells_the_owners_of_keys_of_kv_tables)
{
    FILE *page = open_block("kv-partition");
    char line[256];
    int lines = 0;
    while (next_line(page, line, sizeof line)) {
        uint64_t key;
        uint32_t owners[4];
        assert_int_equal(sscanf(line, "%" SCNu64 " %u %u %u %u", &key, &owners[0], &owners[1],
                                &owners[2], &owners[3]),
                         5);
        static const uint32_t counts[4] = {2, 3, 7, 4096};
        for (size_t i = 0; i < 4; i++) {
            assert_int_equal(owners[i], sl_partition_kv_owner(key, counts[i]));
            assert_true(sl_partition_kv_first(owners[i], counts[i]) <= key);
        }
        lines++;
    }
    fclose(page);
    assert_true(lines > 3);
}

SL_CASE(protocol_page__tells_the_owners_of_dense_ranges)
{
    FILE *page = open_block("ranges");
    char line[256];
    int lines = 0;
    while (next_line(page, line, sizeof line)) {
        uint64_t length, first, end;
        uint32_t count, table_id, shard, range;
        assert_int_equal(sscanf(line, "%" SCNu64 " %u %u %u %u %" SCNu64 " %" SCNu64, &length,
                                &count, &table_id, &shard, &range, &first, &end),
                         7);
        assert_int_equal(range, sl_partition_range_of_shard(table_id, shard, count));
        assert_int_equal(shard, sl_partition_shard_of_range(table_id, range, count));
        assert_true(first == sl_partition_range_start(length, count, range));
        assert_true(end == sl_partition_range_start(length, count, range + 1));
        lines++;
    }
    fclose(page);
    assert_true(lines > 3);
}

/* The messages of the page and control.proto are the same, comments apart. */
SL_CASE(protocol_page__lists_every_field)
{
    FILE *proto = fopen(CONTROL_PROTO, "r");
    assert_non_null(proto);
    char line[512];
    int fields = 0;
    while (fgets(line, sizeof line, proto) != NULL) {
        char *end = strchr(line, ';');
        char *comment = strstr(line, "//");
        char *equals = strchr(line, '=');
        if (end == NULL || equals == NULL || (comment != NULL && comment < end) ||
            strncmp(line, "  ", 2) != 0 || strstr(line, "_UNSET") != NULL ||
            strstr(line, "PURPOSE_") != NULL || strstr(line, "ROLE_") != NULL) {
            continue;
        }
        end[1] = '\0';
        FILE *page = open_block("proto");
        char shown[512];
        bool found = false;
        while (!found && next_line(page, shown, sizeof shown)) {
            found = strncmp(shown, line, strlen(line)) == 0;
        }
        fclose(page);
        if (!found) {
            fail_msg("the page lacks: %s", line);
        }
        fields++;
    }
    fclose(proto);
    assert_true(fields > 60);
}
