/* received_packets records which numbered packets a receiver has, so that it takes each once and
 * acknowledges it. The number of a lost packet never arrives: its content comes under another
 * number. Each packet's `behind` tells which numbers are settled. Owner reactor; pure. */
#ifndef SL_NET_DPDK_RECEIVED_PACKETS_H
#define SL_NET_DPDK_RECEIVED_PACKETS_H

#include <stdbool.h>
#include <stdint.h>

/* Window of numbers from the first missing one on; 2^n, as SL_DPDK_SENT_PACKETS. */
#define SL_DPDK_RECEIVED_PACKETS 4096U
/* The largest plausible distance between a peer's number and ours. A sender that loses everything
 * until it is declared dead sends far fewer packets. */
#define SL_DPDK_RECEIVED_JUMP    65536U

struct sl_dpdk_received_packets {
    uint64_t bits[SL_DPDK_RECEIVED_PACKETS / 64];
    uint32_t next;    /* all before are received or settled: `acknowledged` in our packets */
    uint32_t end;     /* largest received, plus one */
    uint32_t unacked; /* received since the last acknowledgement */
};

void sl_dpdk_received_packets_init(struct sl_dpdk_received_packets *received, uint32_t first);

/* Whether an honest sender can send these numbers; settle returns the same. */
static inline bool sl_dpdk_received_packets_allows(const struct sl_dpdk_received_packets *received,
                                                   uint32_t sequence, uint32_t behind)
{
    return behind <= SL_DPDK_RECEIVED_PACKETS &&
           sequence - received->next + SL_DPDK_RECEIVED_JUMP <= 2 * SL_DPDK_RECEIVED_JUMP;
}

/* Must be called first for every packet of a connection, numbered or not. All numbers before
 * sequence - behind count as received. False: no honest sender sends this; drop the packet. */
bool sl_dpdk_received_packets_settle(struct sl_dpdk_received_packets *received, uint32_t sequence,
                                     uint32_t behind);

enum sl_dpdk_received_packets_answer {
    SL_DPDK_RECEIVED_NEW,
    SL_DPDK_RECEIVED_AGAIN,  /* received before; acknowledge again */
    SL_DPDK_RECEIVED_OUTSIDE /* no honest sender uses this number now; drop it */
};

/* Classifies a numbered packet, after settle. Changes nothing. */
enum sl_dpdk_received_packets_answer
sl_dpdk_received_packets_ask(const struct sl_dpdk_received_packets *received, uint32_t sequence);

/* Records a NEW packet as received. A packet for which there was no room is not recorded and is
 * retransmitted. */
void sl_dpdk_received_packets_take(struct sl_dpdk_received_packets *received, uint32_t sequence);

/* Writes the SACK words of an acknowledgement whose `acknowledged` is received->next. Returns their
 * number: as many as reach the largest received number, at most `max`, the earliest first; 0 if
 * nothing is received beyond. So the word count alone tells the sender that a packet covered by the
 * last word has arrived. Leaves `unacked` unchanged. */
uint32_t sl_dpdk_received_packets_words(const struct sl_dpdk_received_packets *received,
                                        uint64_t *words, uint32_t max);

#endif
