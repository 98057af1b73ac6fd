#include "programs/serve/npz.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"

/* APPNOTE.TXT 6.3.9, sections 4.3.7, 4.3.12 and 4.3.16. */
#define END_MAGIC       0x06054b50U
#define END_BYTES       22U
#define COMMENT_MAX     65535U
#define DIRECTORY_MAGIC 0x02014b50U
#define LOCAL_MAGIC     0x04034b50U
#define LOCAL_BYTES     30U
#define HEAD_BYTES      1024U /* of an npy header's text */

/* A file of the zip. */
struct member {
    uint32_t method, bytes, at; /* at: its local header */
};

static uint32_t read_u32(const uint8_t *at)
{
    struct sl_bytes cursor = sl_bytes_over(at, sizeof(uint32_t));
    return sl_bytes_u32(&cursor);
}

/* The directory of the zip; bad: there is none. */
static struct sl_bytes find_directory(const uint8_t *file, size_t bytes, uint32_t *count)
{
    struct sl_bytes none = {.bad = true};
    for (size_t back = END_BYTES; back <= bytes && back <= END_BYTES + COMMENT_MAX; back++) {
        if (read_u32(file + bytes - back) == END_MAGIC) {
            struct sl_bytes end = sl_bytes_over(file + bytes - back, END_BYTES);
            (void)sl_bytes_take(&end, 10);
            *count = sl_bytes_u16(&end);
            const uint32_t size = sl_bytes_u32(&end), at = sl_bytes_u32(&end);
            return at <= bytes && size <= bytes - at ? sl_bytes_over(file + at, size) : none;
        }
    }
    return none;
}

static bool find_member(struct sl_bytes directory, uint32_t count, const char *name,
                        struct member *out)
{
    const size_t length = strlen(name);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t magic = sl_bytes_u32(&directory);
        (void)sl_bytes_take(&directory, 6);
        out->method = sl_bytes_u16(&directory);
        (void)sl_bytes_take(&directory, 12);
        out->bytes = sl_bytes_u32(&directory); /* not compressed: as large */
        const uint16_t name_bytes = sl_bytes_u16(&directory);
        const uint16_t extra_bytes = sl_bytes_u16(&directory);
        const uint16_t comment_bytes = sl_bytes_u16(&directory);
        (void)sl_bytes_take(&directory, 8);
        out->at = sl_bytes_u32(&directory);
        const char *its = sl_bytes_take(&directory, name_bytes);
        (void)sl_bytes_take(&directory, (size_t)extra_bytes + comment_bytes);
        if (directory.bad || magic != DIRECTORY_MAGIC) {
            return false;
        }
        if (name_bytes == length + 4 && memcmp(its, name, length) == 0 &&
            memcmp(its + length, ".npy", 4) == 0) {
            return true;
        }
    }
    return false;
}

/* The contents of a member. */
static struct sl_bytes open_member(const uint8_t *file, size_t bytes, const struct member *member)
{
    struct sl_bytes cursor = sl_bytes_over(file, bytes);
    (void)sl_bytes_take(&cursor, member->at);
    const bool is_local = sl_bytes_u32(&cursor) == LOCAL_MAGIC;
    (void)sl_bytes_take(&cursor, LOCAL_BYTES - 8);
    const uint16_t name_bytes = sl_bytes_u16(&cursor);
    (void)sl_bytes_take(&cursor, (size_t)name_bytes + sl_bytes_u16(&cursor));
    const void *data = sl_bytes_take(&cursor, member->bytes);
    struct sl_bytes none = {.bad = true};
    return data != NULL && is_local ? sl_bytes_over(data, member->bytes) : none;
}

/* Reads "'shape': (2, 3)". */
static bool read_shape(const char *head, struct sl_npz_array *array)
{
    const char *at = strstr(head, "'shape': (");
    at = at != NULL ? at + strlen("'shape': (") : "";
    array->rank = 0;
    while (*at >= '0' && *at <= '9') {
        char *end;
        const uint64_t size = strtoull(at, &end, 10);
        if (array->rank == SL_OBJECTS_RANK_MAX || size > UINT32_MAX) {
            return false;
        }
        array->shape[array->rank++] = size;
        at = *end == ',' ? end + 1 : end;
        at += *at == ' ';
    }
    return *at == ')';
}

/* Reads the header of an npy file, and what lies behind it. */
static bool read_array(struct sl_bytes cursor, struct sl_npz_array *array)
{
    static const struct {
        const char *text;
        uint32_t type, item_bytes;
    } types[] = {{"'descr': '<f4'", SL_OBJECT_F32, 4},
                 {"'descr': '<i8'", SL_OBJECT_I64, 8},
                 {"'descr': '|b1'", SL_OBJECT_BOOL, 1}};
    char head[HEAD_BYTES] = "";
    const char *magic = sl_bytes_take(&cursor, 6);
    const uint8_t version = sl_bytes_u8(&cursor);
    (void)sl_bytes_u8(&cursor);
    const uint32_t length = version == 1 ? sl_bytes_u16(&cursor) : sl_bytes_u32(&cursor);
    const void *text = length < sizeof head ? sl_bytes_take(&cursor, length) : NULL;
    if (magic == NULL || memcmp(magic, "\x93NUMPY", 6) != 0 || text == NULL) {
        return false;
    }
    memcpy(head, text, length);
    if (strstr(head, "'fortran_order': False") == NULL || !read_shape(head, array)) {
        return false;
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strstr(head, types[i].text) != NULL) {
            uint64_t expected = types[i].item_bytes;
            bool overflows = false;
            for (uint32_t j = 0; j < array->rank; j++) {
                overflows =
                    __builtin_mul_overflow(expected, array->shape[j], &expected) || overflows;
            }
            array->type = types[i].type;
            array->data = cursor.next;
            array->bytes = cursor.left;
            return !overflows && expected == cursor.left;
        }
    }
    return false;
}

int sl_npz_find(const void *file, size_t bytes, const char *name, struct sl_npz_array *out,
                struct sl_reason *reason)
{
    uint32_t count = 0;
    struct member member;
    const struct sl_bytes directory = find_directory(file, bytes, &count);
    if (directory.bad) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "no npz file, as numpy.savez writes it");
    }
    if (!find_member(directory, count, name, &member)) {
        return sl_reason_fail(reason, SL_ERR_NOT_FOUND, "no array \"%s\"", name);
    }
    return member.method == 0 && read_array(open_member(file, bytes, &member), out)
               ? 0
               : sl_reason_fail(reason, SL_ERR_INVALID,
                                "array \"%s\": accepted are float32, int64 and bool in C order, as "
                                "numpy.savez writes them, without compression",
                                name);
}
