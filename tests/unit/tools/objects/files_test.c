/* Files in and out, without a node: the test has the get. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/unit.h"
#include "tools/objects/files_in.h"
#include "tools/objects/files_out.h"
#include "tools/safetensors/safetensors.h"

static char root[64];
static struct sl_reason reason;
static struct sl_files_in files;

/* The tensors of the get. */
struct sl_get {
    const struct sl_files_in_tensor *items;
    uint64_t count;
};

int sl_get_next_tensor(struct sl_get *get, uint64_t *cursor, struct sl_object_tensor *out,
                       uint64_t *image_offset)
{
    if (*cursor == get->count) {
        return SL_ERR_NOT_FOUND;
    }
    *out = get->items[(*cursor)++].tensor;
    *image_offset = (uint64_t)((const uint8_t *)out->data - files.base);
    return 0;
}

static const char *at(const char *name)
{
    static char paths[4][256];
    static uint32_t next;
    char *path = paths[next++ % 4];
    (void)snprintf(path, sizeof paths[0], "%s/%s", root, name);
    return path;
}

static void write_file(const char *name, const void *bytes, size_t count)
{
    FILE *file = fopen(at(name), "we");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static void check_file(const char *name, const void *bytes, size_t count)
{
    char got[4096];
    FILE *file = fopen(at(name), "re");
    assert_non_null(file);
    assert_int_equal(fread(got, 1, sizeof got, file), count);
    assert_memory_equal(got, bytes, count);
    assert_int_equal(fclose(file), 0);
}

static uint32_t count_entries(const char *name)
{
    char command[512], text[32] = "";
    (void)snprintf(command, sizeof command, "find '%s' -mindepth 1 | wc -l", at(name));
    FILE *pipe = popen(command, "re");
    assert_non_null(pipe);
    assert_non_null(fgets(text, sizeof text, pipe));
    assert_int_equal(pclose(pipe), 0);
    return (uint32_t)atoi(text);
}

static int setup(void **state)
{
    (void)snprintf(root, sizeof root, "/tmp/starling-files-XXXXXX");
    assert_non_null(mkdtemp(root));
    assert_int_equal(mkdir(at("in"), 0700), 0);
    return 0;
}

static int teardown(void **state)
{
    char command[128];
    sl_files_in_fini(&files);
    (void)snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

#define CASE(name) SL_CASE_WITH(name, setup, teardown)

static int put(const char *name, bool as_bytes)
{
    int err = sl_files_in_add(&files, at(name), as_bytes, &reason);
    return err != 0 ? err : sl_files_in_read(&files, &reason);
}

static int get(const char *object, uint32_t *count)
{
    struct sl_get it = {.items = files.items, .count = files.count};
    return sl_files_out_write(&it, object, files.base, at("out"), count, &reason);
}

/* An object with this one file. */
static int get_path(const char *path)
{
    char name[256];
    uint32_t count;
    (void)snprintf(name, sizeof name, SL_FILES_IN_PREFIX "%s", path);
    struct sl_files_in_tensor item = {.tensor = {.name = name, .data = "abc", .bytes = 3}};
    struct sl_get it = {.items = &item, .count = 1};
    files.base = (uint8_t *)item.tensor.data;
    const int err = sl_files_out_write(&it, "x", files.base, at("out"), &count, &reason);
    files.base = NULL;
    return err;
}

/* A safetensors file: two tensors, with eleven bytes of data. */
static size_t make_tensors(char file[256], const char *type, const char *name)
{
    char head[129];
    (void)snprintf(head, sizeof head,
                   "{\"b\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[8,11]},"
                   "\"%s\":{\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[0,8]}}",
                   type, name);
    memset(file, 0, 8);
    file[0] = (char)128;
    return 8 + (size_t)snprintf(file + 8, 248, "%-128sABCDEFGHijk", head);
}

CASE(files__come_back_as_they_were)
{
    uint32_t count;
    assert_int_equal(mkdir(at("in/deep"), 0700), 0);
    assert_int_equal(mkdir(at("in/deep/er"), 0700), 0);
    write_file("in/deep/er/text", "hello", 5);
    write_file("in/empty", "", 0);
    write_file("in/z", "0123456789", 10);
    assert_int_equal(put("in", false), 0);
    assert_int_equal(files.file_count, 3);
    assert_string_equal(files.items[0].tensor.name, "file:deep/er/text");
    assert_int_equal((uintptr_t)files.items[2].tensor.data % 64, 0);
    assert_int_equal(get("model", &count), 0);
    assert_int_equal(count, 3);
    check_file("out/deep/er/text", "hello", 5);
    check_file("out/empty", "", 0);
    check_file("out/z", "0123456789", 10);
    assert_int_equal(count_entries("out"), 5);
    assert_int_equal(get("model", &count), 0); /* over itself */
    assert_int_equal(count_entries("out"), 5);
}

CASE(files__are_named_by_their_last_part)
{
    write_file("in/z", "0123456789", 10);
    assert_int_equal(put("in/z", false), 0);
    assert_string_equal(files.items[0].tensor.name, "file:z");
}

CASE(files__of_tensors_are_tensors)
{
    uint32_t count;
    char file[256];
    const size_t bytes = make_tensors(file, "BOOL", "a.w");
    write_file("in/m.safetensors", file, bytes);
    assert_int_equal(put("in", false), 0);
    assert_int_equal(files.file_count, 1);
    assert_int_equal(files.count, 3);
    const struct sl_object_tensor *tensor = &files.items[1].tensor;
    assert_string_equal(tensor->name, "a.w");
    assert_int_equal(tensor->type, SL_OBJECT_F16);
    assert_int_equal(tensor->rank, 2);
    assert_int_equal(tensor->shape[1], 2);
    assert_memory_equal(tensor->data, "ABCDEFGH", 8);
    assert_string_equal(files.items[2].tensor.name, "b");
    assert_int_equal(files.items[2].tensor.type, SL_OBJECT_BOOL);
    assert_int_equal(get("model", &count), 0);
    assert_int_equal(count, 1);
    check_file("out/m.safetensors", file, bytes);
    sl_files_in_fini(&files);
    assert_int_equal(put("in", true), 0);
    assert_int_equal(files.count, 1);
}

CASE(files__of_tensors_that_objects_do_not_have_are_refused)
{
    char file[256];
    write_file("in/m.safetensors", file, make_tensors(file, "F4", "a"));
    assert_int_equal(put("in", false), SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "F4"));
    assert_non_null(strstr(reason.text, "--bytes"));
    write_file("in/m.safetensors", file, make_tensors(file, "BOOL", "file:a"));
    assert_int_equal(put("in", false), SL_ERR_INVALID);
    write_file("in/m.safetensors", "damaged, but long enough", 24);
    assert_int_equal(put("in", false), SL_ERR_CORRUPT);
    assert_non_null(strstr(reason.text, "in/m.safetensors"));
    sl_files_in_fini(&files);
    assert_int_equal(put("in", true), 0);
}

CASE(files__that_cannot_be_read_are_named)
{
    assert_int_equal(put("absent", false), SL_ERR_NOT_FOUND);
    assert_non_null(strstr(reason.text, at("absent")));
    assert_int_equal(mkfifo(at("in/pipe"), 0600), 0);
    assert_int_equal(put("in", false), SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "in/pipe"));
    assert_int_equal(unlink(at("in/pipe")), 0);
    assert_int_equal(symlink("nowhere", at("in/link")), 0);
    assert_int_equal(put("in", false), SL_ERR_NOT_FOUND);
    assert_int_equal(unlink(at("in/link")), 0);
    write_file("in/short", "0123456789", 10);
    assert_int_equal(sl_files_in_add(&files, at("in"), false, &reason), 0);
    assert_int_equal(truncate(at("in/short"), 9), 0);
    assert_int_equal(sl_files_in_read(&files, &reason), SL_ERR_CORRUPT);
}

CASE(files__outside_the_directory_are_not_written)
{
    static const char *const paths[] = {"",  "/abs", "..", "../x", "a/../../x", "a/..",
                                        ".", "a//b", "a/", "./a",  "link/x",    "a/link/x"};
    assert_int_equal(mkdir(at("outside"), 0700), 0);
    assert_int_equal(mkdir(at("out"), 0700), 0);
    assert_int_equal(mkdir(at("out/a"), 0700), 0);
    assert_int_equal(symlink("../outside", at("out/link")), 0);
    assert_int_equal(symlink(at("outside"), at("out/a/link")), 0);
    for (uint32_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        assert_true(get_path(paths[i]) < 0);
        assert_non_null(strstr(reason.text, paths[i]));
    }
    assert_int_equal(count_entries("outside"), 0);
    assert_int_equal(count_entries("out"), 3);
    assert_int_equal(count_entries("."), 6); /* in, out, outside */
}

CASE(files__replace_links_and_leave_directories)
{
    write_file("target", "kept", 4);
    assert_int_equal(mkdir(at("out"), 0700), 0);
    assert_int_equal(symlink("../target", at("out/x")), 0);
    assert_int_equal(get_path("x"), 0);
    check_file("out/x", "abc", 3);
    check_file("target", "kept", 4);
    assert_int_equal(mkdir(at("out/d"), 0700), 0);
    assert_int_equal(get_path("d"), SL_ERR_IO);
    assert_int_equal(get_path("x/y"), SL_ERR_IO);
    assert_int_equal(count_entries("out"), 2);
}

CASE(files__are_written_beside_what_a_killed_process_left)
{
    char left[64];
    assert_int_equal(mkdir(at("out"), 0700), 0);
    (void)snprintf(left, sizeof left, "out/.x.%d", (int)getpid());
    write_file(left, "a", 1);
    assert_int_equal(get_path("x"), 0);
    check_file("out/x", "abc", 3);
    assert_int_equal(count_entries("out"), 1);
}

CASE(files__of_an_object_without_files_are_one)
{
    struct sl_files_in_tensor item = {.tensor = {.name = "bytes", .data = "abc", .bytes = 3}};
    struct sl_get it = {.items = &item, .count = 1};
    uint32_t count;
    files.base = (uint8_t *)item.tensor.data;
    assert_int_equal(sl_files_out_write(&it, "a/b", files.base, at("out"), &count, &reason), 0);
    files.base = NULL;
    assert_int_equal(count, 1);
    check_file("out/b", "abc", 3);
}

CASE(files__of_an_object_of_tensors_are_one_of_tensors)
{
    static const uint8_t data[] = "0123456789ab";
    struct sl_files_in_tensor items[2] = {
        {.tensor = {"a", SL_OBJECT_BF16, 2, {2, 2}, data, 8}},
        {.tensor = {"b", SL_OBJECT_F32, 0, {0}, data + 8, 4}},
    };
    struct sl_get it = {.items = items, .count = 2};
    struct sl_safetensors file;
    uint32_t count;
    char got[4];
    files.base = (uint8_t *)data;
    assert_int_equal(sl_files_out_write(&it, "team/m", data, at("out"), &count, &reason), 0);
    files.base = NULL;
    assert_int_equal(sl_safetensors_open(at("out/m.safetensors"), &file, &reason), 0);
    assert_int_equal(file.tensors.count, 2);
    assert_string_equal(file.tensors.items[0].type_name, "BF16");
    assert_int_equal(file.tensors.items[0].count, 4);
    assert_int_equal(file.tensors.items[1].rank, 0);
    assert_int_equal(sl_safetensors_read(&file, &file.tensors.items[1], 0, got, 4, &reason), 0);
    assert_memory_equal(got, "89ab", 4);
    sl_safetensors_close(&file);
}
