/* Decodes the checkpoint messages. */
#include <stdlib.h>

#include "net/session/message_copy.h"
#include "net/session/message_read.h"

bool sl_message_checkpoint_read_numbers(const uint64_t *from, size_t count,
                                        struct sl_message_numbers *to)
{
    bool descend = count <= SL_MESSAGE_NUMBERS_MAX;
    for (size_t i = 0; descend && i < count; i++) {
        to->items[i] = from[i];
        descend = from[i] != 0 && is_checkpoint(from[i]) && (i == 0 || from[i] < from[i - 1]);
    }
    to->count = (uint32_t)count;
    return holds(descend, "register: checkpoints that are too many, or do not descend");
}

/* Rejects names that would lead out of the checkpoint's directory, and hidden files. */
static bool read_file(const struct sl_message_memory *memory, const Starling__CheckpointFile *from,
                      struct sl_message_checkpoint_file *to)
{
    SL_MESSAGE_COPY_FILE
    return holds(from->shard < SL_LIMIT_SHARDS, "checkpoint: a file's shard over the limit") &&
           copy_text(memory, from->name, TEXT_NAME, to->name, sizeof to->name) &&
           holds(to->name[0] != '\0' && to->name[0] != '.' && strchr(to->name, '/') == NULL,
                 "checkpoint: a file without a name, or with a path for one");
}

static int read_files(const struct sl_message_memory *memory, Starling__CheckpointFile *const *from,
                      size_t count, uint32_t count_max, struct sl_message_checkpoint_file **to,
                      uint32_t *to_count)
{
    if (!holds(count <= count_max, "checkpoint: more files than the limit")) {
        return SL_ERR_PROTOCOL;
    }
    struct sl_message_checkpoint_file *files = calloc(count + 1, sizeof *files);
    if (files == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    *to = files;
    *to_count = (uint32_t)count;
    for (size_t i = 0; i < count; i++) {
        if (!read_file(memory, from[i], &files[i]) ||
            !holds(i == 0 || files[i].shard > files[i - 1].shard,
                   "checkpoint: the files' shards do not ascend")) {
            return SL_ERR_PROTOCOL;
        }
    }
    return SL_OK;
}

bool sl_message_checkpoint_is_number(uint64_t number, uint64_t base)
{
    return holds(number >= 1 && is_checkpoint(number), "checkpoint: a number outside its range") &&
           holds(base < number, "checkpoint: its base is not older");
}

bool sl_message_checkpoint_read(const Starling__Checkpoint *from, struct sl_message_checkpoint *to)
{
    to->number = from->number;
    to->base = from->base_number;
    to->complete = from->complete;
    return sl_message_checkpoint_is_number(from->number, from->base_number) &&
           sl_message_checkpoint_is_number(from->number, from->complete);
}

int sl_message_checkpoint_read_part(const struct sl_message_memory *memory,
                                    const Starling__CheckpointPart *from,
                                    struct sl_message_checkpoint_part *to)
{
    to->number = from->number;
    to->err = from->code == 0 ? 0 : read_code(from->code);
    to->has_worker = from->has_worker != 0;
    if (!sl_message_checkpoint_is_number(from->number, 0) ||
        !holds((from->code == 0) == (from->n_files != 0),
               "checkpoint: files and an error, or neither") ||
        !copy_text(memory, from->text, TEXT_FREE, to->text, sizeof to->text)) {
        return SL_ERR_PROTOCOL;
    }
    return read_files(memory, from->files, from->n_files, 2 * SL_LIMIT_REACTORS, &to->files,
                      &to->file_count);
}

int sl_message_checkpoint_read_publish(const struct sl_message_memory *memory,
                                       const Starling__CheckpointPublish *from,
                                       struct sl_message_checkpoint_publish *to)
{
    to->number = from->number;
    to->base = from->base_number;
    to->time_ms = from->time_ms;
    to->has_worker = from->has_worker != 0;
    if (!sl_message_checkpoint_is_number(from->number, from->base_number) ||
        !holds(from->n_files != 0, "checkpoint: complete without a file")) {
        return SL_ERR_PROTOCOL;
    }
    return read_files(memory, from->files, from->n_files, SL_LIMIT_SHARDS, &to->files,
                      &to->file_count);
}
