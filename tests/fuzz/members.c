#include "tests/fuzz/members.h"

#include "core/assert.h"
#include "core/clock.h"
#include "core/reason.h"
#include "tests/fuzz/input.h"

void fuzz_members_send(void *ctx, sl_coordinator_peer peer, const struct sl_message *message)
{
    const struct fuzz_members *members = ctx;
    sl_assert(peer < FUZZ_MEMBERS);
    sl_assert(members->here[peer]);
    (void)sl_message_encoded_bytes(message);
}

void fuzz_members_close(void *ctx, sl_coordinator_peer peer, const char *why)
{
    struct fuzz_members *members = ctx;
    sl_assert(peer < FUZZ_MEMBERS);
    members->here[peer] = false; /* nothing of it is taken any more */
}

static void take(struct fuzz_members *members, uint32_t member, const struct sl_message *message)
{
    struct sl_reason reason;
    if (message->kind != SL_MESSAGE_HELLO) {
        if (members->here[member]) {
            sl_coordinator_message(members->coordinator, member, message, members->now_ns);
        }
    } else if (!members->here[member]) {
        members->here[member] = sl_coordinator_hello(members->coordinator, member, &message->hello,
                                                     members->now_ns, &reason) == 0;
    }
}

void fuzz_members_step(struct fuzz_members *members, struct sl_bytes *input,
                       void (*check)(const struct sl_message *message))
{
    uint8_t what = sl_bytes_u8(input);
    uint32_t member = what % FUZZ_MEMBERS;
    struct sl_bytes piece = fuzz_input_piece(input, UINT16_MAX);
    struct sl_message message;
    if (piece.left > 0 && sl_message_decode(piece.next, piece.left, &message) == 0) {
        if (check != NULL) {
            check(&message);
        }
        take(members, member, &message);
        sl_message_fini(&message);
    } else if (what >= 192) {
        if (members->leader != NULL) {
            sl_leader_gone(members->leader, member);
        }
        sl_coordinator_gone(members->coordinator, member, what >= 224, members->now_ns);
        members->here[member] = false;
    } else {
        members->now_ns += what * 100 * SL_CLOCK_NS_PER_MS;
        sl_coordinator_tick(members->coordinator, members->now_ns);
    }
}
