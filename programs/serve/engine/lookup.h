/* The engine sl_engine_lookup computes models of starling.torch: a graph (graph.h) whose inputs are
 * pooled rows of published tables. A request has keys instead; an input of the graph that no
 * feature feeds is an input of the request too.
 *
 * The first tensor of a version is SL_GRAPH_IMAGE_LOOKUP, of u8: JSON as follows. Then come those
 * of the graph's own image (graph_image.h), and the tables (published.h).
 *
 *     {"inputs": [["keys", 26], ...],          i64 [rows, columns] each
 *      "features": [{"rows": "words",     input of the graph, f32 [rows, bags * dim]
 *                    "input": 0, "first": 3, "bags": 1, "columns": 1,     its keys: of each bag so
 *                                                             many columns of an input
 *                    "table": "dlrm/3", "mode": "sum",        or "mean"
 *                    "padding": null,          or a key that counts as none
 *                    "init": [3, 0.0, 0.01, 7]}, ...]}        kind, low, high, seed: of a key
 *                                                             that the table does not have
 *
 * A bag without keys is zeros. The output "unknown_keys", u32 [rows], is the number of keys of a
 * row that the tables do not have. */
#ifndef SL_PROGRAMS_SERVE_ENGINE_LOOKUP_H
#define SL_PROGRAMS_SERVE_ENGINE_LOOKUP_H

#include "programs/serve/engine/engine.h"

#define SL_LOOKUP_TEXT_BYTES_MAX (1U << 20)
#define SL_LOOKUP_FEATURES_MAX   256
#define SL_LOOKUP_COLUMNS_MAX    4096 /* of an input */
#define SL_LOOKUP_DIM_MAX        4096
#define SL_LOOKUP_TENSORS_MAX    16 /* inputs or outputs */

/* Opens a model as sl_engine_lookup does, but without its tables, which have no rows then: for a
 * check of the model alone. Close it with sl_engine_lookup.close. */
int sl_lookup_open_untabled(const struct sl_engine_image *image, uint32_t rows_max,
                            struct sl_reason *reason, void **model);

/* Writes the names of the model's tables, each once, with commas between them. False: they do not
 * fit. */
bool sl_lookup_tables(const void *model, char *names, size_t bytes);

#endif
