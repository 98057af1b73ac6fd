/* A model file: what is saved comes back. */
#include "programs/train/model_file_save.h"

#include <unistd.h>

#include "files.h"
#include "programs/models/model_file.h"
#include "stand_in.h"
#include "tests/support/unit.h"

struct saved {
    struct train_files files;
    char path[128];
};

static void set_up(struct saved *saved)
{
    train_stand_in_reset();
    train_files_begin(&saved->files);
    (void)snprintf(saved->path, sizeof saved->path, "%s/m.safetensors", saved->files.folder);
}

/* The folder has no other file: its removal would fail. */
static void tear_down(struct saved *saved)
{
    (void)unlink(saved->path);
    train_files_end(&saved->files);
}

#define CASE(name) SL_CASE_USING(name, struct saved, saved, set_up, tear_down)

static int save(const struct saved *saved, struct sl_reason *reason)
{
    const struct sl_model_shape shape = {.factors = 8, .hidden = {64, 32}, .seed = 1};
    struct sl_client client = {0};
    struct sl_table_spec specs[SL_MODEL_TABLES];
    struct sl_table *tables[SL_MODEL_TABLES] = {0};
    const struct sl_model_file_source source = {.client = &client,
                                                .model = &sl_model_lr,
                                                .shape = &shape,
                                                .format = &sl_reader_libffm,
                                                .tables = tables,
                                                .specs = specs,
                                                .table_count = sl_model_lr.tables(&shape, specs),
                                                .timeout_ms = 1234,
                                                .stop = &stop};
    uint64_t rows = 0;
    int err = sl_model_file_save(&source, saved->path, &rows, reason);
    assert_int_equal(rows, err == 0 ? 2 : 0);
    return err;
}

static void check_rows(const struct saved *saved)
{
    const uint64_t keys[] = {7, UINT64_C(1) << 63, 5};
    struct sl_model_file file;
    float rows[3];
    assert_int_equal(sl_model_file_load(saved->path, &file, NULL), 0);
    assert_ptr_equal(file.model, &sl_model_lr);
    assert_string_equal(file.data, "libffm");
    assert_true(file.row_count == 2 && file.table_count == 2);
    sl_model_file_pull(&file.tables[0], keys, 3, rows);
    assert_true(rows[0] == 0 && rows[1] == -2 && rows[2] == 0.5F);
    assert_true(file.tables[1].values[0] == 0.25F);
    sl_model_file_fini(&file);
}

CASE(model_file_save__writes_what_load_reads)
{
    fake.pulled = 0.25F; /* the bias */
    assert_int_equal(save(saved, NULL), 0);
    check_rows(saved);
    assert_int_equal(fake.outstanding, 0);
}

/* The backup of a server that is gone has the rows: they are read once more, from the first. */
CASE(model_file_save__scans_again_when_a_server_is_gone)
{
    fake.pulled = 0.25F;
    fake.scans_that_fail = 2;
    assert_int_equal(save(saved, NULL), 0);
    check_rows(saved);
    assert_int_equal(fake.scan_count, 3);
}

CASE(model_file_save__fails_when_no_scan_ends)
{
    struct sl_reason reason;
    fake.scans_that_fail = 99;
    assert_int_equal(save(saved, &reason), SL_ERR_CLOSED);
    assert_string_equal(reason.text, "the stand-in's");
    assert_true(access(saved->path, F_OK) != 0);
}

/* A server that restarted empty has nothing to scan. */
CASE(model_file_save__fails_when_values_are_lost)
{
    fake.scans_that_fail = 1;
    fake.values_lost = 0;
    assert_int_equal(save(saved, NULL), SL_ERR_CLOSED);
    assert_int_equal(fake.scan_count, 1);
}

CASE(model_file_save__keeps_the_older_file_when_it_fails)
{
    fake.pulled = 0.25F;
    assert_int_equal(save(saved, NULL), 0);
    stop = SIGTERM;
    assert_int_equal(save(saved, NULL), SL_ERR_CANCELLED);
    stop = 0;
    fake.fail_at = fake.step_count;
    assert_int_equal(save(saved, NULL), SL_ERR_DEADLINE);
    check_rows(saved);
}

CASE(model_file_check__refuses_a_folder_that_is_not_there)
{
    struct sl_reason reason;
    assert_int_equal(sl_model_file_check(saved->path, NULL), 0);
    assert_int_equal(sl_model_file_check("/none/m.safetensors", &reason), SL_ERR_NOT_FOUND);
    assert_non_null(strstr(reason.text, "cannot write to /none"));
    assert_int_equal(sl_model_file_check("/dev/null", NULL), SL_ERR_INVALID);
}
