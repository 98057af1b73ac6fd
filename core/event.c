#include "core/event.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/assert.h"

/* Characters of a text, which take two bytes at most. */
#define FIELD_CHARACTERS 120
#define KEPT_CHARACTERS  255
#define KEPT_BYTES       2048 /* more than all of them, with names and time */

static struct {
    pthread_mutex_t lock;
    char events[SL_EVENT_KEPT][KEPT_BYTES]; /* ring */
    uint64_t count;
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *const levels[] = {
    [SL_LOG_DEBUG] = "debug",
    [SL_LOG_INFO] = "info",
    [SL_LOG_WARN] = "warn",
    [SL_LOG_ERROR] = "error",
};

struct writer {
    char *at;
    size_t left;
};

static void event_put(struct writer *to, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void event_put(struct writer *to, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int bytes = vsnprintf(to->at, to->left, format, arguments);
    va_end(arguments);
    sl_assert(bytes >= 0);
    sl_assert((size_t)bytes < to->left);
    to->at += bytes;
    to->left -= (size_t)bytes;
}

/* Writes a JSON string. Texts of peers and files are not trusted: control characters become blanks,
 * and bytes that are not ASCII "?". */
static void put_string(struct writer *to, const char *text, size_t characters_max)
{
    event_put(to, "\"");
    for (size_t i = 0; i < characters_max && text[i] != '\0'; i++) {
        const unsigned char c = (unsigned char)text[i];
        event_put(to, "%s%c", c == '"' || c == '\\' ? "\\" : "",
                  c < ' ' || c == 0x7f ? ' '
                  : c >= 0x80          ? '?'
                                       : c);
    }
    event_put(to, "\"");
}

static void put_fields(struct writer *to, const struct sl_event *event, const char *before)
{
    for (int i = 0; event->fields[i].name != NULL; i++) {
        const struct sl_event_field *field = &event->fields[i];
        event_put(to, "%s\"%s\":", before, field->name);
        if (field->text != NULL) {
            put_string(to, field->text, FIELD_CHARACTERS);
        } else {
            event_put(to, "%" PRIu64, field->number);
        }
        before = ",";
    }
}

size_t sl_event_write_json(const struct sl_event_line *line, char to[SL_EVENT_JSON_BYTES])
{
    struct writer writer = {.at = to, .left = SL_EVENT_JSON_BYTES};
    struct tm utc;
    char time[32];
    gmtime_r(&line->time.tv_sec, &utc);
    (void)strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%S", &utc);
    event_put(&writer, "{\"time\":\"%s.%03dZ\",\"level\":\"%s\",\"process\":\"%s\"", time,
              (int)(line->time.tv_nsec / 1000000), levels[line->level], line->process);
    if (line->event != NULL) {
        event_put(&writer, ",\"event\":\"%s\"", line->event->name);
    }
    event_put(&writer, ",\"text\":");
    put_string(&writer, line->text, SL_EVENT_TEXT_CHARACTERS);
    if (line->event != NULL) {
        put_fields(&writer, line->event, ",");
    }
    event_put(&writer, "}\n");
    return (size_t)(writer.at - to);
}

void sl_event_keep(const struct sl_event_line *line)
{
    (void)pthread_mutex_lock(&kept.lock);
    struct writer writer = {.at = kept.events[kept.count++ % SL_EVENT_KEPT], .left = KEPT_BYTES};
    event_put(&writer, "{\"time\":%lld.%03d,\"level\":\"%s\",\"event\":\"%s\",\"process\":\"%s\"",
              (long long)line->time.tv_sec, (int)(line->time.tv_nsec / 1000000),
              levels[line->level], line->event->name, line->process);
    event_put(&writer, ",\"text\":");
    put_string(&writer, line->text, KEPT_CHARACTERS);
    event_put(&writer, ",\"fields\":{");
    put_fields(&writer, line->event, "");
    event_put(&writer, "}}");
    (void)pthread_mutex_unlock(&kept.lock);
}

char *sl_event_list(size_t *bytes)
{
    const size_t size = sizeof kept.events + SL_EVENT_KEPT + 32;
    char *list = malloc(size);
    if (list == NULL) {
        return NULL;
    }
    struct writer writer = {.at = list, .left = size};
    event_put(&writer, "{\"events\":[");
    (void)pthread_mutex_lock(&kept.lock);
    for (uint64_t i = 0; i < kept.count && i < SL_EVENT_KEPT; i++) {
        event_put(&writer, "%s%s", i == 0 ? "" : ",",
                  kept.events[(kept.count - 1 - i) % SL_EVENT_KEPT]);
    }
    (void)pthread_mutex_unlock(&kept.lock);
    event_put(&writer, "]}");
    *bytes = (size_t)(writer.at - list);
    return list;
}
