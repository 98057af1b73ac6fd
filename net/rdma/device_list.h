/* Lists the RDMA devices that the libraries know, without including verbs. Any thread. */
#ifndef SL_NET_RDMA_DEVICE_LIST_H
#define SL_NET_RDMA_DEVICE_LIST_H

#include <stdint.h>

#define SL_RDMA_DEVICE_NAME_BYTES 64 /* the kernel's, with the NUL */

/* The names of the devices that the libraries know a provider for, which the kernel may have more
 * of. Returns how many there are, of which `most` were written (0: names may be NULL); 0 without
 * the libraries too. */
uint32_t sl_rdma_device_list(char names[][SL_RDMA_DEVICE_NAME_BYTES], uint32_t most);

#endif
