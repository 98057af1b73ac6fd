/* Notices between gateways and workers: any bytes are an error with a reason, or are encoded again
 * to the same bytes. */
#include <string.h>

#include "core/assert.h"
#include "programs/serve/base/message.h"
#include "tests/fuzz/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    static struct sl_serve_message message;
    struct sl_reason reason = {""};
    uint8_t again[SL_SERVE_MESSAGE_BYTES];
    const uint32_t count = byte_count > UINT16_MAX ? UINT16_MAX : (uint32_t)byte_count;
    if (sl_serve_message_decode(bytes, count, &message, &reason) == 0) {
        sl_assert(sl_serve_message_encode(&message, again, &reason) == (int)count);
        sl_assert(memcmp(again, bytes, count) == 0);
    } else {
        sl_assert(reason.text[0] != '\0');
    }
    return 0;
}
