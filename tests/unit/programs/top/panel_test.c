#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/top/panel.h"
#include "tests/support/unit.h"

static json_t *state_of(const char *text)
{
    json_t *state = json_loads(text, 0, NULL);
    assert_non_null(state);
    return state;
}

static json_t *workers(void)
{
    return state_of("{\"cluster\":{\"workers\":["
                    "{\"name\":\"worker/2\",\"state\":\"running\",\"lag\":1,\"clock\":40},"
                    "{\"name\":\"worker/10\",\"state\":\"left\",\"lag\":null,\"clock\":12},"
                    "{\"name\":\"worker/9\",\"state\":\"running\",\"lag\":1200,\"clock\":3}]}}");
}

/* The rows' lines, joined by '|'. */
static const char *lines(uint32_t panel, json_t *state, struct sl_panel_order order,
                         const char *filter, int width)
{
    static char text[4096];
    uint32_t count;
    struct sl_panel_row *rows = sl_panel_rows(panel, state, order, filter, width, &count);
    assert_non_null(rows);
    text[0] = '\0';
    for (uint32_t row = 0; row <= count; row++) {
        const size_t used = strlen(text);
        (void)snprintf(text + used, sizeof text - used, "%s|", rows[row].line);
    }
    free(rows);
    json_decref(state);
    return text;
}

static const struct sl_panel_order no_order = {0};

SL_CASE(panel_rows__are_in_the_order_of_the_server_without_a_column)
{
    assert_string_equal(lines(SL_PANEL_WORKERS, workers(), no_order, "", 26),
                        "WORKER     STATE      LAG|worker/2   running      1|"
                        "worker/10  left         -|worker/9   running  1.20k|");
}

SL_CASE(panel_rows__sort_numbers_by_value_and_names_by_their_numbers)
{
    struct sl_panel_order order = {.column = 3, .is_descending = true};
    assert_string_equal(lines(SL_PANEL_WORKERS, workers(), order, "", 9),
                        "WORKER|worker/9|worker/2|worker/10|");
    order = (struct sl_panel_order){.column = 1};
    assert_string_equal(lines(SL_PANEL_WORKERS, workers(), order, "", 9),
                        "WORKER|worker/2|worker/9|worker/10|");
}

SL_CASE(panel_rows__filter_by_text_in_any_case)
{
    assert_string_equal(lines(SL_PANEL_WORKERS, workers(), no_order, "RUN", 8),
                        "WORKER|worker/2|worker/9|");
}

SL_CASE(panel_rows__are_shards_with_the_fields_of_their_server)
{
    json_t *job = state_of(
        "{\"cluster\":{\"servers\":[{\"name\":\"ps/0\",\"state\":\"serving\",\"shards\":["
        "{\"shard\":0,\"serving\":\"ps/0\",\"backup\":\"ps/1\",\"in_sync\":true,\"moves_to\":\"ps/"
        "2\",\"busy\":0.314},"
        "{\"shard\":1,\"serving\":\"ps/0\",\"backup\":null,\"in_sync\":false,\"busy\":0.05}]},"
        "{\"name\":\"ps/1\",\"state\":\"starting\",\"shards\":[]}]}}");
    assert_string_equal(lines(SL_PANEL_SERVERS, job, no_order, "", 64),
                        "SERVER  STATE     SHARD  SERVING  BACKUP  SYNC  MOVES   BUSY|"
                        "ps/0    serving       0  ps/0     ps/1    yes   ps/2   31.4%|"
                        "ps/0    serving       1  ps/0     -       no    -         5%|"
                        "ps/1    starting      -  -        -       -     -          -|");
}

/* Text from a server reaches the terminal without escape sequences. */
SL_CASE(panel_rows__show_other_than_printable_ascii_as_question_marks)
{
    const char *text = "{\"cluster\":{\"tables\":[{\"name\":\"a\\u001b[2J\\nb\\u00e4\"}]}}";
    assert_string_equal(lines(SL_PANEL_TABLES, state_of(text), no_order, "", 9),
                        "TABLE|a?[2J?b??|");
    assert_string_equal(lines(SL_PANEL_TABLES, state_of(text), no_order, "", 7), "TABLE|a?[2J?b|");
}

SL_CASE(panel_rows__say_where_the_time_of_a_slow_request_went)
{
    const char *text =
        "{\"slow\":{\"groups\":["
        "{\"time\":0,\"count\":12,\"total_us\":42100,\"op\":\"push\",\"client\":\"worker/"
        "7\",\"table\":\"t\",\"keys\":9,"
        "\"shard\":3,\"phases\":{\"iteration_us\":3050,\"clock_us\":0,\"backup_us\":39050}},"
        "{\"time\":0,\"total_us\":20000,\"op\":\"pull\",\"phases\":{\"clock_us\":20000}}]}}";
    const char *found = strstr(lines(SL_PANEL_SLOW, state_of(text), no_order, "BACKUP", 100), "|");
    assert_non_null(strstr(found, "     12   42.1ms  push  worker/7  t         9      3  "
                                  "iteration 3.05ms, backup 39.0ms|"));
    assert_null(strstr(found, "pull"));
    /* Text is clipped where the line ends. */
    found = strstr(lines(SL_PANEL_SLOW, state_of(text), no_order, "", 78), "|");
    assert_non_null(strstr(found, "  iteration 3.05ms|"));
}

SL_CASE(panel_order_next__takes_each_column_and_then_none)
{
    struct sl_panel_order order = {0};
    sl_panel_order_next(SL_PANEL_KEYS, &order);
    assert_string_equal(sl_panel_title(SL_PANEL_KEYS, order.column), "KEY");
    assert_false(order.is_descending);
    sl_panel_order_next(SL_PANEL_KEYS, &order);
    assert_string_equal(sl_panel_title(SL_PANEL_KEYS, order.column), "SHARE");
    assert_true(order.is_descending);
    sl_panel_order_next(SL_PANEL_KEYS, &order);
    sl_panel_order_next(SL_PANEL_KEYS, &order);
    assert_int_equal(order.column, 4);
    sl_panel_order_next(SL_PANEL_KEYS, &order);
    assert_int_equal(order.column, 0);
    for (uint32_t i = 0; i < SL_PANEL_COLUMNS_MAX; i++) { /* a panel of as many as can be */
        sl_panel_order_next(SL_PANEL_SERVERS, &order);
    }
    assert_string_equal(sl_panel_title(SL_PANEL_SERVERS, order.column), "ROWS");
    sl_panel_order_next(SL_PANEL_SERVERS, &order);
    assert_int_equal(order.column, 0);
}

SL_CASE(panel_summary__names_troubles_and_the_age_of_the_checkpoint)
{
    struct sl_panel_summary summary;
    json_t *job =
        state_of("{\"cluster\":{\"job\":\"running\",\"coordinator\":\"ps/"
                 "0\",\"title\":\"fm\",\"mode\":\"ssp:2\","
                 "\"uptime_s\":90,\"trouble\":[\"ps/1 is expired\",\"shard 1 is not served\"],"
                 "\"servers\":[{\"name\":\"ps/0\"},{\"name\":\"ps/"
                 "1\"}],\"workers\":[{\"name\":\"worker/0\"}],"
                 "\"time\":1000.5,\"checkpoint\":{\"last\":820.5,\"number\":7},"
                 "\"totals\":{\"requests_s\":43800,\"memory\":1073741824,\"p99_us\":911}}}");
    sl_panel_summary(job, &summary);
    assert_string_equal(summary.job,
                        "fm  job running, degraded: ps/1 is expired, shard 1 is not served  ssp:2  "
                        "2 servers  1 worker  up 1.5m  coordinator ps/0  checkpoint 7  of 3m ago");
    assert_string_equal(summary.training, "training: not reported");
    assert_string_equal(summary.totals, "req/s 43.8k  keys/s -  bytes/s -  p99 911us  staleness -  "
                                        "memory 1G");
    json_decref(job);
    job = state_of("{\"cluster\":{\"job\":\"waiting\",\"trouble\":[\"worker/3 is missing\"]}}");
    sl_panel_summary(job, &summary);
    assert_string_equal(summary.job, "job waiting: worker/3 is missing  -  0 servers  0 workers  "
                                     "up -  coordinator -");
    json_decref(job);
}

SL_CASE(panel_summary__shows_the_training)
{
    struct sl_panel_summary summary;
    json_t *job =
        state_of("{\"cluster\":{\"training\":{\"epoch\":2.5,\"epochs\":10,\"loss\":0.691234,"
                 "\"samples_s\":154000,\"eta_s\":180,\"learning_rate\":0.001,"
                 "\"metric\":{\"name\":\"test AUC\",\"value\":0.71528}}}}");
    sl_panel_summary(job, &summary);
    assert_string_equal(summary.training, "epochs 2.5 of 10  loss 0.6912  samples/s 154k  left 3m  "
                                          "test AUC 0.7153  learning rate 0.001");
    json_decref(job);
}

SL_CASE(panel_rows__survive_numbers_without_sense)
{
    const struct sl_panel_order order = {.column = 1};
    const char *text = lines(SL_PANEL_SLOW,
                             state_of("{\"slow\":{\"groups\":[{\"time\":1e300,\"total_us\":-1e300},"
                                      "{\"time\":-1e300,\"total_us\":1e300}]}}"),
                             order, "", 12);
    assert_int_equal(strlen(text), strlen("    TIME|12:34:56|12:34:56|"));
}

/* What a server sends may lack anything. */
SL_CASE(panel_rows__of_a_state_without_lists_are_none)
{
    const struct sl_panel_order order = {.column = 1, .is_descending = true};
    for (uint32_t panel = 0; panel < SL_PANEL_COUNT; panel++) {
        const char *text =
            lines(panel, state_of("{\"cluster\":[1],\"slow\":{\"groups\":7}}"), order, "x", 80);
        assert_ptr_equal(strchr(text, '|'), strrchr(text, '|')); /* the titles alone */
    }
}
