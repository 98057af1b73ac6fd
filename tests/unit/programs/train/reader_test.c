#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "files.h"
#include "programs/train/reader.h"
#include "tests/support/unit.h"

#define CATEGORIES                                                                                 \
    "\t1\t2\t3\t4\t5\t6\t7\t8\t9\ta\tb\tc\td\te\tf\t10\t11\t12\t13\t14\t15\t16\t17\t18\t19"
#define CRITEO(integers, first) "1" integers "\t" first CATEGORIES
#define EMPTY_INTEGERS          "\t\t\t\t\t\t\t\t\t\t\t\t\t"

static struct sl_reader *open_share(const struct train_files *files,
                                    const struct sl_reader_format *format, uint32_t index,
                                    uint32_t count)
{
    const struct sl_reader_options options = {.format = format,
                                              .paths = files->list,
                                              .path_count = files->count,
                                              .share_index = index,
                                              .share_count = count};
    struct sl_reader *reader = NULL;
    assert_int_equal(sl_reader_open(&options, &reader, NULL), 0);
    return reader;
}

static struct sl_reader *open_text(struct train_files *files, const struct sl_reader_format *format,
                                   const char *text)
{
    train_files_begin(files);
    train_files_add(files, text, strlen(text));
    return open_share(files, format, 0, 1);
}

static void close_text(struct train_files *files, struct sl_reader *reader)
{
    sl_reader_close(&reader);
    assert_null(reader);
    train_files_end(files);
}

/* The first line is fine, the second refused at the column with the words. */
static void check_refused(const struct sl_reader_format *format, const char *good, const char *bad,
                          uint32_t column, const char *words)
{
    char text[1024];
    (void)snprintf(text, sizeof text, "%s\n%s\n", good, bad);
    struct train_files files;
    struct sl_reader *reader = open_text(&files, format, text);
    const struct sl_reader_row *row;
    assert_int_equal(sl_reader_next(reader, &row), 1);
    assert_int_equal(sl_reader_next(reader, &row), SL_ERR_INVALID);
    char place[160];
    (void)snprintf(place, sizeof place, "%s:2:%u: ", files.paths[0], column);
    assert_ptr_equal(strstr(sl_reader_reason(reader), place), sl_reader_reason(reader));
    assert_non_null(strstr(sl_reader_reason(reader), words));
    assert_non_null(strstr(sl_reader_reason(reader), format->accepts));
    close_text(&files, reader);
}

SL_CASE(reader_libsvm__reads_labels_keys_and_values)
{
    struct train_files files;
    struct sl_reader *reader =
        open_text(&files, &sl_reader_libsvm,
                  "1 0:1 18446744073709551615:-0.5\r\n\n-1\n  \n+1\t7:2e1  8:.25 # words\n0 3:1");
    const struct sl_reader_row *row;
    assert_int_equal(sl_reader_next(reader, &row), 1);
    assert_float_equal(row->label, 1, 0);
    assert_int_equal(row->feature_count, 2);
    assert_true(row->keys[0] == 0 && row->keys[1] == UINT64_MAX);
    assert_float_equal(row->values[1], -0.5F, 0);
    assert_int_equal(sl_reader_next(reader, &row), 1);
    assert_float_equal(row->label, 0, 0);
    assert_int_equal(row->feature_count, 0);
    assert_int_equal(sl_reader_next(reader, &row), 1);
    assert_float_equal(row->label, 1, 0);
    assert_int_equal(row->feature_count, 2);
    assert_float_equal(row->values[0], 20, 0);
    assert_int_equal(sl_reader_next(reader, &row), 1);
    assert_int_equal(row->keys[0], 3);
    assert_int_equal(sl_reader_next(reader, &row), 0);
    assert_int_equal(sl_reader_next(reader, &row), 0);
    close_text(&files, reader);
}

SL_CASE(reader_libsvm__names_the_place_of_a_bad_word)
{
    const struct sl_reader_format *format = &sl_reader_libsvm;
    check_refused(format, "0 1:1", "7 1:1", 1, "label");
    check_refused(format, "0 1:1", "1:1 2:1", 1, "the label is missing: \"1:1\"");
    check_refused(format, "0 1:1", "-1.5 1:1", 1, "\"-1.5\"");
    check_refused(format, "0 1:1", "1e 1:1", 1, "\"1e\"");
    check_refused(format, "0 1:1", "nan 1:1", 1, "label");
    check_refused(format, "0 1:1", "01x 1:1", 1, "\"01x\"");
    check_refused(format, "0 1:1", "1 x:1", 3, "\"x:1\"");
    check_refused(format, "0 1:1", "1 2:3 18446744073709551616:1", 7, "index");
    check_refused(format, "0 1:1", "1 2", 3, "colon must follow the index: \"2\"");
    check_refused(format, "0 1:1", "1 2:1 qid:3", 7, "\"qid:3\"");
    check_refused(format, "0 1:1", "1 qid:x 2:1", 3, "\"qid:x\"");
    check_refused(format, "0 1:1",
                  "1 0123456789012345678901234567890123456789012345678901234567890", 3,
                  "\"012345678901234567890123456789012345678901234567890123456...\"");
    check_refused(format, "0 1:1", "1 2:", 5, "value");
    check_refused(format, "0 1:1", "1 2:nan", 5, "value");
    check_refused(format, "0 1:1", "1 2:1x", 5, "value");
    check_refused(format, "0 1:1", "1 2:1\r3", 5, "\"1\\x0d3\"");
    check_refused(format, "0 1:1", "1 2:3:4", 5, "--format libffm");
    check_refused(&sl_reader_libffm, "0 1:1:1", "1 2:3:", 7, "value");
    check_refused(&sl_reader_libffm, "0 1:1:1", "1 2:3", 5, "colon must follow the index: \"3\"");
    check_refused(&sl_reader_libffm, "0 1:1:1", "1 x:3:1", 3, "field");
}

/* A row to predict: it begins with its first feature, or with an empty column. */
SL_CASE(reader__takes_rows_without_label_if_asked)
{
    static const struct {
        const struct sl_reader_format *format;
        const char *text;
    } rows[] = {{&sl_reader_libsvm, " 5:2.5 7:1\n1 5:2.5 7:1\n"},
                {&sl_reader_libffm, "0:5:2.5 1:7:1\n1 0:5:2.5 1:7:1\n"},
                {&sl_reader_criteo,
                 "\t1" EMPTY_INTEGERS CATEGORIES "\n1\t1" EMPTY_INTEGERS CATEGORIES "\n"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct train_files files;
        struct sl_reader *reader;
        const struct sl_reader_row *row;
        uint64_t keys[2];
        train_files_begin(&files);
        train_files_add(&files, rows[i].text, strlen(rows[i].text));
        const struct sl_reader_options options = {.format = rows[i].format,
                                                  .paths = files.list,
                                                  .path_count = 1,
                                                  .share_count = 1,
                                                  .takes_unlabelled = true};
        assert_int_equal(sl_reader_open(&options, &reader, NULL), 0);
        assert_int_equal(sl_reader_next(reader, &row), 1);
        assert_true(isnan(row->label) && row->feature_count >= 2);
        memcpy(keys, row->keys, sizeof keys);
        assert_int_equal(sl_reader_next(reader, &row), 1);
        assert_float_equal(row->label, 1, 0);
        assert_memory_equal(row->keys, keys, sizeof keys);
        close_text(&files, reader);
    }
}

/* Tools that write floats write labels as floats. */
SL_CASE(reader__takes_labels_as_decimals)
{
    static const struct {
        const char *text;
        float label;
    } LABELS[] = {{"1.0", 1}, {"0.0", 0},   {"-1.0", 0}, {"+1.", 1},
                  {"1e0", 1}, {"10E-1", 1}, {"-0.0", 0}, {"0.000000e+00", 0}};
    for (size_t i = 0; i < 2 * sizeof LABELS / sizeof LABELS[0]; i++) {
        const bool is_criteo = i % 2 == 1;
        const char *label = LABELS[i / 2].text;
        if (is_criteo && label[0] == '-' && label[1] == '1') {
            continue; /* this format has no -1 */
        }
        char text[512];
        (void)snprintf(text, sizeof text, "%s%s\n", label,
                       is_criteo ? "\t\t\t\t\t\t\t\t\t\t\t\t\t\t1" CATEGORIES : " 2:1");
        struct train_files files;
        struct sl_reader *reader =
            open_text(&files, is_criteo ? &sl_reader_criteo : &sl_reader_libsvm, text);
        const struct sl_reader_row *row;
        assert_int_equal(sl_reader_next(reader, &row), 1);
        assert_memory_equal(&row->label, &LABELS[i / 2].label, sizeof row->label);
        close_text(&files, reader);
    }
}

static void count_lines(void *ctx, enum sl_log_level level, const char *text)
{
    assert_int_equal(level, SL_LOG_WARN);
    assert_non_null(strstr(text, "qid"));
    ++*(uint32_t *)ctx;
}

SL_CASE(reader_libsvm__ignores_qid_with_one_warning_a_file)
{
    uint32_t lines = 0;
    const char *text = "1 qid:7 2:3\n0 qid:8\n-1\tqid:8  4:1 # words\n";
    struct train_files files;
    train_files_begin(&files);
    train_files_add(&files, text, strlen(text));
    train_files_add(&files, "0 2:1\n", 6);
    train_files_add(&files, text, strlen(text));
    struct sl_reader *reader = open_share(&files, &sl_reader_libsvm, 0, 1);
    const struct sl_reader_row *row;
    sl_log_redirect(SL_LOG_WARN, count_lines, &lines);
    for (uint32_t epoch = 0; epoch < 2; epoch++) {
        uint32_t features = 0, rows = 0;
        for (; sl_reader_next(reader, &row) == 1; rows++) {
            features += row->feature_count;
        }
        assert_int_equal(rows, 7);
        assert_int_equal(features, 5);
        assert_int_equal(lines, 2);
        sl_reader_rewind(reader);
    }
    sl_log_redirect(SL_LOG_INFO, NULL, NULL);
    close_text(&files, reader);
}

SL_CASE(reader_libffm__takes_the_index_as_the_key)
{
    struct train_files files;
    struct sl_reader *reader =
        open_text(&files, &sl_reader_libffm, "# a comment\n1 0:7:1 3:8:-0.5 # words\n-1\n");
    const struct sl_reader_row *row;
    assert_int_equal(sl_reader_next(reader, &row), 1);
    assert_int_equal(row->feature_count, 2);
    assert_true(row->keys[0] == 7 && row->keys[1] == 8);
    assert_float_equal(row->values[1], -0.5F, 0);
    assert_int_equal(sl_reader_next(reader, &row), 1);
    assert_float_equal(row->label, 0, 0);
    assert_int_equal(sl_reader_next(reader, &row), 0);
    close_text(&files, reader);
}

SL_CASE(reader_libsvm__skips_comment_lines)
{
    struct train_files files;
    struct sl_reader *reader =
        open_text(&files, &sl_reader_libsvm, "# first\n0 1:1\n  #second\n1 2:1\n#");
    const struct sl_reader_row *row;
    assert_int_equal(sl_reader_next(reader, &row), 1);
    assert_int_equal(sl_reader_next(reader, &row), 1);
    assert_int_equal(row->keys[0], 2);
    assert_int_equal(sl_reader_next(reader, &row), 0);
    close_text(&files, reader);
}

/* The text ends before a NUL byte would, so that the byte itself must be written into the file. */
SL_CASE(reader_next__shows_a_nul_byte)
{
    struct train_files files;
    train_files_begin(&files);
    train_files_add(&files, "0 1:1\0\n", 7);
    struct sl_reader *reader = open_share(&files, &sl_reader_libsvm, 0, 1);
    const struct sl_reader_row *row;
    assert_int_equal(sl_reader_next(reader, &row), SL_ERR_INVALID);
    assert_non_null(strstr(sl_reader_reason(reader), "\"1\\x00\""));
    close_text(&files, reader);
}

SL_CASE(reader_criteo__gives_every_field_a_feature)
{
    struct train_files files;
    struct sl_reader *reader = open_text(
        &files, &sl_reader_criteo,
        CRITEO(EMPTY_INTEGERS, "0") "\n" CRITEO("\t0\t\t\t\t\t\t\t\t\t\t\t\t", "") "\r\n");
    const struct sl_reader_row *row;
    assert_int_equal(sl_reader_next(reader, &row), 1);
    assert_int_equal(row->feature_count, 39);
    for (uint32_t i = 0; i < 39; i++) {
        assert_float_equal(row->values[i], 1, 0);
        for (uint32_t k = 0; k < i; k++) {
            assert_true(row->keys[i] != row->keys[k]);
        }
    }
    uint64_t before[39];
    memcpy(before, row->keys, sizeof before);
    assert_int_equal(sl_reader_next(reader, &row), 1);
    for (uint32_t i = 0; i < 39; i++) {
        /* "0" is another value than an empty field; the other fields are the same. */
        assert_true((row->keys[i] == before[i]) == (i != 0 && i != 13));
    }
    close_text(&files, reader);
}

/* x up to 2 as it is, above floor(log(x + 1)^2): 3 -> 1, 10 -> 5, 11 -> 6, 12 -> 6. */
SL_CASE(reader_criteo__cuts_integers_to_classes)
{
    const char *const values[] = {"1", "3", "2", "10", "11", "12", "-1", "-3"};
    uint64_t keys[8];
    for (size_t i = 0; i < 8; i++) {
        char text[512];
        (void)snprintf(text, sizeof text, "0\t%s\t\t\t\t\t\t\t\t\t\t\t\t\t%s\n", values[i],
                       "1" CATEGORIES);
        struct train_files files;
        struct sl_reader *reader = open_text(&files, &sl_reader_criteo, text);
        const struct sl_reader_row *row;
        assert_int_equal(sl_reader_next(reader, &row), 1);
        keys[i] = row->keys[0];
        close_text(&files, reader);
    }
    assert_true(keys[0] == keys[1]);
    assert_true(keys[0] != keys[2]);
    assert_true(keys[3] != keys[4]);
    assert_true(keys[4] == keys[5]);
    assert_true(keys[6] != keys[0] && keys[6] != keys[7]);
}

SL_CASE(reader_criteo__names_the_place_of_a_bad_word)
{
    const struct sl_reader_format *format = &sl_reader_criteo;
    const char *good = CRITEO(EMPTY_INTEGERS, "");
    check_refused(format, good, "2\t", 1, "label");
    check_refused(format, good, good + 1, 1, "the label is missing");
    check_refused(format, good, "1\t2\t3", 6, "3 of 40");
    check_refused(format, good, "1.5\t", 1, "\"1.5\"");
    check_refused(format, good, CRITEO("\t1.5\t\t\t\t\t\t\t\t\t\t\t\t", ""), 3,
                  "integer field 1 of 13 is neither empty nor a whole number: \"1.5\"");
    check_refused(format, good, CRITEO(EMPTY_INTEGERS, "12g"), 16, "hexadecimal digits: \"12g\"");
    check_refused(format, good, CRITEO("\tx\t\t\t\t\t\t\t\t\t\t\t\t", ""), 3, "integer field 1");
    check_refused(format, good, CRITEO(EMPTY_INTEGERS, "zz"), 16, "categorical field 1");
    check_refused(format, good, CRITEO(EMPTY_INTEGERS, "") "\t1", 76, "after column 40");
}

/* Every row belongs to exactly one share, and all shares together are the files in order. */
SL_CASE(reader_next__divides_files_among_shares)
{
    char text[8192];
    uint32_t next_key = 0;
    struct train_files files;
    train_files_begin(&files);
    for (uint32_t part = 0; part < 3; part++) {
        size_t used = 0;
        for (uint32_t i = 0; i < (part == 1 ? 1U : 100U); i++, next_key++) {
            used +=
                (size_t)snprintf(text + used, sizeof text - used, "%s%u %u:1%s", i == 0 ? "" : "\n",
                                 i % 2, next_key, i % 7 == 0 ? " 5:1 6:1 7:1" : "");
        }
        train_files_add(&files, text, used); /* the last line has no end */
    }
    train_files_add(&files, "", 0);
    for (uint32_t share_count = 1; share_count < 300; share_count += share_count < 9 ? 1 : 97) {
        uint64_t bytes = 0;
        uint32_t key = 0;
        for (uint32_t index = 0; index < share_count; index++) {
            struct sl_reader *reader = open_share(&files, &sl_reader_libsvm, index, share_count);
            const struct sl_reader_row *row;
            while (sl_reader_next(reader, &row) == 1) {
                assert_int_equal(row->keys[0], key++);
            }
            assert_true(sl_reader_done_bytes(reader) == sl_reader_share_bytes(reader));
            bytes += sl_reader_share_bytes(reader);
            sl_reader_close(&reader);
        }
        assert_int_equal(key, next_key);
        assert_true(bytes > 1000);
    }
    train_files_end(&files);
}

/* Lines up to the limit are whole wherever the buffer is refilled; one byte more is refused. */
SL_CASE(reader_next__bounds_lines)
{
    size_t bytes = 3 * (SL_READER_LINE_BYTES + 1) + 12;
    char *text = malloc(bytes);
    assert_non_null(text);
    char *at = text;
    for (uint32_t i = 0; i < 3; i++) {
        size_t length = SL_READER_LINE_BYTES + (i == 2 ? 1 : 0);
        memset(at, ' ', length);
        memcpy(at, "1 5:1", 5);
        memcpy(at + length - 4, " 6:1", 4);
        at[length] = '\n';
        at += length + 1;
    }
    struct train_files files;
    train_files_begin(&files);
    train_files_add(&files, text, (size_t)(at - text));
    struct sl_reader *reader = open_share(&files, &sl_reader_libsvm, 0, 1);
    const struct sl_reader_row *row;
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(sl_reader_next(reader, &row), 1);
        assert_int_equal(row->feature_count, 2);
    }
    assert_int_equal(sl_reader_next(reader, &row), SL_ERR_TOO_LARGE);
    assert_non_null(strstr(sl_reader_reason(reader), ":3:1: the line is longer than 1048576"));
    close_text(&files, reader);
    free(text);
}

SL_CASE(reader_next__refuses_more_features_than_the_model_takes)
{
    struct train_files files;
    train_files_begin(&files);
    train_files_add(&files, "0 1:1 2:1\n1 1:1 2:1 3:1\n", 24);
    const struct sl_reader_options options = {.format = &sl_reader_libsvm,
                                              .paths = files.list,
                                              .path_count = 1,
                                              .share_count = 1,
                                              .features_max = 2};
    struct sl_reader *reader;
    assert_int_equal(sl_reader_open(&options, &reader, NULL), 0);
    const struct sl_reader_row *row;
    assert_int_equal(sl_reader_next(reader, &row), 1);
    assert_int_equal(sl_reader_next(reader, &row), SL_ERR_INVALID);
    assert_non_null(strstr(sl_reader_reason(reader), ":2:1: the row has 3 features"));
    close_text(&files, reader);
}

SL_CASE(reader_open__names_the_file)
{
    const char *const missing[] = {"/nonexistent/starling"};
    const char *const folder[] = {"/tmp"};
    struct sl_reader_options options = {
        .format = &sl_reader_libsvm, .paths = missing, .path_count = 1, .share_count = 1};
    struct sl_reader *reader = NULL;
    struct sl_reason reason = {0};
    assert_int_equal(sl_reader_open(&options, &reader, &reason), SL_ERR_NOT_FOUND);
    assert_non_null(strstr(reason.text, "/nonexistent/starling"));
    options.paths = folder;
    assert_int_equal(sl_reader_open(&options, &reader, &reason), SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "regular"));
    assert_null(reader);
}

SL_CASE(reader_open__names_what_a_file_is_instead_of_text)
{
    const struct {
        const char *text, *words;
    } cases[] = {
        {"\xef\xbb\xbf"
         "0 1:1\n",
         "byte order mark"},
        {"\xff\xfe"
         "0",
         "UTF-16"},
        {"\x1f\x8b\x08", "gzip"},
        {"\x28\xb5\x2f\xfd", "zstd"},
        {"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct train_files files;
        train_files_begin(&files);
        train_files_add(&files, "0 1:1\n", 6);
        train_files_add(&files, cases[i].text, strlen(cases[i].text));
        const struct sl_reader_options options = {
            .format = &sl_reader_libsvm, .paths = files.list, .path_count = 2, .share_count = 1};
        struct sl_reader *reader = NULL;
        struct sl_reason reason = {0};
        assert_int_equal(sl_reader_open(&options, &reader, &reason), SL_ERR_INVALID);
        assert_non_null(strstr(reason.text, files.paths[1]));
        assert_non_null(strstr(reason.text, cases[i].words));
        train_files_end(&files);
    }
}

SL_CASE(reader_next__notices_that_a_file_became_shorter)
{
    struct train_files files;
    struct sl_reader *reader = open_text(&files, &sl_reader_libsvm, "0 1:1\n1 2:1\n");
    assert_int_equal(truncate(files.paths[0], 6), 0);
    const struct sl_reader_row *row;
    int got;
    while ((got = sl_reader_next(reader, &row)) == 1) {
    }
    assert_int_equal(got, SL_ERR_IO);
    assert_non_null(strstr(sl_reader_reason(reader), "shorter"));
    close_text(&files, reader);
}
