#include "programs/models/model_note.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "programs/models/text.h"

void sl_model_note_write(const struct sl_model *model, const struct sl_model_shape *shape,
                         char note[SL_MODEL_NOTE_BYTES])
{
    (void)snprintf(note, SL_MODEL_NOTE_BYTES,
                   "model=%s fields=%u factors=%u hidden=%u,%u seed=%" PRIu64, model->name,
                   shape->fields, shape->factors, shape->hidden[0], shape->hidden[1], shape->seed);
}

static bool skip(struct sl_bytes *cursor, const char *text)
{
    const size_t bytes = strlen(text);
    if (cursor->left < bytes || memcmp(cursor->next, text, bytes) != 0) {
        return false;
    }
    (void)sl_bytes_take(cursor, bytes);
    return true;
}

/* Takes `name` and a number up to `most`. */
static bool take(struct sl_bytes *cursor, const char *name, uint32_t most, uint32_t *out)
{
    uint64_t number;
    if (!skip(cursor, name) || !sl_text_u64(cursor, &number) || number > most) {
        return false;
    }
    *out = (uint32_t)number;
    return true;
}

static const struct sl_model *take_model(struct sl_bytes *cursor)
{
    static const struct sl_model *const models[] = {&sl_model_lr, &sl_model_fm, &sl_model_deepfm};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct sl_bytes tail = *cursor;
        if (skip(&tail, "model=") && skip(&tail, models[i]->name) && sl_text_peek(&tail) == ' ') {
            *cursor = tail;
            return models[i];
        }
    }
    return NULL;
}

int sl_model_note_read(const char *note, const struct sl_model **model,
                       struct sl_model_shape *shape, struct sl_reason *reason)
{
    struct sl_bytes cursor = sl_bytes_over(note, strlen(note));
    struct sl_model_shape read;
    const struct sl_model *found = take_model(&cursor);
    if (found == NULL) {
        return sl_reason_fail(reason, SL_ERR_UNSUPPORTED,
                              "the note \"%s\" does not begin with model=lr, model=fm or "
                              "model=deepfm",
                              note);
    }
    if (!take(&cursor, " fields=", SL_MODEL_FIELDS_MAX, &read.fields) ||
        !take(&cursor, " factors=", SL_MODEL_FACTORS_MAX, &read.factors) ||
        !take(&cursor, " hidden=", SL_MODEL_HIDDEN_MAX, &read.hidden[0]) ||
        !take(&cursor, ",", SL_MODEL_HIDDEN_MAX, &read.hidden[1]) || !skip(&cursor, " seed=") ||
        !sl_text_u64(&cursor, &read.seed) || cursor.left > 0 || read.factors == 0 ||
        read.hidden[0] == 0 || read.hidden[1] == 0 ||
        (found == &sl_model_deepfm && read.fields == 0)) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "the note \"%s\" is not \"model=NAME fields=N factors=N hidden=N,N "
                              "seed=N\" with N from 1 to %d, %d, %d",
                              note, SL_MODEL_FIELDS_MAX, SL_MODEL_FACTORS_MAX, SL_MODEL_HIDDEN_MAX);
    }
    *model = found;
    *shape = read;
    return 0;
}
