/* SipHash-2-4 (Aumasson and Bernstein, 2012): a keyed hash that who does not know the key can
 * neither compute nor tell from chance. For the cookies of the set-up, and for ids and first
 * numbers that nobody shall guess. Pure; any thread. */
#ifndef SL_NET_DPDK_COOKIE_H
#define SL_NET_DPDK_COOKIE_H

#include <stddef.h>
#include <stdint.h>

uint64_t sl_dpdk_cookie_hash(const uint8_t key[16], const void *base, size_t bytes);

#endif
