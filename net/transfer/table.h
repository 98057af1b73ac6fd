/* The table of registered memory that one reactor uses: finds memory by address, for local memory
 * of requests, and by key, for those of peers. Owner reactor. Its size is fixed: no error. */
#ifndef SL_NET_TRANSFER_TABLE_H
#define SL_NET_TRANSFER_TABLE_H

#include "net/rma/target.h"
#include "net/transport_rma.h"

/* A region at a device with one-sided operations. */
struct sl_transfer_offer {
    bool is_known;                       /* the device keeps the region until it is removed */
    bool is_added;                       /* and can use it */
    struct sl_transport_rma_token token; /* of the region; its access: that of peers */
};

/* One registered range, for one reactor. Storage of the registration. */
struct sl_transfer_region {
    struct sl_rma_memory memory;
    const char *location; /* of the registration */
    uint32_t preferred;   /* by the matrix: a bit for each device; 0: all are the same */

    /* region.h */
    struct sl_transfer_offer *offers; /* [settings.endpoint_count], by device */
    uint32_t pending_count;           /* devices that are adding or removing it */
    struct sl_list_link link;         /* of io->leaving */
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

/* Returns a region with some of the bytes; NULL: none. */
struct sl_transfer_region *sl_transfer_table_overlapping(const struct sl_transfer_table *table,
                                                         const void *at, uint64_t bytes);

struct sl_transfer_region *sl_transfer_table_find(const struct sl_transfer_table *table,
                                                  uint64_t key);

/* Whether its owner has not unmapped any of the memory. The kernel ends a connection that should
 * move unmapped bytes, with all that is in flight there: then it is asked which ones those were. */
bool sl_transfer_table_is_mapped(const void *at, uint64_t bytes);

#endif
