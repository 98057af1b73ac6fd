/* An event is a log line of the life cycle that programs rely on: it has a stable name, and fields
 * beside the text. docs/observe.md lists all of them. The last SL_EVENT_KEPT events of the process
 * are kept for readers, also those below the level of the log. Any thread; takes a lock, so never
 * on the path of a request. */
#ifndef SL_CORE_EVENT_H
#define SL_CORE_EVENT_H

#include <time.h>

#include "core/log.h"

#define SL_EVENT_KEPT            256
#define SL_EVENT_FIELDS          4

/* A log line as JSON. Far below PIPE_BUF, so that lines of processes that share a pipe do not
 * mix. */
#define SL_EVENT_JSON_BYTES      3584
#define SL_EVENT_TEXT_CHARACTERS 1024

struct sl_event_field {
    const char *name; /* NULL: behind the last one */
    const char *text; /* NULL: a number */
    uint64_t number;
};

struct sl_event {
    const char *name; /* NULL: a log line that is no event */
    struct sl_event_field fields[SL_EVENT_FIELDS + 1];
};

#define SL_EVENT_NUMBER(field, value)                                                              \
    {                                                                                              \
        (field), NULL, (value)                                                                     \
    }
#define SL_EVENT_TEXT(field, value)                                                                \
    {                                                                                              \
        (field), (value), 0                                                                        \
    }

/* Logs an event: sl_log_event(SL_LOG_WARN, SL_EVENT("worker_expired", SL_EVENT_NUMBER("task", 3)),
 * "worker/%u expired", 3). */
#define SL_EVENT(name, ...) (&(const struct sl_event){(name), {__VA_ARGS__}})
void sl_log_event(enum sl_log_level level, const struct sl_event *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns the kept events as JSON, the newest first, for /api/events: {"events":[...]}. The caller
 * frees it; NULL: no memory. */
char *sl_event_list(size_t *bytes);

/* For log.c: the parts of a line. */
struct sl_event_line {
    struct timespec time;
    enum sl_log_level level;
    const char *process, *text;
    const struct sl_event *event; /* NULL: none */
};

/* Writes the line as one JSON object, with a newline. Returns its length. */
size_t sl_event_write_json(const struct sl_event_line *line, char to[SL_EVENT_JSON_BYTES]);

/* Keeps an event. */
void sl_event_keep(const struct sl_event_line *line);

#endif
