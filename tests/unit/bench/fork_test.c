#include "bench/fork.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "tests/support/unit.h"

#define LONG_MS  60000
#define SHORT_MS 20

SL_CASE(hear__words_come_whole_and_in_order)
{
    static uint8_t sent[100000], heard[sizeof sent]; /* more than a pipe holds */
    struct sl_bench_fork process;
    int to = -1;
    memset(sent, 7, sizeof sent);
    assert_int_equal(sl_bench_fork_start(&process, -1, &to), 0);
    if (process.pid == 0) {
        const uint32_t first = 17;
        sl_bench_fork_tell(to, &first, sizeof first);
        sl_bench_fork_tell(to, sent, sizeof sent);
        _exit(0);
    }
    uint32_t number = 0;
    assert_int_equal(sl_bench_fork_hear(&process, LONG_MS, &number, sizeof number), 0);
    assert_int_equal(number, 17);
    assert_int_equal(sl_bench_fork_hear(&process, LONG_MS, heard, sizeof heard), 0);
    assert_memory_equal(heard, sent, sizeof sent);
    sl_bench_fork_end(&process);
}

SL_CASE(hear__a_child_that_ends_without_a_word)
{
    struct sl_bench_fork process;
    uint32_t number;
    int to = -1;
    assert_int_equal(sl_bench_fork_start(&process, -1, &to), 0);
    if (process.pid == 0) {
        const uint8_t half = 1;
        sl_bench_fork_tell(to, &half, sizeof half);
        _exit(0);
    }
    assert_int_equal(sl_bench_fork_hear(&process, LONG_MS, &number, sizeof number), SL_ERR_CLOSED);
    sl_bench_fork_end(&process);
}

SL_CASE(end__a_child_that_says_nothing_is_killed)
{
    struct sl_bench_fork process;
    uint32_t number;
    int to = -1;
    assert_int_equal(sl_bench_fork_start(&process, -1, &to), 0);
    if (process.pid == 0) {
        for (;;) {
            (void)pause();
        }
    }
    const pid_t pid = process.pid;
    assert_int_equal(sl_bench_fork_hear(&process, SHORT_MS, &number, sizeof number),
                     SL_ERR_DEADLINE);
    sl_bench_fork_end(&process);
    assert_int_equal(kill(pid, 0), -1);
    sl_bench_fork_end(&process); /* once more does nothing */
}

SL_UNIT_SETUP()
{
    sl_log_setup(SL_LOG_ERROR, "test");
}
