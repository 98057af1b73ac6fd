#include "programs/train/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/array.h"
#include "core/assert.h"
#include "core/file_kind.h"
#include "core/format.h"
#include "core/log.h"

/* A whole line fits at any offset, and a refill moves at most half of the buffer. */
#define BUFFER_BYTES (2 * (size_t)SL_READER_LINE_BYTES)

struct file {
    const char *path;
    uint64_t base; /* bytes of the files before it */
    uint64_t bytes;
    bool has_warned;
};

struct sl_reader {
    const struct sl_reader_format *format;
    struct file *files;
    uint32_t file_count;
    uint64_t begin, end; /* of the share, in bytes of all files together */
    uint32_t features_max;
    bool takes_unlabelled;
    bool is_silent;

    uint32_t file_index;
    int fd;           /* of files[file_index], or -1 */
    uint64_t read_at; /* file offset of the next read */
    uint8_t *buffer;
    size_t start, filled; /* unparsed part of the buffer */

    struct sl_reader_row row;
    char reason[512];
};

int sl_reader_row_grow(struct sl_reader_row *row)
{
    const uint32_t full = row->feature_room;
    uint32_t room = full;
    return sl_array_make_room(&row->keys, &room, full, sizeof *row->keys) &&
                   sl_array_make_room(&row->values, &row->feature_room, full, sizeof *row->values)
               ? 0
               : SL_ERR_NO_MEMORY;
}

void sl_reader_row_fini(struct sl_reader_row *row)
{
    free(row->keys);
    free(row->values);
    *row = (struct sl_reader_row){0};
}

/* Appends the first word of `tail`, at most 60 characters. Unprintable bytes are written as \xNN.
 */
static void quote(char *text, size_t room, struct sl_bytes tail)
{
    char word[64];
    size_t used = 0;
    while (tail.left > 0) {
        uint8_t byte = sl_bytes_u8(&tail);
        if (byte == ' ' || byte == '\t') {
            break;
        }
        if (used + sizeof "\\x00..." > sizeof word) {
            used += (size_t)snprintf(word + used, sizeof word - used, "...");
            break;
        }
        const bool is_printable = byte > ' ' && byte < 127;
        used += (size_t)snprintf(word + used, sizeof word - used, is_printable ? "%c" : "\\x%02x",
                                 byte);
    }
    size_t length = strlen(text);
    if (used > 0) {
        (void)snprintf(text + length, room - length, ": \"%s\"", word);
    }
}

int sl_reader_refuse(struct sl_reader_fault *fault, const struct sl_bytes *line,
                     const struct sl_bytes *tail, const char *format, ...)
{
    SL_FORMAT(fault->text, format);
    quote(fault->text, sizeof fault->text, *tail);
    fault->column = (size_t)(tail->next - line->next) + 1;
    return SL_ERR_INVALID;
}

/* Refuses a file that is not plain text. Errors: INVALID, and those of the system. */
static int check_beginning(const char *path, struct sl_reason *reason)
{
    char begin[SL_FILE_KIND_BYTES];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : pread(fd, begin, sizeof begin, 0);
    const int why = errno;
    if (fd >= 0) {
        (void)close(fd);
    }
    if (got < 0) {
        sl_reason_set(reason, "%s: %s", path, strerror(why));
        return sl_err_from_errno(why);
    }
    const char *kind = sl_file_kind_explain(begin, (size_t)got);
    return kind == NULL ? 0 : sl_reason_fail(reason, SL_ERR_INVALID, "%s: %s", path, kind);
}

/* Checks every file before reading, so that a misspelt name fails at once. */
static int measure_files(struct sl_reader *reader, const char *const *paths,
                         struct sl_reason *reason)
{
    uint64_t base = 0;
    for (uint32_t i = 0; i < reader->file_count; i++) {
        struct stat status;
        if (stat(paths[i], &status) != 0) {
            int err = sl_err_from_errno(errno);
            return sl_reason_fail(reason, err, "%s: %s", paths[i], strerror(errno));
        }
        if (!S_ISREG(status.st_mode)) {
            return sl_reason_fail(reason, SL_ERR_INVALID,
                                  "%s: not a regular file: workers divide the data by byte ranges",
                                  paths[i]);
        }
        int err = check_beginning(paths[i], reason);
        if (err != 0) {
            return err;
        }
        uint64_t bytes = (uint64_t)status.st_size;
        reader->files[i] = (struct file){.path = paths[i], .base = base, .bytes = bytes};
        base += bytes;
    }
    return 0;
}

static uint64_t share_bound(uint64_t bytes, uint32_t index, uint32_t count)
{
    return (uint64_t)((unsigned __int128)bytes * index / count);
}

const struct sl_reader_format *const sl_reader_formats[3] = {&sl_reader_libsvm, &sl_reader_libffm,
                                                             &sl_reader_criteo};

const struct sl_reader_format *sl_reader_find_format(const char *name)
{
    for (uint32_t i = 0; name != NULL && i < 3; i++) {
        if (strcmp(name, sl_reader_formats[i]->name) == 0) {
            return sl_reader_formats[i];
        }
    }
    return NULL;
}

int sl_reader_open(const struct sl_reader_options *options, struct sl_reader **out,
                   struct sl_reason *reason)
{
    sl_assert(options->path_count > 0);
    sl_assert(options->share_index < options->share_count);
    struct sl_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL) {
        goto no_memory;
    }
    reader->fd = -1;
    reader->format = options->format;
    reader->features_max = options->features_max;
    reader->takes_unlabelled = options->takes_unlabelled;
    reader->is_silent = options->is_silent;
    reader->file_count = options->path_count;
    reader->files = calloc(options->path_count, sizeof *reader->files);
    reader->buffer = malloc(BUFFER_BYTES);
    if (reader->files == NULL || reader->buffer == NULL) {
        goto no_memory;
    }
    int err = measure_files(reader, options->paths, reason);
    if (err != 0) {
        sl_reader_close(&reader);
        return err;
    }
    const struct file *last = &reader->files[reader->file_count - 1];
    uint64_t total = last->base + last->bytes;
    reader->begin = share_bound(total, options->share_index, options->share_count);
    reader->end = share_bound(total, options->share_index + 1, options->share_count);
    sl_reader_rewind(reader);
    *out = reader;
    return 0;

no_memory:
    sl_reason_set(reason, "no memory for the reader's buffer");
    sl_reader_close(&reader);
    return SL_ERR_NO_MEMORY;
}

static void close_file(struct sl_reader *reader)
{
    if (reader->fd >= 0) {
        (void)close(reader->fd);
        reader->fd = -1;
    }
}

void sl_reader_close(struct sl_reader **reader)
{
    if (*reader == NULL) {
        return;
    }
    close_file(*reader);
    sl_reader_row_fini(&(*reader)->row);
    free((*reader)->files);
    free((*reader)->buffer);
    free(*reader);
    *reader = NULL;
}

const char *sl_reader_reason(const struct sl_reader *reader)
{
    return reader->reason;
}

uint64_t sl_reader_share_bytes(const struct sl_reader *reader)
{
    return reader->end - reader->begin;
}

/* Offset of the next line in all files together. */
static uint64_t position(const struct sl_reader *reader)
{
    if (reader->file_index == reader->file_count) {
        return reader->end;
    }
    return reader->files[reader->file_index].base + reader->read_at -
           (reader->filled - reader->start);
}

uint64_t sl_reader_done_bytes(const struct sl_reader *reader)
{
    uint64_t at = position(reader);
    uint64_t done = at > reader->begin ? at - reader->begin : 0;
    return done < reader->end - reader->begin ? done : reader->end - reader->begin;
}

/* A share that begins inside a file starts reading one byte early, and skips to the first line end:
 * that byte may be the end of the previous line. The skipped line belongs to the previous share. */
void sl_reader_rewind(struct sl_reader *reader)
{
    close_file(reader);
    uint32_t index = 0;
    while (index < reader->file_count &&
           reader->files[index].base + reader->files[index].bytes <= reader->begin) {
        index++;
    }
    reader->file_index = index;
    reader->start = 0;
    reader->filled = 0;
    reader->read_at = 0;
    if (index < reader->file_count && reader->begin > reader->files[index].base) {
        reader->read_at = reader->begin - reader->files[index].base - 1;
    }
}

static int train_reader_fail_file(struct sl_reader *reader, const char *what, int system_errno)
{
    (void)snprintf(reader->reason, sizeof reader->reason, "%s: %s: %s",
                   reader->files[reader->file_index].path, what,
                   system_errno == 0 ? "the file has become shorter" : strerror(system_errno));
    return system_errno == 0 ? SL_ERR_IO : sl_err_from_errno(system_errno);
}

/* Fills the buffer after its unparsed part. Returns 1, 0 at the file's end, or an error. */
static int refill(struct sl_reader *reader)
{
    const struct file *file = &reader->files[reader->file_index];
    if (reader->read_at == file->bytes) {
        return 0;
    }
    memmove(reader->buffer, reader->buffer + reader->start, reader->filled - reader->start);
    reader->filled -= reader->start;
    reader->start = 0;
    size_t room = BUFFER_BYTES - reader->filled;
    uint64_t left = file->bytes - reader->read_at;
    size_t wanted = left < room ? (size_t)left : room;
    ssize_t got;
    do {
        got = pread(reader->fd, reader->buffer + reader->filled, wanted, (off_t)reader->read_at);
    } while (got < 0 && errno == EINTR);
    if (got <= 0) {
        return train_reader_fail_file(reader, "read", got < 0 ? errno : 0);
    }
    reader->filled += (size_t)got;
    reader->read_at += (uint64_t)got;
    return 1;
}

/* Returns the end of the line that begins at `start`, or NULL if it is not in the buffer. */
static uint8_t *line_end(const struct sl_reader *reader)
{
    return memchr(reader->buffer + reader->start, '\n', reader->filled - reader->start);
}

/* Skips to after the next line end. */
static int skip_line(struct sl_reader *reader)
{
    for (;;) {
        const uint8_t *end = line_end(reader);
        if (end != NULL) {
            reader->start = (size_t)(end - reader->buffer) + 1;
            return 0;
        }
        reader->start = reader->filled;
        int got = refill(reader);
        if (got <= 0) {
            return got;
        }
    }
}

static int open_file(struct sl_reader *reader)
{
    const struct file *file = &reader->files[reader->file_index];
    reader->fd = open(file->path, O_RDONLY | O_CLOEXEC);
    if (reader->fd < 0) {
        return train_reader_fail_file(reader, "open", errno);
    }
    bool inside = reader->begin > file->base;
    return inside ? skip_line(reader) : 0;
}

/* Counts the lines before byte `bytes`, by reading the file again: only for an error message. */
static uint64_t count_lines(int fd, uint64_t bytes)
{
    uint8_t chunk[8192];
    uint64_t lines = 0;
    for (uint64_t at = 0; at < bytes;) {
        uint64_t left = bytes - at;
        ssize_t got =
            pread(fd, chunk, left < sizeof chunk ? (size_t)left : sizeof chunk, (off_t)at);
        if (got <= 0) {
            break;
        }
        for (ssize_t i = 0; i < got; i++) {
            lines += chunk[i] == '\n';
        }
        at += (uint64_t)got;
    }
    return lines;
}

static int fail_line(struct sl_reader *reader, int err, const struct sl_reader_fault *fault)
{
    const struct file *file = &reader->files[reader->file_index];
    uint64_t line = count_lines(reader->fd, position(reader) - file->base) + 1;
    (void)snprintf(reader->reason, sizeof reader->reason, "%s:%llu:%zu: %s; %s", file->path,
                   (unsigned long long)line, fault->column, fault->text, reader->format->accepts);
    return err;
}

/* Finds the next line of the share, from `start` on. Returns 1, 0 at the end, or an error. *bytes
 * excludes the line end; *taken includes it. */
static int find_line(struct sl_reader *reader, size_t *bytes, size_t *taken)
{
    while (position(reader) < reader->end) {
        if (reader->fd < 0) {
            int err = open_file(reader);
            if (err != 0) {
                return err;
            }
            continue; /* the skipped part may have been the whole share */
        }
        const uint8_t *end = line_end(reader);
        size_t left = reader->filled - reader->start;
        int got = 0;
        if (end == NULL && left <= SL_READER_LINE_BYTES && (got = refill(reader)) != 0) {
            if (got < 0) {
                return got;
            }
            continue;
        }
        if (end == NULL && left == 0) {
            close_file(reader);
            reader->file_index++;
            reader->read_at = 0;
            continue;
        }
        *bytes = end == NULL ? left : (size_t)(end - reader->buffer) - reader->start;
        *taken = end == NULL ? left : *bytes + 1;
        return 1;
    }
    return 0;
}

/* Returns whether the line has no example: blanks only, or a comment of a format that has them. */
static bool is_empty(struct sl_bytes line, const struct sl_reader_format *format)
{
    while (line.left > 0) {
        uint8_t byte = sl_bytes_u8(&line);
        if (byte != ' ' && byte != '\t') {
            return byte == '#' && format->has_comments;
        }
    }
    return true;
}

static int parse_line(struct sl_reader *reader, struct sl_bytes line, struct sl_reader_fault *fault)
{
    int err = reader->format->parse(line, &reader->row, fault);
    if (err == SL_ERR_NO_MEMORY) {
        (void)snprintf(fault->text, sizeof fault->text, "no memory for the row");
    }
    if (err == 0 && isnan(reader->row.label) && !reader->takes_unlabelled) {
        return sl_reader_refuse(fault, &line, &line, "the label is missing");
    }
    if (err == 0 && reader->features_max != 0 && reader->row.feature_count > reader->features_max) {
        (void)snprintf(fault->text, sizeof fault->text,
                       "the row has %u features, the model is made for %u fields (--fields)",
                       reader->row.feature_count, reader->features_max);
        err = SL_ERR_INVALID;
    }
    return err;
}

static void warn_of_queries(struct sl_reader *reader)
{
    struct file *file = &reader->files[reader->file_index];
    if (!file->has_warned && !reader->is_silent) {
        file->has_warned = true;
        sl_log_warn("%s: \"qid:N\" is ignored: it groups rows for ranking, and each row is trained "
                    "by itself",
                    file->path);
    }
}

int sl_reader_next(struct sl_reader *reader, const struct sl_reader_row **row)
{
    for (;;) {
        size_t bytes = 0;
        size_t taken = 0;
        int got = find_line(reader, &bytes, &taken);
        if (got <= 0) {
            return got;
        }
        struct sl_reader_fault fault = {.column = 1};
        if (bytes > SL_READER_LINE_BYTES) {
            (void)snprintf(fault.text, sizeof fault.text, "the line is longer than %u bytes",
                           SL_READER_LINE_BYTES);
            return fail_line(reader, SL_ERR_TOO_LARGE, &fault);
        }
        const uint8_t *at = reader->buffer + reader->start;
        bool carriage = bytes > 0 && at[bytes - 1] == '\r';
        struct sl_bytes line = sl_bytes_over(at, bytes - (carriage ? 1 : 0));
        if (!is_empty(line, reader->format)) {
            int err = parse_line(reader, line, &fault);
            if (err != 0) {
                return fail_line(reader, err, &fault);
            }
            if (reader->row.has_query) {
                warn_of_queries(reader);
            }
            reader->start += taken;
            *row = &reader->row;
            return 1;
        }
        reader->start += taken;
    }
}
