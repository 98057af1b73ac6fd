/* A batch is the requests of one model that a worker computes together: their rows lie one after
 * another in the scratch. Here are the checks of a request's tensors against the model, the choice
 * of requests, and the copies between requests and scratch.
 *
 * Pure; no allocation. Any thread, one at a time. */
#ifndef SL_SERVE_BATCH_H
#define SL_SERVE_BATCH_H

#include <stddef.h>

#include "core/list.h"
#include "core/reason.h"
#include "programs/serve/base/request.h"
#include "programs/serve/engine/engine.h"

#define SL_SERVE_BATCH_ROWS_MAX    256 /* --batch-max */
#define SL_SERVE_DESCRIPTION_BYTES 16384

/* A request at a worker. */
struct sl_serve_item {
    struct sl_list_link link; /* in the queue, by arrival */
    const void *model;        /* requests of the same one are computed together */
    enum sl_serve_kind kind;
    uint64_t arrived_ns, deadline_ns;
    const uint8_t *input;
    struct sl_serve_tensor inputs[SL_SERVE_TENSORS_MAX];
    uint32_t input_count;
    uint32_t rows; /* by check */
    bool is_alone; /* a batch with it has failed, perhaps by its values */
    uint8_t *output;
    struct sl_serve_tensor outputs[SL_SERVE_TENSORS_MAX]; /* by scatter, as output_count */
    uint32_t output_count;
};

struct sl_serve_batch {
    struct sl_serve_item *items[SL_SERVE_BATCH_ROWS_MAX];
    uint32_t item_count, rows;
};

/* Checks that the request has the model's inputs, and at most rows_max rows; sets item->rows.
 * Errors: INVALID, with a reason that names the tensor, what it is and what is expected. */
int sl_serve_batch_check(const struct sl_engine_info *info, uint32_t rows_max,
                         struct sl_serve_item *item, struct sl_reason *reason);

/* Moves checked INFER requests of the model from the queue to an empty batch, the oldest first, as
 * long as the next one fits; one that runs alone is the only one. */
void sl_serve_batch_take(struct sl_list *queue, const void *model,
                         const struct sl_engine_info *info, uint32_t rows_max,
                         struct sl_serve_batch *batch);

/* Bytes of the outputs of so many rows: each output begins at a multiple of 64. */
uint64_t sl_serve_batch_output_bytes(const struct sl_engine_info *info, uint32_t rows);

/* Copies the inputs to the scratch. */
void sl_serve_batch_gather(const struct sl_engine_info *info, const struct sl_serve_batch *batch,
                           uint8_t *scratch);

/* Copies the outputs from the scratch to item->output, which has room for output_bytes. */
void sl_serve_batch_scatter(const struct sl_engine_info *info, const struct sl_serve_batch *batch,
                            const uint8_t *scratch);

/* Writes the model's metadata as the Open Inference Protocol has it, with NUL; returns its length,
 * as snprintf does. One more member, max_batch_size, is for the gateway: rows_max, the most rows of
 * a request; 0 if the model has a fixed number of them. */
size_t sl_serve_batch_describe(const struct sl_engine_info *info, uint32_t rows_max,
                               const char *model, uint64_t version, const char *engine, char *text,
                               size_t bytes);

#endif
