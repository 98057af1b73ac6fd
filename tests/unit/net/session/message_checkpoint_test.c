/* What control messages about checkpoints may say. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/session/message.h"
#include "random_message.h"
#include "tests/support/unit.h"

static int decode_file_named(const char *name, uint32_t shard)
{
    struct sl_message_checkpoint_file file = {.shard = shard};
    snprintf(file.name, sizeof file.name, "%s", name);
    return random_message_decode(
        &(struct sl_message){.kind = SL_MESSAGE_CHECKPOINT_PART,
                             .checkpoint_part = {.number = 1, .files = &file, .file_count = 1}});
}

SL_CASE(message_decode__refuses_files_outside_their_directory)
{
    assert_int_equal(decode_file_named("shard-0000-of-0002.slc", 0), SL_OK);
    assert_int_equal(decode_file_named("", 0), SL_ERR_PROTOCOL);
    assert_int_equal(decode_file_named(".", 0), SL_ERR_PROTOCOL);
    assert_int_equal(decode_file_named("..", 0), SL_ERR_PROTOCOL);
    assert_int_equal(decode_file_named(".hidden", 0), SL_ERR_PROTOCOL);
    assert_int_equal(decode_file_named("../up", 0), SL_ERR_PROTOCOL);
    assert_int_equal(decode_file_named("a/b", 0), SL_ERR_PROTOCOL);
    assert_int_equal(decode_file_named("/etc/passwd", 0), SL_ERR_PROTOCOL);
    assert_int_equal(decode_file_named("a\nb", 0), SL_ERR_PROTOCOL);
    assert_int_equal(decode_file_named("a\xc3\xa4", 0), SL_ERR_PROTOCOL);
    assert_int_equal(decode_file_named("a", SL_LIMIT_SHARDS - 1), SL_OK);
    assert_int_equal(decode_file_named("a", SL_LIMIT_SHARDS), SL_ERR_PROTOCOL);
}

SL_CASE(message_decode__refuses_odd_checkpoints)
{
    static const struct {
        struct sl_message_checkpoint checkpoint;
        int err;
    } cases[] = {
        {{1, 0, 0}, SL_OK},
        {{0, 0, 0}, SL_ERR_PROTOCOL},
        {{7, 7, 0}, SL_ERR_PROTOCOL},
        {{7, 8, 0}, SL_ERR_PROTOCOL},
        {{7, 6, 0}, SL_OK},
        {{7, 0, 6}, SL_OK},
        {{SL_LIMIT_CHECKPOINT_NUMBER, 0, 0}, SL_OK},
        {{SL_LIMIT_CHECKPOINT_NUMBER + 1, 0, 0}, SL_ERR_PROTOCOL},
    };
    struct sl_message_checkpoint_file files[] = {{.name = "a", .shard = 1}, {"b", .shard = 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct sl_message_checkpoint *checkpoint = &cases[i].checkpoint;
        assert_int_equal(random_message_decode(&(struct sl_message){.kind = SL_MESSAGE_CHECKPOINT,
                                                                    .checkpoint = *checkpoint}),
                         cases[i].err);
        assert_int_equal(random_message_decode(&(struct sl_message){
                             .kind = SL_MESSAGE_CHECKPOINT_PUBLISH,
                             .checkpoint_publish = {.number = checkpoint->number,
                                                    .base = checkpoint->base,
                                                    .files = files,
                                                    .file_count = 2}}),
                         cases[i].err);
    }
    assert_int_equal(random_message_decode(&(struct sl_message){.kind = SL_MESSAGE_CHECKPOINT,
                                                                .checkpoint = {7, 6, 7}}),
                     SL_ERR_PROTOCOL);
    struct sl_message done = {.kind = SL_MESSAGE_CHECKPOINT_DONE};
    assert_int_equal(random_message_decode(&done), SL_ERR_PROTOCOL);
    done.checkpoint_number = 1;
    assert_int_equal(random_message_decode(&done), SL_OK);
    struct sl_message cluster = {
        .kind = SL_MESSAGE_CLUSTER,
        .cluster = {.placements = &(struct sl_message_placement){.epoch = 1},
                    .shard_count = 1,
                    .ps = &(struct sl_message_ps){.shard_count = 1, .data_endpoint = "tcp://h:1"},
                    .ps_count = 1,
                    .restore = SL_LIMIT_CHECKPOINT_NUMBER},
    };
    assert_int_equal(random_message_decode(&cluster), SL_OK);
    cluster.cluster.restore++;
    assert_int_equal(random_message_decode(&cluster), SL_ERR_PROTOCOL);
    /* The coordinator refuses them in a Register: its answer says why. */
    struct sl_message reg = {.kind = SL_MESSAGE_REGISTER};
    reg.reg.checkpoint_newest = reg.reg.restore = UINT64_MAX;
    assert_int_equal(random_message_decode(&reg), SL_OK);
}

SL_CASE(message_decode__refuses_odd_lists_of_checkpoints)
{
    struct sl_message reg = {.kind = SL_MESSAGE_REGISTER};
    struct sl_message_numbers *const lists[] = {&reg.reg.complete, &reg.reg.unfinished};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        struct sl_message_numbers *list = lists[i];
        *list =
            (struct sl_message_numbers){.items = {SL_LIMIT_CHECKPOINT_NUMBER, 7, 1}, .count = 3};
        assert_int_equal(random_message_decode(&reg), SL_OK);
        list->items[0]++;
        assert_int_equal(random_message_decode(&reg), SL_ERR_PROTOCOL);
        list->items[0] = 7;
        assert_int_equal(random_message_decode(&reg), SL_ERR_PROTOCOL);
        list->items[0] = 8;
        list->items[2] = 0;
        assert_int_equal(random_message_decode(&reg), SL_ERR_PROTOCOL);
        list->count = 2;
        assert_int_equal(random_message_decode(&reg), SL_OK);
    }
}

SL_CASE(message_decode__refuses_odd_lists_of_files)
{
    struct sl_message_checkpoint_file files[] = {{.name = "a", .shard = 1}, {"b", .shard = 2}};
    struct sl_message part = {.kind = SL_MESSAGE_CHECKPOINT_PART,
                              .checkpoint_part = {.number = 3, .files = files, .file_count = 2}};
    assert_int_equal(random_message_decode(&part), SL_OK);
    files[1].shard = 1;
    assert_int_equal(random_message_decode(&part), SL_ERR_PROTOCOL);
    files[1].shard = 0;
    assert_int_equal(random_message_decode(&part), SL_ERR_PROTOCOL);
    files[1].shard = 2;
    part.checkpoint_part.err = SL_ERR_IO; /* files and an error */
    assert_int_equal(random_message_decode(&part), SL_ERR_PROTOCOL);
    part.checkpoint_part.file_count = 0;
    assert_int_equal(random_message_decode(&part), SL_OK);
    part.checkpoint_part.err = 0; /* neither */
    assert_int_equal(random_message_decode(&part), SL_ERR_PROTOCOL);
    part.checkpoint_part.err = SL_ERR_CANCELLED - 1; /* of a later version */
    size_t bytes;
    uint8_t *encoded = random_message_encode(&part, &bytes);
    struct sl_message decoded;
    assert_int_equal(sl_message_decode(encoded, bytes, &decoded), SL_OK);
    assert_int_equal(decoded.checkpoint_part.err, SL_ERR_PROTOCOL);
    sl_message_fini(&decoded);
    free(encoded);
    struct sl_message complete = {.kind = SL_MESSAGE_CHECKPOINT_PUBLISH,
                                  .checkpoint_publish = {.number = 3, .files = files}};
    assert_int_equal(random_message_decode(&complete), SL_ERR_PROTOCOL);
}

SL_CASE(message_decode__takes_the_largest_checkpoint)
{
    struct sl_message message = {.kind = SL_MESSAGE_CHECKPOINT_PUBLISH};
    struct sl_message_checkpoint_publish *complete = &message.checkpoint_publish;
    complete->number = SL_LIMIT_CHECKPOINT_NUMBER;
    complete->base = complete->number - 1;
    complete->time_ms = UINT64_MAX;
    complete->file_count = SL_LIMIT_SHARDS;
    complete->files = calloc(SL_LIMIT_SHARDS, sizeof *complete->files);
    for (uint32_t i = 0; i < SL_LIMIT_SHARDS; i++) {
        struct sl_message_checkpoint_file *file = &complete->files[i];
        memset(file->name, 'f', sizeof file->name - 1);
        file->shard = i;
        file->bytes = file->hash = file->rows = UINT64_MAX;
    }
    size_t bytes;
    uint8_t *encoded = random_message_encode(&message, &bytes);
    assert_true(bytes <= SL_LIMIT_CONTROL_PAYLOAD_BYTES);
    struct sl_message decoded;
    assert_int_equal(sl_message_decode(encoded, bytes, &decoded), SL_OK);
    assert_int_equal(decoded.checkpoint_publish.file_count, SL_LIMIT_SHARDS);
    assert_memory_equal(decoded.checkpoint_publish.files, complete->files,
                        SL_LIMIT_SHARDS * sizeof *complete->files);
    sl_message_fini(&decoded);
    free(encoded);
    /* No ps has so many shards. */
    struct sl_message part = {.kind = SL_MESSAGE_CHECKPOINT_PART,
                              .checkpoint_part = {.number = 1,
                                                  .files = complete->files,
                                                  .file_count = SL_LIMIT_REACTORS}};
    assert_int_equal(random_message_decode(&part), SL_OK);
    sl_message_fini(&message);
}
