/* An engine computes models of one kind, layer by layer. A model is one open version of an object,
 * whose tensors lie in a view: the engine reads them there, and copies none.
 *
 * Pure, without I/O: the caller waits until the bytes of a layer are verified before it runs it.
 * The inputs, outputs and intermediate values of a run lie in a scratch, which the caller owns, and
 * which all models of a process share, since one of them runs at a time. After `open` nothing is
 * allocated. One thread at a time uses a model; `open` of another may run on another thread. */
#ifndef SL_PROGRAMS_SERVE_ENGINE_ENGINE_H
#define SL_PROGRAMS_SERVE_ENGINE_ENGINE_H

#include <starling_objects.h>

#include "core/reason.h"

/* Most operations of a row, or of the fixed rows of a model, so that no version stops a worker: 5
 * minutes at 30 GFLOP/s. A ResNet-50 has 8e9. */
#define SL_ENGINE_FLOPS_MAX 1e13

/* The first dimension of every input and output is the number of rows: of the requests that are
 * computed together. */
struct sl_engine_tensor {
    const char *name;
    uint32_t type; /* enum sl_object_type */
    uint32_t rank;
    uint64_t shape[SL_OBJECTS_RANK_MAX]; /* [0]: 0 if any number of rows is accepted */
    uint64_t row_bytes;
    uint64_t scratch_offset; /* where the rows lie, one after another; a multiple of 64 */
};

struct sl_engine_layer {
    uint64_t image_end; /* bytes of the images that must be verified before the layer runs;
                           ascending */
    double flops;       /* of one row */
};

struct sl_engine_info {
    const struct sl_engine_tensor *inputs, *outputs;
    const struct sl_engine_layer *layers;
    uint32_t input_count, output_count, layer_count;
    uint32_t
        fixed_rows; /* the only number of rows that the model accepts; 0: any, up to rows_max */
    uint64_t scratch_bytes;
};

/* The tensors of a version, in the order of its images, without those that `open` may not read yet:
 * it reads only tensors whose name begins with "."; the bytes of others may arrive later. */
struct sl_engine_image {
    const struct sl_object_tensor *tensors; /* [count] */
    const uint64_t *offsets;                /* [count]: in the images taken together */
    uint32_t count;
    uint64_t bytes;   /* of all images */
    const char *note; /* of the version */
};

struct sl_engine {
    const char *name;
    /* Opens a model for at most rows_max rows at a time. Tensors, with their data, live until
     * close; the arrays of the image do not. Errors: UNSUPPORTED (not of this kind; or an operator,
     * with its node), INVALID, CORRUPT, TOO_LARGE, NO_MEMORY. */
    int (*open)(const struct sl_engine_image *image, uint32_t rows_max, struct sl_reason *reason,
                void **model);
    /* Valid until close. */
    const struct sl_engine_info *(*info)(const void *model);
    /* Runs one layer; layers run in their order. The caller has written `rows` rows of each input
     * to the scratch (aligned to 64 bytes) before the first one, and reads the outputs there after
     * the last one. Errors: INVALID (a value of an input, such as an index out of range). */
    int (*run)(void *model, uint8_t *scratch, uint32_t layer, uint32_t rows,
               struct sl_reason *reason);
    /* Nulls *model. */
    void (*close)(void **model);
};

extern const struct sl_engine sl_engine_graph;  /* ONNX; first call sl_blas_init (blas.h) */
extern const struct sl_engine sl_engine_ctr;    /* of starling-worker: ctr.h */
extern const struct sl_engine sl_engine_lookup; /* of starling.torch: lookup.h */

#endif
