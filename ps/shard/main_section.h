/* The section of a request that describes it to an operator: the one with the highest cost. */
#ifndef SL_PS_SHARD_MAIN_SECTION_H
#define SL_PS_SHARD_MAIN_SECTION_H

#include <stdint.h>

struct sl_shard_main_section {
    uint64_t cost;      /* in units of the budget; 0: none */
    uint64_t key_count; /* of a dense section: elements */
    uint16_t table_id;  /* not valid for a tick */
    uint8_t op;         /* enum sl_request_op */
};

#endif
