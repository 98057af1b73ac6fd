/* Files with ONNX models. Main thread; blocks. */
#ifndef SL_PROGRAMS_SERVE_ONNX_FILE_H
#define SL_PROGRAMS_SERVE_ONNX_FILE_H

#include "programs/serve/engine/graph.h"
#include "programs/serve/engine/graph_memory.h"

#define SL_ONNX_FILE_SUFFIX    ".onnx"
#define SL_ONNX_FILE_BYTES_MAX INT32_MAX /* a limit of protobuf's */

/* Reads a model with its weights, also those in files beside it: a tensor's location is a path
 * below the model's folder, also after links have been followed. Initialises the memory, in which
 * all of it lies; in any case the caller ends it. reason: begins with the path. Errors: those of
 * sl_onnx_read and of the system. */
int sl_onnx_file_read(const char *path, struct sl_graph_memory *memory, struct sl_graph *out,
                      struct sl_reason *reason);

/* Writes a model with its weights: beside the path, then renamed. reason: begins with the path.
 * Errors: NO_MEMORY, TOO_LARGE, those of the system. */
int sl_onnx_file_write(const char *path, const struct sl_graph *graph,
                       struct sl_graph_memory *memory, struct sl_reason *reason);

#endif
