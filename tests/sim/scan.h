/* A scan of one shard's rows of a table, a few in each step of the observer, while others push,
 * erase and evict. The oracle "scan": a key that lived throughout comes once, another one at most
 * once for each of its rows, and no key that nobody has pushed. One thread. Allocates. */
#ifndef SL_TESTS_SIM_SCAN_H
#define SL_TESTS_SIM_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "net/wire/request.h"

#define SL_SIM_SCAN_ROWS 24 /* of a message */

struct sl_sim_oracle;
struct sl_sim_work;

struct sl_sim_scan {
    bool is_open;
    uint32_t table, shard;
    uint64_t begun_ns, next;
    struct sl_request_scan body; /* of the message under way */
    uint64_t *keys;              /* that have come */
    uint32_t key_count, key_capacity;
};

/* Opens a scan of that shard. */
void sl_sim_scan_open(struct sl_sim_scan *scan, uint32_t table, uint32_t shard, uint64_t now_ns);

/* Adds the next message to a step, which ends with sl_sim_scan_take or sl_sim_scan_close. */
void sl_sim_scan_add(struct sl_sim_scan *scan, struct sl_sim_work *work);

/* Takes the reply of the step's message. After the last one, judges what has come and closes. */
void sl_sim_scan_take(struct sl_sim_scan *scan, struct sl_sim_oracle *oracle, const float *reply);

void sl_sim_scan_close(struct sl_sim_scan *scan);

#endif
