#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "net/session/message.h"
#include "random_message.h"
#include "tests/support/unit.h"

/* The kinds before those of message_transfer_test.c, and REPORT. */
static const enum sl_message_kind LATER[] = {SL_MESSAGE_REPORT,
                                             SL_MESSAGE_TABLES_GET,
                                             SL_MESSAGE_TABLES,
                                             SL_MESSAGE_OPERATION,
                                             SL_MESSAGE_OPERATION_ALLOWED,
                                             SL_MESSAGE_PLACEMENT_CHANGE,
                                             SL_MESSAGE_PLACEMENT_CHANGED,
                                             SL_MESSAGE_RELAY,
                                             SL_MESSAGE_RELAY_ANSWER};
#define LATER_COUNT (int)(sizeof LATER / sizeof LATER[0])
#define KIND_COUNT  (SL_MESSAGE_CHECKPOINT_DONE - SL_MESSAGE_HELLO + 1 + LATER_COUNT)

static enum sl_message_kind kind_of(int i)
{
    const int index = i % KIND_COUNT;
    return index < LATER_COUNT ? LATER[index]
                               : (enum sl_message_kind)(SL_MESSAGE_HELLO + index - LATER_COUNT);
}

static void random_endpoint(uint64_t *seed, char *to, size_t to_bytes)
{
    snprintf(to, to_bytes, "tcp://10.0.%d.%d:%d", (int)(sl_hash_random(seed) % 256),
             (int)(sl_hash_random(seed) % 256), (int)(1 + sl_hash_random(seed) % 65535));
}

/* Half of the ps have none. */
static void random_bypass_endpoint(uint64_t *seed, char *to, size_t to_bytes)
{
    if (sl_hash_random(seed) % 2 == 0) {
        snprintf(to, to_bytes, "rdma://[fe80::%d]:%d", (int)(sl_hash_random(seed) % 1000),
                 (int)(1 + sl_hash_random(seed) % 65535));
    }
}

static void random_bytes(uint64_t *seed, uint8_t *to, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        to[i] = (uint8_t)sl_hash_random(seed);
    }
}

static void random_hello(uint64_t *seed, struct sl_message_hello *to)
{
    to->protocol_version = (uint32_t)sl_hash_random(seed);
    to->purpose = (enum sl_message_purpose)(1 + sl_hash_random(seed) % 4);
    to->role = to->purpose == SL_MESSAGE_PURPOSE_REPLICA ? SL_MESSAGE_ROLE_PS
               : to->purpose == SL_MESSAGE_PURPOSE_TRANSFER
                   ? SL_MESSAGE_ROLE_CLIENT
                   : (enum sl_message_role)(1 + sl_hash_random(seed) % 3);
    uint32_t tasks = to->role == SL_MESSAGE_ROLE_PS       ? SL_LIMIT_PS
                     : to->role == SL_MESSAGE_ROLE_WORKER ? SL_LIMIT_WORKERS
                                                          : 1;
    to->any_task = sl_hash_random(seed) % 2 == 0;
    to->task_index = to->any_task ? 0 : (uint32_t)(sl_hash_random(seed) % tasks);
    to->client_id = sl_hash_random(seed);
    to->shard = (uint32_t)(sl_hash_random(seed) % (2 * SL_LIMIT_REACTORS));
    to->checksum = sl_hash_random(seed) % 2 == 0;
    to->join_running = sl_hash_random(seed) % 2 == 0;
    to->epoch = 1 + sl_hash_random(seed) % 1000;
    to->state = sl_hash_random(seed);
    to->incarnation = sl_hash_random(seed);
    to->lane = (uint32_t)(sl_hash_random(seed) % 4);
    to->lane_epoch = to->lane == 0 ? 0 : 1 + sl_hash_random(seed) % 1000;
    to->secret = (enum sl_message_secret)(sl_hash_random(seed) % 2);
    to->beside = to->role == SL_MESSAGE_ROLE_CLIENT
                     ? (uint32_t)(sl_hash_random(seed) % (SL_MESSAGE_BESIDE_PS + SL_LIMIT_PS))
                     : 0;
    to->has_nonce = sl_hash_random(seed) % 2 == 0;
    if (to->has_nonce) {
        random_bytes(seed, to->nonce, sizeof to->nonce);
    }
    random_message_name(seed, to->software, sizeof to->software);
}

static void random_cluster(uint64_t *seed, struct sl_message_cluster *to)
{
    to->ps_count = (uint32_t)(1 + sl_hash_random(seed) % 30);
    to->worker_count = (uint32_t)(sl_hash_random(seed) % (SL_LIMIT_WORKERS + 1));
    to->restore = sl_hash_random(seed) % 2 == 0 ? 0 : random_message_number(seed);
    to->kept_to = sl_hash_random(seed) % 2 == 0 ? 0 : random_message_number(seed);
    to->job = sl_hash_random(seed);
    to->ps = calloc(to->ps_count, sizeof *to->ps);
    for (uint32_t i = 0; i < to->ps_count; i++) {
        to->ps[i].task_index = 3 * i + (uint32_t)(sl_hash_random(seed) % 3);
        random_endpoint(seed, to->ps[i].data_endpoint, sizeof to->ps[i].data_endpoint);
        random_bypass_endpoint(seed, to->ps[i].bypass_endpoint, sizeof to->ps[i].bypass_endpoint);
    }
    random_message_placements(seed, to);
}

static void random_register(uint64_t *seed, struct sl_message_register *to)
{
    to->shard_count = (uint32_t)(sl_hash_random(seed) % SL_LIMIT_REACTORS);
    to->ps_count = (uint32_t)(sl_hash_random(seed) % SL_LIMIT_PS);
    to->worker_count = (uint32_t)(sl_hash_random(seed) % SL_LIMIT_WORKERS);
    if (to->shard_count != 0) {
        random_endpoint(seed, to->data_endpoint, sizeof to->data_endpoint);
        random_bypass_endpoint(seed, to->bypass_endpoint, sizeof to->bypass_endpoint);
    }
    to->restore = sl_hash_random(seed) % 2 == 0 ? 0 : random_message_number(seed);
    to->checkpoint_newest = sl_hash_random(seed) % 2 == 0 ? 0 : random_message_number(seed);
    to->serving = sl_hash_random(seed) % 2 == 0;
    to->has_tables = sl_hash_random(seed) % 2 == 0;
    to->job = sl_hash_random(seed);
    to->unclaimed = random_message_number(seed);
    random_message_lists(seed, to);
}

static void random_tables(uint64_t *seed, struct sl_message_tables *to)
{
    to->count = (uint32_t)(sl_hash_random(seed) % (SL_MESSAGE_TABLES_MAX + 1));
    to->next = (uint32_t)(sl_hash_random(seed) % SL_LIMIT_TABLES);
    to->specs = calloc(to->count + 1, sizeof *to->specs);
    for (uint32_t i = 0; i < to->count; i++) {
        to->specs[i] = random_message_spec(seed);
    }
}

static void random_opened(uint64_t *seed, struct sl_message *to)
{
    to->table_id = (uint32_t)(sl_hash_random(seed) % SL_LIMIT_TABLES);
    to->reject_nonfinite = sl_hash_random(seed) % 2 == 0;
    to->knows = (uint32_t)sl_hash_random(seed);
    to->keeps_policy = sl_hash_random(seed) % 2 == 0;
    if (to->keeps_policy) {
        to->policy = random_message_spec(seed).policy;
    }
}

static void random_moves(uint64_t *seed, struct sl_message_moves *to)
{
    to->count = (uint32_t)(sl_hash_random(seed) % 20);
    to->items = calloc(to->count + 1, sizeof *to->items);
    for (uint32_t i = 0; i < to->count; i++) {
        to->items[i].shard = (uint32_t)(sl_hash_random(seed) % SL_LIMIT_SHARDS);
        to->items[i].from = (uint32_t)(sl_hash_random(seed) % SL_LIMIT_PS);
        to->items[i].to = (uint32_t)(sl_hash_random(seed) % SL_LIMIT_PS);
    }
}

static void random_relay(uint64_t *seed, struct sl_message_relay *to)
{
    to->group = 1U << sl_hash_random(seed) % 3;
    to->rank = (uint32_t)(sl_hash_random(seed) % SL_LIMIT_WORKERS);
    to->timeout_ms = (uint32_t)sl_hash_random(seed);
    to->err = -(int)(sl_hash_random(seed) % (uint64_t)-SL_ERR_CANCELLED);
    to->head = (uint32_t)sl_hash_random(seed);
    to->token = sl_hash_random(seed);
    to->body_bytes = (uint32_t)(sl_hash_random(seed) % 300);
    to->body = malloc(to->body_bytes + 1);
    random_bytes(seed, to->body, to->body_bytes);
}

static void random_change(uint64_t *seed, struct sl_message *to)
{
    if (to->kind == SL_MESSAGE_PLACEMENT_CHANGE) {
        to->placement_change.verb = (enum sl_message_placement_verb)(sl_hash_random(seed) % 3);
        to->placement_change.shard = (uint32_t)(sl_hash_random(seed) % SL_LIMIT_SHARDS);
        to->placement_change.task = (uint32_t)(sl_hash_random(seed) % SL_LIMIT_PS);
        to->placement_change.dry_run = sl_hash_random(seed) % 2 == 0;
    } else if (to->kind == SL_MESSAGE_PLACEMENT_CHANGED) {
        random_moves(seed, &to->moves);
    } else if (to->kind == SL_MESSAGE_RELAY || to->kind == SL_MESSAGE_RELAY_ANSWER) {
        random_relay(seed, &to->relay);
    }
}
static void random_body(uint64_t *seed, struct sl_message *to)
{
    switch (to->kind) {
    case SL_MESSAGE_HELLO:
        random_hello(seed, &to->hello);
        break;
    case SL_MESSAGE_WELCOME:
        to->welcome.protocol_version = (uint32_t)sl_hash_random(seed);
        to->welcome.credit_bytes = sl_hash_random(seed);
        to->welcome.credit_requests = (uint32_t)sl_hash_random(seed);
        to->welcome.shard_count = (uint32_t)(1 + sl_hash_random(seed) % SL_LIMIT_SHARDS);
        to->welcome.shard = (uint32_t)(sl_hash_random(seed) % to->welcome.shard_count);
        to->welcome.payload_bytes_max = SL_LIMIT_FRAME_PAYLOAD_BYTES;
        to->welcome.incarnation = sl_hash_random(seed);
        to->welcome.resumed = sl_hash_random(seed) % 2 == 0;
        to->welcome.restored = sl_hash_random(seed) % 2 == 0;
        to->welcome.counts = sl_hash_random(seed) % 2 == 0;
        to->welcome.clock = (uint32_t)sl_hash_random(seed);
        to->welcome.lease_ms = (uint32_t)sl_hash_random(seed);
        to->welcome.spread_ms = (uint32_t)(sl_hash_random(seed) % SL_MESSAGE_SPREAD_MS_MAX);
        to->welcome.task_index = (uint32_t)(sl_hash_random(seed) % SL_LIMIT_WORKERS);
        to->welcome.position = sl_hash_random(seed);
        to->welcome.knows = (uint32_t)sl_hash_random(seed);
        to->welcome.wants_reports = sl_hash_random(seed) % 2 == 0;
        random_message_name(seed, to->welcome.software, sizeof to->welcome.software);
        random_message_name(seed, to->welcome.http, sizeof to->welcome.http);
        break;
    case SL_MESSAGE_ERROR:
        to->error.err = -(int)(1 + sl_hash_random(seed) % (uint64_t)-SL_ERR_CANCELLED);
        random_message_name(seed, to->error.text, sizeof to->error.text);
        break;
    case SL_MESSAGE_REGISTER:
        random_register(seed, &to->reg);
        break;
    case SL_MESSAGE_CLUSTER:
        random_cluster(seed, &to->cluster);
        break;
    case SL_MESSAGE_WAITING:
        to->waiting.missing_count =
            (uint32_t)(sl_hash_random(seed) % (SL_MESSAGE_MISSING_COUNT + 1));
        for (uint32_t i = 0; i < to->waiting.missing_count; i++) {
            random_message_name(seed, to->waiting.missing[i], sizeof to->waiting.missing[i]);
        }
        break;
    case SL_MESSAGE_TABLE_OPEN:
        to->table_open.spec = random_message_spec(seed);
        to->table_open.table_id = (uint32_t)(sl_hash_random(seed) % SL_LIMIT_TABLES);
        to->table_open.keep_id = sl_hash_random(seed) % 2 == 0;
        to->table_open.asks = sl_hash_random(seed) % 2 == 0;
        to->table_open.is_restored = sl_hash_random(seed) % 2 == 0;
        break;
    case SL_MESSAGE_TABLE_OPENED:
        random_opened(seed, to);
        break;
    case SL_MESSAGE_BARRIER:
        random_message_name(seed, to->barrier.name, sizeof to->barrier.name);
        to->barrier.count = (uint32_t)(sl_hash_random(seed) % SL_LIMIT_WORKERS);
        to->barrier.timeout_ms = (uint32_t)sl_hash_random(seed);
        to->barrier.leaves = sl_hash_random(seed) % 2 == 0;
        to->barrier.groups = (uint32_t)(sl_hash_random(seed) % (SL_MESSAGE_GROUPS + 1));
        break;
    case SL_MESSAGE_CHALLENGE:
        random_bytes(seed, to->challenge.nonce, sizeof to->challenge.nonce);
        break;
    case SL_MESSAGE_PROOF:
        random_bytes(seed, to->proof.proof, sizeof to->proof.proof);
        break;
    case SL_MESSAGE_EXPIRED:
        to->expired.role = (enum sl_message_role)(SL_MESSAGE_ROLE_PS + sl_hash_random(seed) % 2);
        to->expired.task_index = (uint32_t)(sl_hash_random(seed) % SL_LIMIT_PS);
        to->expired.client_id = sl_hash_random(seed);
        random_message_name(seed, to->expired.why, sizeof to->expired.why);
        break;
    case SL_MESSAGE_JOIN:
    case SL_MESSAGE_JOINED:
        to->clock = (uint32_t)sl_hash_random(seed);
        break;
    case SL_MESSAGE_TABLES_GET:
        to->table_id = (uint32_t)(sl_hash_random(seed) % SL_LIMIT_TABLES);
        break;
    case SL_MESSAGE_TABLES:
        random_tables(seed, &to->tables);
        break;
    case SL_MESSAGE_OPERATION:
    case SL_MESSAGE_ENDED:
        random_message_name(seed, to->why, sizeof to->why);
        break;
    case SL_MESSAGE_STATS:
        random_message_stats(seed, &to->stats);
        break;
    case SL_MESSAGE_CHECKPOINT:
        to->checkpoint.number = random_message_number(seed);
        to->checkpoint.base = sl_hash_random(seed) % to->checkpoint.number;
        to->checkpoint.complete = sl_hash_random(seed) % to->checkpoint.number;
        break;
    case SL_MESSAGE_CHECKPOINT_PART:
        random_message_part(seed, &to->checkpoint_part);
        break;
    case SL_MESSAGE_CHECKPOINT_PUBLISH:
        random_message_complete(seed, &to->checkpoint_publish);
        break;
    case SL_MESSAGE_CHECKPOINT_ASK:
        to->timeout_ms = (uint32_t)sl_hash_random(seed);
        break;
    case SL_MESSAGE_CHECKPOINT_DONE:
        to->checkpoint_number = random_message_number(seed);
        break;
    case SL_MESSAGE_REPORT:
        to->report.byte_count = (uint32_t)(sl_hash_random(seed) % 300);
        to->report.bytes = malloc(to->report.byte_count + 1);
        random_bytes(seed, to->report.bytes, to->report.byte_count);
        break;
    case SL_MESSAGE_BARRIER_DONE:
    case SL_MESSAGE_STATS_GET:
    case SL_MESSAGE_GOODBYE:
    case SL_MESSAGE_HEARTBEAT:
    default: /* message_transfer_test.c has the others */
        break;
    }
}

static void random_message(uint64_t *seed, enum sl_message_kind kind, struct sl_message *to)
{
    memset(to, 0, sizeof *to);
    to->kind = kind;
    to->id = sl_hash_random(seed) >> sl_hash_random(seed) % 64;
    random_body(seed, to);
    random_change(seed, to);
}

SL_CASE(message_decode__returns_what_was_encoded)
{
    uint64_t seed = 1;
    for (int i = 0; i < 3000; i++) {
        struct sl_message message;
        random_message(&seed, kind_of(i), &message);
        random_message_assert_returned(&message);
        sl_message_fini(&message);
    }
}

static void decode_and_forget(const uint8_t *from, size_t bytes)
{
    struct sl_message decoded;
    int err = sl_message_decode(from, bytes, &decoded);
    assert_true(err == SL_OK || err == SL_ERR_PROTOCOL);
    if (err == SL_OK) {
        /* What was let in can be sent on. */
        size_t again_bytes;
        free(random_message_encode(&decoded, &again_bytes));
        sl_message_fini(&decoded);
    }
}

SL_CASE(message_decode__survives_every_changed_byte)
{
    uint64_t seed = 3;
    for (int i = 0; i < 2 * KIND_COUNT; i++) {
        struct sl_message message;
        random_message(&seed, kind_of(i), &message);
        size_t bytes;
        uint8_t *encoded = random_message_encode(&message, &bytes);
        for (size_t at = 0; at < bytes; at++) {
            uint8_t was = encoded[at];
            for (int change = 0; change < 3; change++) {
                encoded[at] = (uint8_t)sl_hash_random(&seed);
                decode_and_forget(encoded, bytes);
            }
            encoded[at] = was;
        }
        sl_message_fini(&message);
        free(encoded);
    }
}

SL_CASE(message_decode__ignores_fields_that_are_not_known)
{
    /* TableOpened {1: 5, 9: 77} beside Control field 100. */
    static const uint8_t bytes[] = {0x4a, 0x04, 0x08, 0x05, 0x48, 0x4d, 0xa2, 0x06, 0x01, 'x'};
    struct sl_message decoded;
    assert_int_equal(sl_message_decode(bytes, sizeof bytes, &decoded), SL_OK);
    assert_int_equal(decoded.kind, SL_MESSAGE_TABLE_OPENED);
    assert_int_equal(decoded.table_id, 5);
}

/* A Barrier of count 1 with a name of these bytes. */
static int decode_barrier_named(const char *name, size_t name_bytes)
{
    uint8_t bytes[128];
    assert_true(name_bytes < 100);
    bytes[0] = 10 << 3 | 2;
    bytes[1] = (uint8_t)(name_bytes + 4);
    bytes[2] = 1 << 3 | 2;
    bytes[3] = (uint8_t)name_bytes;
    memcpy(bytes + 4, name, name_bytes);
    bytes[4 + name_bytes] = 2 << 3;
    bytes[5 + name_bytes] = 1;
    struct sl_message decoded;
    return sl_message_decode(bytes, 6 + name_bytes, &decoded);
}

SL_CASE(message_decode__refuses_odd_names)
{
    char full[SL_MESSAGE_NAME_BYTES + 1];
    memset(full, 'n', sizeof full);
    assert_int_equal(decode_barrier_named("epoch 3", 7), SL_OK);
    assert_int_equal(decode_barrier_named("", 0), SL_ERR_PROTOCOL);
    assert_int_equal(decode_barrier_named("a\0b", 3), SL_ERR_PROTOCOL);
    assert_int_equal(decode_barrier_named("ab\0", 3), SL_ERR_PROTOCOL);
    assert_int_equal(decode_barrier_named("a\nb", 3), SL_ERR_PROTOCOL);
    assert_int_equal(decode_barrier_named("a\x7f", 2), SL_ERR_PROTOCOL);
    assert_int_equal(decode_barrier_named("\xc3\xa4", 2), SL_ERR_PROTOCOL);
    assert_int_equal(decode_barrier_named(full, SL_MESSAGE_NAME_BYTES - 1), SL_OK);
    assert_int_equal(decode_barrier_named(full, SL_MESSAGE_NAME_BYTES), SL_ERR_PROTOCOL);
}

static int decode_bytes(const uint8_t *bytes, size_t byte_count)
{
    struct sl_message decoded;
    return sl_message_decode(bytes, byte_count, &decoded);
}

/* A Proof, or a Challenge, whose field has this length. */
static int decode_proof_of(uint8_t kind, uint8_t field_bytes)
{
    uint8_t bytes[160] = {0};
    size_t at = 2;
    bytes[at++] = 1 << 3 | 2;
    bytes[at++] = field_bytes;
    at += field_bytes;
    /* Field numbers from 16 on take two bytes. */
    uint8_t message[168];
    size_t head = 0;
    uint32_t key = (uint32_t)kind << 3 | 2;
    if (key >= 0x80) {
        message[head++] = (uint8_t)(0x80 | (key & 0x7f));
        key >>= 7;
    }
    message[head++] = (uint8_t)key;
    message[head++] = (uint8_t)(at - 2);
    memcpy(message + head, bytes + 2, at - 2);
    return decode_bytes(message, head + at - 2);
}

SL_CASE(message_decode__refuses_nonces_and_proofs_of_other_lengths)
{
    assert_int_equal(decode_proof_of(SL_MESSAGE_PROOF, 32), SL_OK);
    assert_int_equal(decode_proof_of(SL_MESSAGE_PROOF, 31), SL_ERR_PROTOCOL);
    assert_int_equal(decode_proof_of(SL_MESSAGE_PROOF, 33), SL_ERR_PROTOCOL);
    assert_int_equal(decode_proof_of(SL_MESSAGE_PROOF, 0), SL_ERR_PROTOCOL);
    assert_int_equal(decode_proof_of(SL_MESSAGE_CHALLENGE, 32), SL_OK);
    assert_int_equal(decode_proof_of(SL_MESSAGE_CHALLENGE, 31), SL_ERR_PROTOCOL);
    assert_int_equal(decode_proof_of(SL_MESSAGE_CHALLENGE, 33), SL_ERR_PROTOCOL);
    assert_int_equal(decode_proof_of(SL_MESSAGE_CHALLENGE, 0), SL_ERR_PROTOCOL);
    /* Hello {2: 2, 3: 2, 9: nonce of one byte}. */
    static const uint8_t hello[] = {0x12, 7, 0x10, 2, 0x18, 2, 0x4a, 1, 'x'};
    assert_int_equal(decode_bytes(hello, sizeof hello), SL_ERR_PROTOCOL);
}

SL_CASE(message_decode__refuses_odd_losses)
{
    /* Lost {1: role, 2: task}. */
    uint8_t lost[] = {0x92, 0x01, 5, 0x08, 2, 0x10, 0x80, 0x08};
    assert_int_equal(decode_bytes(lost, sizeof lost), SL_OK); /* worker/1024 */
    lost[4] = 1;
    assert_int_equal(decode_bytes(lost, sizeof lost), SL_ERR_PROTOCOL); /* ps/1024 */
    lost[6] = 0xff;
    lost[7] = 0x07;
    assert_int_equal(decode_bytes(lost, sizeof lost), SL_OK); /* ps/1023 */
    lost[4] = 3;
    assert_int_equal(decode_bytes(lost, sizeof lost), SL_ERR_PROTOCOL);
    lost[4] = 0;
    assert_int_equal(decode_bytes(lost, sizeof lost), SL_ERR_PROTOCOL);
}

static int register_with_bypass(const char *bypass, uint32_t shard_count)
{
    struct sl_message message = {.kind = SL_MESSAGE_REGISTER, .reg = {.shard_count = shard_count}};
    if (shard_count != 0) {
        snprintf(message.reg.data_endpoint, sizeof message.reg.data_endpoint, "tcp://h:1");
    }
    snprintf(message.reg.bypass_endpoint, sizeof message.reg.bypass_endpoint, "%s", bypass);
    return random_message_decode(&message);
}

SL_CASE(message_decode__leaves_odd_bypass_endpoints_to_who_uses_them)
{
    assert_int_equal(register_with_bypass("", 1), SL_OK);
    assert_int_equal(register_with_bypass("rdma://h:1", 1), SL_OK);
    assert_int_equal(register_with_bypass("rdma://", 1), SL_OK);
    assert_int_equal(register_with_bypass("carrier://h:1", 1), SL_OK);
    assert_int_equal(register_with_bypass("carrier://\n:1", 1), SL_ERR_PROTOCOL);
    assert_int_equal(register_with_bypass("rdma://h:1", 0), SL_ERR_PROTOCOL);
    struct sl_message_ps ps = {.shard_count = 1, .data_endpoint = "tcp://h:1"};
    snprintf(ps.bypass_endpoint, sizeof ps.bypass_endpoint, "carrier://h:1");
    struct sl_message_placement placement = {.epoch = 1};
    struct sl_message cluster = {
        .kind = SL_MESSAGE_CLUSTER,
        .cluster = {.ps = &ps, .ps_count = 1, .placements = &placement, .shard_count = 1},
    };
    assert_int_equal(random_message_decode(&cluster), SL_OK);
}

SL_CASE(message_decode__defuses_texts_for_people)
{
    struct sl_message message = {.kind = SL_MESSAGE_ERROR, .error = {.err = SL_ERR_EXISTS}};
    snprintf(message.error.text, sizeof message.error.text, "%s", "f\xc3\xbcr \x1b[31m\n");
    size_t bytes;
    uint8_t *encoded = random_message_encode(&message, &bytes);
    struct sl_message decoded;
    assert_int_equal(sl_message_decode(encoded, bytes, &decoded), SL_OK);
    assert_string_equal(decoded.error.text, "f\xc3\xbcr ?[31m?");
    free(encoded);
}

SL_CASE(message_decode__makes_unknown_codes_protocol_errors)
{
    static const struct {
        int code, err;
    } cases[] = {{0, SL_ERR_PROTOCOL},
                 {3, SL_ERR_DEADLINE},
                 {17, SL_ERR_CANCELLED},
                 {18, SL_ERR_PROTOCOL},
                 {127, SL_ERR_PROTOCOL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const uint8_t bytes[] = {0x22, 0x02, 0x08, (uint8_t)cases[i].code};
        struct sl_message decoded;
        assert_int_equal(sl_message_decode(bytes, sizeof bytes, &decoded), SL_OK);
        assert_int_equal(decoded.error.err, cases[i].err);
    }
}

/* Half a million empty entries in a mebibyte: each would cost 700 bytes. */
SL_CASE(message_decode__bounds_what_a_hostile_message_costs)
{
    const uint32_t inner = SL_LIMIT_CONTROL_PAYLOAD_BYTES - 8;
    uint8_t *bytes = malloc(SL_LIMIT_CONTROL_PAYLOAD_BYTES);
    bytes[0] = 6 << 3 | 2; /* Cluster */
    bytes[1] = (uint8_t)(0x80 | (inner & 0x7f));
    bytes[2] = (uint8_t)(0x80 | (inner >> 7 & 0x7f));
    bytes[3] = (uint8_t)(inner >> 14);
    for (uint32_t i = 0; i < inner; i += 2) {
        bytes[4 + i] = 1 << 3 | 2; /* a Ps of 0 bytes */
        bytes[5 + i] = 0;
    }
    struct sl_message decoded;
    assert_int_equal(sl_message_decode(bytes, 4 + inner, &decoded), SL_ERR_PROTOCOL);
    free(bytes);
}

#define HOST_BYTES_MAX 240 /* that an endpoint may have */

SL_CASE(message_decode__takes_the_largest_cluster)
{
    struct sl_message message = {.kind = SL_MESSAGE_CLUSTER};
    message.cluster.ps_count = SL_LIMIT_PS;
    message.cluster.ps = calloc(SL_LIMIT_PS, sizeof *message.cluster.ps);
    message.cluster.shard_count = SL_LIMIT_SHARDS;
    message.cluster.placements = calloc(SL_LIMIT_SHARDS, sizeof *message.cluster.placements);
    for (uint32_t shard = 0; shard < SL_LIMIT_SHARDS; shard++) {
        message.cluster.placements[shard] = (struct sl_message_placement){
            .epoch = UINT64_MAX, .primary = SL_LIMIT_PS - 1, .backup_plus_1 = SL_LIMIT_PS - 1};
    }
    for (uint32_t i = 0; i < SL_LIMIT_PS; i++) {
        struct sl_message_ps *ps = &message.cluster.ps[i];
        ps->task_index = i;
        ps->shard_count = SL_LIMIT_SHARDS / SL_LIMIT_PS;
        ps->first_shard = i * ps->shard_count;
        memset(ps->data_endpoint, 'h', HOST_BYTES_MAX);
        memcpy(ps->data_endpoint + HOST_BYTES_MAX, ":65535", 7);
        memcpy(ps->bypass_endpoint, "rdma://", 7);
        memset(ps->bypass_endpoint + 7, 'h', HOST_BYTES_MAX);
        memcpy(ps->bypass_endpoint + 7 + HOST_BYTES_MAX, ":65535", 7);
    }
    assert_int_equal(random_message_decode(&message), SL_OK);
    message.cluster.ps[SL_LIMIT_PS - 1].shard_count++;
    assert_int_equal(random_message_decode(&message), SL_ERR_PROTOCOL);
    message.cluster.ps[SL_LIMIT_PS - 1].shard_count--;
    message.cluster.values_lost = SL_LIMIT_PS + 1;
    assert_int_equal(random_message_decode(&message), SL_ERR_PROTOCOL);
    message.cluster.values_lost = SL_LIMIT_PS;
    assert_int_equal(random_message_decode(&message), SL_OK);
    message.cluster.ps[1].first_shard--;
    assert_int_equal(random_message_decode(&message), SL_ERR_PROTOCOL);
    message.cluster.ps[1].first_shard++;
    message.cluster.ps[1].task_index = 0;
    assert_int_equal(random_message_decode(&message), SL_ERR_PROTOCOL);
    sl_message_fini(&message);
}

SL_CASE(message_decode__refuses_shards_at_servers_that_are_not_listed)
{
    struct sl_message_ps ps[] = {{.task_index = 1, .shard_count = 2, .data_endpoint = "tcp://h:1"},
                                 {.task_index = 4, .data_endpoint = "tcp://h:2"}};
    struct sl_message_placement placements[] = {{.epoch = 1, .primary = 4, .backup_plus_1 = 2},
                                                {.epoch = 7, .primary = 1}};
    struct sl_message message = {
        .kind = SL_MESSAGE_CLUSTER,
        .cluster = {.ps = ps, .ps_count = 2, .placements = placements, .shard_count = 2},
    };
    assert_int_equal(random_message_decode(&message), SL_OK);
    placements[1].primary = 2; /* drained */
    assert_int_equal(random_message_decode(&message), SL_ERR_PROTOCOL);
    placements[1].primary = 1;
    placements[0].backup_plus_1 = 3;
    assert_int_equal(random_message_decode(&message), SL_ERR_PROTOCOL);
    placements[0].backup_plus_1 = 5; /* its own */
    assert_int_equal(random_message_decode(&message), SL_ERR_PROTOCOL);
    placements[0].backup_plus_1 = 0;
    placements[0].epoch = 0;
    assert_int_equal(random_message_decode(&message), SL_ERR_PROTOCOL);
    placements[0].epoch = 1;
    message.cluster.shard_count = 1; /* of two home shards */
    assert_int_equal(random_message_decode(&message), SL_ERR_PROTOCOL);
}

static int decode_hello_beside(enum sl_message_role role, uint32_t beside)
{
    const struct sl_message message = {
        .kind = SL_MESSAGE_HELLO,
        .hello = {.purpose = SL_MESSAGE_PURPOSE_CONTROL, .role = role, .beside = beside}};
    return random_message_decode(&message);
}

SL_CASE(message_decode__only_clients_are_beside_a_process)
{
    assert_int_equal(decode_hello_beside(SL_MESSAGE_ROLE_CLIENT, SL_MESSAGE_BESIDE_SCHEDULER), 0);
    assert_int_equal(
        decode_hello_beside(SL_MESSAGE_ROLE_CLIENT, SL_MESSAGE_BESIDE_PS + SL_LIMIT_PS - 1), 0);
    assert_int_equal(
        decode_hello_beside(SL_MESSAGE_ROLE_CLIENT, SL_MESSAGE_BESIDE_PS + SL_LIMIT_PS),
        SL_ERR_PROTOCOL);
    assert_int_equal(decode_hello_beside(SL_MESSAGE_ROLE_WORKER, SL_MESSAGE_BESIDE_SCHEDULER),
                     SL_ERR_PROTOCOL);
}

SL_CASE(message_decode__a_relay_is_for_one_process)
{
    static const struct {
        uint32_t group, rank;
        int err;
    } cases[] = {{1, 0, 0},
                 {4, SL_LIMIT_WORKERS - 1, 0},
                 {0, 0, SL_ERR_PROTOCOL},
                 {3, 0, SL_ERR_PROTOCOL},
                 {8, 0, SL_ERR_PROTOCOL},
                 {4, SL_LIMIT_WORKERS, SL_ERR_PROTOCOL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct sl_message message = {
            .kind = SL_MESSAGE_RELAY, .relay = {.group = cases[i].group, .rank = cases[i].rank}};
        assert_int_equal(random_message_decode(&message), cases[i].err);
    }
}
