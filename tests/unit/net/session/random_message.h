/* Parts of control messages drawn from a seed; every one is valid. */
#ifndef TESTS_UNIT_NET_RANDOM_MESSAGE_H
#define TESTS_UNIT_NET_RANDOM_MESSAGE_H

#include "net/session/message.h"

/* Printable ASCII without spaces, 1 to to_bytes - 1 bytes, padded with zeros. */
void random_message_name(uint64_t *seed, char *to, size_t to_bytes);

struct sl_table_spec random_message_spec(uint64_t *seed);

/* Of a checkpoint. */
uint64_t random_message_number(uint64_t *seed);

/* What is allocated is the caller's to free: sl_message_fini of the message does. */
void random_message_stats(uint64_t *seed, struct sl_message_stats *to);
void random_message_part(uint64_t *seed, struct sl_message_checkpoint_part *to);
void random_message_complete(uint64_t *seed, struct sl_message_checkpoint_publish *to);

/* Of a cluster whose servers are filled in already: home shards, and the places of all shards. */
void random_message_placements(uint64_t *seed, struct sl_message_cluster *to);

/* The shards of a ps, and the checkpoints that it has. */
void random_message_lists(uint64_t *seed, struct sl_message_register *to);

/* The message, of any content, in a heap block of exactly its size. */
uint8_t *random_message_encode(const struct sl_message *message, size_t *bytes);

/* The result of decoding the encoded message. */
int random_message_decode(const struct sl_message *message);

/* Fails unless it is decoded to a message that is encoded to the same bytes. That each field is in
 * the member of its name: message_table_test.c. */
void random_message_assert_returned(const struct sl_message *message);

#endif
