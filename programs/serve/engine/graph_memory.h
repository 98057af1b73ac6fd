/* Memory for all that a graph consists of, up to a limit and freed as one. One thread. */
#ifndef SL_PROGRAMS_SERVE_ENGINE_GRAPH_MEMORY_H
#define SL_PROGRAMS_SERVE_ENGINE_GRAPH_MEMORY_H

#include <stddef.h>
#include <stdint.h>

struct sl_graph_memory {
    struct sl_graph_memory_chunk *newest;
    uint8_t *next;
    size_t left;       /* behind next */
    size_t bytes_left; /* up to the limit */
};

void sl_graph_memory_init(struct sl_graph_memory *memory, size_t bytes_max);
void sl_graph_memory_fini(struct sl_graph_memory *memory);

/* Zeros, at a multiple of 64; of small ones (below 64 bytes) of 16. NULL: no memory, or above the
 * limit, or the product overflows. */
void *sl_graph_memory_take(struct sl_graph_memory *memory, size_t count, size_t item_bytes);

#endif
