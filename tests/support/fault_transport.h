/* Faults on purpose: a transport around another one that, by a plan and a seed, loses and doubles
 * frames, delivers late, takes fewer frames than offered, and breaks connections, in the middle of
 * a frame or anywhere. What is above it sees a transport that keeps the contract of
 * net/transport.h, whatever the plan says; for tests and simulations. The same plan and the same
 * calls give the same faults. Owner reactor; a plan may be shared by reactors and must not change.
 * Allocates. */
#ifndef SL_TESTS_SUPPORT_FAULT_TRANSPORT_H
#define SL_TESTS_SUPPORT_FAULT_TRANSPORT_H

#include "net/transport.h"

#define SL_FAULT_PER_FRAME 1000000 /* shares are in millionths */

/* Goes to sl_transport_open as options.medium. */
struct sl_fault_plan {
    const struct sl_transport_ops *inner; /* what is wrapped */
    void *inner_medium;                   /* its options.medium */
    uint64_t seed;

    /* Shares of the frames sent. Loss and doubling are not in the contract: no transport of ours
     * does either to a whole frame. So they befall only those for which `may_lose` says that the
     * layer above copes; NULL: none. */
    uint32_t drop, duplicate;
    bool (*may_lose)(const struct sl_frame *header);
    /* The connection breaks in the middle of the frame: the peer never sees it, only the end; the
     * sender's `closed` says IO. */
    uint32_t truncate;
    /* The cable is cut from this frame on: nothing that either side sends arrives, and nobody is
     * told until options.peer_timeout_ms later: here `closed` with DEADLINE, and at the peer, if it
     * has not given up by itself, with CLOSED. */
    uint32_t cut;
    uint32_t take_short; /* send_burst takes no more, `writable` comes in a later turn */

    /* Shares of the frames received. */
    uint32_t delay; /* by up to delay_us_max; those behind it wait too */
    uint32_t delay_us_max;
    uint32_t fail; /* instead of it comes `closed` with IO */
};

struct sl_fault_counts {
    uint64_t dropped, duplicated, truncated, cut, taken_short, delayed, failed;
};

/* Scheme "fault". Its capabilities are those that a wrapper can keep; migrate works where the
 * wrapped transport's does. Frames that are handed over, which is to say a first control frame, are
 * never delayed: the wrapped transport allows it in its own upcall only. */
extern const struct sl_transport_ops sl_fault_ops;

/* What befell the frames of a transport opened with sl_fault_ops. Owner reactor. */
void sl_fault_get_counts(const struct sl_transport *transport, struct sl_fault_counts *out);

#endif
