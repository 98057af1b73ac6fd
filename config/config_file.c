#include "config/config_file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/array.h"

#define LINE_ACCEPTED "accepts KEY = VALUE, [SECTION], or a comment that begins with ; or #"

static const char *const sections[] = {"all",     "server",       "worker", "launch",   "objects",
                                       "gateway", "serve-worker", "deploy", "rollback", "ctl"};
#define SECTIONS (sizeof sections / sizeof sections[0])

#define KEYS_MAX 1000 /* bounds the search for one that is given twice */

/* State of a parse. libinih calls `config_file_read_line` and `take` in turn. */
struct parser {
    const char *at, *end; /* of the text that is left */
    struct sl_config_file *file;
    uint32_t capacity;
    uint32_t line, key_count;
    const char *section; /* NULL: none yet */
    bool has_key;        /* in this section */
    bool is_indented;    /* the line */
    int err;
    struct sl_reason *reason;
};

#define refuse(parser, format, ...)                                                                \
    ((parser)->err = sl_reason_fail((parser)->reason, SL_ERR_INVALID, "%s:%u: " format,            \
                                    (parser)->file->path, (parser)->line, ##__VA_ARGS__))

/* Checks "[name]", blanks and a comment: libinih reports no empty section, and cuts long names. */
static void enter_section(struct parser *parser, const char *line)
{
    const size_t length = strcspn(line + 1, "]\n");
    const char *rest = line + 1 + length + (line[1 + length] == ']');
    parser->section = NULL;
    parser->has_key = false;
    for (size_t i = 0; i < SECTIONS; i++) {
        if (strlen(sections[i]) == length && strncmp(sections[i], line + 1, length) == 0) {
            parser->section = sections[i];
        }
    }
    rest += strspn(rest, " \t\r\n");
    if (parser->section == NULL || line[1 + length] != ']' || strchr(";#", *rest) == NULL) {
        refuse(parser,
               "unknown section %.*s: accepts [all], [server], [worker], [launch], [objects], "
               "[gateway], [serve-worker], [deploy], [rollback], [ctl]",
               (int)strcspn(line, "\r\n"), line);
    }
}

/* Gives libinih the next line, as fgets does. A line that does not fit would be split. */
static char *config_file_read_line(char *line, int bytes, void *context)
{
    struct parser *parser = context;
    if (parser->err != 0 || parser->at == parser->end) {
        return NULL;
    }
    const char *newline = memchr(parser->at, '\n', (size_t)(parser->end - parser->at));
    const size_t length = (size_t)((newline != NULL ? newline : parser->end) - parser->at);
    parser->line++;
    if (length > SL_CONFIG_FILE_LINE_BYTES || length + 2 > (size_t)bytes) {
        refuse(parser,
               "the line has %zu bytes: accepts up to %d; a list continues on indented lines",
               length, SL_CONFIG_FILE_LINE_BYTES);
        return NULL;
    }
    memcpy(line, parser->at, length);
    line[length] = '\n';
    line[length + 1] = '\0';
    parser->at += length + (newline != NULL);
    parser->is_indented = isspace((unsigned char)line[0]) != 0;
    if (line[0] == '[') {
        enter_section(parser, line);
    }
    return parser->err == 0 ? line : NULL;
}

static bool is_doubled(struct parser *parser, const char *key)
{
    for (uint32_t i = 0; i < parser->file->count; i++) {
        const struct sl_config_entry *entry = &parser->file->entries[i];
        if (entry->section == parser->section && strcmp(entry->key, key) == 0) {
            refuse(parser, "%.64s is already in line %u: accepts a key once in a section", key,
                   entry->line);
            return true;
        }
    }
    return false;
}

static bool append(struct parser *parser, struct sl_config_entry entry)
{
    struct sl_config_file *file = parser->file;
    const bool has_room =
        sl_array_make_room(&file->entries, &parser->capacity, file->count, sizeof *file->entries);
    entry.key = has_room ? strdup(entry.key) : NULL;
    entry.value = entry.key != NULL ? strdup(entry.value) : NULL;
    if (entry.value == NULL) {
        free((char *)(uintptr_t)entry.key);
        parser->err =
            sl_reason_fail(parser->reason, SL_ERR_NO_MEMORY, "out of memory for %s", file->path);
        return false;
    }
    file->entries[file->count++] = entry;
    return true;
}

/* Takes a value from libinih. Returns 0 on error. */
static int config_file_take(void *context, const char *section, const char *key, const char *value)
{
    struct parser *parser = context;
    const bool continues = parser->is_indented && parser->has_key;
    (void)section; /* cut if long */
    if (parser->section == NULL) {
        refuse(parser,
               "%.64s is in no section: begin with [all] or the program's, such as [server]", key);
    } else if (key[0] == '\0') {
        refuse(parser, "the key is missing: " LINE_ACCEPTED);
    } else if (continues) {
        key = parser->file->entries[parser->file->count - 1].key; /* libinih cuts long ones */
    } else if (parser->key_count == KEYS_MAX) {
        refuse(parser, "accepts up to %d keys", KEYS_MAX);
    } else if (!is_doubled(parser, key)) {
        parser->has_key = true;
        parser->key_count++;
    }
    return parser->err == 0 && append(parser, (struct sl_config_entry){.section = parser->section,
                                                                       .key = key,
                                                                       .value = value,
                                                                       .line = parser->line,
                                                                       .continues = continues});
}

int sl_config_file_parse(const char *text, size_t bytes, const char *path,
                         struct sl_config_file *out, struct sl_reason *reason)
{
    *out = (struct sl_config_file){.path = path};
    struct parser parser = {.at = text, .end = text + bytes, .file = out, .reason = reason};
    const char *nul = memchr(text, '\0', bytes);
    if (nul != NULL) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "%s: byte %zu is NUL: this is no text file",
                              path, (size_t)(nul - text));
    }
    const int flawed_line =
        ini_parse_stream(config_file_read_line, &parser, config_file_take, &parser);
    if (flawed_line > 0 && (parser.err == 0 || (uint32_t)flawed_line < parser.line)) {
        parser.line = (uint32_t)flawed_line;
        refuse(&parser, LINE_ACCEPTED);
    }
    if (parser.err != 0) {
        sl_config_file_fini(out);
    }
    return parser.err;
}

/* Reads all bytes. Errors: TOO_LARGE, IO. */
static int read_text(int fd, const char *path, char *text, size_t *out, struct sl_reason *reason)
{
    size_t count = 0;
    ssize_t got = 1;
    while (got != 0 && count <= SL_CONFIG_FILE_BYTES_MAX) {
        got = read(fd, text + count, SL_CONFIG_FILE_BYTES_MAX + 1 - count);
        if (got < 0 && errno != EINTR) {
            return sl_reason_fail(reason, SL_ERR_IO, "%s: %s", path, strerror(errno));
        }
        count += got > 0 ? (size_t)got : 0;
    }
    if (count > SL_CONFIG_FILE_BYTES_MAX) {
        return sl_reason_fail(reason, SL_ERR_TOO_LARGE, "%s: accepts a file of up to %d bytes",
                              path, SL_CONFIG_FILE_BYTES_MAX);
    }
    *out = count;
    return 0;
}

int sl_config_file_read(const char *path, struct sl_config_file *out, struct sl_reason *reason)
{
    size_t bytes;
    struct stat status;
    *out = (struct sl_config_file){.path = path};
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would block */
    char *text = fd < 0 ? NULL : malloc(SL_CONFIG_FILE_BYTES_MAX + 1);
    int err = 0;
    if (fd < 0 || fstat(fd, &status) != 0) {
        const int why = errno;
        sl_reason_set(reason, "--config %s: %s", path, strerror(why));
        err = why == ENOENT || why == ENOTDIR ? SL_ERR_NOT_FOUND : SL_ERR_IO;
    } else if (!S_ISREG(status.st_mode)) {
        err = sl_reason_fail(reason, SL_ERR_INVALID, "--config %s: is not a regular file", path);
    } else if (text == NULL) {
        err = sl_reason_fail(reason, SL_ERR_NO_MEMORY, "out of memory for %s", path);
    } else {
        err = read_text(fd, path, text, &bytes, reason);
        err = err != 0 ? err : sl_config_file_parse(text, bytes, path, out, reason);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    free(text);
    return err;
}

static void entry_free(const struct sl_config_entry *entry)
{
    free((char *)(uintptr_t)entry->key);
    free((char *)(uintptr_t)entry->value);
}

static bool has_comma(const char *value)
{
    const size_t length = strlen(value);
    return length > 0 && value[length - 1] == ',';
}

int sl_config_file_join(struct sl_config_file *file,
                        bool (*joins)(const void *ctx, const char *key), const void *ctx)
{
    uint32_t kept = 0;
    int err = 0;
    for (uint32_t i = 0; i < file->count; i++) {
        const struct sl_config_entry entry = file->entries[i];
        const bool is_joined = err == 0 && entry.continues && joins(ctx, entry.key);
        const char **value = is_joined ? &file->entries[kept - 1].value : NULL;
        char *joined;
        if (!is_joined ||
            asprintf(&joined, "%s%s%s", *value, has_comma(*value) ? "" : ",", entry.value) < 0) {
            err = is_joined ? SL_ERR_NO_MEMORY : err;
            file->entries[kept++] = entry;
            continue;
        }
        free((char *)(uintptr_t)*value);
        *value = joined;
        entry_free(&entry);
    }
    file->count = kept;
    return err;
}

void sl_config_file_fini(struct sl_config_file *file)
{
    for (uint32_t i = 0; i < file->count; i++) {
        entry_free(&file->entries[i]);
    }
    free(file->entries);
    *file = (struct sl_config_file){.path = file->path};
}
