#include "core/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "core/event.h"

/* Longer texts are truncated. Lines are far below PIPE_BUF, so that those of processes that share a
 * pipe do not mix. */
#define TEXT_BYTES       960
#define LINE_BYTES       1024

#define LINES_PER_SECOND 8 /* of sl_log_limit */

static atomic_int least_level = SL_LOG_INFO;
static _Atomic uint64_t line_counts[SL_LOG_OFF];
static atomic_bool is_json;

/* Of sl_log_redirect. The lock is held while the callback runs: no line reaches a replaced
 * callback. Without a callback no line takes the lock. */
static struct {
    pthread_mutex_t lock;
    atomic_bool is_set, has_callback;
    sl_log_fn *callback;
    void *ctx;
} sink = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The default, set by setup, set by rename; `process` points to the current name, so that a reader
 * never sees a half-written name. */
static char names[3][32] = {"starling"};
static _Atomic(const char *) process = names[0];

void sl_log_setup(enum sl_log_level least, const char *process_name)
{
    if (!atomic_load_explicit(&sink.is_set, memory_order_relaxed)) {
        atomic_store_explicit(&least_level, (int)least, memory_order_relaxed);
    }
    snprintf(names[1], sizeof names[1], "%s", process_name);
    atomic_store_explicit(&process, names[1], memory_order_release);
}

void sl_log_set_json(bool json)
{
    atomic_store_explicit(&is_json, json, memory_order_relaxed);
}

bool sl_log_is_json(void)
{
    return atomic_load_explicit(&is_json, memory_order_relaxed);
}

static void lock(void)
{
    pthread_mutex_lock(&sink.lock);
}

static void unlock(void)
{
    pthread_mutex_unlock(&sink.lock);
}

/* A forked child lacks the thread that might hold the lock: no thread holds it during a fork. */
static void free_lock_in_children(void)
{
    (void)pthread_atfork(lock, unlock, unlock);
}

void sl_log_redirect(enum sl_log_level level, sl_log_fn *callback, void *ctx)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, free_lock_in_children);
    lock();
    sink.callback = callback;
    sink.ctx = ctx;
    atomic_store_explicit(&sink.has_callback, callback != NULL, memory_order_relaxed);
    atomic_store_explicit(&sink.is_set, true, memory_order_relaxed);
    atomic_store_explicit(&least_level, (int)level, memory_order_relaxed);
    unlock();
}

/* Returns false if there is no callback. */
static bool call_back(enum sl_log_level level, const char *text)
{
    if (!atomic_load_explicit(&sink.has_callback, memory_order_relaxed)) {
        return false;
    }
    lock();
    const bool is_called = sink.callback != NULL;
    if (is_called) {
        sink.callback(sink.ctx, level, text);
    }
    unlock();
    return is_called;
}

void sl_log_rename(const char *process_name)
{
    if (atomic_load_explicit(&process, memory_order_relaxed) != names[2]) {
        snprintf(names[2], sizeof names[2], "%s", process_name);
        atomic_store_explicit(&process, names[2], memory_order_release);
    }
}

bool sl_log_parse_level(const char *text, enum sl_log_level *out)
{
    static const char *const levels[] = {
        [SL_LOG_DEBUG] = "debug", [SL_LOG_INFO] = "info", [SL_LOG_WARN] = "warn",
        [SL_LOG_ERROR] = "error", [SL_LOG_OFF] = "off",
    };
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        if (strcasecmp(text, levels[i]) == 0) {
            *out = (enum sl_log_level)i;
            return true;
        }
    }
    return false;
}

uint64_t sl_log_lines(enum sl_log_level level)
{
    return atomic_load_explicit(&line_counts[level], memory_order_relaxed);
}

bool sl_log_enabled(enum sl_log_level level)
{
    return (int)level >= atomic_load_explicit(&least_level, memory_order_relaxed) &&
           level < SL_LOG_OFF;
}

/* "2026-01-31T12:00:00.123Z W ps/0 text", with a newline; returns its length. */
static size_t write_text(const struct sl_event_line *line, char to[LINE_BYTES])
{
    struct tm utc;
    gmtime_r(&line->time.tv_sec, &utc);
    const size_t used = strftime(to, LINE_BYTES, "%Y-%m-%dT%H:%M:%S", &utc);
    const int more = snprintf(to + used, LINE_BYTES - used, ".%03dZ %c %s %s\n",
                              (int)(line->time.tv_nsec / 1000000), "DIWE"[line->level],
                              line -> process, line -> text);
    return used + (size_t)more;
}

/* Quoted text of a peer or a file must not break the line or send control characters to a
 * terminal. */
static void blank_control_characters(char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f) {
            text[i] = ' ';
        }
    }
}

/* A closed or full stderr has no remedy. */
static void write_line(const struct sl_event_line *line)
{
    char bytes[SL_EVENT_JSON_BYTES];
    const size_t count =
        sl_log_is_json() ? sl_event_write_json(line, bytes) : write_text(line, bytes);
    const ssize_t written = write(STDERR_FILENO, bytes, count);
    (void)written;
}

/* event: NULL: none. */
static void log_line(enum sl_log_level level, const struct sl_event *event, const char *format,
                     va_list arguments) __attribute__((format(printf, 3, 0)));

static void log_line(enum sl_log_level level, const struct sl_event *event, const char *format,
                     va_list arguments)
{
    const int saved_errno = errno; /* for %m */
    char text[TEXT_BYTES];
    struct sl_event_line line = {
        .level = level,
        .process = atomic_load_explicit(&process, memory_order_acquire),
        .text = text,
        .event = event == NULL || event->name == NULL ? NULL : event,
    };
    clock_gettime(CLOCK_REALTIME, &line.time);
    errno = saved_errno;
    if (vsnprintf(text, sizeof text, format, arguments) < 0) {
        text[0] = '\0';
    }
    blank_control_characters(text, strlen(text));
    if (line.event != NULL) {
        sl_event_keep(&line);
    }
    if (sl_log_enabled(level)) {
        atomic_fetch_add_explicit(&line_counts[level], 1, memory_order_relaxed);
        if (!call_back(level, text)) {
            write_line(&line);
        }
    }
    errno = saved_errno;
}

void sl_log_write(enum sl_log_level level, const char *format, ...)
{
    if (sl_log_enabled(level)) {
        va_list arguments;
        va_start(arguments, format);
        log_line(level, NULL, format, arguments);
        va_end(arguments);
    }
}

void sl_log_event(enum sl_log_level level, const struct sl_event *event, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    log_line(level, event, format, arguments);
    va_end(arguments);
}

bool sl_log_limit_allows(struct sl_log_limit *limit, uint64_t now_ns)
{
    const uint64_t second = now_ns / 1000000000;
    if (second != limit->second) {
        if (limit->suppressed > 0) {
            sl_log_warn("%u more lines like these were not logged", limit->suppressed);
        }
        *limit = (struct sl_log_limit){.second = second};
    }
    if (limit->lines == LINES_PER_SECOND) {
        limit->suppressed++;
        return false;
    }
    limit->lines++;
    return true;
}
