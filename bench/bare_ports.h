/* Packets between two processes over DPDK's ports (net/dpdk/port.h), and nothing of the protocol:
 * what its long frames are held against. Same cores, devices, lengths of packets and bursts; both
 * sides poll. A payload is touched, cut and copied into packets by one side; the other copies it
 * from there to memory of its own and looks at every word. No sums, acknowledgements or losses. */
#ifndef SL_BENCH_BARE_PORTS_H
#define SL_BENCH_BARE_PORTS_H

#include "bench/frames.h"

/* Payloads one way, as of frames that are not answered and `touched`. packet_bytes: from the
 * Ethernet header on. Errors, logged: UNSUPPORTED, NO_MEMORY, IO, PROTOCOL, DEADLINE, CLOSED. */
int sl_bench_bare_ports_run(const struct sl_bench_frames *frames, uint32_t packet_bytes,
                            const struct sl_bench_common *common, double *bytes_per_s);

#endif
