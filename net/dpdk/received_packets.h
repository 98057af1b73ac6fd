/* The receiver's memory of numbered packets: which have come, so that each is taken once and the
 * sender hears which. A lost packet's number never comes: its content does, under another, and the
 * sender says by each packet (`behind`) which numbers need not be waited for. Owner reactor; pure.
 */
#ifndef SL_NET_DPDK_RECEIVED_PACKETS_H
#define SL_NET_DPDK_RECEIVED_PACKETS_H

#include <stdbool.h>
#include <stdint.h>

/* Numbers ahead of the first that is missing; 2^n, as SL_DPDK_SENT_PACKETS. */
#define SL_DPDK_RECEIVED_PACKETS 4096U
/* By so much an honest peer's words may be apart from ours: what is sent into a network that loses
 * all, until the peer is given up, is far less. */
#define SL_DPDK_RECEIVED_JUMP    65536U

struct sl_dpdk_received_packets {
    uint64_t bits[SL_DPDK_RECEIVED_PACKETS / 64];
    uint32_t next;    /* all before have come, or are settled: `acknowledged` of our packets */
    uint32_t end;     /* one past the largest that has */
    uint32_t unacked; /* come since an acknowledgement was written */
};

void sl_dpdk_received_packets_init(struct sl_dpdk_received_packets *received, uint32_t first);

/* Whether an honest sender may say so: what settle returns. */
static inline bool sl_dpdk_received_packets_allows(const struct sl_dpdk_received_packets *received,
                                                   uint32_t sequence, uint32_t behind)
{
    return behind <= SL_DPDK_RECEIVED_PACKETS &&
           sequence - received->next + SL_DPDK_RECEIVED_JUMP <= 2 * SL_DPDK_RECEIVED_JUMP;
}

/* First for every packet of a connection, numbered or not, with what its header says: all numbers
 * before sequence - behind count as if they had come. False: no honest sender says so; drop it. */
bool sl_dpdk_received_packets_settle(struct sl_dpdk_received_packets *received, uint32_t sequence,
                                     uint32_t behind);

enum sl_dpdk_received_packets_answer {
    SL_DPDK_RECEIVED_NEW,
    SL_DPDK_RECEIVED_AGAIN,  /* it has come before; acknowledge once more */
    SL_DPDK_RECEIVED_OUTSIDE /* no honest sender uses this number now: drop it */
};

/* Only asks, of a numbered packet, after settle. */
enum sl_dpdk_received_packets_answer
sl_dpdk_received_packets_ask(const struct sl_dpdk_received_packets *received, uint32_t sequence);

/* It has been taken: NEW only. One that could not be taken (no room) is not told, and comes again.
 */
void sl_dpdk_received_packets_take(struct sl_dpdk_received_packets *received, uint32_t sequence);

/* The words of an acknowledgement whose `acknowledged` is seen->next; returns how many: as many as
 * reach the largest that has come, or `max` of them, the earliest; 0 when nothing has come beyond.
 * So their number alone says that one has come for which the last word is needed. Leaves `unacked`
 * to the caller. */
uint32_t sl_dpdk_received_packets_words(const struct sl_dpdk_received_packets *received,
                                        uint64_t *words, uint32_t max);

#endif
