#include <stdlib.h>
#include <string.h>

#include "programs/launch/device.h"
#include "tests/support/unit.h"

static void expect(const char *patterns, uint32_t task, uint32_t worker_count, const char *words)
{
    struct sl_words argv = {0};
    struct sl_reason reason = {0};
    if (sl_device_append("--x", patterns, task, worker_count, &argv, &reason) != 0) {
        fail_msg("%s", reason.text);
    }
    char *text = sl_words_quote(argv.items, argv.count);
    assert_non_null(text);
    assert_string_equal(text, words);
    free(text);
    sl_words_fini(&argv);
}

static void refuse(const char *patterns, const char *why)
{
    struct sl_words argv = {0};
    struct sl_reason reason = {0};
    assert_int_equal(sl_device_append("--x", patterns, 0, 1, &argv, &reason), SL_ERR_INVALID);
    if (strncmp(reason.text, "--x: ", 5) != 0 || strstr(reason.text, why) == NULL) {
        fail_msg("%s", reason.text);
    }
    sl_words_fini(&argv);
}

SL_CASE(device_append__nothing_is_nothing)
{
    expect(NULL, 0, 3, "");
    expect("", 0, 3, "");
    expect(";", 0, 3, "");
}

SL_CASE(device_append__task_is_the_process)
{
    expect("a?addr=10.0.0.1", 3, 8, "'--dpdk-device' 'a?addr=10.0.0.1'");
    expect("n{task},x={task+1}?addr=10.0.0.{task+10};b?addr=10.0.1.{task+1}", 3, 8,
           "'--dpdk-device' 'n3,x=4?addr=10.0.0.13' '--dpdk-device' 'b?addr=10.0.1.4'");
}

SL_CASE(device_append__worker_is_each_of_them)
{
    expect("m{worker},s=/r/{task}-{worker}?addr=10.0.0.1", 7, 2,
           "'--dpdk-device' 'm0,s=/r/7-0?addr=10.0.0.1' '--dpdk-device' "
           "'m1,s=/r/7-1?addr=10.0.0.1'");
    expect("m{worker+5}?addr=10.0.0.1", 0, 1, "'--dpdk-device' 'm5?addr=10.0.0.1'");
}

SL_CASE(device_append__refuses_with_a_reason)
{
    refuse("a", "addr is missing");
    refuse("a{host}?addr=10.0.0.1", "{task}, {task+N}, {worker} and {worker+N}");
    refuse("a{task+}?addr=10.0.0.1", "are accepted");
    refuse("a{task-1}?addr=10.0.0.1", "are accepted");
    refuse("a?addr=10.0.0.{task+300}", "addr is not");
    char text[400];
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '\0';
    refuse(text, "255 bytes");
}
