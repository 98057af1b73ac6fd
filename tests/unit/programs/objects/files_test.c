/* Files in and out, without a node: the test has the get. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "objects/node/get.h"
#include "programs/objects/files_in.h"
#include "programs/objects/files_out.h"
#include "programs/safetensors/safetensors.h"
#include "tests/support/unit.h"

static char root[64];
static struct sl_reason reason;
static struct sl_files_in files;

/* The tensors of the get. */
struct sl_get {
    const struct sl_files_in_tensor *items;
    uint64_t count;
    uint64_t second; /* the first tensor of part 1; 0: there is one part */
};

uint32_t sl_get_part(const struct sl_get *get, uint64_t index)
{
    return get->second > 0 && index >= get->second;
}

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

static void setup(void)
{
    (void)snprintf(root, sizeof root, "/tmp/starling-files-XXXXXX");
    assert_non_null(mkdtemp(root));
    assert_int_equal(mkdir(at("in"), 0700), 0);
}

static void teardown(void)
{
    char command[128];
    sl_files_in_fini(&files);
    (void)snprintf(command, sizeof command, "rm -rf '%s'", root);
    assert_int_equal(system(command), 0);
}

#define CASE(name) SL_CASE_WITH(name, setup(), teardown())

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
    write_file("in/m.safetensors", file, make_tensors(file, "F3_E1M1", "a"));
    assert_int_equal(put("in", false), SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "\"b\": objects do not accept the type F3_E1M1"));
    assert_non_null(strstr(reason.text, "--bytes"));
    write_file("in/m.safetensors", file, make_tensors(file, "BOOL", "file:a"));
    assert_int_equal(put("in", false), SL_ERR_INVALID);
    write_file("in/m.safetensors", "damaged, but long enough", 24);
    assert_int_equal(put("in", false), SL_ERR_CORRUPT);
    assert_non_null(strstr(reason.text, "in/m.safetensors"));
    sl_files_in_fini(&files);
    assert_int_equal(put("in", true), 0);
}

CASE(files__of_tensors_of_new_types_are_tensors)
{
    static const char *const types[] = {"F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "C64",
                                        "F4",      "F6_E2M3",     "F6_E3M2"};
    static const uint32_t bits[] = {8, 8, 8, 64, 4, 6, 6};
    for (uint32_t i = 0; i < 7; i++) {
        char file[256], head[129];
        uint32_t count;
        memset(file, 0, sizeof file);
        (void)snprintf(head, sizeof head,
                       "{\"w\":{\"dtype\":\"%s\",\"shape\":[2,4],\"data_offsets\":[0,%u]}}",
                       types[i], bits[i]);
        file[0] = (char)128;
        (void)snprintf(file + 8, sizeof file - 8, "%-128sABCDEFGHijklmnopqrstuvw", head);
        write_file("in/m.safetensors", file, 136 + bits[i]);
        assert_int_equal(put("in", false), 0);
        assert_int_equal(files.items[1].tensor.type, SL_OBJECT_F8_E8M0 + i);
        assert_int_equal(files.items[1].tensor.bytes, bits[i]);
        assert_int_equal(get("model", &count), 0);
        check_file("out/m.safetensors", file, 136 + bits[i]);
        sl_files_in_fini(&files);
    }
}

CASE(files__that_are_something_else_are_named_by_it)
{
    static const struct {
        const char *bytes, *words;
    } cases[] = {{"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"},
                 {"\x1f\x8b\x08\x08\x01\x02\x03\x04\x05", "gzip"},
                 {"<!DOCTYPE html><html></html>", "HTML"},
                 {"PK\x03\x04 and the rest of it", "zip archive"},
                 {"{\"a\":1}", "JSON"},
                 {"{\"a\"", "JSON"},
                 {"\x93NUMPY\x01 and an array", "NumPy"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_file("in/m.safetensors", cases[i].bytes, strlen(cases[i].bytes));
        assert_int_equal(put("in", false), SL_ERR_CORRUPT);
        assert_non_null(strstr(reason.text, cases[i].words));
        assert_non_null(strstr(reason.text, "in/m.safetensors"));
    }
    write_file("in/m.safetensors", "\x1b[2J at the beginning", 20);
    assert_int_equal(rename(at("in/m.safetensors"), at("in/\x1b[2J.safetensors")), 0);
    assert_int_equal(put("in", false), SL_ERR_CORRUPT);
    assert_null(strchr(reason.text, '\x1b'));
    assert_non_null(strstr(reason.text, "\\x1b[2J"));
}

CASE(files__without_a_size_are_read_to_their_end)
{
    char version[4096];
    uint32_t count;
    FILE *file = fopen("/proc/version", "re");
    assert_non_null(file);
    const size_t bytes = fread(version, 1, sizeof version, file);
    assert_int_equal(fclose(file), 0);
    assert_true(bytes > 0 && bytes < sizeof version);
    assert_int_equal(symlink("/proc/version", at("in/version")), 0);
    assert_int_equal(put("in", false), 0);
    assert_int_equal(get("model", &count), 0);
    check_file("out/version", version, bytes);
}

CASE(files__that_change_their_length_are_refused)
{
    static const struct {
        const char *name;
        bool is_tensors;
    } cases[] = {{"in/text", false}, {"in/m.safetensors", true}};
    for (uint32_t i = 0; i < 2; i++) {
        char bytes[256] = "0123456789";
        const size_t length = cases[i].is_tensors ? make_tensors(bytes, "BOOL", "a") : 10;
        write_file(cases[i].name, bytes, length);
        write_file("in/z", "z", 1); /* the next file begins right behind it */
        assert_int_equal(sl_files_in_add(&files, at("in"), false, &reason), 0);
        write_file(cases[i].name, bytes, length + 1);
        assert_int_equal(sl_files_in_read(&files, &reason), SL_ERR_CORRUPT);
        assert_non_null(strstr(reason.text, cases[i].name));
        assert_non_null(strstr(reason.text, "longer"));
        sl_files_in_fini(&files);
        assert_int_equal(unlink(at(cases[i].name)), 0);
    }
}

static void count_lines(void *ctx, enum sl_log_level level, const char *text)
{
    ++*(uint32_t *)ctx;
    assert_non_null(strstr(text, "in/hollow is empty"));
}

CASE(directories__that_are_empty_are_named)
{
    uint32_t lines = 0;
    assert_int_equal(mkdir(at("in/hollow"), 0700), 0);
    assert_int_equal(mkdir(at("in/deep"), 0700), 0);
    write_file("in/deep/.hidden", "x", 1);
    sl_log_redirect(SL_LOG_WARN, count_lines, &lines);
    assert_int_equal(put("in", false), 0);
    sl_log_redirect(SL_LOG_INFO, NULL, NULL);
    assert_int_equal(lines, 1);
    assert_int_equal(files.file_count, 1);
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
    struct sl_files_in_tensor item = {.tensor = {"bytes", SL_OBJECT_U8, 1, {3}, "abc", 3}};
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

/* Writes the tensors, of one part, or of two that begin at 0 and at `second`. */
static int write_parts(const struct sl_files_in_tensor *items, uint32_t count, uint32_t second,
                       uint32_t *file_count)
{
    struct sl_get it = {.items = items, .count = count, .second = second};
    files.base = (uint8_t *)items[0].tensor.data;
    const int err = sl_files_out_write(&it, "team/m", files.base, at("out"), file_count, &reason);
    files.base = NULL;
    return err;
}

static void check_tensors(const char *name, const char *const *names, const char *bytes)
{
    struct sl_safetensors file;
    assert_int_equal(sl_safetensors_open(at(name), &file, &reason), 0);
    for (uint32_t i = 0; i < file.tensors.count; i++) {
        char got;
        assert_non_null(names[i]);
        assert_string_equal(file.tensors.items[i].name, names[i]);
        assert_int_equal(sl_safetensors_read(&file, &file.tensors.items[i], 0, &got, 1, &reason),
                         0);
        assert_int_equal(got, bytes[i]);
    }
    assert_null(names[file.tensors.count]);
    sl_safetensors_close(&file);
}

#define ONE(tensor_name, byte)                                                                     \
    {                                                                                              \
        .tensor = { tensor_name, SL_OBJECT_U8, 1, {1}, byte, 1 }                                   \
    }

CASE(files__of_parts_with_tensors_of_one_name_are_several)
{
    static const uint8_t data[] = "abcd";
    const struct sl_files_in_tensor items[] = {ONE("w", data), ONE("x", data + 1),
                                               ONE("y", data + 2), ONE("w", data + 3)};
    uint32_t count;
    assert_int_equal(write_parts(items, 4, 2, &count), 0);
    assert_int_equal(count, 2);
    assert_int_equal(count_entries("out"), 2);
    check_tensors("out/m.0.safetensors", (const char *const[]){"w", "x", NULL}, "ab");
    check_tensors("out/m.1.safetensors", (const char *const[]){"y", "w", NULL}, "cd");
    assert_int_equal(write_parts(items, 3, 2, &count), 0); /* all names differ */
    assert_int_equal(count, 1);
    check_tensors("out/m.safetensors", (const char *const[]){"w", "x", "y", NULL}, "abc");
}

CASE(files__of_tensors_that_are_called_bytes_are_of_tensors)
{
    static const uint8_t data[] = "abcd";
    const struct sl_files_in_tensor two[] = {ONE("bytes", data), ONE("w", data + 1)};
    const struct sl_files_in_tensor typed = {.tensor = {"bytes", SL_OBJECT_I8, 1, {1}, data, 1}};
    const struct sl_files_in_tensor parts[] = {ONE("bytes", data), ONE("bytes", data + 1)};
    uint32_t count;
    assert_int_equal(write_parts(two, 2, 0, &count), 0);
    check_tensors("out/m.safetensors", (const char *const[]){"bytes", "w", NULL}, "ab");
    assert_int_equal(write_parts(&typed, 1, 0, &count), 0);
    check_tensors("out/m.safetensors", (const char *const[]){"bytes", NULL}, "a");
    assert_int_equal(count_entries("out"), 1);
    assert_int_equal(write_parts(parts, 2, 1, &count), 0); /* sl_publish_bytes, twice */
    assert_int_equal(count, 1);
    check_file("out/m", "ab", 2);
}

CASE(files__that_cannot_have_a_tensor_are_refused)
{
    static const uint8_t data[] = "abcd";
    static const char *const names[] = {"__metadata__", "caf\xe9"};
    uint32_t count;
    for (uint32_t i = 0; i < 2; i++) {
        const struct sl_files_in_tensor items[] = {ONE("w", data), ONE(names[i], data + 1)};
        assert_int_equal(write_parts(items, 2, 0, &count), SL_ERR_INVALID);
        assert_non_null(strstr(reason.text, names[i]));
        assert_int_equal(count_entries("out"), 0);
    }
}

CASE(files__of_parts_are_not_mixed)
{
    static const uint8_t data[] = "abcd";
    const struct sl_files_in_tensor apart[] = {ONE("file:a", data), ONE("w", data + 1),
                                               ONE("file:b", data + 2)};
    const struct sl_files_in_tensor same[] = {ONE("file:a", data), ONE("file:a", data + 1)};
    uint32_t count;
    assert_int_equal(write_parts(apart, 3, 1, &count), 0);
    assert_int_equal(count, 3);
    check_file("out/a", "a", 1);
    check_file("out/b", "c", 1);
    check_tensors("out/m.1.safetensors", (const char *const[]){"w", NULL}, "b");
    assert_int_equal(write_parts(same, 2, 1, &count), SL_ERR_EXISTS);
    assert_non_null(strstr(reason.text, "\"a\""));
}

/* The signal takes effect after the call: here the test has blocked it. */
CASE(files__of_an_interrupted_get_are_gone)
{
    sigset_t signals;
    uint32_t count;
    assert_int_equal(mkdir(at("out"), 0700), 0);
    write_file("in/z", "0123456789", 10);
    write_file("out/z", "before", 6);
    assert_int_equal(put("in", false), 0);
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    assert_int_equal(sigprocmask(SIG_BLOCK, &signals, NULL), 0);
    assert_int_equal(raise(SIGTERM), 0);
    assert_int_equal(get("model", &count), SL_ERR_CANCELLED);
    assert_int_equal(sigwait(&signals, &(int){0}), 0);
    assert_int_equal(sigprocmask(SIG_UNBLOCK, &signals, NULL), 0);
    assert_int_equal(count_entries("out"), 1);
    check_file("out/z", "before", 6);
}
