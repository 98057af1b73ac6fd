/* Faults on purpose: the table of operations of a transport with some functions replaced. By
 * chance, from a seed, it takes frames and one-sided operations some turns late, fails one-sided
 * operations, and breaks connections, also within a frame or an operation. Layers above see a
 * transport that keeps the contract of net/transport.h and net/transport_rma.h. Objects and
 * capabilities are those of the transport, but it does not migrate. Allocates for each connection
 * and each listener. Owner reactor of a transport; several threads may use one table. */
#ifndef SL_TESTS_SUPPORT_FAULTY_TRANSPORT_H
#define SL_TESTS_SUPPORT_FAULTY_TRANSPORT_H

#include <stdatomic.h>

#include "net/transport_rma.h"

struct sl_faults {
    uint64_t seed;
    /* Shares, in thousandths. */
    uint32_t late; /* of the calls of send_burst and post: for up to 32 turns the connection takes
                      no frame and carries out no operation */
    uint32_t fail; /* of the operations: they complete with INVALID and have no effect */
    uint32_t cut;  /* of the frames and operations: some turns after one the connection ends:
                      `closed`  with IO here, with CLOSED at the peer */
};

struct sl_faulty_transport {
    struct sl_transport_ops ops; /* for sl_transport_open */
    struct sl_transport_rma_ops rma;
    const struct sl_transport_ops *inner;
    struct sl_faults faults;
    atomic_uint conn_count, late_count, failed_count, cut_count; /* so far */
};

/* Fills *out, which must outlive its transports. The faults may be changed while there are none. */
void sl_faulty_transport_init(struct sl_faulty_transport *out, const struct sl_transport_ops *inner,
                              const struct sl_faults *faults);

#endif
