/* SipHash-2-4 (Aumasson and Bernstein, 2012), a keyed hash. Without the key its values can neither
 * be computed nor told from random ones. Used for handshake cookies, and for unpredictable ids and
 * first sequence numbers. Pure; any thread. */
#ifndef SL_NET_DPDK_COOKIE_H
#define SL_NET_DPDK_COOKIE_H

#include <stddef.h>
#include <stdint.h>

uint64_t sl_dpdk_cookie_hash(const uint8_t key[16], const void *base, size_t bytes);

#endif
