#include "config/endpoint_map.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/hosts.h"
#include "core/format.h"
#include "core/limits.h"

/* Enough for SL_LIMIT_PS lines of three endpoints each, and comments. */
#define FILE_BYTES_MAX ((size_t)4 * SL_LIMIT_PS * SL_LIMIT_ENDPOINT_BYTES)

#define DATA_ACCEPTED                                                                              \
    "accepts one endpoint, or one of rdma and one of tcp, such as "                                \
    "rdma://10.0.0.1:5556,tcp://10.0.0.1:5555, or one of dpdk and one of tcp"

/* State of reading a file. */
struct reader {
    const char *path;
    uint32_t line;
    uint32_t *entry_lines; /* line of each entry, for errors about duplicates */
    struct sl_reason *reason;
};

static int endpoint_map_refuse(struct reader *reader, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int endpoint_map_refuse(struct reader *reader, int err, const char *format, ...)
{
    char why[512];
    SL_FORMAT(why, format);
    return sl_reason_fail(reader->reason, err, "%s:%u: %s", reader->path, reader->line, why);
}

static int read_failure(const struct reader *reader, int system_errno)
{
    sl_reason_set(reader->reason, "%s: %s", reader->path, strerror(system_errno));
    return system_errno == ENOENT ? SL_ERR_NOT_FOUND : SL_ERR_IO;
}

/* Returns the file's bytes with a NUL at the end. The caller frees them. */
static int read_file(const struct reader *reader, char **out, size_t *out_bytes)
{
    FILE *file = fopen(reader->path, "re");
    if (file == NULL) {
        return read_failure(reader, errno);
    }
    char *text = malloc(FILE_BYTES_MAX + 1);
    if (text == NULL) {
        fclose(file);
        return read_failure(reader, ENOMEM);
    }
    errno = 0;
    const size_t bytes = fread(text, 1, FILE_BYTES_MAX + 1, file);
    const int failure = ferror(file) ? (errno != 0 ? errno : EIO) : 0;
    fclose(file);
    if (failure != 0) {
        free(text);
        return read_failure(reader, failure);
    }
    if (bytes > FILE_BYTES_MAX) {
        free(text);
        return sl_reason_fail(reader->reason, SL_ERR_TOO_LARGE, "%s: larger than %zu bytes",
                              reader->path, FILE_BYTES_MAX);
    }
    text[bytes] = '\0';
    *out = text;
    *out_bytes = bytes;
    return 0;
}

/* Removes white space at both ends, in place. */
static char *trim(char *text)
{
    while (isspace((unsigned char)*text)) {
        text++;
    }
    size_t length = strlen(text);
    while (length > 0 && isspace((unsigned char)text[length - 1])) {
        length--;
    }
    text[length] = '\0';
    return text;
}

static bool same_data(const struct sl_endpoint *a, const struct sl_endpoint *b)
{
    return a->port != 0 && a->scheme == b->scheme && sl_hosts_same(a, b);
}

/* Returns a data endpoint of the entry that the other one has too; NULL: none. */
static const struct sl_endpoint *find_shared(const struct sl_endpoint_map_entry *entry,
                                             const struct sl_endpoint_map_entry *other)
{
    const struct sl_endpoint *ours[] = {&entry->data, entry->has_bypass ? &entry->bypass : NULL};
    const struct sl_endpoint *theirs[] = {&other->data, other->has_bypass ? &other->bypass : NULL};
    for (int i = 0; i < 4; i++) {
        const struct sl_endpoint *one = ours[i / 2], *two = theirs[i % 2];
        if (one != NULL && two != NULL && same_data(one, two)) {
            return one;
        }
    }
    return NULL;
}

static int check_unique(struct reader *reader, const struct sl_endpoint_map *map,
                        const struct sl_endpoint_map_entry *entry)
{
    for (uint32_t i = 0; i < map->count; i++) {
        const struct sl_endpoint_map_entry *other = &map->entries[i];
        if (sl_hosts_same(&other->control, &entry->control)) {
            return endpoint_map_refuse(
                reader, SL_ERR_INVALID,
                "control endpoint %s:%u is already in line %u; each is named once",
                entry->control.host, entry->control.port, reader->entry_lines[i]);
        }
        const struct sl_endpoint *shared = find_shared(entry, other);
        if (shared != NULL) {
            return endpoint_map_refuse(
                reader, SL_ERR_INVALID,
                "data endpoint %s:%u is already in line %u; each server has its own", shared->host,
                shared->port, reader->entry_lines[i]);
        }
    }
    return 0;
}

static int parse_endpoint(struct reader *reader, char *text, struct sl_endpoint *out)
{
    struct sl_reason why;
    return sl_endpoint_parse(trim(text), out, &why) == 0
               ? 0
               : endpoint_map_refuse(reader, SL_ERR_INVALID, "data endpoint %s", why.text);
}

/* Finds the comma between two endpoints. A dpdk device may have arguments with commas, but only
 * before its question mark. */
static char *find_comma(char *text)
{
    const bool is_dpdk = strncasecmp(trim(text), "dpdk://", strlen("dpdk://")) == 0;
    char *query = is_dpdk ? strchr(text, '?') : NULL;
    return strchr(query != NULL ? query : text, ',');
}

static bool is_bypass(const struct sl_endpoint *endpoint)
{
    return endpoint->scheme == SL_ENDPOINT_RDMA || endpoint->scheme == SL_ENDPOINT_DPDK;
}

/* Parses "uri" or "uri,uri". */
static int parse_data(struct reader *reader, char *text, struct sl_endpoint_map_entry *entry)
{
    text = trim(text);
    char *comma = find_comma(text);
    if (comma == NULL) {
        return parse_endpoint(reader, text, &entry->data);
    }
    const bool has_empty = text[0] == ',' || text[strlen(text) - 1] == ',';
    if (has_empty || find_comma(comma + 1) != NULL) {
        return endpoint_map_refuse(reader, SL_ERR_INVALID, "\"%.120s\": " DATA_ACCEPTED, text);
    }
    *comma = '\0';
    struct sl_endpoint first, second;
    int err = parse_endpoint(reader, text, &first);
    err = err != 0 ? err : parse_endpoint(reader, comma + 1, &second);
    if (err != 0) {
        return err;
    }
    const bool is_bypass_first = is_bypass(&first);
    entry->bypass = is_bypass_first ? first : second;
    entry->data = is_bypass_first ? second : first;
    entry->has_bypass = true;
    if (!is_bypass(&entry->bypass) || entry->data.scheme != SL_ENDPOINT_TCP) {
        return endpoint_map_refuse(reader, SL_ERR_INVALID, "\"%.120s,%.120s\": " DATA_ACCEPTED,
                                   trim(text), trim(comma + 1));
    }
    return 0;
}

static int parse_line(struct reader *reader, char *line, struct sl_endpoint_map *map)
{
    line = trim(line);
    if (line[0] == '\0' || line[0] == '#') {
        return 0;
    }
    char *equals = strchr(line, '=');
    if (equals == NULL) {
        return endpoint_map_refuse(reader, SL_ERR_INVALID,
                                   "\"%.80s\": expected control_host:port=data_uri, such as "
                                   "127.0.0.1:3333=tcp://127.0.0.1:5555",
                                   line);
    }
    *equals = '\0';
    struct sl_reason why;
    struct sl_endpoint_map_entry entry = {0};
    if (sl_hosts_parse_control(trim(line), &entry.control, &why) != 0) {
        return endpoint_map_refuse(reader, SL_ERR_INVALID, "control endpoint %s", why.text);
    }
    int err = parse_data(reader, equals + 1, &entry);
    err = err != 0 ? err : check_unique(reader, map, &entry);
    if (err != 0) {
        return err;
    }
    if (map->count == SL_LIMIT_PS) {
        return endpoint_map_refuse(reader, SL_ERR_TOO_LARGE, "more than %d servers", SL_LIMIT_PS);
    }
    reader->entry_lines[map->count] = reader->line;
    map->entries[map->count] = entry;
    map->count++;
    return 0;
}

static int parse_text(struct reader *reader, char *text, size_t bytes, struct sl_endpoint_map *map)
{
    for (char *line = text; line < text + bytes;) {
        reader->line++;
        char *end = memchr(line, '\n', (size_t)(text + bytes - line));
        end = end == NULL ? text + bytes : end;
        if (memchr(line, '\0', (size_t)(end - line)) != NULL) {
            return endpoint_map_refuse(reader, SL_ERR_INVALID,
                                       "a NUL byte; expected lines of text");
        }
        *end = '\0';
        int err = parse_line(reader, line, map);
        if (err != 0) {
            return err;
        }
        line = end + 1;
    }
    return 0;
}

int sl_endpoint_map_read(const char *path, struct sl_endpoint_map *out, struct sl_reason *reason)
{
    struct reader reader = {.path = path, .reason = reason};
    char *text = NULL;
    size_t bytes = 0;
    int err = read_file(&reader, &text, &bytes);
    if (err != 0) {
        return err;
    }
    struct sl_endpoint_map map = {.entries = calloc(SL_LIMIT_PS, sizeof *map.entries)};
    reader.entry_lines = calloc(SL_LIMIT_PS, sizeof *reader.entry_lines);
    if (map.entries == NULL || reader.entry_lines == NULL) {
        err = read_failure(&reader, ENOMEM);
    } else {
        err = parse_text(&reader, text, bytes, &map);
    }
    free(reader.entry_lines);
    free(text);
    if (err != 0) {
        sl_endpoint_map_fini(&map);
        return err;
    }
    *out = map;
    return 0;
}

void sl_endpoint_map_fini(struct sl_endpoint_map *map)
{
    free(map->entries);
    *map = (struct sl_endpoint_map){0};
}

const struct sl_endpoint_map_entry *sl_endpoint_map_find(const struct sl_endpoint_map *map,
                                                         const struct sl_endpoint *control)
{
    for (uint32_t i = 0; i < map->count; i++) {
        if (sl_hosts_same(&map->entries[i].control, control)) {
            return &map->entries[i];
        }
    }
    return NULL;
}
