/* A configuration file holds options of several programs as keys:
 *
 *     [all]                      ; also [server], [worker], [launch], [objects] and others
 *     secret-file = /etc/starling/secret
 *     [worker]
 *     data = part-1
 *         part-2                 ; a list continues on indented lines, also one with commas
 *
 * A comment begins with ; or #, after a value with a blank and ;. The lines are split by libinih.
 * Before start; allocates. */
#ifndef SL_CONFIG_CONFIG_FILE_H
#define SL_CONFIG_CONFIG_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/reason.h"

#define SL_CONFIG_FILE_LINE_BYTES 198 /* of a line: Debian's libinih splits longer ones */
#define SL_CONFIG_FILE_BYTES_MAX  (1 << 20)

/* A value. A list has one entry for each item. */
struct sl_config_entry {
    const char *section; /* a constant */
    const char *key, *value;
    uint32_t line;
    bool continues; /* the line is indented: one more item of the key before */
};

struct sl_config_file {
    const char *path; /* of the caller */
    struct sl_config_entry *entries;
    uint32_t count;
};

/* Parses a file's text; path: for the reason. reason: path and line, what is wrong, what is
 * accepted: sections, a key twice, a line without =, a line that is too long, a NUL byte. Errors:
 * INVALID, NO_MEMORY; *out is then empty. */
int sl_config_file_parse(const char *text, size_t bytes, const char *path,
                         struct sl_config_file *out, struct sl_reason *reason);

/* The same for the file's contents. Errors: also NOT_FOUND, IO, TOO_LARGE. */
int sl_config_file_read(const char *path, struct sl_config_file *out, struct sl_reason *reason);
void sl_config_file_fini(struct sl_config_file *file);

/* Makes one entry, with commas, of the lines of each key for which `joins` returns true. Errors:
 * NO_MEMORY; some are joined then. */
int sl_config_file_join(struct sl_config_file *file,
                        bool (*joins)(const void *ctx, const char *key), const void *ctx);

#endif
