/* The table of registered memory that one reactor uses: finds memory by address, for local memory
 * of requests, and by key, for those of peers. Owner reactor. Its size is fixed: no error. */
#ifndef SL_TRANSFER_TABLE_H
#define SL_TRANSFER_TABLE_H

#include "net/rma/target.h"
#include "net/transport_rma.h"

struct sl_transfer_call;

/* One registered range, for one reactor. Storage of the registration. */
struct sl_transfer_region {
    struct sl_rma_memory memory;
    const char *location; /* of the registration */

    /* mapped.h; of the first reactor */
    struct sl_transport_rma_token token; /* if is_mapped */
    bool is_mapped;                      /* offered to peers on this host */
    bool is_unmapping;                   /* peers have to unmap it */
    struct sl_list_link link;            /* of io->unmapping */
    struct sl_transfer_call *adding;     /* waits until it is offered; NULL: none */
};

/* Zero at first. */
struct sl_transfer_table {
    struct sl_transfer_region *by_address[SL_LIMIT_TRANSFER_BUFFERS];
    struct sl_transfer_region *by_key[SL_LIMIT_TRANSFER_BUFFERS];
    uint32_t count;
};

/* The region must overlap no other, and its key must be new. */
void sl_transfer_table_add(struct sl_transfer_table *table, struct sl_transfer_region *region);

/* No effect if the region is not in the table. */
void sl_transfer_table_remove(struct sl_transfer_table *table, struct sl_transfer_region *region);

/* Returns the region that holds all bytes from `at` on; NULL: none. */
struct sl_transfer_region *sl_transfer_table_at(const struct sl_transfer_table *table,
                                                const void *at, uint64_t bytes);

struct sl_transfer_region *sl_transfer_table_find(const struct sl_transfer_table *table,
                                                  uint64_t key);

#endif
