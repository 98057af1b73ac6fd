#include "config/client_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/unit.h"
#include "tests/unit/config/parsed.h"

/* Every case begins and ends without a variable, and in a folder without an endpoint map. */
static void clear(void)
{
    clear_variables();
    assert_int_equal(chdir("/"), 0);
}

static struct sl_reason reason;

/* Reads the environment and one argument, or none, which must be taken from argv. */
static struct sl_client_options expect(const char *argument)
{
    struct sl_client_options options = SL_CLIENT_OPTIONS_INIT;
    char *argv[] = {(char *)"program", (char *)(uintptr_t)argument, (char *)"--epochs", NULL};
    int argc = 3;
    if (argument == NULL) {
        argv[1] = argv[2];
        argv[2] = NULL;
        argc = 2;
    }
    if (sl_client_options_read(&options, NULL, &argc, argv, &reason) != 0) {
        fail_msg("refused: %s", reason.text);
    }
    assert_int_equal(argc, 2);
    assert_string_equal(argv[1], "--epochs");
    assert_null(argv[2]);
    return options;
}

static void refuse(int err, const char *argument, const char *const *words)
{
    struct sl_client_options options = SL_CLIENT_OPTIONS_INIT;
    char *argv[] = {(char *)"program", (char *)(uintptr_t)argument, NULL};
    int argc = argument == NULL ? 1 : 2;
    assert_int_equal(sl_client_options_read(&options, NULL, &argc, argv, &reason), err);
    expect_words(reason.text, words);
    assert_int_equal(argc, argument == NULL ? 1 : 2);
    assert_ptr_equal(argv[1], argument);
    assert_null(options.settings);
    assert_null(options.coordinator);
}

#define AT(member) offsetof(struct sl_client_options, member)

enum kind { TEXT, NUMBER, FLAG };

static const struct {
    const char *name, *variable, *value;
    enum kind kind;
    size_t offset;
    int64_t number; /* expected; a text is the value */
} OPTIONS[] = {
    {"coordinator", "STARLING_COORDINATOR", "a:1,b:2", TEXT, AT(coordinator), 0},
    {"task-index", "STARLING_TASK_INDEX", "3", NUMBER, AT(task_index), 3},
    {"task-index", "STARLING_TASK_INDEX", "any", NUMBER, AT(task_index), SL_CLIENT_ANY_TASK},
    {"task-index", "STARLING_TASK_INDEX", "none", NUMBER, AT(task_index), -1},
    {"num-servers", "STARLING_NUM_SERVERS", "4", NUMBER, AT(server_count), 4},
    {"num-workers", "STARLING_NUM_WORKERS", "5", NUMBER, AT(worker_count), 5},
    {"reactors", "STARLING_WORKER_REACTORS", "3", NUMBER, AT(reactor_count), 3},
    {"reactors", "STARLING_WORKER_REACTORS", "0", FLAG, AT(manual_progress), true},
    {"polling", "STARLING_WORKER_POLLING", "true", FLAG, AT(polling), true},
    {"pin-cores", "STARLING_WORKER_PIN_CORES", "1", FLAG, AT(pin_cores), true},
    {"checksum", "STARLING_CHECKSUM", "1", FLAG, AT(checksum), true},
    {"protocol", "STARLING_PROTOCOL", "per-table", NUMBER, AT(protocol), SL_PROTOCOL_PER_TABLE},
    {"start-timeout", "STARLING_START_TIMEOUT", "2s", NUMBER, AT(start_timeout_ms), 2000},
    {"tcp-congestion", "STARLING_TCP_CONGESTION", "cubic", TEXT, AT(congestion_control), 0},
    {"join", "STARLING_JOIN", "1", FLAG, AT(join_running), true},
    {"shm", "STARLING_SHM", "0", FLAG, AT(disable_shm), true},
    {"heartbeat", "STARLING_HEARTBEAT", "250ms", NUMBER, AT(heartbeat_ms), 250},
    {"rdma", "STARLING_RDMA", "false", FLAG, AT(disable_rdma), true},
    {"rdma-device", "STARLING_RDMA_DEVICE", "mlx5_0", TEXT, AT(rdma_device), 0},
    {"rdma-gid-index", "STARLING_RDMA_GID_INDEX", "3", NUMBER, AT(rdma_gid_index), 3},
    {"rdma-gid-index", "STARLING_RDMA_GID_INDEX", "0", FLAG, AT(has_rdma_gid_index), true},
    {"dpdk-device", "STARLING_DPDK_DEVICE", "net_null0?addr=10.0.0.1/24", TEXT, AT(dpdk_device), 0},
};

static void check(size_t i, struct sl_client_options *options)
{
    const char *member = (const char *)options + OPTIONS[i].offset;
    const char *text;
    int32_t number;
    switch (OPTIONS[i].kind) {
    case TEXT:
        memcpy(&text, member, sizeof text);
        assert_string_equal(text, OPTIONS[i].value);
        break;
    case NUMBER:
        memcpy(&number, member, sizeof number);
        assert_int_equal(number, OPTIONS[i].number);
        break;
    case FLAG:
        assert_int_equal(*(const bool *)member, OPTIONS[i].number);
        break;
    }
    assert_int_equal(options->struct_size, sizeof *options);
    sl_client_options_fini(options);
    assert_null(options->coordinator);
}

#define CASE(name) SL_CASE_WITH(name, clear(), clear())

CASE(client_options__have_a_flag_and_a_variable_each)
{
    for (size_t i = 0; i < sizeof OPTIONS / sizeof OPTIONS[0]; i++) {
        char flag[128];
        (void)snprintf(flag, sizeof flag, "--starling-%s=%s", OPTIONS[i].name, OPTIONS[i].value);
        setenv("STARLING_COORDINATOR", "p:1", 1);
        setenv("STARLING_TASK_INDEX", "0", 1);
        struct sl_client_options options = expect(flag);
        check(i, &options);
        setenv(OPTIONS[i].variable, OPTIONS[i].value, 1);
        options = expect(NULL);
        check(i, &options);
        unsetenv(OPTIONS[i].variable);
    }
}

CASE(client_options__defaults)
{
    setenv("STARLING_COORDINATOR", "p:1", 1);
    struct sl_client_options options = expect(NULL);
    assert_int_equal(options.task_index, 0);
    assert_int_equal(options.server_count + options.worker_count, 0);
    assert_int_equal(options.reactor_count, 1);
    assert_int_equal(options.start_timeout_ms, 60000);
    assert_false(options.manual_progress || options.disable_shm || options.disable_rdma ||
                 options.checksum || options.join_running || options.pin_cores || options.polling);
    assert_null(options.secret);
    assert_null(options.tls_certificate);
    sl_client_options_fini(&options);
}

CASE(client_options__secret_and_tls_are_files)
{
    char path[] = "/tmp/starling_options_XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, "0123456789abcdef", 16), 16);
    assert_int_equal(close(file), 0);
    setenv("STARLING_COORDINATOR", "p:1", 1);
    setenv("STARLING_SECRET_FILE", path, 1);
    setenv("STARLING_TLS_CERT", path, 1);
    setenv("STARLING_TLS_KEY", path, 1);
    setenv("STARLING_TLS_CA", path, 1);
    struct sl_client_options options = expect("--starling-tls-name=n");
    assert_int_equal(options.secret_bytes, 16);
    assert_memory_equal(options.secret, "0123456789abcdef", 16);
    assert_string_equal(options.tls_certificate, path);
    assert_string_equal(options.tls_key, path);
    assert_string_equal(options.tls_authority, path);
    assert_string_equal(options.tls_peer_name, "n");
    sl_client_options_fini(&options);
    unlink(path);
    refuse(SL_ERR_NOT_FOUND, NULL, WORDS(path));
}

/* Sets the sources of the task from the n-th on: 1 of flags to 6 of Slurm, which would be worker n
 * of 10 + n. Returns the flag. */
static void set_sources(uint32_t first)
{
    const struct {
        const char *index, *count;
    } pairs[] = {{"STARLING_TASK_INDEX", "STARLING_NUM_WORKERS"},
                 {"TF_CONFIG", NULL},
                 {"DMLC_RANK", "DMLC_NUM_WORKER"},
                 {"RANK", "WORLD_SIZE"},
                 {"SLURM_PROCID", "SLURM_NTASKS"}};
    for (uint32_t i = 0; i < 5; i++) {
        char number[16], count[16];
        (void)snprintf(number, sizeof number, "%u", i + 2);
        (void)snprintf(count, sizeof count, "%u", i + 12);
        const bool is_set = i + 2 >= first;
        if (is_set && pairs[i].count != NULL) {
            setenv(pairs[i].index, number, 1);
            setenv(pairs[i].count, count, 1);
        } else if (is_set) {
            setenv(
                pairs[i].index,
                "{\"cluster\":{\"ps\":[\"t:1\"],\"worker\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\","
                "\"g\","
                "\"h\",\"i\",\"j\",\"k\",\"l\",\"m\"]},\"task\":{\"type\":\"worker\",\"index\":3}}",
                1);
        } else {
            unsetenv(pairs[i].index);
            (void)(pairs[i].count != NULL && unsetenv(pairs[i].count) == 0);
        }
    }
    setenv("DMLC_PS_ROOT_URI", "d", 1);
    setenv("DMLC_PS_ROOT_PORT", "1", 1);
    setenv("DMLC_NUM_SERVER", "2", 1);
    (void)(first > 4 && unsetenv("DMLC_PS_ROOT_URI") == 0);
}

CASE(client_options__take_task_and_count_from_the_first_source)
{
    for (uint32_t first = 1; first <= 6; first++) {
        set_sources(first);
        setenv("STARLING_COORDINATOR", "p:1", 1);
        struct sl_client_options options = expect(first == 1 ? "--starling-task-index=1" : NULL);
        assert_int_equal(options.task_index, first);
        assert_int_equal(options.worker_count, first == 1 ? 12 : 10 + first);
        sl_client_options_fini(&options);
    }
    set_sources(1);
    struct sl_client_options options = expect("--starling-num-workers=11");
    assert_int_equal(options.task_index, 2);
    assert_int_equal(options.worker_count, 11);
    sl_client_options_fini(&options);
}

CASE(client_options__take_the_coordinator_from_the_first_source)
{
    static const char *const places[] = {"f:1", "e:1", "tcp://t:1", "tcp://d:1"};
    for (uint32_t first = 1; first <= 4; first++) {
        set_sources(first);
        setenv("STARLING_COORDINATOR", "e:1", 1);
        (void)(first > 2 && unsetenv("STARLING_COORDINATOR") == 0);
        struct sl_client_options options = expect(first == 1 ? "--starling-coordinator=f:1" : NULL);
        assert_string_equal(options.coordinator, places[first - 1]);
        sl_client_options_fini(&options);
    }
    set_sources(5);
    refuse(SL_ERR_NOT_FOUND, NULL,
           WORDS("--starling-coordinator=HOST:PORT", "STARLING_COORDINATOR", "TF_CONFIG",
                 "DMLC_PS_ROOT_URI"));
}

/* Other programs have a variable RANK too. */
CASE(client_options__a_rank_counts_with_a_world_size_only)
{
    setenv("STARLING_COORDINATOR", "p:1", 1);
    setenv("RANK", "7", 1);
    setenv("SLURM_PROCID", "8", 1);
    struct sl_client_options options = expect(NULL);
    assert_int_equal(options.task_index, 0);
    sl_client_options_fini(&options);
}

CASE(client_options__bad_values_name_source_value_and_accepted)
{
    setenv("STARLING_COORDINATOR", "p:1", 1);
    refuse(SL_ERR_INVALID, "--starling-reactors=many",
           WORDS("--starling-reactors=many", "accepts a whole number from 0 to"));
    refuse(SL_ERR_INVALID, "--starling-task-index=-4",
           WORDS("--starling-task-index=-4", "an index from 0 to 16383, any or none"));
    refuse(SL_ERR_INVALID, "--starling-coordinator=nowhere",
           WORDS("--starling-coordinator=nowhere", "accepts HOST:PORT"));
    refuse(SL_ERR_INVALID, "--starling-reactor=1",
           WORDS("unknown flag --starling-reactor", "did you mean --starling-reactors?"));
    refuse(SL_ERR_INVALID, "--starling-protocol", WORDS("--starling-protocol needs a value"));
    setenv("STARLING_START_TIMEOUT", "soon", 1);
    refuse(SL_ERR_INVALID, NULL, WORDS("STARLING_START_TIMEOUT=soon", "a duration from 100ms to"));
    setenv("STARLING_START_TIMEOUT", "1s", 1);
    setenv("RANK", "first", 1);
    refuse(SL_ERR_INVALID, NULL, WORDS("RANK=first", "a whole number from 0 to 16383"));
}

CASE(client_options_from_env__needs_struct_size_and_no_arguments)
{
    struct sl_client_options options = {0};
    setenv("STARLING_COORDINATOR", "p:1", 1);
    assert_int_equal(sl_client_options_from_env(&options, NULL, NULL), SL_ERR_INVALID);
    options.struct_size = sizeof options;
    assert_int_equal(sl_client_options_from_env(&options, NULL, NULL), 0);
    assert_string_equal(options.coordinator, "p:1");
    sl_client_options_fini(&options);
}

CASE(client_options_read__later_sources_are_not_read_if_nothing_is_needed)
{
    setenv("TF_CONFIG", "rubbish", 1);
    setenv("DMLC_PS_ROOT_URI", "10.0.0.1", 1); /* without its port */
    setenv("STARLING_TASK_INDEX", "none", 1);
    setenv("STARLING_NUM_WORKERS", "2", 1);
    struct sl_client_options options = expect("--starling-coordinator=a:1");
    assert_string_equal(options.coordinator, "a:1");
    assert_int_equal(options.task_index, -1);
    assert_int_equal(options.worker_count, 2);
    sl_client_options_fini(&options);
    unsetenv("STARLING_NUM_WORKERS");
    unsetenv("DMLC_PS_ROOT_URI");
    refuse(SL_ERR_INVALID, "--starling-coordinator=a:1", WORDS("TF_CONFIG: not valid JSON"));
}

CASE(client_options_read__empty_tf_config_counts_as_unset)
{
    static const char *const texts[] = {"{}", " { } \n"};
    setenv("STARLING_TASK_INDEX", "3", 1);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        setenv("TF_CONFIG", texts[i], 1);
        struct sl_client_options options = expect("--starling-coordinator=a:1");
        assert_int_equal(options.task_index, 3);
        sl_client_options_fini(&options);
    }
    setenv("TF_CONFIG", "{", 1);
    refuse(SL_ERR_INVALID, "--starling-coordinator=a:1", WORDS("TF_CONFIG: not valid JSON"));
}

CASE(client_options_read__evaluator_has_no_task)
{
    setenv("TF_CONFIG",
           "{\"cluster\":{\"ps\":[\"p:1\"],\"chief\":[\"c:1\"],\"worker\":[\"w:1\"]},"
           "\"task\":{\"type\":\"evaluator\",\"index\":0}}",
           1);
    struct sl_client_options options = expect(NULL);
    assert_string_equal(options.coordinator, "tcp://p:1");
    assert_int_equal(options.task_index, -1);
    assert_int_equal(options.worker_count, 2);
    sl_client_options_fini(&options);
    options = expect("--starling-task-index=1");
    assert_int_equal(options.task_index, 1);
    sl_client_options_fini(&options);
}

CASE(client_options_read__variables_count_in_place_of_the_environment)
{
    static const char *const given[] = {
        "DMLC_ROLE=joint",           "DMLC_NUM_WORKER=4", "DMLC_NUM_SERVER=2",
        "DMLC_PS_ROOT_URI=10.0.0.2", "DMLC_RANK=1",       "DMLC_PS_ROOT_PORT=8123",
        "DMLC_WORKER_ID=",           "DMLC_RANK=3",       NULL};
    static const char *const wrong[] = {"DMLC_ROLE", NULL};
    setenv("DMLC_ROLE", "server", 1);
    setenv("DMLC_NUM_WORKER", "7", 1);
    setenv("DMLC_WORKER_ID", "2", 1);
    struct sl_client_options options = SL_CLIENT_OPTIONS_INIT;
    if (sl_client_options_read(&options, given, NULL, NULL, &reason) != 0) {
        fail_msg("refused: %s", reason.text);
    }
    assert_string_equal(options.coordinator, "tcp://10.0.0.2:8123");
    assert_int_equal(options.worker_count, 4);
    assert_int_equal(options.task_index, 3);
    sl_client_options_fini(&options);
    assert_int_equal(sl_client_options_read(&options, wrong, NULL, NULL, &reason), SL_ERR_INVALID);
    expect_words(reason.text, WORDS("variable \"DMLC_ROLE\"", "NAME=VALUE"));
}
