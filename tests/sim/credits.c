#include "tests/sim/credits.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "net/session/message.h"
#include "tests/sim/oracle.h"

static struct sl_sim_credit *credit_of(struct sl_sim_credits *credits, uint64_t pair)
{
    if (pair >= credits->pair_capacity) {
        uint64_t capacity = 2 * pair + 64;
        credits->pairs = realloc(credits->pairs, capacity * sizeof *credits->pairs);
        sl_assert(credits->pairs != NULL);
        memset(credits->pairs + credits->pair_capacity, 0,
               (capacity - credits->pair_capacity) * sizeof *credits->pairs);
        credits->pair_capacity = capacity;
    }
    return &credits->pairs[pair];
}

static void welcome(struct sl_sim_credit *credit, const struct sl_sim_frame *frame)
{
    struct sl_message message;
    if (credit->granted_requests != 0 ||
        sl_message_decode(frame->payload, frame->header.payload_bytes, &message) != 0) {
        return;
    }
    if (message.kind == SL_MESSAGE_WELCOME && message.welcome.credit_requests > 0) {
        credit->granted_requests = credit->requests = message.welcome.credit_requests;
        credit->bytes = (int64_t)message.welcome.credit_bytes;
    }
    sl_message_fini(&message);
}

static void spend(struct sl_sim_credit *credit, struct sl_sim_oracle *oracle,
                  const struct sl_sim_frame *frame)
{
    credit->requests--;
    credit->bytes -= frame->header.payload_bytes + SL_FRAME_HEADER_BYTES;
    if (credit->requests < 0 || credit->bytes < 0) {
        sl_sim_fail(&oracle->breach, "memory",
                    "connection %" PRIu64 ": request %" PRIu64 " was sent without credit for it",
                    frame->pair, frame->header.request_id);
    }
}

static void grant(struct sl_sim_credit *credit, struct sl_sim_oracle *oracle,
                  const struct sl_sim_frame *frame)
{
    credit->requests += frame->header.credit_requests;
    credit->bytes += frame->header.credit_bytes;
    if (credit->requests > credit->granted_requests) {
        sl_sim_fail(&oracle->breach, "memory",
                    "connection %" PRIu64 ": more request credit came back than was granted",
                    frame->pair);
    }
}

void sl_sim_credits_frame(struct sl_sim_credits *credits, struct sl_sim_oracle *oracle,
                          const struct sl_sim_frame *frame)
{
    struct sl_sim_credit *credit = credit_of(credits, frame->pair);
    bool to_client = !frame->by_connector && frame->delivered;
    if (frame->header.type == SL_FRAME_REQUEST && frame->by_connector && !frame->delivered) {
        spend(credit, oracle, frame);
    } else if (to_client && frame->header.type == SL_FRAME_CONTROL) {
        welcome(credit, frame);
    } else if (to_client) {
        grant(credit, oracle, frame);
    }
}

void sl_sim_credits_fini(struct sl_sim_credits *credits)
{
    free(credits->pairs);
    *credits = (struct sl_sim_credits){0};
}
