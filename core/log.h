/* Log lines on stderr: "2026-01-31T12:00:00.123Z W ps/0 text". One line, one write. Any thread;
 * never on the path of a single request. */
#ifndef SL_CORE_LOG_H
#define SL_CORE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum sl_log_level { SL_LOG_DEBUG, SL_LOG_INFO, SL_LOG_WARN, SL_LOG_ERROR, SL_LOG_OFF };

/* The least level that is printed, and the process's name in each line ("ps/0"), copied. Before
 * start; the defaults are INFO and "starling". */
void sl_log_setup(enum sl_log_level least, const char *process_name);

/* Another name, of a process that learns only later which task it is; the first one counts. Any
 * thread, one at a time. */
void sl_log_rename(const char *process_name);

/* "debug", "info", "warn", "error" or "off" in any case; false when it is none of them. */
bool sl_log_parse_level(const char *text, enum sl_log_level *out);

bool sl_log_enabled(enum sl_log_level level);

void sl_log_write(enum sl_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Bounds the log lines about what peers do: 8 in each second of the clock. Zeroed before use. */
struct sl_log_limit {
    uint64_t second;
    uint32_t lines, suppressed;
};

/* True when a further line may be written now. The first line of a later second first reports how
 * many were left out. `now_ns` is monotonic. Owner of *limit. */
bool sl_log_limit_allows(struct sl_log_limit *limit, uint64_t now_ns);

#define sl_log_debug(...)                                                                          \
    (sl_log_enabled(SL_LOG_DEBUG) ? sl_log_write(SL_LOG_DEBUG, __VA_ARGS__) : (void)0)
#define sl_log_info(...)  sl_log_write(SL_LOG_INFO, __VA_ARGS__)
#define sl_log_warn(...)  sl_log_write(SL_LOG_WARN, __VA_ARGS__)
#define sl_log_error(...) sl_log_write(SL_LOG_ERROR, __VA_ARGS__)

#endif
