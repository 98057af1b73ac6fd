#include <stdlib.h>
#include <string.h>

#include "config/tf_config.h"
#include "core/limits.h"
#include "tests/support/unit.h"

#define CLUSTER "\"cluster\":{\"ps\":[\"p:1\",\"p:2\"],\"worker\":[\"w:1\",\"w:2\"]}"
#define CHIEF   "\"cluster\":{\"ps\":[\"p:1\"],\"chief\":[\"c:1\"],\"worker\":[\"w:1\",\"w:2\"]}"

SL_CASE(tf_config_parse__numbers_the_tasks)
{
    static const struct {
        const char *text;
        uint32_t ps_count, worker_count;
        enum sl_cluster_role role;
        uint32_t index;
    } cases[] = {
        {"{" CLUSTER ",\"task\":{\"type\":\"ps\",\"index\":1}}", 2, 2, SL_CLUSTER_PS, 1},
        {"{" CLUSTER ",\"task\":{\"type\":\"worker\",\"index\":1}}", 2, 2, SL_CLUSTER_WORKER, 1},
        {"{" CHIEF ",\"task\":{\"type\":\"chief\",\"index\":0}}", 1, 3, SL_CLUSTER_WORKER, 0},
        {"{" CHIEF ",\"task\":{\"type\":\"worker\",\"index\":0}}", 1, 3, SL_CLUSTER_WORKER, 1},
        {"{" CHIEF ",\"task\":{\"type\":\"worker\",\"index\":1}}", 1, 3, SL_CLUSTER_WORKER, 2},
        {"{\"environment\":\"cloud\",\"cluster\":{\"evaluator\":3,\"ps\":[\"p:1\"]},"
         "\"task\":{\"type\":\"ps\",\"index\":0,\"trial\":\"x\"}}",
         1, 0, SL_CLUSTER_PS, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sl_tf_config config;
        assert_int_equal(sl_tf_config_parse(cases[i].text, &config, NULL), 0);
        assert_int_equal(config.ps.count, cases[i].ps_count);
        assert_int_equal(config.worker_count, cases[i].worker_count);
        assert_true(config.has_task);
        assert_int_equal(config.role, cases[i].role);
        assert_int_equal(config.task_index, cases[i].index);
        sl_tf_config_fini(&config);
    }
}

SL_CASE(tf_config_parse__task_is_optional)
{
    struct sl_tf_config config;
    assert_int_equal(sl_tf_config_parse("{" CLUSTER "}", &config, NULL), 0);
    assert_false(config.has_task);
    sl_tf_config_fini(&config);
}

SL_CASE(tf_config_parse__refuses_with_a_reason)
{
    static const struct {
        const char *text, *reason;
    } cases[] = {
        {"", "line 1"},
        {"{", "line 1"},
        {"{\"cluster\":{\n\"ps\":[\"p:1\"", "line 2"},
        {"{" CLUSTER "} trailing", "line 1"},
        {"{" CLUSTER ",\"cluster\":{}}", "duplicate"},
        {"{\"cluster\":{\"ps\":[\"p:1\\u0000\"]}}", "line 1"},
        {"{\"cluster\":{\"ps\":[\"\xff:1\"]}}", "line 1"},
        {"[]", "it is an array"},
        {"null", "line 1"},
        {"\"x\"", "line 1"},
        {"{\"task\":{\"type\":\"ps\",\"index\":0}}", "\"cluster\" is missing"},
        {"{\"cluster\":[]}", "\"cluster\" is an array"},
        {"{\"cluster\":{\"ps\":\"p:1\"}}", "\"ps\" is a string"},
        {"{\"cluster\":{\"ps\":{\"0\":\"p:1\"}}}", "\"ps\" is an object"},
        {"{\"cluster\":{\"ps\":[1]}}", "\"ps\"[0] is a number"},
        {"{\"cluster\":{\"ps\":[\"p:1\",null]}}", "\"ps\"[1] is null"},
        {"{\"cluster\":{\"ps\":[\"p\"]}}", "port is missing"},
        {"{\"cluster\":{\"ps\":[\"p:1\",\"p:1\"]}}", "items 0 and 1 are both"},
        {"{\"cluster\":{\"worker\":[\"a b\"]}}", "neither a name"},
        {"{\"cluster\":{\"worker\":[true]}}", "\"worker\"[0] is a boolean"},
        {"{\"cluster\":{\"chief\":[\"a\",\"b\"]}}", "more than one host"},
        {"{\"cluster\":{\"workers\":[\"a\"]}}", "\"workers\"; accepted are ps, worker, chief"},
        {"{" CLUSTER ",\"task\":7}", "\"task\" is a number"},
        {"{" CLUSTER ",\"task\":{}}", "\"type\" is missing"},
        {"{" CLUSTER ",\"task\":{\"type\":3}}", "\"type\" is a number"},
        {"{" CLUSTER ",\"task\":{\"type\":\"ps\"}}", "\"index\" is missing"},
        {"{" CLUSTER ",\"task\":{\"type\":\"ps\",\"index\":\"0\"}}", "\"index\" is a string"},
        {"{" CLUSTER ",\"task\":{\"type\":\"ps\",\"index\":0.5}}", "\"index\" is a number"},
        {"{" CLUSTER ",\"task\":{\"type\":\"ps\",\"index\":2}}", "names 2 hosts"},
        {"{" CLUSTER ",\"task\":{\"type\":\"ps\",\"index\":-1}}", "names 2 hosts"},
        {"{" CLUSTER ",\"task\":{\"type\":\"ps\",\"index\":9223372036854775807}}", "names 2 hosts"},
        {"{" CLUSTER ",\"task\":{\"type\":\"ps\",\"index\":9223372036854775808}}", "line 1"},
        {"{" CLUSTER ",\"task\":{\"type\":\"chief\",\"index\":0}}", "names 0 hosts"},
        {"{" CLUSTER ",\"task\":{\"type\":\"master\",\"index\":0}}", "\"master\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sl_tf_config config = {.worker_count = 4711};
        struct sl_reason reason = {0};
        const int err = sl_tf_config_parse(cases[i].text, &config, &reason);
        if (err != SL_ERR_INVALID || strncmp(reason.text, "TF_CONFIG", 9) != 0 ||
            strstr(reason.text, cases[i].reason) == NULL) {
            fail_msg("%s: err %d, reason \"%s\"", cases[i].text, err, reason.text);
        }
        assert_int_equal(config.worker_count, 4711);
    }
}

SL_CASE(tf_config_parse__too_many_workers_are_too_large)
{
    const char begin[] = "{\"cluster\":{\"worker\":[\"a\"";
    char *text = malloc(SL_LIMIT_WORKERS * 4 + sizeof begin + 8);
    assert_non_null(text);
    size_t used = sizeof begin - 1;
    memcpy(text, begin, used);
    for (int i = 0; i < SL_LIMIT_WORKERS; i++) {
        memcpy(text + used, ",\"a\"", 4);
        used += 4;
    }
    memcpy(text + used, "]}}", 4);
    struct sl_tf_config config;
    struct sl_reason reason = {0};
    assert_int_equal(sl_tf_config_parse(text, &config, &reason), SL_ERR_TOO_LARGE);
    assert_non_null(strstr(reason.text, "16384"));
    free(text);
}

SL_CASE(tf_config_parse__megabytes_are_too_large)
{
    const size_t bytes = (size_t)9 << 20;
    char *text = malloc(bytes);
    assert_non_null(text);
    memset(text, ' ', bytes);
    text[bytes - 1] = '\0';
    struct sl_tf_config config;
    assert_int_equal(sl_tf_config_parse(text, &config, NULL), SL_ERR_TOO_LARGE);
    free(text);
}
