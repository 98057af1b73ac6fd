/* The memory that unpacking one control message may use: one block, sized by the message's length,
 * from which protobuf-c's allocations are cut and with which all of them vanish. So a hostile
 * message costs no more than a friendly one of its length, and nothing can leak. Each allocation's
 * size is remembered: it alone tells how long a string was on the wire. Only net/control's message
 * files use it. Any thread. */
#ifndef SL_NET_CONTROL_MESSAGE_MEMORY_H
#define SL_NET_CONTROL_MESSAGE_MEMORY_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

struct sl_message_memory {
    ProtobufCAllocator allocator; /* to be handed to protobuf-c */
    uint8_t *base;
    size_t bytes, used;
};

/* For a message of this many bytes. Errors: NO_MEMORY. */
int sl_message_memory_init(struct sl_message_memory *memory, size_t message_bytes);
void sl_message_memory_fini(struct sl_message_memory *memory);

/* Bytes that were asked for at `at`; 0 when it is not an allocation of this memory (protobuf-c's
 * defaults are static). */
size_t sl_message_memory_bytes(const struct sl_message_memory *memory, const void *at);

#endif
