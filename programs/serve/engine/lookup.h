/* The engine sl_engine_lookup computes models of starling.torch: a graph (graph.h) whose inputs are
 * pooled rows of published tables. A request has keys instead; an input of the graph that no
 * feature feeds is an input of the request too.
 *
 * The first tensor of a version has the name SL_GRAPH_IMAGE_LOOKUP; its bytes are JSON. Then come
 * those of the graph's own image (graph_image.h), and the tables (published.h).
 *
 *     {"inputs": [["keys", 26], ...],
 *      "features": [{"rows": "words", "input": 0, "first": 3, "bags": 1, "columns": 1,
 *                    "table": "dlrm/3", "mode": "sum", "padding": null,
 *                    "init": [3, 0.0, 0.01, 7]}, ...]}
 *
 * inputs: those of a request that have keys, i64 [n, columns] for n examples.
 * rows: the input of the graph that gets the pooled rows, f32 [n, bags * dim].
 * input, first, bags, columns: bag b has the keys in the columns from first + b * columns on, so
 *     many, of that input.
 * mode: "sum" or "mean". padding: a key that counts as none. A bag without keys is zeros.
 * init: kind, low, high and seed of the initializer, for a key that the table does not have.
 *
 * The output "unknown_keys", u32 [n], says how many keys of an example no table has. */
#ifndef SL_PROGRAMS_SERVE_ENGINE_LOOKUP_H
#define SL_PROGRAMS_SERVE_ENGINE_LOOKUP_H

#include "programs/serve/engine/engine.h"

#define SL_LOOKUP_TEXT_BYTES_MAX (1U << 20)
#define SL_LOOKUP_FEATURES_MAX   256
#define SL_LOOKUP_COLUMNS_MAX    4096 /* of an input */
#define SL_LOOKUP_DIM_MAX        4096
#define SL_LOOKUP_TENSORS_MAX    16 /* inputs or outputs */

/* Opens a model as sl_engine_lookup does, but as if its tables were empty, to check the model
 * before they are there. Close it with sl_engine_lookup.close. */
int sl_lookup_open_untabled(const struct sl_engine_image *image, uint32_t rows_max,
                            struct sl_reason *reason, void **model);

/* Writes the names of the model's tables, each once, with commas between them. False: they do not
 * fit. */
bool sl_lookup_tables(const void *model, char *names, size_t bytes);

#endif
