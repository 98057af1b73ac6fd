/* What a cluster store may hold for a coordinator that takes over: pairs of any keys and values are
 * refused, or read into a coordinator that writes them again the same, and then takes any sequence
 * of messages, while the leader writes what changes. The input: which job, the pairs, and the
 * steps. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/log.h"
#include "net/session/message.h"
#include "ps/coordinator/leader.h"
#include "ps/coordinator/state.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/members.h"
#include "tests/fuzz/request_make.h"
#include "tests/support/memory_store.h"

#define PREFIX     "/j"
#define TTL_S      1000000 /* longer than all steps take */
#define PAIRS_MAX  64
#define STEPS_MAX  256
#define KEPT_TASKS 8  /* of workers, whose records are read again */
#define INDICES    32 /* of the records of a kind */

static const char *const NAMES[] = {"job", "ps", "worker", "table", "done"}; /* of the kinds */

struct world {
    struct fuzz_members members;
    struct memory_store *memory;
    struct sl_metastore *handle;
    struct sl_coordinator_options options; /* of every coordinator */
};

static void on_elected(void *ctx, struct sl_coordinator *coordinator, bool anew)
{
    ((struct world *)ctx)->members.coordinator = coordinator;
}

static void on_term_ended(void *ctx, const char *why)
{
    sl_assert(why[0] != '\0');
    ((struct world *)ctx)->members.coordinator = NULL;
}

static void on_leader(void *ctx, const struct sl_leader_record *leader)
{
}

static void on_wake(void *ctx)
{
}

static uint64_t on_now(void *ctx)
{
    return ((struct world *)ctx)->members.now_ns;
}

static void on_stage(void *ctx, enum sl_coordinator_stage stage, int err, const char *why)
{
    sl_assert(err <= 0);
    sl_assert(why != NULL);
}

static void on_changed(void *ctx, enum sl_coordinator_record kind, uint32_t index)
{
}

static void put_table(struct world *world, const char *key, uint32_t table_id)
{
    const struct sl_message message = {
        .kind = SL_MESSAGE_TABLE_OPEN,
        .table_open = {.spec = fuzz_request_spec(table_id % FUZZ_REQUEST_TABLES),
                       .table_id = table_id,
                       .keep_id = true},
    };
    uint8_t encoded[SL_LIMIT_INLINE_PAYLOAD_BYTES];
    sl_assert(sl_message_encoded_bytes(&message) <= sizeof encoded);
    sl_message_encode(&message, encoded);
    memory_store_put(world->memory, key, encoded, sl_message_encoded_bytes(&message));
}

/* False: that was the last one. */
static bool put_pair(struct world *world, struct sl_bytes *input)
{
    const uint8_t what = sl_bytes_u8(input);
    const uint32_t kind = what % 8;
    const uint32_t index = what / 8U;
    char key[SL_METASTORE_KEY_BYTES] = PREFIX "/state/";
    if (kind < 5) {
        (void)snprintf(key, sizeof key, PREFIX "/state/%s/%05u", NAMES[kind], index);
    } else if (kind == 5) {
        struct sl_bytes piece = fuzz_input_piece(input, 64);
        sl_bytes_copy(&piece, key + strlen(key), piece.left);
    } else {
        (void)snprintf(key, sizeof key, PREFIX "/state/table/%05u", index);
        put_table(world, key, index);
        return kind == 6;
    }
    struct sl_bytes value = fuzz_input_piece(input, UINT16_MAX);
    memory_store_put(world->memory, key, value.left == 0 ? (const uint8_t *)"" : value.next,
                     value.left);
    return true;
}

/* Another coordinator takes the record, and would write it likewise. */
static void copy_record(const struct sl_coordinator *from, struct sl_coordinator *to,
                        enum sl_coordinator_record kind, uint32_t index)
{
    uint8_t *value;
    uint8_t *again;
    size_t bytes;
    size_t again_bytes;
    struct sl_reason reason;
    sl_assert(sl_coordinator_record_write(from, kind, index, &value, &bytes) == 0);
    sl_assert(sl_coordinator_record_read(to, kind, index, value, bytes, &reason) == 0);
    sl_assert(sl_coordinator_record_write(to, kind, index, &again, &again_bytes) == 0);
    sl_assert(bytes == again_bytes);
    sl_assert(memcmp(value, again, bytes) == 0);
    free(value);
    free(again);
}

static void check_round_trip(const struct world *world, const struct sl_coordinator *from)
{
    struct sl_coordinator_options options = world->options;
    options.changed = on_changed;
    struct sl_coordinator *to;
    sl_assert(sl_coordinator_create(&options, &to) == 0);
    for (uint32_t i = 0; i < SL_COORDINATOR_DONE_BARRIERS; i++) {
        if (from->barriers.done[i].number != 0) {
            copy_record(from, to, SL_COORDINATOR_RECORD_DONE, i);
        }
    }
    copy_record(from, to, SL_COORDINATOR_RECORD_JOB, 0);
    for (uint32_t i = 0; i < from->options.ps_count; i++) {
        copy_record(from, to, SL_COORDINATOR_RECORD_PS, i);
    }
    for (uint32_t i = 0; i < from->tables.count; i++) {
        if (from->tables.specs[i].name[0] != '\0') {
            copy_record(from, to, SL_COORDINATOR_RECORD_TABLE, i);
        }
    }
    for (uint32_t i = 0; i < KEPT_TASKS; i++) {
        copy_record(from, to, SL_COORDINATOR_RECORD_WORKER, i);
    }
    sl_coordinator_destroy(&to);
}

/* The same for records that were only read, before a coordinator continues from them. */
static void check_read(const struct world *world)
{
    static const enum sl_coordinator_record KINDS[] = {
        SL_COORDINATOR_RECORD_DONE, SL_COORDINATOR_RECORD_JOB, SL_COORDINATOR_RECORD_PS,
        SL_COORDINATOR_RECORD_TABLE, SL_COORDINATOR_RECORD_WORKER};
    struct sl_coordinator_options options = world->options;
    options.changed = on_changed;
    struct sl_coordinator *from;
    struct sl_reason reason;
    int err = 0;
    sl_assert(sl_coordinator_create(&options, &from) == 0);
    for (uint32_t i = 0; i < 5 * INDICES && err == 0; i++) {
        char key[SL_METASTORE_KEY_BYTES];
        const uint32_t index = i % INDICES;
        (void)snprintf(key, sizeof key, PREFIX "/state/%s/%05u", NAMES[KINDS[i / INDICES]], index);
        const struct sl_metastore_item *item = memory_store_look(world->memory, key);
        err = item == NULL ? 0
                           : sl_coordinator_record_read(from, KINDS[i / INDICES], index,
                                                        item->value, item->value_bytes, &reason);
    }
    if (err == 0) {
        check_round_trip(world, from);
    }
    sl_coordinator_destroy(&from);
}

static void start(struct world *world, struct sl_bytes *input)
{
    const uint8_t how = sl_bytes_u8(input);
    world->memory = memory_store_create();
    world->handle = memory_store_handle(world->memory);
    for (uint32_t i = 0; i < PAIRS_MAX && fuzz_input_has_more(input); i++) {
        if (!put_pair(world, input)) {
            break;
        }
    }
    world->options = (struct sl_coordinator_options){
        .ps_count = 2,
        .worker_count = how % 4,
        .send = fuzz_members_send,
        .close = fuzz_members_close,
        .stage_changed = how % 4 != 0 && (how & 4) != 0 ? on_stage : NULL,
        .start_timeout_ns = (how & 8) != 0 ? 60 * SL_CLOCK_NS_PER_S : 0,
        .ctx = &world->members,
    };
    check_read(world);
    const struct sl_leader_options options = {
        .metastore = world->handle,
        .prefix = PREFIX,
        .campaigns = true,
        .id = 1,
        .name = "ps/0",
        .endpoint = "tcp://127.0.0.1:1",
        .ttl_s = TTL_S,
        .coordinator = world->options,
        .now_ns = on_now,
        .elected = on_elected,
        .term_ended = on_term_ended,
        .leader = on_leader,
        .wake = on_wake,
        .ctx = world,
    };
    sl_assert(sl_leader_create(&options, &world->members.leader) == 0);
    sl_leader_tick(world->members.leader);
    while (memory_store_answer(world->memory)) {
    }
}

static void step(struct world *world, struct sl_bytes *input)
{
    const uint8_t what = sl_bytes_u8(input);
    switch (what % 4) {
    case 0:
        memory_store_cut(world->handle, (what & 4) != 0, (what & 8) != 0);
        break;
    case 1:
        sl_leader_run(world->members.leader);
        (void)memory_store_answer(world->memory);
        break;
    default:
        fuzz_members_step(&world->members, input, NULL);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    sl_log_setup(SL_LOG_OFF, "fuzz");
    struct world world = {.members.now_ns = SL_CLOCK_NS_PER_S};
    struct sl_bytes input = sl_bytes_over(bytes, byte_count);
    start(&world, &input);
    if (world.members.coordinator != NULL) {
        check_round_trip(&world, world.members.coordinator);
    }
    for (uint32_t i = 0;
         i < STEPS_MAX && world.members.coordinator != NULL && fuzz_input_has_more(&input); i++) {
        step(&world, &input);
    }
    if (world.members.coordinator != NULL) {
        check_round_trip(&world, world.members.coordinator);
    }
    while (memory_store_answer(world.memory)) {
    }
    sl_leader_destroy(&world.members.leader);
    memory_store_destroy(world.memory);
    return 0;
}
