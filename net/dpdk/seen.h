/* The receiver's memory of numbered packets: which have come, so that each is taken once and the
 * sender hears which. Owner reactor; pure. */
#ifndef SL_NET_DPDK_SEEN_H
#define SL_NET_DPDK_SEEN_H

#include <stdbool.h>
#include <stdint.h>

#define SL_DPDK_SEEN 4096U /* numbers ahead of the first that is missing; 2^n, as SL_DPDK_FLIGHTS  \
                            */

struct sl_dpdk_seen {
    uint64_t bits[SL_DPDK_SEEN / 64];
    uint32_t next;    /* all before have come */
    uint32_t end;     /* one past the largest that has */
    uint32_t unacked; /* come since an acknowledgement was written */
};

void sl_dpdk_seen_init(struct sl_dpdk_seen *seen, uint32_t first);

enum sl_dpdk_seen_answer {
    SL_DPDK_SEEN_NEW,
    SL_DPDK_SEEN_AGAIN,  /* it has come before; acknowledge once more */
    SL_DPDK_SEEN_OUTSIDE /* no honest sender uses this number now: drop it */
};

/* Only asks. */
enum sl_dpdk_seen_answer sl_dpdk_seen_ask(const struct sl_dpdk_seen *seen, uint32_t sequence);

/* It has been taken: NEW only. One that could not be taken (no room) is not told, and comes again.
 */
void sl_dpdk_seen_take(struct sl_dpdk_seen *seen, uint32_t sequence);

/* The words of an acknowledgement whose `acknowledged` is seen->next; returns how many, 0 when
 * nothing has come beyond. Where more have come than the words can tell, the earliest. */
uint32_t sl_dpdk_seen_words(const struct sl_dpdk_seen *seen, uint64_t *words, uint32_t max);

#endif
