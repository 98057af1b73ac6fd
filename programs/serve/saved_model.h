/* Click-through models that starling-worker --save wrote, for which no job runs. Main thread;
 * blocks. */
#ifndef SL_PROGRAMS_SERVE_SAVED_MODEL_H
#define SL_PROGRAMS_SERVE_SAVED_MODEL_H

#include "programs/models/model_note.h"
#include "programs/serve/engine/graph_image.h"
#include "programs/serve/engine/graph_memory.h"

#define SL_SAVED_MODEL_SUFFIX ".safetensors"

/* Reads a model as a job of one shard publishes it: TABLE/keys.0, U64 [rows], ascending, and
 * TABLE/rows.0, F32 [rows][columns]; and its note. Initialises the memory, in which all of it lies;
 * in any case the caller ends it. reason: begins with the path. Errors: those of
 * sl_model_file_load. */
int sl_saved_model_read(const char *path, struct sl_graph_memory *memory,
                        struct sl_graph_image *out, char note[SL_MODEL_NOTE_BYTES],
                        struct sl_reason *reason);

#endif
