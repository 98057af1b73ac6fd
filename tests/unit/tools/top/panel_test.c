#include <jansson.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/unit.h"
#include "tools/top/panel.h"

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
static const char *lines(uint32_t panel, json_t *state, struct sl_panel_choice choice, int width)
{
    static char text[4096];
    struct sl_panel_rows rows;
    assert_int_equal(sl_panel_rows_init(&sl_panels[panel], state, &choice, &rows), 0);
    text[0] = '\0';
    for (int row = -1; row < (int)rows.count; row++) {
        char line[SL_PANEL_LINE_BYTES];
        sl_panel_line(&rows, row, width, line);
        const size_t used = strlen(text);
        (void)snprintf(text + used, sizeof text - used, "%s|", line);
    }
    sl_panel_rows_fini(&rows);
    json_decref(state);
    return text;
}

SL_CASE(panel_rows__are_in_the_order_of_the_server_without_a_column)
{
    const struct sl_panel_choice choice = {.column = -1, .filter = ""};
    assert_string_equal(lines(SL_PANEL_WORKERS, workers(), choice, 26),
                        "WORKER     STATE      LAG|worker/2   running      1|"
                        "worker/10  left         -|worker/9   running  1.20k|");
}

SL_CASE(panel_rows__sort_numbers_by_value_and_names_by_their_numbers)
{
    struct sl_panel_choice choice = {.column = 2, .is_descending = true, .filter = ""};
    assert_string_equal(lines(SL_PANEL_WORKERS, workers(), choice, 9),
                        "WORKER|worker/9|worker/2|worker/10|");
    choice = (struct sl_panel_choice){.column = 0, .filter = ""};
    assert_string_equal(lines(SL_PANEL_WORKERS, workers(), choice, 9),
                        "WORKER|worker/2|worker/9|worker/10|");
}

SL_CASE(panel_rows__filter_by_text_in_any_case)
{
    const struct sl_panel_choice choice = {.column = -1, .filter = "RUN"};
    assert_string_equal(lines(SL_PANEL_WORKERS, workers(), choice, 8), "WORKER|worker/2|worker/9|");
}

SL_CASE(panel_rows__are_shards_with_the_fields_of_their_server)
{
    const struct sl_panel_choice choice = {.column = -1, .filter = ""};
    json_t *job = state_of(
        "{\"cluster\":{\"servers\":[{\"name\":\"ps/0\",\"state\":\"serving\",\"shards\":["
        "{\"shard\":0,\"serving\":\"ps/0\",\"backup\":\"ps/1\",\"in_sync\":true,\"busy\":0.314},"
        "{\"shard\":1,\"serving\":\"ps/0\",\"backup\":null,\"in_sync\":false,\"busy\":0.05}]},"
        "{\"name\":\"ps/1\",\"state\":\"starting\",\"shards\":[]}]}}");
    assert_string_equal(lines(SL_PANEL_SERVERS, job, choice, 57),
                        "SERVER  STATE     SHARD  SERVING  BACKUP  SYNC   BUSY|"
                        "ps/0    serving       0  ps/0     ps/1    yes   31.4%|"
                        "ps/0    serving       1  ps/0     -       no       5%|"
                        "ps/1    starting      -  -        -       -         -|");
}

/* A name that another process chose reaches the terminal without escape sequences. */
SL_CASE(panel_rows__show_control_characters_as_question_marks)
{
    const struct sl_panel_choice choice = {.column = -1, .filter = ""};
    const char *text = "{\"cluster\":{\"tables\":[{\"name\":\"a\\u001b[2J\\nb\\u00e4\"}]}}";
    assert_non_null(setlocale(LC_ALL, "C"));
    assert_string_equal(lines(SL_PANEL_TABLES, state_of(text), choice, 9), "TABLE|a?[2J?b??|");
    assert_non_null(setlocale(LC_ALL, "C.UTF-8"));
    assert_string_equal(lines(SL_PANEL_TABLES, state_of(text), choice, 8),
                        "TABLE|a?[2J?b\xc3\xa4|");
    assert_string_equal(lines(SL_PANEL_TABLES, state_of(text), choice, 7), "TABLE|a?[2J?b|");
    assert_non_null(setlocale(LC_ALL, "C"));
}

SL_CASE(panel_summary__names_missing_members_and_the_age_of_the_checkpoint)
{
    char line[SL_PANEL_LINE_BYTES], totals[SL_PANEL_LINE_BYTES];
    json_t *job = state_of(
        "{\"cluster\":{\"job\":\"waiting\",\"missing\":[\"worker/3\"],\"coordinator\":\"ps/0\","
        "\"time\":1000.5,\"checkpoint\":{\"last\":820.5,\"number\":7},"
        "\"totals\":{\"requests_s\":43800,\"memory\":1073741824,\"p99_us\":911}}}");
    sl_panel_summary(job, line, totals);
    assert_string_equal(line,
                        "job waiting  missing worker/3  coordinator ps/0  checkpoint 7  age 3m");
    assert_string_equal(totals, "requests/s 43.8k  keys/s -  bytes/s -  p99 911us  staleness -  "
                                "memory 1G");
    json_decref(job);
}

SL_CASE(panel_rows__survive_numbers_without_sense)
{
    const struct sl_panel_choice choice = {.column = 0, .filter = ""};
    const char *text =
        lines(SL_PANEL_SLOW,
              state_of("{\"slow\":{\"requests\":[{\"time\":1e300,\"total_us\":-1e300},"
                       "{\"time\":-1e300,\"total_us\":1e300}]}}"),
              choice, 12);
    assert_int_equal(strlen(text), strlen("TIME|12:34:56|12:34:56|"));
}

/* What a server sends may lack anything. */
SL_CASE(panel_rows__of_a_state_without_lists_are_none)
{
    const struct sl_panel_choice choice = {.column = 0, .is_descending = true, .filter = "x"};
    for (uint32_t panel = 0; panel < SL_PANEL_COUNT; panel++) {
        const char *text =
            lines(panel, state_of("{\"cluster\":[1],\"slow\":{\"requests\":7}}"), choice, 80);
        assert_ptr_equal(strchr(text, '|'), strrchr(text, '|')); /* the titles alone */
    }
}
