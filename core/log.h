/* Writes log lines to stderr: "2026-01-31T12:00:00.123Z W ps/0 text", one write() each; or
 * calls the callback of sl_log_set. Any thread; never on the path of a single request. */
#ifndef SL_CORE_LOG_H
#define SL_CORE_LOG_H

#include <starling.h> /* enum sl_log_level, sl_log_fn */
#include <stdbool.h>
#include <stdint.h>

/* Sets the lowest printed level, and the process name in each line ("ps/0"; copied). Before start.
 * Defaults: INFO, "starling". A level that the program has set with sl_log_set stays. */
void sl_log_setup(enum sl_log_level least, const char *process_name);

/* The work of sl_log_set, for the libraries that export it. */
void sl_log_redirect(enum sl_log_level level, sl_log_fn *callback, void *ctx);

/* Writes each line as a JSON object: {"time", "level", "process", "event", "text", fields}; "event"
 * and fields are those of core/event.h. A callback gets the text only. Before start. */
void sl_log_set_json(bool is_json);
bool sl_log_is_json(void);

/* Renames a process that learns its task after setup; only the first call counts. Any thread, one
 * at a time. */
void sl_log_rename(const char *process_name);

/* Parses "debug", "info", "warn", "error" or "off", in any case; false if it is none of these. */
bool sl_log_parse_level(const char *text, enum sl_log_level *out);

bool sl_log_enabled(enum sl_log_level level);

/* Returns how many lines of the level the process has written. */
uint64_t sl_log_lines(enum sl_log_level level);

void sl_log_write(enum sl_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Limits log lines about peers to 8 per second. Zero before use. */
struct sl_log_limit {
    uint64_t second;
    uint32_t lines, suppressed;
};

/* Whether another line may be written now. The first call in a later second first logs the number
 * of suppressed lines. `now_ns` is monotonic. Owner of *limit. */
bool sl_log_limit_allows(struct sl_log_limit *limit, uint64_t now_ns);

/* The ending of a counted noun in a text for users: "" for 1, else "s". */
static inline const char *sl_log_plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

#define sl_log_debug(...)                                                                          \
    (sl_log_enabled(SL_LOG_DEBUG) ? sl_log_write(SL_LOG_DEBUG, __VA_ARGS__) : (void)0)
#define sl_log_info(...)  sl_log_write(SL_LOG_INFO, __VA_ARGS__)
#define sl_log_warn(...)  sl_log_write(SL_LOG_WARN, __VA_ARGS__)
#define sl_log_error(...) sl_log_write(SL_LOG_ERROR, __VA_ARGS__)

#endif
