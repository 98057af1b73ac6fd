/* Tells when memory of this process is unmapped, so that what a device knows of its pages can be
 * forgotten: the kernel says so (userfaultfd), to a thread of this file's, before munmap and its
 * like return. The thread does nothing else and takes no memory, since whoever unmaps waits for it.
 * A child of fork has its copies unwatched, and its parent keeps the pages that devices know
 * (kernel 5.12). Any thread; watch and forget take a lock. */
#ifndef SL_NET_RDMA_UNMAPPED_H
#define SL_NET_RDMA_UNMAPPED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_rdma_unmapped;

/* False: the kernel does not tell (older than 5.11, or a container forbids userfaultfd). Each open
 * that was true is followed by one close. */
bool sl_rdma_unmapped_open(void);
void sl_rdma_unmapped_close(void);

/* Watches the pages in which [base, base + bytes) lies, from now on. NULL: they cannot be, for what
 * they are; or no memory. */
struct sl_rdma_unmapped *sl_rdma_unmapped_watch(const void *base, size_t bytes);
void sl_rdma_unmapped_forget(struct sl_rdma_unmapped **watch);

/* Whether some of it was unmapped, moved or emptied since, by a call that has returned or is about
 * to. Fit for the data path. */
bool sl_rdma_unmapped_seen(const struct sl_rdma_unmapped *watch);

/* How often any watch was first seen so: one that was read before need not be asked while this is
 * the same. */
uint32_t sl_rdma_unmapped_count(void);

/* Whether the pages, all of them there, are this process's alone: those of a file, or shared, can
 * be taken away through the file, of which the kernel tells nobody. */
bool sl_rdma_unmapped_is_private(const void *base, size_t bytes);

#endif
