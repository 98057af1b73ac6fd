/* Control messages: what decodes, encodes, and decodes again to the same; and a coordinator takes
 * any sequence of messages from any members. The input is a sequence of (member, length, message).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/log.h"
#include "ps/coordinator.h"
#include "tests/fuzz/input.h"

#define MEMBERS 6

struct world {
    struct sl_coordinator *coordinator;
    bool here[MEMBERS]; /* has said hello */
    uint64_t now_ns;
};

static void check_round_trip(const struct sl_message *message)
{
    size_t bytes = sl_message_encoded_bytes(message);
    uint8_t *encoded = malloc(2 * bytes);
    sl_assert(encoded != NULL);
    sl_message_encode(message, encoded);
    struct sl_message again;
    if (bytes <= SL_LIMIT_CONTROL_PAYLOAD_BYTES && sl_message_decode(encoded, bytes, &again) == 0) {
        sl_assert(sl_message_encoded_bytes(&again) == bytes);
        sl_message_encode(&again, encoded + bytes);
        sl_assert(memcmp(encoded, encoded + bytes, bytes) == 0);
        sl_message_fini(&again);
    } else {
        /* What was decoded once and is no longer than the limit decodes again. */
        sl_assert(bytes > SL_LIMIT_CONTROL_PAYLOAD_BYTES);
    }
    free(encoded);
}

static void send_nowhere(void *ctx, sl_coordinator_peer peer, const struct sl_message *message)
{
    const struct world *world = ctx;
    sl_assert(peer < MEMBERS);
    sl_assert(world->here[peer]);
    (void)sl_message_encoded_bytes(message);
}

static void close_member(void *ctx, sl_coordinator_peer peer, const char *why)
{
    (void)why;
    struct world *world = ctx;
    sl_assert(peer < MEMBERS);
    world->here[peer] = false; /* nothing of it is taken any more */
}

static void take(struct world *world, uint32_t member, const struct sl_message *message)
{
    char reason[SL_MESSAGE_TEXT_BYTES];
    if (message->kind != SL_MESSAGE_HELLO) {
        if (world->here[member]) {
            sl_coordinator_message(world->coordinator, member, message, world->now_ns);
        }
    } else if (!world->here[member]) {
        world->here[member] = sl_coordinator_hello(world->coordinator, member, &message->hello,
                                                   world->now_ns, reason, sizeof reason) == 0;
    }
}

static void step(struct world *world, struct sl_bytes *input)
{
    uint8_t what = sl_bytes_u8(input);
    uint32_t member = what % MEMBERS;
    struct sl_bytes piece = fuzz_input_piece(input, UINT16_MAX);
    struct sl_message message;
    if (piece.left > 0 && sl_message_decode(piece.next, piece.left, &message) == 0) {
        check_round_trip(&message);
        take(world, member, &message);
        sl_message_fini(&message);
    } else if (what >= 192) {
        sl_coordinator_gone(world->coordinator, member, what >= 224, world->now_ns);
        world->here[member] = false;
    } else {
        world->now_ns += what * 100 * SL_CLOCK_NS_PER_MS;
        sl_coordinator_tick(world->coordinator, world->now_ns);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    sl_log_setup(SL_LOG_OFF, "fuzz");
    struct world world = {.now_ns = SL_CLOCK_NS_PER_S};
    const struct sl_coordinator_options options = {
        .ps_count = 2,
        .send = send_nowhere,
        .close = close_member,
        .ctx = &world,
    };
    sl_assert(sl_coordinator_create(&options, &world.coordinator) == 0);
    struct sl_bytes input = sl_bytes_over(bytes, byte_count);
    while (fuzz_input_has_more(&input)) {
        step(&world, &input);
    }
    sl_coordinator_destroy(&world.coordinator);
    return 0;
}
