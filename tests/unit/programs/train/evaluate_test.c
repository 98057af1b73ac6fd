/* The check of test data before a job trains. */
#include "programs/train/evaluate.h"

#include <string.h>

#include "files.h"
#include "tests/support/unit.h"

#define CASE(name)                                                                                 \
    SL_CASE_USING(name, struct train_files, files, train_files_begin, train_files_end)

static int check(struct train_files *files, uint32_t features_max, struct sl_reason *reason)
{
    const struct sl_reader_options options = {.format = &sl_reader_libsvm,
                                              .paths = files->list,
                                              .path_count = files->count,
                                              .share_count = 1,
                                              .features_max = features_max};
    return sl_evaluate_check(&options, reason);
}

static void add(struct train_files *files, const char *text)
{
    train_files_add(files, text, strlen(text));
}

CASE(evaluate_check__accepts_rows_of_both_labels)
{
    add(files, "0 1:1\n");
    add(files, "1 1:1\n");
    assert_int_equal(check(files, 0, NULL), 0);
}

CASE(evaluate_check__refuses_one_label)
{
    struct sl_reason reason;
    add(files, "0 1:1\n0 2:1\n");
    assert_int_equal(check(files, 0, &reason), SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "2 rows of label 0 and 0 of label 1"));
    assert_non_null(strstr(reason.text, files->list[0]));
}

CASE(evaluate_check__refuses_no_row)
{
    struct sl_reason reason;
    add(files, "# nothing\n");
    assert_int_equal(check(files, 0, &reason), SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "0 rows of label 0 and 0 of label 1"));
}

CASE(evaluate_check__refuses_a_bad_last_line)
{
    struct sl_reason reason;
    add(files, "0 1:1\n1 2:1\n1 x");
    assert_int_equal(check(files, 0, &reason), SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "/0:3:"));
}

CASE(evaluate_check__refuses_rows_that_the_model_cannot_take)
{
    struct sl_reason reason;
    add(files, "0 1:1\n1 2:1 3:1\n");
    assert_int_equal(check(files, 1, &reason), SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "2 features"));
}
