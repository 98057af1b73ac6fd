/* Messages between nodes and the catalogue of objects: any bytes are an error with a
 * reason, or are encoded again to the same bytes. */
#include <string.h>

#include "core/assert.h"
#include "objects/catalogue/message.h"
#include "tests/fuzz/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    static struct sl_objects_message message;
    struct sl_reason reason = {""};
    uint8_t again[SL_OBJECTS_MESSAGE_BYTES];
    const uint32_t count = byte_count > UINT16_MAX ? UINT16_MAX : (uint32_t)byte_count;
    if (sl_objects_message_decode(bytes, count, &message, &reason) == 0) {
        sl_assert(sl_objects_message_encode(&message, again) == count);
        sl_assert(memcmp(again, bytes, count) == 0);
        struct sl_objects_message batch = message;
        while (sl_objects_message_unbatch(&batch, &message, &reason) == 0) {
            sl_assert(message.kind != 0);
        }
    } else {
        sl_assert(reason.text[0] != '\0');
    }
    return 0;
}
