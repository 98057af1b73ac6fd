/* Reads safetensors files from untrusted sources. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/assert.h"
#include "core/file_kind.h"
#include "core/format.h"
#include "programs/safetensors/safetensors.h"

#define METADATA "__metadata__"

struct parser {
    struct sl_safetensors *file;
    uint64_t data_at, data_bytes;
    struct sl_reason *reason;
};

static int safetensors_read_refuse(const struct parser *parser, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int safetensors_read_refuse(const struct parser *parser, int err, const char *format, ...)
{
    char why[512];
    SL_FORMAT(why, format);
    return sl_reason_fail(parser->reason, err, "%s: %s", parser->file->path, why);
}

static int read_at(const struct parser *parser, uint64_t at, void *to, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got =
            pread(parser->file->fd, (uint8_t *)to + done, bytes - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return safetensors_read_refuse(parser, SL_ERR_IO, "it cannot be read: %s",
                                           strerror(errno));
        }
        if (got == 0) {
            return safetensors_read_refuse(parser, SL_ERR_CORRUPT, "it is cut short");
        }
        done += (size_t)got;
    }
    return 0;
}

static enum sl_tensor_type type_of(const char *name)
{
    for (uint32_t i = 0; i < SL_TENSOR_OTHER; i++) {
        if (strcmp(sl_safetensors_type_names[i], name) == 0) {
            return (enum sl_tensor_type)i;
        }
    }
    return SL_TENSOR_OTHER;
}

/* False: not a number, or negative. */
static bool safetensors_read_take_number(const json_t *value, uint64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        return false;
    }
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static int take_shape(const struct parser *parser, const json_t *shape, struct sl_tensor *tensor)
{
    if (!json_is_array(shape) || json_array_size(shape) > SL_TENSOR_RANK_MAX) {
        return safetensors_read_refuse(parser, SL_ERR_CORRUPT,
                                       "\"%s\": \"shape\" is not an array of up to %d",
                                       tensor->name, SL_TENSOR_RANK_MAX);
    }
    tensor->rank = (uint32_t)json_array_size(shape);
    for (uint32_t i = 0; i < tensor->rank; i++) {
        if (!safetensors_read_take_number(json_array_get(shape, i), &tensor->shape[i])) {
            return safetensors_read_refuse(parser, SL_ERR_CORRUPT,
                                           "\"%s\": \"shape\" has what is no length", tensor->name);
        }
    }
    return 0;
}

static int take_place(const struct parser *parser, const json_t *offsets, struct sl_tensor *tensor)
{
    uint64_t begin;
    uint64_t end;
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
        !safetensors_read_take_number(json_array_get(offsets, 0), &begin) ||
        !safetensors_read_take_number(json_array_get(offsets, 1), &end) || begin > end ||
        end > parser->data_bytes) {
        return safetensors_read_refuse(parser, SL_ERR_CORRUPT,
                                       "\"%s\": \"data_offsets\" are not two places in the %" PRIu64
                                       " bytes of tensors",
                                       tensor->name, parser->data_bytes);
    }
    tensor->at = parser->data_at + begin;
    tensor->bytes = end - begin;
    return 0;
}

static int take_tensor(const struct parser *parser, const char *name, const json_t *object)
{
    struct sl_tensor tensor = {.type = SL_TENSOR_OTHER};
    if (strlen(name) >= sizeof tensor.name || name[0] == '\0') {
        return safetensors_read_refuse(parser, SL_ERR_CORRUPT,
                                       "a tensor's name has no byte, or more than %zu",
                                       sizeof tensor.name - 1);
    }
    (void)snprintf(tensor.name, sizeof tensor.name, "%s", name);
    const json_t *type = json_object_get(object, "dtype");
    if (!json_is_string(type)) {
        return safetensors_read_refuse(parser, SL_ERR_CORRUPT, "\"%s\" has no \"dtype\"", name);
    }
    (void)snprintf(tensor.type_name, sizeof tensor.type_name, "%.31s", json_string_value(type));
    tensor.type = type_of(json_string_value(type));
    int err = take_shape(parser, json_object_get(object, "shape"), &tensor);
    err = err != 0 ? err : take_place(parser, json_object_get(object, "data_offsets"), &tensor);
    const uint64_t bytes = tensor.bytes;
    if (err == 0) {
        struct sl_reason why;
        err = sl_tensor_add(&parser->file->tensors, &tensor, &why);
        if (err != 0) {
            return safetensors_read_refuse(parser, err, "%s", why.text);
        }
        const struct sl_tensors *all = &parser->file->tensors;
        if (all->items[all->count - 1].bytes != bytes) {
            return safetensors_read_refuse(parser, SL_ERR_CORRUPT,
                                           "\"%s\": its \"data_offsets\" are %" PRIu64
                                           " bytes apart; its shape needs %" PRIu64,
                                           name, bytes, all->items[all->count - 1].bytes);
        }
    }
    return err;
}

static int take_metadata(const struct parser *parser, json_t *metadata)
{
    const char *name;
    json_t *text;
    if (!json_is_object(metadata)) {
        return safetensors_read_refuse(parser, SL_ERR_CORRUPT, "\"" METADATA "\" is not an object");
    }
    json_object_foreach(metadata, name, text)
    {
        if (!json_is_string(text)) {
            return safetensors_read_refuse(parser, SL_ERR_CORRUPT,
                                           "\"" METADATA "\".\"%.64s\" is not a string", name);
        }
    }
    parser->file->metadata = json_incref(metadata);
    return 0;
}

static int by_place(const void *one, const void *other)
{
    const struct sl_tensor *a = one;
    const struct sl_tensor *b = other;
    if (a->at != b->at) {
        return a->at < b->at ? -1 : 1;
    }
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* Checks that the tensors neither overlap nor leave gaps, also at the end. */
static int check_places(const struct parser *parser)
{
    const struct sl_tensors *tensors = &parser->file->tensors;
    uint64_t at = parser->data_at;
    if (tensors->count > 1) {
        qsort(tensors->items, tensors->count, sizeof tensors->items[0], by_place);
    }
    for (uint32_t i = 0; i < tensors->count; i++) {
        if (tensors->items[i].at != at) {
            return safetensors_read_refuse(parser, SL_ERR_CORRUPT,
                                           "\"%s\" does not begin where the tensor before it ends",
                                           tensors->items[i].name);
        }
        at += tensors->items[i].bytes;
    }
    if (at != parser->data_at + parser->data_bytes) {
        return safetensors_read_refuse(parser, SL_ERR_CORRUPT,
                                       "there are bytes behind its last tensor");
    }
    return 0;
}

static int take_head(const struct parser *parser, json_t *root)
{
    const char *name;
    json_t *value;
    int err = 0;
    if (!json_is_object(root)) {
        return safetensors_read_refuse(parser, SL_ERR_CORRUPT, "its head is not an object");
    }
    json_object_foreach(root, name, value)
    {
        err = strcmp(name, METADATA) == 0 ? take_metadata(parser, value)
                                          : take_tensor(parser, name, value);
        if (err != 0) {
            return err;
        }
    }
    return check_places(parser);
}

/* The reason of a file that is something else: what it is, if that is known. */
static int refuse_kind(const struct parser *parser, const char *why)
{
    char begin[SL_FILE_KIND_BYTES];
    const ssize_t got = pread(parser->file->fd, begin, sizeof begin, 0);
    const char *kind = got > 0 ? sl_file_kind_explain(begin, (size_t)got) : NULL;
    return kind == NULL ? safetensors_read_refuse(parser, SL_ERR_CORRUPT, "%s", why)
                        : safetensors_read_refuse(parser, SL_ERR_CORRUPT,
                                                  "it is no safetensors file: %s", kind);
}

static int read_head(struct parser *parser, uint64_t file_bytes)
{
    uint64_t head_bytes;
    json_error_t error;
    char why[256];
    if (file_bytes < sizeof head_bytes) {
        (void)snprintf(why, sizeof why, "it is no safetensors file: it has %" PRIu64 " bytes",
                       file_bytes);
        return refuse_kind(parser, why);
    }
    int err = read_at(parser, 0, &head_bytes, sizeof head_bytes);
    if (err != 0) {
        return err;
    }
    if (head_bytes > file_bytes - sizeof head_bytes || head_bytes > SL_SAFETENSORS_HEAD_BYTES_MAX) {
        (void)snprintf(why, sizeof why,
                       "it is no safetensors file, or cut short: its head would have %" PRIu64
                       " bytes",
                       head_bytes);
        return refuse_kind(parser, why);
    }
    parser->data_at = sizeof head_bytes + head_bytes;
    parser->data_bytes = file_bytes - parser->data_at;
    char *text = malloc((size_t)head_bytes + 1);
    if (text == NULL) {
        return safetensors_read_refuse(parser, SL_ERR_NO_MEMORY, "no memory for its head");
    }
    err = read_at(parser, sizeof head_bytes, text, (size_t)head_bytes);
    json_t *root =
        err != 0 ? NULL : json_loadb(text, (size_t)head_bytes, JSON_REJECT_DUPLICATES, &error);
    if (err == 0 && root == NULL) {
        (void)snprintf(why, sizeof why, "its head: %s", error.text);
        err = refuse_kind(parser, why);
    }
    err = err != 0 ? err : take_head(parser, root);
    json_decref(root);
    free(text);
    return err;
}

int sl_safetensors_open(const char *path, struct sl_safetensors *out, struct sl_reason *reason)
{
    struct stat info;
    struct parser parser = {.file = out, .reason = reason};
    *out = (struct sl_safetensors){0};
    (void)snprintf(out->path, sizeof out->path, "%s", path);
    /* O_NONBLOCK: do not wait on a pipe or another special file. */
    out->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (out->fd < 0 || fstat(out->fd, &info) != 0) {
        const int said = errno;
        sl_safetensors_close(out);
        sl_reason_set(reason, "cannot open %s: %s", path, strerror(said));
        return said == ENOENT ? SL_ERR_NOT_FOUND : SL_ERR_IO;
    }
    int err = S_ISREG(info.st_mode)
                  ? read_head(&parser, (uint64_t)info.st_size)
                  : safetensors_read_refuse(&parser, SL_ERR_IO, "it is not a regular file");
    if (err != 0) {
        sl_safetensors_close(out);
    }
    return err;
}

int sl_safetensors_read(const struct sl_safetensors *file, const struct sl_tensor *tensor,
                        uint64_t first, void *to, size_t bytes, struct sl_reason *reason)
{
    sl_assert(first <= tensor->bytes);
    sl_assert(bytes <= tensor->bytes - first);
    const struct parser parser = {.file = (struct sl_safetensors *)file, .reason = reason};
    return read_at(&parser, tensor->at + first, to, bytes);
}

void sl_safetensors_close(struct sl_safetensors *file)
{
    if (file->fd >= 0) {
        (void)close(file->fd);
    }
    file->fd = -1;
    sl_tensor_fini(&file->tensors);
    json_decref(file->metadata);
    file->metadata = NULL;
}
