#include "core/reason.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_key_t last_key;
static pthread_once_t last_once = PTHREAD_ONCE_INIT;

static void reason_make_key(void)
{
    (void)pthread_key_create(&last_key, free);
}

/* Allocated: a library that is loaded at run time has room for few bytes of thread-local storage.
 */
struct sl_reason *sl_reason_last(void)
{
    static struct sl_reason shared; /* of threads without memory for their own */
    (void)pthread_once(&last_once, reason_make_key);
    struct sl_reason *last = pthread_getspecific(last_key);
    if (last != NULL) {
        return last;
    }
    last = calloc(1, sizeof *last);
    if (last == NULL || pthread_setspecific(last_key, last) != 0) {
        free(last);
        return &shared;
    }
    return last;
}

static bool is_control(char byte)
{
    return (unsigned char)byte < ' ' || byte == 0x7f;
}

/* Replaces each control character by \xNN. The end of a text that becomes too long is lost. */
static void escape(char text[SL_REASON_BYTES])
{
    char plain[SL_REASON_BYTES];
    const size_t length = strlen(text);
    size_t first = 0;
    while (first < length && !is_control(text[first])) {
        first++;
    }
    memcpy(plain, text, length);
    for (size_t i = first, to = first; i < length && to + sizeof "\\x00" <= SL_REASON_BYTES; i++) {
        to += (size_t)snprintf(text + to, SL_REASON_BYTES - to,
                               is_control(plain[i]) ? "\\x%02x" : "%c", (unsigned char)plain[i]);
    }
}

void sl_reason_vset(struct sl_reason *reason, const char *format, va_list arguments)
{
    if (reason != NULL && vsnprintf(reason->text, sizeof reason->text, format, arguments) >= 0) {
        escape(reason->text);
    }
}

void sl_reason_set(struct sl_reason *reason, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    sl_reason_vset(reason, format, arguments);
    va_end(arguments);
}

void sl_reason_make_printable(char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        text[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
    }
}

void sl_reason_copy_printable(char *text, size_t text_bytes, const void *from, size_t bytes)
{
    bytes = bytes < text_bytes - 1 ? bytes : text_bytes - 1;
    if (bytes > 0) {
        memcpy(text, from, bytes);
    }
    sl_reason_make_printable(text, bytes);
    text[bytes] = '\0';
}
