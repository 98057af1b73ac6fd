#include "ps/checkpoint/manifest.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/hash.h"

#define FORMAT_NAME     "starling checkpoint 1"
#define HEAD_BYTES_MAX  512
#define ENTRY_BYTES_MAX 256
#define SEAL_FORMAT     "\"hash\": \"%016" PRIx64 "\"\n}\n"

void sl_checkpoint_file_name(uint32_t shard, uint32_t shard_count,
                             char name[SL_CHECKPOINT_NAME_BYTES])
{
    (void)snprintf(name, SL_CHECKPOINT_NAME_BYTES, "shard-%04u-of-%04u.slc", shard, shard_count);
}

uint64_t sl_checkpoint_manifest_id(const struct sl_checkpoint_manifest *manifest)
{
    const uint64_t head[] = {manifest->number, manifest->base, manifest->base_id,
                             manifest->shard_count};
    uint64_t id = sl_hash_bytes(head, sizeof head, 0);
    for (uint32_t i = 0; i < manifest->shard_count; i++) {
        const struct sl_checkpoint_entry *file = &manifest->files[i];
        const uint64_t one[] = {file->shard, file->bytes, file->hash, file->rows};
        id = sl_hash_bytes(one, sizeof one, id);
    }
    return id;
}

int sl_checkpoint_manifest_init(uint32_t shard_count, struct sl_checkpoint_manifest *out)
{
    sl_assert(shard_count > 0);
    sl_assert(shard_count <= SL_LIMIT_SHARDS);
    struct sl_checkpoint_entry *files = calloc(shard_count, sizeof *files);
    if (files == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < shard_count; i++) {
        files[i].shard = i;
        sl_checkpoint_file_name(i, shard_count, files[i].name);
    }
    *out = (struct sl_checkpoint_manifest){.shard_count = shard_count, .files = files};
    return 0;
}

void sl_checkpoint_manifest_fini(struct sl_checkpoint_manifest *manifest)
{
    free(manifest->files);
    *manifest = (struct sl_checkpoint_manifest){0};
}

/* Writing */

void sl_checkpoint_manifest_seal(const char *text, size_t bytes, char to[SL_CHECKPOINT_SEAL_BYTES])
{
    (void)snprintf(to, SL_CHECKPOINT_SEAL_BYTES, SEAL_FORMAT, sl_hash_bytes(text, bytes, 0));
}

static size_t append(char *text, size_t bytes, size_t room, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static size_t append(char *text, size_t bytes, size_t room, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(text + bytes, room - bytes, format, arguments);
    va_end(arguments);
    sl_assert(more > 0);
    sl_assert((size_t)more < room - bytes);
    return bytes + (size_t)more;
}

static const char *const WORKERS[] = {
    [SL_CHECKPOINT_WORKERS_UNKNOWN] = "",
    [SL_CHECKPOINT_WORKERS_NONE] = ",\n  \"workers\": false",
    [SL_CHECKPOINT_WORKERS_SOME] = ",\n  \"workers\": true",
};

char *sl_checkpoint_manifest_encode(const struct sl_checkpoint_manifest *manifest, size_t *bytes)
{
    sl_assert(manifest->number > manifest->base);
    sl_assert(manifest->id == sl_checkpoint_manifest_id(manifest));
    const size_t room = HEAD_BYTES_MAX + (size_t)manifest->shard_count * ENTRY_BYTES_MAX;
    char *text = malloc(room);
    if (text == NULL) {
        return NULL;
    }
    size_t done = append(text, 0, room,
                         "{\n  \"format\": \"" FORMAT_NAME "\",\n  \"number\": %" PRIu64
                         ",\n  \"base\": %" PRIu64 ",\n  \"base_id\": \"%016" PRIx64
                         "\",\n  \"id\": \"%016" PRIx64 "\",\n  \"time\": %" PRId64
                         "%s,\n  \"shard_count\": %" PRIu32 ",\n  \"files\": [\n",
                         manifest->number, manifest->base, manifest->base_id, manifest->id,
                         manifest->time_s, WORKERS[manifest->workers], manifest->shard_count);
    for (uint32_t i = 0; i < manifest->shard_count; i++) {
        const struct sl_checkpoint_entry *file = &manifest->files[i];
        done = append(text, done, room,
                      "    {\"name\": \"%s\", \"shard\": %" PRIu32 ", \"bytes\": %" PRIu64
                      ", \"hash\": \"%016" PRIx64 "\", \"rows\": %" PRIu64 "}%s\n",
                      file->name, file->shard, file->bytes, file->hash, file->rows,
                      i + 1 < manifest->shard_count ? "," : "");
    }
    done = append(text, done, room, "  ],\n  ");
    sl_assert(room - done >= SL_CHECKPOINT_SEAL_BYTES);
    sl_checkpoint_manifest_seal(text, done, text + done);
    *bytes = done + SL_CHECKPOINT_SEAL_BYTES - 1;
    sl_assert(*bytes <= SL_CHECKPOINT_MANIFEST_BYTES_MAX);
    return text;
}

/* Reading */

struct parser {
    struct sl_reason *reason;
    bool failed;
};

static void checkpoint_manifest_refuse(struct parser *parser, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Keeps the first error. */
static void checkpoint_manifest_refuse(struct parser *parser, const char *format, ...)
{
    if (parser->failed) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    sl_reason_vset(parser->reason, format, arguments);
    va_end(arguments);
    parser->failed = true;
}

static uint64_t checkpoint_manifest_take_number(struct parser *parser, const json_t *object,
                                                const char *key, uint64_t least, uint64_t most)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        (uint64_t)json_integer_value(value) < least || (uint64_t)json_integer_value(value) > most) {
        checkpoint_manifest_refuse(
            parser, "\"%s\" is not a whole number of %" PRIu64 " to %" PRIu64, key, least, most);
        return least;
    }
    return (uint64_t)json_integer_value(value);
}

static const char *take_text(struct parser *parser, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value)) {
        checkpoint_manifest_refuse(parser, "\"%s\" is not a string", key);
        return "";
    }
    return json_string_value(value);
}

static uint64_t take_hash(struct parser *parser, const json_t *object, const char *key)
{
    const char *text = take_text(parser, object, key);
    if (strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16) {
        checkpoint_manifest_refuse(parser, "\"%s\" is not 16 hexadecimal digits", key);
        return 0;
    }
    return strtoull(text, NULL, 16);
}

static void check_member_count(struct parser *parser, const json_t *object, const char *what,
                               size_t count)
{
    if (!json_is_object(object)) {
        checkpoint_manifest_refuse(parser, "%s is not an object", what);
    } else if (json_object_size(object) != count) {
        checkpoint_manifest_refuse(parser, "%s has other members than the ones that it must have",
                                   what);
    }
}

static void take_file(struct parser *parser, const json_t *object, struct sl_checkpoint_entry *file)
{
    check_member_count(parser, object, "an entry of \"files\"", 5);
    const char *name = take_text(parser, object, "name");
    if (strcmp(name, file->name) != 0) {
        checkpoint_manifest_refuse(parser, "a file is named \"%.40s\"; expected %s", name,
                                   file->name);
    }
    if (checkpoint_manifest_take_number(parser, object, "shard", 0, SL_LIMIT_SHARDS) !=
        file->shard) {
        checkpoint_manifest_refuse(parser, "\"files\" are not in the order of their shards");
    }
    file->bytes = checkpoint_manifest_take_number(parser, object, "bytes", 1, INT64_MAX);
    file->hash = take_hash(parser, object, "hash");
    file->rows = checkpoint_manifest_take_number(parser, object, "rows", 0, INT64_MAX);
}

static void take_files(struct parser *parser, const json_t *files,
                       struct sl_checkpoint_manifest *manifest)
{
    if (!json_is_array(files) || json_array_size(files) != manifest->shard_count) {
        checkpoint_manifest_refuse(parser, "\"files\" is not an array of %u, one for each shard",
                                   manifest->shard_count);
        return;
    }
    for (uint32_t i = 0; i < manifest->shard_count && !parser->failed; i++) {
        take_file(parser, json_array_get(files, i), &manifest->files[i]);
    }
}

static void take_head(struct parser *parser, const json_t *root,
                      struct sl_checkpoint_manifest *manifest)
{
    const json_t *workers = json_object_get(root, "workers");
    check_member_count(parser, root, "the manifest", workers == NULL ? 9 : 10);
    manifest->workers = workers == NULL         ? SL_CHECKPOINT_WORKERS_UNKNOWN
                        : json_is_true(workers) ? SL_CHECKPOINT_WORKERS_SOME
                                                : SL_CHECKPOINT_WORKERS_NONE;
    if (workers != NULL && !json_is_boolean(workers)) {
        checkpoint_manifest_refuse(parser, "\"workers\" is neither true nor false");
    }
    if (strcmp(take_text(parser, root, "format"), FORMAT_NAME) != 0) {
        checkpoint_manifest_refuse(parser, "\"format\" is not \"" FORMAT_NAME "\"");
    }
    manifest->number =
        checkpoint_manifest_take_number(parser, root, "number", 1, SL_LIMIT_CHECKPOINT_NUMBER);
    manifest->base = checkpoint_manifest_take_number(parser, root, "base", 0, manifest->number - 1);
    manifest->base_id = take_hash(parser, root, "base_id");
    manifest->id = take_hash(parser, root, "id");
    manifest->time_s = (int64_t)checkpoint_manifest_take_number(parser, root, "time", 0, INT64_MAX);
    if (manifest->base == 0 && manifest->base_id != 0) {
        checkpoint_manifest_refuse(parser, "\"base_id\" is not zeros, and there is no base");
    }
}

static int take_manifest(struct parser *parser, const json_t *root,
                         struct sl_checkpoint_manifest *out)
{
    struct sl_checkpoint_manifest head;
    take_head(parser, root, &head);
    const uint32_t shard_count =
        (uint32_t)checkpoint_manifest_take_number(parser, root, "shard_count", 1, SL_LIMIT_SHARDS);
    if (parser->failed) {
        return SL_ERR_CORRUPT;
    }
    if (sl_checkpoint_manifest_init(shard_count, out) != 0) {
        checkpoint_manifest_refuse(parser, "no memory");
        return SL_ERR_NO_MEMORY;
    }
    head.shard_count = shard_count;
    head.files = out->files;
    *out = head;
    take_files(parser, json_object_get(root, "files"), out);
    if (!parser->failed && out->id != sl_checkpoint_manifest_id(out)) {
        checkpoint_manifest_refuse(parser, "\"id\" is not the one of these files");
    }
    if (parser->failed) {
        sl_checkpoint_manifest_fini(out);
        return SL_ERR_CORRUPT;
    }
    return 0;
}

/* True if the last bytes are the seal of the preceding ones. */
static bool sealed(const char *text, size_t bytes)
{
    char seal[SL_CHECKPOINT_SEAL_BYTES];
    const size_t seal_bytes = sizeof seal - 1;
    if (bytes < seal_bytes) {
        return false;
    }
    sl_checkpoint_manifest_seal(text, bytes - seal_bytes, seal);
    return memcmp(text + bytes - seal_bytes, seal, seal_bytes) == 0;
}

int sl_checkpoint_manifest_decode(const char *text, size_t bytes,
                                  struct sl_checkpoint_manifest *out, struct sl_reason *reason)
{
    struct parser parser = {.reason = reason};
    json_error_t error;
    if (bytes > SL_CHECKPOINT_MANIFEST_BYTES_MAX) {
        checkpoint_manifest_refuse(&parser, "it has more than %u bytes",
                                   SL_CHECKPOINT_MANIFEST_BYTES_MAX);
        return SL_ERR_CORRUPT;
    }
    if (!sealed(text, bytes)) {
        checkpoint_manifest_refuse(&parser,
                                   "it is not as it was written: its checksum does not match");
        return SL_ERR_CORRUPT;
    }
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        checkpoint_manifest_refuse(&parser, "line %d: %s", error.line, error.text);
        return SL_ERR_CORRUPT;
    }
    int err = take_manifest(&parser, root, out);
    json_decref(root);
    return err;
}
