#include <stdlib.h>

#include "config/rdma_settings.h"
#include "tests/support/unit.h"
#include "tests/unit/config/parsed.h"

static struct parsed parsed;

static void unset_all(void)
{
    unsetenv("STARLING_RDMA_DEVICE");
    unsetenv("STARLING_RDMA_GID_INDEX");
    unsetenv("MC_GID_INDEX");
    unsetenv("NCCL_IB_GID_INDEX");
}

#define CASE(name) SL_CASE_WITH(name, unset_all(), unset_all())

static void set(const char *name, const char *value)
{
    assert_int_equal(setenv(name, value, 1), 0);
}

static struct sl_rdma_settings read_all(const char *const *arguments)
{
    struct sl_rdma_settings settings;
    if (parse_settings(SL_PROGRAM_WORKER, arguments, &parsed) != SL_CLI_RUN) {
        fail_msg("refused: %s", parsed.reason.text);
    }
    const struct sl_rdma_settings_flags *flags = &parsed.settings.flags.rdma;
    sl_rdma_settings_read(flags, sl_settings_given(&parsed.cli, &flags->gid_index), &settings);
    return settings;
}

/* Of the variables: no error, unless RDMA is requested. */
static void expect_flaw(const char *const *words)
{
    struct sl_reason reason = {0};
    const struct sl_rdma_settings settings = read_all(NO_ARGUMENTS);
    expect_words(settings.flaw, words);
    assert_int_equal(sl_rdma_settings_check(&settings, false, &reason), 0);
    assert_int_equal(sl_rdma_settings_check(&settings, true, &reason), SL_ERR_INVALID);
    assert_string_equal(reason.text, settings.flaw);
}

static void refuse(const char *const *arguments, const char *const *words)
{
    assert_int_equal(parse_settings(SL_PROGRAM_WORKER, arguments, &parsed), SL_ERR_INVALID);
    expect_words(parsed.reason.text, words);
}

CASE(rdma_settings_read__says_nothing_where_nothing_is_set)
{
    set("STARLING_RDMA_DEVICE", "");
    set("MC_GID_INDEX", "");
    set("NCCL_IB_GID_INDEX", "-1");
    struct sl_rdma_settings settings = read_all(NO_ARGUMENTS);
    assert_string_equal(settings.device, "");
    assert_false(settings.has_gid_index);
}

CASE(rdma_settings_read__takes_each_variable)
{
    static const char *const names[] = {"STARLING_RDMA_GID_INDEX", "MC_GID_INDEX",
                                        "NCCL_IB_GID_INDEX"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        unset_all();
        set(names[i], "3");
        assert_int_equal(read_all(NO_ARGUMENTS).gid_index, 3);
    }
    set("STARLING_RDMA_DEVICE", "mlx5_0,mlx5_bond-1.2");
    assert_string_equal(read_all(NO_ARGUMENTS).device, "mlx5_0,mlx5_bond-1.2");
}

CASE(rdma_settings_read__variables_must_agree)
{
    struct sl_rdma_settings settings;
    set("STARLING_RDMA_GID_INDEX", "0");
    set("MC_GID_INDEX", "0");
    set("NCCL_IB_GID_INDEX", "0");
    settings = read_all(NO_ARGUMENTS);
    assert_true(settings.has_gid_index);
    assert_int_equal(settings.gid_index, 0);
    set("NCCL_IB_GID_INDEX", "3");
    expect_flaw(WORDS("STARLING_RDMA_GID_INDEX is 0", "NCCL_IB_GID_INDEX is 3"));
    unsetenv("STARLING_RDMA_GID_INDEX");
    expect_flaw(WORDS("MC_GID_INDEX is 0", "NCCL_IB_GID_INDEX is 3"));
    settings = read_all(ARGUMENTS("--rdma-gid-index=1"));
    assert_int_equal(settings.gid_index, 1);
    assert_string_equal(settings.flaw, "");
}

/* Those of other programs, which may be set for them alone. */
CASE(rdma_settings_read__bad_values_of_others_are_a_flaw)
{
    set("MC_GID_INDEX", "-1");
    expect_flaw(WORDS("MC_GID_INDEX=-1", "from 0 to 65535"));
    unset_all();
    set("NCCL_IB_GID_INDEX", "auto");
    expect_flaw(WORDS("NCCL_IB_GID_INDEX=auto", "from 0 to 65535"));
    set("STARLING_RDMA_GID_INDEX", "first");
    refuse(NO_ARGUMENTS, WORDS("STARLING_RDMA_GID_INDEX=first", "from 0 to 65535"));
}

CASE(rdma_settings_read__a_flag_goes_before_all)
{
    set("STARLING_RDMA_DEVICE", "a");
    set("MC_GID_INDEX", "1");
    set("NCCL_IB_GID_INDEX", "2");
    struct sl_rdma_settings settings = read_all(ARGUMENTS("--rdma-device=b", "--rdma-gid-index=7"));
    assert_string_equal(settings.device, "b");
    assert_int_equal(settings.gid_index, 7);
}

CASE(rdma_settings_read__bad_values_name_what_is_accepted)
{
    static const char *const devices[] = {",", "a,", ",a", "a,,b", "a b", "a/b", "m\xc3\xbc"};
    char many[300];
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
        refuse(ARGUMENTS("--rdma-device", devices[i]),
               WORDS("--rdma-device=", devices[i], "names of RDMA devices"));
    }
    for (size_t i = 0; i < sizeof many - 1; i++) {
        many[i] = i % 2 == 0 ? 'a' : ',';
    }
    many[sizeof many - 1] = '\0';
    refuse(ARGUMENTS("--rdma-device", many), WORDS("--rdma-device="));
    refuse(ARGUMENTS("--rdma-gid-index=65536"), WORDS("--rdma-gid-index=65536", "from 0 to 65535"));
    refuse(ARGUMENTS("--rdma-gid-index="), WORDS("--rdma-gid-index=", "from 0 to 65535"));
    set("STARLING_RDMA_DEVICE", "a;b");
    refuse(NO_ARGUMENTS, WORDS("STARLING_RDMA_DEVICE=a;b", "mlx5_0"));
}
