/* The ONNX reader makes a graph of the bytes of an ONNX model, and writes a graph as a
 * model: without its weights it is the tensor ".graph" of a published model. Bytes are not trusted;
 * an error names the node or the tensor.
 *
 * Accepted: opset 7 to 25; tensors of f32, f16, bf16 and f64 (converted to f32), of i64 and shorter
 * integers (widened to i64), and bool; no subgraphs. A tensor of f32 above SL_ONNX_CONSTANT_BYTES
 * is a weight, all other tensors are constants. Constant nodes become constants or weights. */
#ifndef SL_PROGRAMS_SERVE_ENGINE_ONNX_H
#define SL_PROGRAMS_SERVE_ENGINE_ONNX_H

#include "programs/serve/engine/graph.h"
#include "programs/serve/engine/graph_memory.h"

#define SL_ONNX_CONSTANT_BYTES     64U
#define SL_ONNX_CONSTANT_BYTES_MAX (1U << 20) /* of i64 and bool */

/* Reads files beside the model, in which tensors lie. `read` sets *data to `bytes` bytes from the
 * offset on, which live as long as the model's memory. Errors: its own, with a reason. */
struct sl_onnx_files {
    int (*read)(void *context, const char *location, uint64_t offset, size_t bytes,
                const void **data, struct sl_reason *reason);
    void *context;
};

/* SL_GRAPH_WEIGHT or SL_GRAPH_CONSTANT, by type and bytes. */
enum sl_graph_kind sl_onnx_stored_kind(const struct sl_graph_value *value);

/* Reads a model whose weights have data, or one that sl_onnx_write has written: there they have
 * none. files: NULL: there are none. The graph lies in the memory, and points into `bytes` nowhere.
 * Errors: INVALID, UNSUPPORTED (an opset, a type), TOO_LARGE (a limit), NO_MEMORY (also: the
 * memory's limit), those of the files. */
int sl_onnx_read(const void *bytes, size_t count, bool has_weights,
                 const struct sl_onnx_files *files, struct sl_graph_memory *memory,
                 struct sl_graph *out, struct sl_reason *reason);

/* The value of the model's metadata (metadata_props) with the key; NULL: it has none. Lives as long
 * as the model's memory. */
const char *sl_onnx_metadata(const struct sl_graph *graph, const char *key);

/* Writes a model, with the data of its weights or without: the messages that it was read from, in
 * which it sets what folding has changed. The bytes lie in the memory. Errors: NO_MEMORY. */
int sl_onnx_write(const struct sl_graph *graph, bool has_weights, struct sl_graph_memory *memory,
                  uint8_t **bytes, size_t *count);

#endif
