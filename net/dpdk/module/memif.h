/* The control channels of memif's devices. DPDK's driver would meet its peers by itself, on the
 * EAL's thread for interrupts: it unmaps the memory of a peer that goes while reactors copy from
 * it, ends the process when a client goes before it was greeted, and takes a peer with fewer
 * queues, of which the rest then lead astray. So it meets none. A thread of ours listens at the
 * public socket, or dials it; the driver's device has a private one, by which this thread passes on
 * what the peer says. A server's driver hears of a client that has said all that it has to say, and
 * is right. The driver hears of a peer's end when no reactor is in its queues any more.
 *
 * One thread for all, which starts with the first device and lasts; it takes nobody else's lock. */
#ifndef SL_NET_DPDK_MODULE_MEMIF_H
#define SL_NET_DPDK_MODULE_MEMIF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_module_memif;

/* Of a device that is to be made with these arguments; *out is what to give to the driver instead.
 * sl_module_memif_made follows. Errors: INVALID, NO_MEMORY, IO; logged, with what to do. */
int sl_module_memif_make(const char *name, const char *arguments, char *out, size_t out_bytes,
                         struct sl_module_memif **memif);
/* Whether the driver has made it; if not, *memif goes. */
void sl_module_memif_made(struct sl_module_memif **memif, bool is_there);
/* NULL: the device was made by somebody else. */
struct sl_module_memif *sl_module_memif_find(const char *name);

/* The driver's device has so many queues, each way, and may meet its peer. A server's has started.
 */
void sl_module_memif_open(struct sl_module_memif *memif, uint32_t queues);
/* The driver has no peer when this returns, and gets none. Nobody is in its queues. Errors: IO: it
 * does not let go. */
int sl_module_memif_part(struct sl_module_memif *memif);

/* A client whose server has answered: its driver is to be started now, anew if it was; then
 * `started` says so. */
bool sl_module_memif_is_to_start(struct sl_module_memif *memif);
void sl_module_memif_started(struct sl_module_memif *memif, bool has);

/* Whether the queues may be touched. True: until `leave`, which follows soon when `is_up` is no
 * more. Any thread. */
bool sl_module_memif_enter(struct sl_module_memif *memif);
bool sl_module_memif_is_up(struct sl_module_memif *memif);
void sl_module_memif_leave(struct sl_module_memif *memif);

#endif
