#include "programs/train/data_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/support/unit.h"

static char root[64];
static struct sl_data_files files;
static struct sl_reason reason;

static const char *at(const char *name)
{
    static char paths[2][128];
    static uint32_t next;
    char *path = paths[next++ % 2];
    (void)snprintf(path, sizeof paths[0], "%s/%s", root, name);
    return path;
}

static void make_file(const char *name)
{
    FILE *file = fopen(at(name), "we");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
}

static void setup(void)
{
    (void)snprintf(root, sizeof root, "/tmp/starling-data-files-XXXXXX");
    assert_non_null(mkdtemp(root));
    assert_int_equal(mkdir(at("parts"), 0700), 0);
}

static void teardown(void)
{
    char command[128];
    sl_data_files_fini(&files);
    (void)snprintf(command, sizeof command, "rm -rf '%s'", root);
    assert_int_equal(system(command), 0);
}

#define CASE(name) SL_CASE_WITH(name, setup(), teardown())

CASE(data_files_add__takes_a_folder_in_order)
{
    make_file("parts/part-2");
    make_file("parts/part-10");
    make_file("parts/_SUCCESS");
    make_file("parts/.part-2.crc");
    assert_int_equal(sl_data_files_add(&files, at("parts"), &reason), 0);
    assert_int_equal(files.count, 2);
    assert_string_equal(files.paths[0], at("parts/part-10"));
    assert_string_equal(files.paths[1], at("parts/part-2"));
}

CASE(data_files_add__names_a_folder_without_data)
{
    make_file("parts/_SUCCESS");
    assert_int_equal(sl_data_files_add(&files, at("parts"), &reason), SL_ERR_NOT_FOUND);
    assert_non_null(strstr(reason.text, at("parts")));
}

CASE(data_files_add__takes_a_list)
{
    char value[256];
    make_file("a");
    make_file("parts/b");
    (void)snprintf(value, sizeof value, "%s,%s,missing", at("a"), at("parts"));
    assert_int_equal(sl_data_files_add(&files, value, &reason), 0);
    assert_int_equal(sl_data_files_add(&files, "more", &reason), 0);
    assert_int_equal(files.count, 4);
    assert_string_equal(files.paths[0], at("a"));
    assert_string_equal(files.paths[1], at("parts/b"));
    assert_string_equal(files.paths[2], "missing"); /* the reader names it */
    assert_string_equal(files.paths[3], "more");
    assert_int_equal(sl_data_files_add(&files, "a,,b", &reason), SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "\"a,,b\""));
}

CASE(data_files_add__takes_a_file_with_a_comma)
{
    make_file("a,b");
    assert_int_equal(sl_data_files_add(&files, at("a,b"), &reason), 0);
    assert_int_equal(files.count, 1);
    assert_string_equal(files.paths[0], at("a,b"));
}
