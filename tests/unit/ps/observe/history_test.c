#include <jansson.h>
#include <math.h>

#include "core/err.h"
#include "ps/observe/history.h"
#include "tests/support/unit.h"

#define OFFSET 1000000

static void set_up(struct sl_history *history)
{
    sl_history_init(history);
}

static void tear_down(struct sl_history *history)
{
    sl_history_fini(history);
    assert_int_equal(history->bytes, 0);
}

#define CASE(name) SL_CASE_USING(name, struct sl_history, fixture, set_up, tear_down)

static void add(struct sl_history_track *track, uint64_t second, double requests, double p99)
{
    const struct sl_history_point point = {{(float)requests, NAN, NAN, (float)p99, NAN, NAN}};
    sl_history_add(track, second, &point);
}

/* The values of a series as text: "1 2 - 4", with the time of the last one. */
static const char *values(const struct sl_history_track *track, const char *series, uint64_t since)
{
    static char text[16384];
    json_t *json = sl_history_describe(track, since, OFFSET);
    assert_non_null(json);
    const json_t *list = json_object_get(json_object_get(json, "series"), series);
    int used = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        used += json_is_null(value) ? snprintf(text + used, sizeof text - (size_t)used, "- ")
                                    : snprintf(text + used, sizeof text - (size_t)used, "%g ",
                                               json_real_value(value));
    }
    (void)snprintf(text + used, sizeof text - (size_t)used, "until %d by %d",
                   (int)json_integer_value(json_object_get(json, "end")) - OFFSET,
                   (int)json_integer_value(json_object_get(json, "step_s")));
    json_decref(json);
    return text;
}

static size_t count(const struct sl_history_track *track)
{
    json_t *json = sl_history_describe(track, 0, OFFSET);
    const size_t size =
        json_array_size(json_object_get(json_object_get(json, "series"), "requests_s"));
    json_decref(json);
    return size;
}

CASE(history_add__leaves_gaps_where_nothing_was_reported)
{
    static struct sl_history_track track; /* tear_down closes it */
    assert_int_equal(sl_history_open(fixture, &track), 0);
    assert_int_equal(count(&track), 0);
    add(&track, 50, 1, 10);
    add(&track, 51, 2, NAN);
    add(&track, 54, 5, 30);
    assert_string_equal(values(&track, "requests_s", 0), "1 2 - - 5 until 54 by 1");
    assert_string_equal(values(&track, "p99_us", 0), "10 - - - 30 until 54 by 1");
    assert_string_equal(values(&track, "keys_s", 0), "- - - - - until 54 by 1");
}

CASE(history_describe__begins_after_the_given_time)
{
    static struct sl_history_track track; /* tear_down closes it */
    assert_int_equal(sl_history_open(fixture, &track), 0);
    for (uint64_t second = 10; second < 15; second++) {
        add(&track, second, (double)second, 1);
    }
    assert_string_equal(values(&track, "requests_s", OFFSET + 12), "13 14 until 14 by 1");
    assert_string_equal(values(&track, "requests_s", OFFSET + 9), "10 11 12 13 14 until 14 by 1");
    assert_string_equal(values(&track, "requests_s", OFFSET + 14), "until 14 by 1");
    assert_string_equal(values(&track, "requests_s", UINT64_MAX), "until 14 by 1");
}

CASE(history_add__keeps_the_last_15_minutes)
{
    static struct sl_history_track track; /* tear_down closes it */
    assert_int_equal(sl_history_open(fixture, &track), 0);
    for (uint64_t second = 1; second <= 2 * SL_HISTORY_SECONDS + 7; second++) {
        add(&track, second, (double)second, 1);
    }
    assert_int_equal(count(&track), SL_HISTORY_SECONDS);
    assert_string_equal(values(&track, "requests_s", OFFSET + 1804),
                        "1805 1806 1807 until 1807 by 1");
    add(&track, 1807 + SL_HISTORY_SECONDS, 7, 1); /* after a pause as long as the history */
    assert_int_equal(count(&track), SL_HISTORY_SECONDS);
    assert_string_equal(values(&track, "requests_s", OFFSET + 2704), "- - 7 until 2707 by 1");
}

CASE(history_open__merges_points_when_there_are_too_many_tracks)
{
    static struct sl_history_track tracks[4200];
    struct sl_history_track *job = &tracks[0];
    assert_int_equal(sl_history_open(fixture, job), 0);
    assert_int_equal(sl_history_open(fixture, &tracks[1]), 0);
    for (uint64_t second = 100; second < 108; second++) {
        add(job, second, (double)second, 1);
        add(&tracks[1], second, (double)second, second == 105 ? 9 : 1);
    }
    for (uint32_t i = 2; i < 4200; i++) {
        assert_int_equal(sl_history_open(fixture, &tracks[i]), 0);
        assert_in_range(fixture->bytes, 1, SL_HISTORY_BYTES_MAX);
        if (fixture->step_s == 2 && tracks[1].step_s == 2 && i < 1000) {
            assert_string_equal(values(&tracks[1], "requests_s", 0),
                                "100.5 102.5 104.5 106.5 until 106 by 2");
            assert_string_equal(values(&tracks[1], "p99_us", 0), "1 1 9 1 until 106 by 2");
        }
    }
    assert_int_equal(fixture->step_s, 8);
    assert_string_equal(values(&tracks[1], "requests_s", 0), "101.5 105.5 until 104 by 8");
    assert_string_equal(values(&tracks[1], "p99_us", 0), "1 9 until 104 by 8");
    assert_string_equal(values(job, "requests_s", OFFSET + 105), "106 107 until 107 by 1");
    add(&tracks[4199], 200, 3, 1);
    add(&tracks[4199], 201, 5, 1);
    assert_string_equal(values(&tracks[4199], "requests_s", 0), "4 until 200 by 8");
}

CASE(history_open__fails_when_no_coarser_step_is_left)
{
    static struct sl_history_track tracks[20000];
    int err = 0;
    uint32_t i = 0;
    while (i < 20000 && err == 0) {
        err = sl_history_open(fixture, &tracks[i++]);
    }
    assert_int_equal(err, SL_ERR_TOO_LARGE);
    assert_true(i > 5121); /* all shards, all tables and the job */
    assert_null(tracks[i - 1].points);
    sl_history_close(fixture, &tracks[7]);
    assert_int_equal(sl_history_open(fixture, &tracks[i - 1]), 0);
}
