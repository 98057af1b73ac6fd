/* Helpers of the files that decode control messages. Private to net/session. Any thread. */
#ifndef SL_NET_SESSION_MESSAGE_READ_H
#define SL_NET_SESSION_MESSAGE_READ_H

#include <string.h>

#include "control.pb-c.h"
#include "core/log.h"
#include "net/session/message.h"
#include "net/session/message_memory.h"

/* Checks a condition on a peer's message; logs a failure at debug level. */
static inline bool holds(bool condition, const char *what)
{
    if (!condition) {
        sl_log_debug("control message refused: %s", what);
    }
    return condition;
}

enum text_kind {
    TEXT_NAME, /* one line of printable ASCII */
    TEXT_FREE  /* free text: control characters become '?' */
};

static inline bool is_printable(unsigned char c)
{
    return c >= 0x20 && c != 0x7f;
}

/* Copies a string. Fails if it does not fit with its NUL, has a NUL inside, or is a name with other
 * characters than printable ASCII. */
static inline bool copy_text(const struct sl_message_memory *memory, const char *from,
                             enum text_kind kind, char *to, size_t to_bytes)
{
    size_t held = sl_message_memory_bytes(memory, from);
    size_t length = held == 0 ? 0 : held - 1;
    if (!holds(length < to_bytes, "a string is too long")) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)from[i];
        if (!holds(c != '\0', "a string has a NUL inside") ||
            !holds(kind != TEXT_NAME || (is_printable(c) && c < 0x80),
                   "a name has characters other than printable ASCII")) {
            return false;
        }
        to[i] = is_printable(c) ? from[i] : '?';
    }
    memset(to + length, '\0', to_bytes - length);
    return true;
}

/* Whether the text is an endpoint with a port other than 0. */
bool sl_message_is_endpoint(const char *text);

/* 0: no checkpoint. */
static inline bool is_checkpoint(uint64_t number)
{
    return number <= SL_LIMIT_CHECKPOINT_NUMBER;
}

/* Converts the code of an Error to an sl_err; unknown codes become PROTOCOL. */
static inline int read_code(uint32_t code)
{
    bool known = code >= 1 && code <= (uint32_t)-SL_ERR_CANCELLED;
    return known ? -(int)code : SL_ERR_PROTOCOL;
}

/* message_checkpoint.c: on invalid input the functions return false, or PROTOCOL; or NO_MEMORY. */

bool sl_message_checkpoint_is_number(uint64_t number, uint64_t base);
bool sl_message_checkpoint_read_numbers(const uint64_t *from, size_t count,
                                        struct sl_message_numbers *to);
bool sl_message_checkpoint_read(const Starling__Checkpoint *from, struct sl_message_checkpoint *to);
int sl_message_checkpoint_read_part(const struct sl_message_memory *memory,
                                    const Starling__CheckpointPart *from,
                                    struct sl_message_checkpoint_part *to);
int sl_message_checkpoint_read_publish(const struct sl_message_memory *memory,
                                       const Starling__CheckpointPublish *from,
                                       struct sl_message_checkpoint_publish *to);

/* message_transfer.c: reads the kinds from SEGMENT_GET on; to->kind is set. Errors: PROTOCOL,
 * NO_MEMORY. */
int sl_message_transfer_read(const struct sl_message_memory *memory, const Starling__Control *from,
                             struct sl_message *to);

#endif
