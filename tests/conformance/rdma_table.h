/* A library table that fails where a test says so, and otherwise is the system's; transport option
 * `medium`. One for the program. What it fails at may be changed at any time, by any thread. */
#ifndef TESTS_CONFORMANCE_RDMA_TABLE_H
#define TESTS_CONFORMANCE_RDMA_TABLE_H

#include "net/rdma/library.h"
#include "rdma.h"

struct rdma_table_faults {
    atomic_bool no_memory;       /* reg_mr: ENOMEM, as when the limit of locked memory is reached */
    atomic_bool no_shared_queue; /* query_device: the device has none */
    atomic_bool no_queue_pair;   /* create_qp: ENOMEM */
    atomic_bool no_completions;  /* create_cq: ENOMEM */
    atomic_uint failing_queue_pair; /* posting sends to the one of this number: EIO; 0: none */
    atomic_uint most_completions;   /* query_device: of a completion queue; 0: as the device says */
    atomic_int failing_receives;    /* so many more posts of receives fail, to shared queues too */
};

extern struct rdma_table_faults rdma_table_faults;

/* For `medium`; all faults are off. */
void *rdma_table_get(void);

/* The number of the youngest queue pair that the node has made; 0: none. */
uint32_t rdma_table_queue_pair_of(struct node *node);

/* Moves it to the error state, behind the transport's back. */
void rdma_table_break(struct node *node, uint32_t number);

#endif
