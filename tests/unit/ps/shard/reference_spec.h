/* Random specifications of sparse tables, with policies of given parts. */
#ifndef SL_TESTS_UNIT_PS_SHARD_REFERENCE_SPEC_H
#define SL_TESTS_UNIT_PS_SHARD_REFERENCE_SPEC_H

#include <starling.h>

#include "core/hash.h"

#define REFERENCE_KEYS_FEW  300
#define REFERENCE_KEYS_MANY 60000

/* Parts of policies: each, and each pair. An order stands for one of them, with rows_max or a limit
 * of memory. BSP has neither an order nor an admission. */
enum part {
    TTL,
    COUNT,
    L2,
    PROTECT,
    ROWS_MAX,
    MEMORY,
    HALF_LIFE,
    ADMIT_COUNT,
    ADMIT_CHANCE,
    ADMIT_BLOOM,
    IN_BSP,
    PART_COUNT
};
#define BIT(part) (1U << (part))
#define ORDERED   (BIT(ROWS_MAX) | BIT(MEMORY) | BIT(HALF_LIFE))
#define ADMITS    (BIT(ADMIT_COUNT) | BIT(ADMIT_CHANCE) | BIT(ADMIT_BLOOM))

/* random: the state of sl_hash_random. parts: bits of enum part. */
struct sl_table_spec reference_spec(uint64_t *random, enum sl_optimizer_kind kind, uint32_t parts);

#endif
