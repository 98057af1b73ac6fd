/* Clients of memif that a server has not let in yet. A listener answers them in the driver's stead,
 * and keeps what they say, until they have said all; then it can be judged, and repeated to the
 * driver. One thread's. */
#ifndef SL_NET_DPDK_MODULE_MEMIF_GUEST_H
#define SL_NET_DPDK_MODULE_MEMIF_GUEST_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/dpdk/module/memif_socket.h"

struct sl_module_memif_listener;

struct sl_module_memif_guest {
    struct sl_module_memif_guest *next;
    const struct sl_module_memif_listener *listener;
    int fd; /* -1: somebody else's now */
    uint32_t id;
    uint32_t c2s, s2c; /* rings: those of each way come in the order of their indices */
    bool is_complete;
    uint64_t deadline_ns; /* by which it is let in, or turned away */
    struct sl_module_memif_message *messages;
    uint32_t count, room, repeated;
};

enum sl_module_memif_fate {
    SL_MODULE_MEMIF_STAYS,
    SL_MODULE_MEMIF_GOES,
    SL_MODULE_MEMIF_TAKEN /* the judge has it */
};

/* Listeners are for ever. With another at the same address it is the same. Or NULL, and *code: an
 * errno. */
struct sl_module_memif_listener *
sl_module_memif_guest_listen(const struct sl_module_memif_address *address, int *code);

/* Lets those in that knock, hears those that are there, and asks what is to become of those that
 * have said all. Adds what is to be waited for to `polled`; true: somebody waits for the judge, or
 * for a descriptor, and is to be looked at soon. */
bool sl_module_memif_guest_look(
    enum sl_module_memif_fate (*judge)(struct sl_module_memif_guest *guest, uint64_t time_ns),
    uint64_t time_ns, struct pollfd *polled, nfds_t *count, nfds_t count_max);

/* Says to the driver what the guest said, as far as there is room: 1: all; 0: not yet; -1: it does
 * not listen. */
int sl_module_memif_guest_repeat(struct sl_module_memif_guest *guest, int driver);
void sl_module_memif_guest_destroy(struct sl_module_memif_guest **guest);
const char *sl_module_memif_guest_path(const struct sl_module_memif_guest *guest);

#endif
