/* An arena for unpacking one control message: one block, sized by the message's length, which
 * serves all of protobuf-c's allocations and is freed as a whole. So a malicious message cannot
 * allocate more than a valid one of its length, and nothing leaks. The arena records the size of
 * each allocation: only this gives the length of a string on the wire. Private to net/session. Any
 * thread. */
#ifndef SL_NET_SESSION_MESSAGE_MEMORY_H
#define SL_NET_SESSION_MESSAGE_MEMORY_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

struct sl_message_memory {
    ProtobufCAllocator allocator; /* for protobuf-c */
    uint8_t *base;
    size_t bytes, used;
};

/* Allocates an arena for a message of message_bytes. Errors: NO_MEMORY. */
int sl_message_memory_init(struct sl_message_memory *memory, size_t message_bytes);
void sl_message_memory_fini(struct sl_message_memory *memory);

/* Returns the size of the allocation at `at`, or 0 if the arena does not contain it (protobuf-c's
 * default values are static). */
size_t sl_message_memory_bytes(const struct sl_message_memory *memory, const void *at);

#endif
