/* Control messages: what decodes, encodes, and decodes again to the same; and a coordinator takes
 * any sequence of messages from any members. The input is a sequence of (member, length, message).
 */
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/log.h"
#include "net/session/report.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/members.h"

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

static bool check_report(void *ctx, const struct sl_message_hello *member,
                         const struct sl_message_report *report)
{
    sl_assert(report->byte_count <= SL_REPORT_BYTES_MAX);
    return report->byte_count % 2 == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    sl_log_setup(SL_LOG_OFF, "fuzz");
    struct sl_coordinator_report_cells cells = {0};
    struct fuzz_members members = {.now_ns = SL_CLOCK_NS_PER_S};
    const struct sl_coordinator_options options = {
        .ps_count = 2,
        .send = fuzz_members_send,
        .close = fuzz_members_close,
        .report = check_report,
        .report_cells = &cells,
        .ctx = &members,
    };
    sl_assert(sl_coordinator_create(&options, &members.coordinator) == 0);
    struct sl_bytes input = sl_bytes_over(bytes, byte_count);
    while (fuzz_input_has_more(&input)) {
        fuzz_members_step(&members, &input, check_round_trip);
    }
    sl_coordinator_destroy(&members.coordinator);
    return 0;
}
