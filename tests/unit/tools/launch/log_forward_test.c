#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/unit.h"
#include "tools/launch/log_forward.h"

/* A child's pipe, the launcher's output and its copy, all pipes of the test's. */
static int child[2], shown[2], copied[2];

static int open_pipes(void **state)
{
    return pipe(child) | pipe2(shown, O_NONBLOCK) | pipe2(copied, O_NONBLOCK);
}

static int close_pipes(void **state)
{
    close(shown[0]);
    close(shown[1]);
    close(copied[0]);
    close(copied[1]);
    return 0;
}

static void say(const char *text)
{
    assert_int_equal(write(child[1], text, strlen(text)), strlen(text));
}

static void assert_written(int fd, const char *expected)
{
    char text[SL_LOG_FORWARD_LINE_BYTES * 4];
    const ssize_t got = read(fd, text, sizeof text - 1);
    text[got < 0 ? 0 : got] = '\0';
    assert_string_equal(text, expected);
}

SL_CASE_WITH(forward_pump__prefixes_whole_lines, open_pipes, close_pipes)
{
    struct sl_log_forward forward = {0};
    sl_log_forward_init(&forward, child[0], shown[1], -1, "ps/0");
    assert_int_equal(sl_log_forward_pump(&forward), SL_LOG_FORWARD_IDLE);
    say("one\ntwo\nthr");
    assert_int_equal(sl_log_forward_pump(&forward), SL_LOG_FORWARD_MORE);
    assert_written(shown[0], "[ps/0] one\n[ps/0] two\n");
    say("ee\n\n");
    assert_int_equal(sl_log_forward_pump(&forward), SL_LOG_FORWARD_MORE);
    assert_written(shown[0], "[ps/0] three\n[ps/0] \n");
    close(child[1]);
    assert_int_equal(sl_log_forward_pump(&forward), SL_LOG_FORWARD_END);
    sl_log_forward_fini(&forward);
    assert_written(shown[0], "");
}

SL_CASE_WITH(forward_fini__passes_on_what_is_left_and_ends_the_line, open_pipes, close_pipes)
{
    struct sl_log_forward forward = {0};
    sl_log_forward_init(&forward, child[0], shown[1], copied[1], NULL);
    say("a\nunfinished");
    /* The write end stays open, as by a grandchild: fini must not wait for it. */
    sl_log_forward_fini(&forward);
    assert_int_equal(forward.from, -1);
    assert_written(shown[0], "a\nunfinished\n");
    assert_written(copied[0], "a\nunfinished\n");
    sl_log_forward_fini(&forward);
    close(child[1]);
}

SL_CASE_WITH(forward_pump__copy_has_no_prefix, open_pipes, close_pipes)
{
    struct sl_log_forward forward = {0};
    sl_log_forward_init(&forward, child[0], shown[1], copied[1], "worker/0");
    say("x\n");
    sl_log_forward_pump(&forward);
    assert_written(shown[0], "[worker/0] x\n");
    assert_written(copied[0], "x\n");
    sl_log_forward_fini(&forward);
    close(child[1]);
}

SL_CASE_WITH(forward_pump__breaks_a_line_too_long, open_pipes, close_pipes)
{
    static char text[SL_LOG_FORWARD_LINE_BYTES * 2];
    static char got[SL_LOG_FORWARD_LINE_BYTES * 4];
    memset(text, 'y', sizeof text - 1);
    struct sl_log_forward forward = {0};
    sl_log_forward_init(&forward, child[0], shown[1], -1, "w");
    say(text);
    close(child[1]);
    sl_log_forward_fini(&forward);
    const ssize_t bytes = read(shown[0], got, sizeof got - 1);
    size_t count = 0, lines = 0;
    for (ssize_t i = 0; i < bytes; i++) {
        count += got[i] == 'y';
        lines += got[i] == '\n';
    }
    assert_int_equal(count, sizeof text - 1);
    assert_int_equal(lines, 3);
}

/* Output that a full disk has swallowed is remembered; a reader that has gone wants none. */
SL_CASE_WITH(forward_pump__remembers_lost_output, open_pipes, close_pipes)
{
    const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    if (full < 0) {
        skip();
    }
    struct sl_log_forward forward = {0};
    sl_log_forward_init(&forward, child[0], full, -1, NULL);
    say("one\n");
    assert_int_equal(sl_log_forward_pump(&forward), SL_LOG_FORWARD_MORE);
    assert_int_equal(forward.lost_errno, ENOSPC);
    close(child[1]);
    sl_log_forward_fini(&forward);
    close(full);
}
