#include <string.h>

#include "config/tf_config.h"
#include "programs/launch/worker_variables.h"
#include "tests/support/unit.h"

/* The value of NAME; fails if it is missing. */
static const char *value_of(const struct sl_words *variables, const char *name)
{
    const size_t bytes = strlen(name);
    for (uint32_t i = 0; i < variables->count; i++) {
        const char *entry = variables->items[i];
        if (strncmp(entry, name, bytes) == 0 && entry[bytes] == '=') {
            return entry + bytes + 1;
        }
    }
    fail_msg("%s is not set", name);
    return NULL;
}

static struct sl_words variables_of(const struct sl_launch_options *options, char **workers,
                                    uint32_t worker_count, uint32_t index)
{
    const struct sl_plan_hosts hosts = {.ps = (char *)"a:1,[::1]:2",
                                        .ps_count = 2,
                                        .workers = {.items = workers, .count = worker_count},
                                        .master_port = 29500};
    struct sl_words variables = {0};
    assert_int_equal(sl_worker_variables_append(&variables, options, &hosts, index), 0);
    return variables;
}

/* LOCAL_RANK counts the workers of one host, in whatever order the hosts come. */
SL_CASE(worker_variables_append__names_the_place)
{
    static char *workers[] = {(char *)"h", (char *)"i", (char *)"h", (char *)"i", (char *)"h"};
    static const struct {
        const char *rank, *local_rank, *local_world_size;
    } places[] = {
        {"0", "0", "3"}, {"1", "0", "2"}, {"2", "1", "3"}, {"3", "1", "2"}, {"4", "2", "3"}};
    const struct sl_launch_options options = {0};
    for (uint32_t i = 0; i < 5; i++) {
        struct sl_words variables = variables_of(&options, workers, 5, i);
        assert_string_equal(value_of(&variables, "RANK"), places[i].rank);
        assert_string_equal(value_of(&variables, "WORLD_SIZE"), "5");
        assert_string_equal(value_of(&variables, "LOCAL_RANK"), places[i].local_rank);
        assert_string_equal(value_of(&variables, "LOCAL_WORLD_SIZE"), places[i].local_world_size);
        assert_string_equal(value_of(&variables, "MASTER_ADDR"), "h");
        assert_string_equal(value_of(&variables, "MASTER_PORT"), "29500");
        sl_words_fini(&variables);
    }
}

SL_CASE(worker_variables_append__ipv6)
{
    static char *workers[] = {(char *)"[::1]", (char *)"[::1]"};
    const struct sl_launch_options options = {0};
    struct sl_words variables = variables_of(&options, workers, 2, 1);
    assert_string_equal(value_of(&variables, "MASTER_ADDR"), "::1");
    struct sl_tf_config config;
    struct sl_reason reason;
    assert_int_equal(sl_tf_config_parse(value_of(&variables, "TF_CONFIG"), &config, &reason), 0);
    assert_int_equal(config.worker_count, 2);
    sl_tf_config_fini(&config);
    sl_words_fini(&variables);
}

SL_CASE(worker_variables_append__tf_config_is_of_the_task)
{
    static char *workers[] = {(char *)"h", (char *)"h", (char *)"i"};
    const struct sl_launch_options options = {0};
    struct sl_words variables = variables_of(&options, workers, 3, 2);
    struct sl_tf_config config;
    struct sl_reason reason;
    assert_int_equal(sl_tf_config_parse(value_of(&variables, "TF_CONFIG"), &config, &reason), 0);
    assert_int_equal(config.ps.count, 2);
    assert_string_equal(config.ps.items[0].host, "a");
    assert_int_equal(config.ps.items[1].port, 2);
    assert_int_equal(config.worker_count, 3);
    assert_true(config.has_task && config.role == SL_CLUSTER_WORKER && config.task_index == 2);
    sl_tf_config_fini(&config);
    sl_words_fini(&variables);
}

/* Each of many workers would have the whole list. */
SL_CASE(worker_variables_append__long_tf_config_is_left_out)
{
    enum { COUNT = 6000 };
    static char *workers[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        workers[i] = (char *)"host";
    }
    const struct sl_launch_options options = {0};
    struct sl_words variables = variables_of(&options, workers, COUNT, COUNT - 1);
    for (uint32_t i = 0; i < variables.count; i++) {
        assert_true(strncmp(variables.items[i], "TF_CONFIG", 9) != 0);
    }
    assert_string_equal(value_of(&variables, "LOCAL_RANK"), "5999");
    sl_words_fini(&variables);
}

SL_CASE(worker_variables_append__coordinator)
{
    static char *workers[] = {(char *)"h"};
    struct sl_launch_options options = {0};
    struct sl_words variables = variables_of(&options, workers, 1, 0);
    assert_string_equal(value_of(&variables, "STARLING_COORDINATOR"), "a:1");
    sl_words_fini(&variables);
    options.settings.flags.cluster_store = "etcd://h:1/job";
    variables = variables_of(&options, workers, 1, 0);
    assert_string_equal(value_of(&variables, "STARLING_COORDINATOR"), "a:1,[::1]:2");
    sl_words_fini(&variables);
}
