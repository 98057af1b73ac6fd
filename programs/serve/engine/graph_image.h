/* The image of a model: what is published, and what sl_engine_graph opens. First the tensor
 * SL_GRAPH_IMAGE_NAME, the model without its weights (onnx.h); then the weights in the order in
 * which nodes read them, each at a multiple of 64. One thread. */
#ifndef SL_PROGRAMS_SERVE_ENGINE_GRAPH_IMAGE_H
#define SL_PROGRAMS_SERVE_ENGINE_GRAPH_IMAGE_H

#include "programs/serve/engine/engine.h"
#include "programs/serve/engine/graph.h"
#include "programs/serve/engine/graph_memory.h"

#define SL_GRAPH_IMAGE_NAME       ".graph"
#define SL_GRAPH_IMAGE_BYTES_MAX  (16U << 20) /* of that tensor */

#define SL_GRAPH_IMAGE_LOOKUP     ".lookup"
#define SL_GRAPH_IMAGE_LOOKUP_KEY "starling.lookup"

struct sl_graph_image {
    struct sl_object_tensor *tensors; /* [count]; data: the graph's */
    uint64_t *offsets;                /* [count] */
    const char **groups; /* [count]: the group that begins with the tensor, named after the node
                            that reads it; NULL: none begins */
    uint32_t count;
    uint64_t bytes;
};

/* Of a graph with its weights, once: sets their image_end. The arrays lie in the memory. Errors:
 * NO_MEMORY, TOO_LARGE (more than SL_GRAPH_IMAGE_BYTES_MAX). */
int sl_graph_image_make(struct sl_graph *graph, struct sl_graph_memory *memory,
                        struct sl_graph_image *out, struct sl_reason *reason);

/* As an engine gets it. */
struct sl_engine_image sl_graph_image_of(const struct sl_graph_image *image);

#endif
