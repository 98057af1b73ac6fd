/* Helpers of the files that encode control messages. Private to net/session. Any thread. */
#ifndef SL_NET_SESSION_MESSAGE_WRITE_H
#define SL_NET_SESSION_MESSAGE_WRITE_H

#include <string.h>

#include "control.pb-c.h"
#include "core/assert.h"
#include "net/session/message.h"

/* Packing only reads the string; protobuf-c's structs merely lack the const. */
static inline char *text(const char *from, size_t from_bytes)
{
    sl_assert(memchr(from, '\0', from_bytes) != NULL);
    return (char *)(uintptr_t)from;
}

/* Drops the const, as in text(). */
static inline ProtobufCBinaryData binary(const uint8_t *from, size_t bytes)
{
    return (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)from, .len = bytes};
}

/* message_transfer.c: packs the kinds from SEGMENT_GET on. Returns the packed size; writes the
 * message unless `to` is NULL. */
size_t sl_message_transfer_pack(const struct sl_message *from, uint8_t *to);
void sl_message_transfer_fini(struct sl_message *message);

#endif
