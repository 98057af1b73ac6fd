#include <string.h>

#include "files.h"
#include "programs/train/loader.h"
#include "tests/support/unit.h"

/* A loader over one file of the text. */
static struct sl_loader *load_text(struct train_files *files, const char *text, uint32_t batch_rows,
                                   uint32_t epochs, uint32_t begin)
{
    train_files_begin(files);
    train_files_add(files, text, strlen(text));
    const struct sl_reader_options options = {
        .format = &sl_reader_libsvm, .paths = files->list, .path_count = 1, .share_count = 1};
    struct sl_reader *reader;
    assert_int_equal(sl_reader_open(&options, &reader, NULL), 0);
    struct sl_loader *loader;
    assert_int_equal(sl_loader_create(reader, batch_rows, epochs, begin, &loader), 0);
    return loader;
}

SL_CASE(loader_take__gives_every_epoch_in_order)
{
    struct train_files files;
    struct sl_loader *loader = load_text(&files, "0 1:1\n1 2:1\n0 3:1\n1 4:1\n0 5:1\n", 2, 4, 0);
    struct sl_batch *batch;
    for (uint32_t epoch = 0; epoch < 4; epoch++) {
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(sl_loader_take(loader, &batch), 1);
            assert_int_equal(batch->row_count, i < 2 ? 2 : 1);
            assert_int_equal(batch->keys[0], 2 * i + 1);
            assert_int_equal(batch->epoch, epoch);
            sl_loader_give(loader, batch);
        }
    }
    assert_true(sl_loader_bytes(loader) == 120);
    assert_true(batch->done_bytes == 120);
    assert_true(sl_loader_processor_ns(loader) > 0);
    assert_int_equal(sl_loader_take(loader, &batch), 0);
    assert_int_equal(sl_loader_take(loader, &batch), 0);
    sl_loader_destroy(&loader);
    assert_null(loader);
    train_files_end(&files);
}

/* Several batches may be held; none of them changes while it is. */
SL_CASE(loader_take__leaves_held_batches_alone)
{
    struct train_files files;
    struct sl_loader *loader = load_text(&files, "0 1:1\n1 2:1\n0 3:1\n", 1, 100, 0);
    struct sl_batch *held[SL_LOADER_BATCHES];
    uint32_t taken = 0;
    uint32_t given = 0;
    for (; taken < 300; taken++) {
        if (taken - given == SL_LOADER_BATCHES) {
            assert_int_equal(held[given % SL_LOADER_BATCHES]->keys[0], given % 3 + 1);
            sl_loader_give(loader, held[given % SL_LOADER_BATCHES]);
            given++;
        }
        assert_int_equal(sl_loader_take(loader, &held[taken % SL_LOADER_BATCHES]), 1);
    }
    sl_loader_destroy(&loader);
    train_files_end(&files);
}

SL_CASE(loader_take__passes_an_error_on_in_its_place)
{
    struct train_files files;
    struct sl_loader *loader = load_text(&files, "0 1:1\n1 2:1\nbad\n", 1, 3, 0);
    struct sl_batch *batch;
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(sl_loader_take(loader, &batch), 1);
        sl_loader_give(loader, batch);
    }
    assert_int_equal(sl_loader_take(loader, &batch), SL_ERR_INVALID);
    assert_int_equal(sl_loader_take(loader, &batch), SL_ERR_INVALID);
    assert_non_null(strstr(sl_loader_reason(loader), ":3:1:"));
    sl_loader_destroy(&loader);
    train_files_end(&files);
}

SL_CASE(loader_take__ends_where_there_are_no_rows)
{
    struct train_files files;
    struct sl_loader *loader = load_text(&files, "", 4, 1000, 0);
    struct sl_batch *batch;
    assert_int_equal(sl_loader_take(loader, &batch), 0);
    sl_loader_destroy(&loader);
    train_files_end(&files);
}

/* The thread may be anywhere: waiting for room, reading, or not yet running. */
SL_CASE(loader_destroy__ends_the_thread_at_any_time)
{
    for (uint32_t held = 0; held < SL_LOADER_BATCHES; held++) {
        struct train_files files;
        struct sl_loader *loader = load_text(&files, "0 1:1\n1 2:1\n0 3:1\n", 1, 1000000, 0);
        for (uint32_t i = 0; i < held; i++) {
            struct sl_batch *batch;
            assert_int_equal(sl_loader_take(loader, &batch), 1);
        }
        sl_loader_destroy(&loader);
        train_files_end(&files);
    }
}

/* Wherever it begins, the batches are those of a loader that begins at the first. */
SL_CASE(loader_create__begins_with_any_batch)
{
    enum { PER_EPOCH = 3, EPOCHS = 4 };
    for (uint32_t begin = 0; begin <= PER_EPOCH * EPOCHS + 2; begin++) {
        struct train_files files;
        struct sl_loader *loader =
            load_text(&files, "0 1:1\n1 2:1\n0 3:1\n1 4:1\n0 5:1\n", 2, EPOCHS, begin);
        struct sl_batch *batch;
        for (uint32_t i = begin; i < PER_EPOCH * EPOCHS; i++) {
            assert_int_equal(sl_loader_take(loader, &batch), 1);
            assert_int_equal(batch->epoch, i / PER_EPOCH);
            assert_int_equal(batch->index, i % PER_EPOCH);
            assert_int_equal(batch->keys[0], 2 * (i % PER_EPOCH) + 1);
            assert_true(batch->done_bytes ==
                        30 * (i / PER_EPOCH) + (i % PER_EPOCH == 2 ? 30 : 12 * (i % 3 + 1)));
            sl_loader_give(loader, batch);
        }
        assert_int_equal(sl_loader_take(loader, &batch), 0);
        sl_loader_destroy(&loader);
        train_files_end(&files);
    }
}

SL_CASE(loader_create__begins_where_there_are_no_rows)
{
    struct train_files files;
    struct sl_loader *loader = load_text(&files, "", 4, 1000000000, 4000000000U);
    struct sl_batch *batch;
    assert_int_equal(sl_loader_take(loader, &batch), 0);
    sl_loader_destroy(&loader);
    train_files_end(&files);
}

SL_CASE(loader_create__finds_a_bad_line_on_the_way)
{
    struct train_files files;
    struct sl_loader *loader = load_text(&files, "0 1:1\nbad\n0 3:1\n", 1, 9, 7);
    struct sl_batch *batch;
    assert_int_equal(sl_loader_take(loader, &batch), SL_ERR_INVALID);
    assert_non_null(strstr(sl_loader_reason(loader), ":2:1:"));
    sl_loader_destroy(&loader);
    train_files_end(&files);
}
