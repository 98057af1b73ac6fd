/* The note of a published model names its kind and shape, so that a server can compute it:
 * "model=deepfm fields=39 factors=8 hidden=64,32 seed=1". Pure; any thread. */
#ifndef SL_PROGRAMS_MODELS_MODEL_NOTE_H
#define SL_PROGRAMS_MODELS_MODEL_NOTE_H

#include "core/reason.h"
#include "programs/models/model.h"

#define SL_MODEL_NOTE_BYTES 128 /* with NUL */

void sl_model_note_write(const struct sl_model *model, const struct sl_model_shape *shape,
                         char note[SL_MODEL_NOTE_BYTES]);

/* The shape is within the limits of model.h; fields may be 0 except of deepfm. Errors: UNSUPPORTED
 * (it names no model), INVALID. */
int sl_model_note_read(const char *note, const struct sl_model **model,
                       struct sl_model_shape *shape, struct sl_reason *reason);

#endif
