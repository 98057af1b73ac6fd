/* Messages without tags, of objects and between gateways and workers: any bytes are an error with a
 * reason, or are encoded again to the same bytes. */
#include <string.h>

#include "core/assert.h"
#include "objects/catalogue/message.h"
#include "programs/serve/base/message.h"
#include "tests/fuzz/input.h"

static void pass_objects(const uint8_t *bytes, uint32_t count)
{
    static struct sl_objects_message message;
    struct sl_reason reason = {""};
    uint8_t again[SL_OBJECTS_MESSAGE_BYTES];
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
}

static void pass_serve(const uint8_t *bytes, uint32_t count)
{
    static struct sl_serve_message message;
    struct sl_reason reason = {""};
    uint8_t again[SL_SERVE_MESSAGE_BYTES];
    if (sl_serve_message_decode(bytes, count, &message, &reason) == 0) {
        sl_assert(sl_serve_message_encode(&message, again, &reason) == (int)count);
        sl_assert(memcmp(again, bytes, count) == 0);
    } else {
        sl_assert(reason.text[0] != '\0');
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    const uint32_t count = byte_count > UINT16_MAX ? UINT16_MAX : (uint32_t)byte_count;
    pass_objects(bytes, count);
    pass_serve(bytes, count);
    return 0;
}
