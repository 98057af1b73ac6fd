#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/event.h"
#include "tests/support/unit.h"

static int pipe_fds[2];
static int saved_stderr;

static void capture_begin(void)
{
    assert_int_equal(pipe(pipe_fds), 0);
    saved_stderr = dup(STDERR_FILENO);
    dup2(pipe_fds[1], STDERR_FILENO);
}

/* What was written to stderr since. */
static const char *capture_end(void)
{
    static char line[8192];
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    close(pipe_fds[1]);
    const ssize_t got = read(pipe_fds[0], line, sizeof line - 1);
    assert_true(got >= 0);
    line[got] = '\0';
    close(pipe_fds[0]);
    return line;
}

static void expire(const char *why)
{
    sl_log_event(SL_LOG_WARN,
                 SL_EVENT("worker_expired", SL_EVENT_NUMBER("task", 3), SL_EVENT_TEXT("why", why)),
                 "worker/%d expired: %s", 3, why);
}

/* A line without its time. */
static const char *behind_time(const char *line)
{
    assert_memory_equal(line, "{\"time\":\"20", 11);
    assert_memory_equal(line + 32, "Z\",", 3);
    return line + 35;
}

SL_CASE(event_log__is_a_log_line)
{
    sl_log_setup(SL_LOG_INFO, "ps/0");
    capture_begin();
    expire("silent");
    assert_non_null(strstr(capture_end(), "Z W ps/0 worker/3 expired: silent\n"));
}

SL_CASE(event_log__is_an_object_with_its_fields)
{
    sl_log_setup(SL_LOG_INFO, "ps/0");
    sl_log_set_json(true);
    capture_begin();
    expire("quoted \"\\ \n<\xc3\xa4>");
    assert_string_equal(behind_time(capture_end()),
                        "\"level\":\"warn\",\"process\":\"ps/0\",\"event\":\"worker_expired\","
                        "\"text\":\"worker/3 expired: quoted \\\"\\\\  <\?\?>\",\"task\":3,"
                        "\"why\":\"quoted \\\"\\\\  <\?\?>\"}\n");
    capture_begin();
    sl_log_info("no event");
    assert_string_equal(behind_time(capture_end()),
                        "\"level\":\"info\",\"process\":\"ps/0\",\"text\":\"no event\"}\n");
    sl_log_set_json(false);
}

SL_CASE(event_log__truncates_texts_but_not_the_object)
{
    char text[4000];
    memset(text, '"', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    sl_log_setup(SL_LOG_INFO, "a process with a name that is 31");
    sl_log_set_json(true);
    capture_begin();
    sl_log_event(SL_LOG_ERROR,
                 SL_EVENT("checkpoint_manifest_failed", SL_EVENT_TEXT("first_long_field", text),
                          SL_EVENT_TEXT("second_long_field", text),
                          SL_EVENT_TEXT("third_long_field", text),
                          SL_EVENT_TEXT("fourth_long_field", text)),
                 "%s", text);
    const char *line = capture_end();
    assert_in_range(strlen(line), 2000, SL_EVENT_JSON_BYTES);
    assert_string_equal(line + strlen(line) - 4, "\"\"}\n");
    assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
    sl_log_set_json(false);
}

SL_CASE(event_list__has_the_newest_first_even_below_the_level)
{
    size_t bytes = 0;
    sl_log_setup(SL_LOG_OFF, "ps/1");
    for (int i = 0; i < SL_EVENT_KEPT + 10; i++) {
        sl_log_event(SL_LOG_INFO, SL_EVENT("worker_joined", SL_EVENT_NUMBER("task", (uint64_t)i)),
                     "worker/%d", i);
    }
    char *list = sl_event_list(&bytes);
    assert_int_equal(strlen(list), bytes);
    assert_memory_equal(list, "{\"events\":[{\"time\":", 18);
    static const char newest[] =
        ",\"level\":\"info\",\"event\":\"worker_joined\",\"process\":\"ps/1\","
        "\"text\":\"worker/265\",\"fields\":{\"task\":265}},{\"time\":";
    assert_memory_equal(list + 33, newest, sizeof newest - 1);
    assert_non_null(strstr(list, "\"fields\":{\"task\":10}}]}"));
    assert_null(strstr(list, "\"task\":9}"));
    free(list);
}
