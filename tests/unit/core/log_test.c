#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "tests/support/unit.h"

/* Writes one line with stderr turned into a pipe, and gives back what came out of it. */
static void capture(enum sl_log_level level, const char *text, char *out, size_t out_bytes)
{
    int pipe_fds[2];
    assert_int_equal(pipe(pipe_fds), 0);
    const int saved = dup(STDERR_FILENO);
    dup2(pipe_fds[1], STDERR_FILENO);
    sl_log_write(level, "%s", text);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(pipe_fds[1]);
    const ssize_t got = read(pipe_fds[0], out, out_bytes - 1);
    assert_true(got >= 0);
    out[got] = '\0';
    close(pipe_fds[0]);
}

SL_CASE(log_write__line_has_time_level_and_process)
{
    sl_log_setup(SL_LOG_INFO, "ps/3");
    char line[256], level, process[16], text[64];
    int year, month, day, hour, minute, second, ms, end = 0;
    capture(SL_LOG_WARN, "hello world", line, sizeof line);
    const int fields =
        sscanf(line, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ %c %15s %63[^\n]%n", &year, &month, &day, &hour,
               &minute, &second, &ms, &level, process, text, &end);
    assert_int_equal(fields, 10);
    assert_true(year >= 2024);
    assert_int_equal(level, 'W');
    assert_string_equal(process, "ps/3");
    assert_string_equal(text, "hello world");
    assert_string_equal(line + end, "\n");
    assert_int_equal(line[23], 'Z');
}

SL_CASE(log_write__below_the_least_level_is_silent)
{
    char line[256];
    sl_log_setup(SL_LOG_WARN, "test");
    capture(SL_LOG_INFO, "quiet", line, sizeof line);
    assert_string_equal(line, "");
    capture(SL_LOG_ERROR, "loud", line, sizeof line);
    assert_non_null(strstr(line, " E test loud\n"));
    sl_log_setup(SL_LOG_OFF, "test");
    capture(SL_LOG_ERROR, "off", line, sizeof line);
    assert_string_equal(line, "");
}

SL_CASE(log_write__control_characters_do_not_break_the_line)
{
    char line[256];
    sl_log_setup(SL_LOG_INFO, "test");
    capture(SL_LOG_INFO, "one\ntwo\x1b[31m\r", line, sizeof line);
    assert_non_null(strstr(line, "one two [31m \n"));
    assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
}

SL_CASE(log_write__long_line_is_cut_and_still_ends)
{
    char text[5000], line[6000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    sl_log_setup(SL_LOG_INFO, "test");
    capture(SL_LOG_INFO, text, line, sizeof line);
    assert_true(strlen(line) <= 1024);
    assert_int_equal(line[strlen(line) - 1], '\n');
}

SL_CASE(log_write__leaves_errno_alone)
{
    sl_log_setup(SL_LOG_INFO, "test");
    errno = ENOTTY;
    sl_log_debug("not printed %d", 1);
    assert_int_equal(errno, ENOTTY);
    const int saved = dup(STDERR_FILENO);
    close(STDERR_FILENO);
    errno = ENOTTY;
    sl_log_error("nowhere to go");
    assert_int_equal(errno, ENOTTY);
    dup2(saved, STDERR_FILENO);
    close(saved);
}

SL_CASE(log_rename__counts_once_after_setup)
{
    char line[256];
    sl_log_setup(SL_LOG_INFO, "ps");
    sl_log_rename("ps/1");
    capture(SL_LOG_INFO, "known", line, sizeof line);
    assert_non_null(strstr(line, " I ps/1 known\n"));
    sl_log_rename("ps/2");
    capture(SL_LOG_INFO, "kept", line, sizeof line);
    assert_non_null(strstr(line, " I ps/1 kept\n"));
}

SL_CASE(log_parse_level__takes_any_case_and_nothing_else)
{
    enum sl_log_level level = SL_LOG_OFF;
    assert_true(sl_log_parse_level("Debug", &level));
    assert_int_equal(level, SL_LOG_DEBUG);
    assert_true(sl_log_parse_level("OFF", &level));
    assert_int_equal(level, SL_LOG_OFF);
    assert_false(sl_log_parse_level("", &level));
    assert_false(sl_log_parse_level("warning", &level));
    assert_false(sl_log_parse_level("1", &level));
    assert_int_equal(level, SL_LOG_OFF);
}

SL_CASE(log_limit_allows__eight_lines_a_second)
{
    struct sl_log_limit limit = {0};
    sl_log_setup(SL_LOG_OFF, "test");
    for (uint64_t second = 0; second < 3; second++) {
        uint32_t allowed = 0;
        for (uint64_t i = 0; i < 20; i++) {
            allowed += sl_log_limit_allows(&limit, second * 1000000000 + i) ? 1 : 0;
        }
        assert_int_equal(allowed, 8);
        assert_int_equal(limit.suppressed, 12);
    }
}

struct heard {
    enum sl_log_level level;
    char line[64];
    uint32_t count;
};

static void hear(void *ctx, enum sl_log_level level, const char *line)
{
    struct heard *heard = ctx;
    heard->level = level;
    heard->count++;
    (void)snprintf(heard->line, sizeof heard->line, "%s", line);
}

/* The last case: its level stays for the process. */
SL_CASE(log_redirect__passes_lines_without_time_and_newline)
{
    char line[256];
    struct heard first = {.level = SL_LOG_OFF}, second = first;
    sl_log_setup(SL_LOG_INFO, "test");
    sl_log_redirect(SL_LOG_WARN, hear, &first);
    capture(SL_LOG_INFO, "too low", line, sizeof line);
    assert_int_equal(first.count, 0);
    capture(SL_LOG_WARN, "heard", line, sizeof line);
    assert_string_equal(line, "");
    assert_string_equal(first.line, "heard");
    assert_int_equal(first.level, SL_LOG_WARN);

    sl_log_redirect(SL_LOG_DEBUG, hear, &second);
    capture(SL_LOG_DEBUG, "replaced", line, sizeof line);
    assert_int_equal(first.count, 1);
    assert_int_equal(second.count, 1);
    assert_int_equal(second.level, SL_LOG_DEBUG);
    assert_string_equal(second.line, "replaced");

    sl_log_redirect(SL_LOG_ERROR, NULL, NULL);
    capture(SL_LOG_WARN, "below", line, sizeof line);
    assert_string_equal(line, "");
    capture(SL_LOG_ERROR, "loud", line, sizeof line);
    assert_non_null(strstr(line, " E test loud\n"));
    assert_int_equal(second.count, 1);
    sl_log_setup(SL_LOG_INFO, "test");
    capture(SL_LOG_WARN, "below", line, sizeof line);
    assert_string_equal(line, ""); /* the program's level stays */
}
