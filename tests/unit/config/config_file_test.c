#include "config/config_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "tests/support/unit.h"
#include "tests/unit/config/parsed.h"

static struct sl_reason reason;
static struct sl_config_file file;

static void take_text(const char *text)
{
    if (sl_config_file_parse(text, strlen(text), "f.conf", &file, &reason) != 0) {
        fail_msg("refused: %s", reason.text);
    }
}

static void expect(uint32_t i, const char *section, const char *key, const char *value,
                   uint32_t line)
{
    const struct sl_config_entry *entry = &file.entries[i];
    assert_true(i < file.count);
    assert_string_equal(entry->section, section);
    assert_string_equal(entry->key, key);
    assert_string_equal(entry->value, value);
    assert_int_equal(entry->line, line);
}

SL_CASE(config_file_parse__sections_lists_and_comments)
{
    take_text(
        "\xef\xbb\xbf; a comment\n[all]\nlease = 5s ; more\n  # indented\n[worker] ; of all\r\n"
        "data: a b\r\n    c;d\n\n\t e = 2\nx=\n[all]\ny==");
    expect(0, "all", "lease", "5s", 3);
    expect(1, "worker", "data", "a b", 6);
    expect(2, "worker", "data", "c;d", 7);
    expect(3, "worker", "data", "e = 2", 9);
    expect(4, "worker", "x", "", 10);
    expect(5, "all", "y", "=", 12);
    assert_int_equal(file.count, 6);
    assert_false(file.entries[1].continues);
    assert_true(file.entries[2].continues && file.entries[3].continues);
    assert_false(file.entries[4].continues);
    sl_config_file_fini(&file);
    take_text("");
    assert_int_equal(file.count, 0);
}

SL_CASE(config_file_parse__refuses_with_file_and_line)
{
    char longest[256] = "[all]\n", *at = longest + 6;
    memset(at, 'k', 199);
    memcpy(at + 10, " = ", 3);
    const struct {
        const char *text, *words[4];
    } cases[] = {
        {"lease = 5\n", {"f.conf:1: lease is in no section", "[server]"}},
        {"[all]\nlease\n", {"f.conf:2: accepts KEY = VALUE"}},
        {"[all]\n= 3\n", {"f.conf:2: the key is missing"}},
        {"[all\n", {"f.conf:1: unknown section [all:"}},
        {"[servers]\n",
         {"f.conf:1: unknown section [servers]: accepts [all], [server]", "[rollback], [ctl]"}},
        {"[all] x\n", {"f.conf:1: unknown section [all] x"}},
        {"[all]\na=1\nb=2\na=3\n", {"f.conf:4: a is already in line 2"}},
        {"[all]\na=1\n[server]\na=1\n[all]\na=1\n", {"f.conf:6: a is already in line 2"}},
        {longest, {"f.conf:2: the line has 199 bytes: accepts up to 198", "indented lines"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *text = cases[i].text;
        assert_int_equal(sl_config_file_parse(text, strlen(text), "f.conf", &file, &reason),
                         SL_ERR_INVALID);
        expect_words(reason.text, cases[i].words);
        assert_null(file.entries);
    }
    at[198] = '\0';
    take_text(longest);
    sl_config_file_fini(&file);
    assert_int_equal(sl_config_file_parse("[all]\na\0=1", 10, "f", &file, &reason), SL_ERR_INVALID);
    expect_words(reason.text, WORDS("byte 7 is NUL"));
}

SL_CASE(config_file_parse__limits_the_keys)
{
    char text[16384] = "[all]\n";
    size_t used = strlen(text);
    for (int i = 0; i <= 1000; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "k%d=\n", i);
    }
    assert_int_equal(sl_config_file_parse(text, used, "f", &file, &reason), SL_ERR_INVALID);
    expect_words(reason.text, WORDS("f:1002: accepts up to 1000 keys"));
}

SL_CASE(config_file_read__names_the_file)
{
    assert_int_equal(sl_config_file_read("/nonexistent/f", &file, &reason), SL_ERR_NOT_FOUND);
    expect_words(reason.text, WORDS("--config /nonexistent/f: No such file"));
    assert_int_equal(sl_config_file_read("/", &file, &reason), SL_ERR_INVALID);
    expect_words(reason.text, WORDS("not a regular file"));
}

/* The rest parses a file with the settings of a program. */

static struct parsed parsed;
static char path[] = "/tmp/starling_config_XXXXXX";

static void begin(void)
{
    clear_variables();
    memcpy(path + sizeof path - 7, "XXXXXX", 6);
    assert_int_equal(close(mkstemp(path)), 0);
}

static void end(void)
{
    clear_variables();
    assert_int_equal(unlink(path), 0);
}

#define CASE(name) SL_CASE_WITH(name, begin(), end())

static int parse(enum sl_program program, const char *text, const char *argument)
{
    FILE *out = fopen(path, "w");
    fputs(text, out);
    fclose(out);
    setenv("STARLING_CONFIG", path, 1);
    sl_config_file_fini(&parsed.settings.file);
    return parse_settings(program, argument == NULL ? NO_ARGUMENTS : ARGUMENTS(argument), &parsed);
}

static void check_lease(const char *source, const char *text)
{
    const struct sl_cli_given *given =
        sl_settings_given(&parsed.cli, &parsed.settings.times.lease_ns);
    assert_string_equal(given->text, text);
    assert_non_null(strstr(given->source, source));
}

CASE(config_file__flag_variable_own_section_all_default)
{
    static const char text[] =
        "[all]\nlease = 1s\n[server]\nlease = 2s\n[worker]\nbatch-size = 3\n";
    assert_int_equal(parse(SL_PROGRAM_PS, text, "--lease=4s"), SL_CLI_RUN);
    check_lease("--lease", "4s");
    assert_int_equal(parse(SL_PROGRAM_PS, text, NULL), SL_CLI_RUN);
    check_lease(":4: lease", "2s");
    assert_int_equal(parse(SL_PROGRAM_LAUNCH, text, NULL), SL_CLI_RUN);
    check_lease(":4: lease", "2s");
    assert_int_equal(parse(SL_PROGRAM_PS, "[all]\nlease = 1s\n", NULL), SL_CLI_RUN);
    check_lease(":2: lease", "1s");
    setenv("STARLING_LEASE", "3s", 1);
    assert_int_equal(parse(SL_PROGRAM_PS, text, NULL), SL_CLI_RUN);
    check_lease("STARLING_LEASE", "3s");
    sl_config_file_fini(&parsed.settings.file);
}

CASE(config_file__a_value_of_higher_precedence_hides_no_error)
{
    setenv("PS_DISABLE_PIN_CORES", "1", 1);
    assert_int_equal(parse(SL_PROGRAM_PS, "[all]\npin-cores = true\n", NULL), SL_CLI_RUN);
    assert_false(parsed.settings.reactors.pin_cores);
    assert_int_equal(parse(SL_PROGRAM_PS, "[all]\npin-cores = 2\n", NULL), SL_ERR_INVALID);
    expect_words(parsed.reason.text, WORDS(":2: pin-cores=2: accepts 0, 1"));
    assert_int_equal(parse(SL_PROGRAM_PS, "[all]\nlease = 1s\n", "--lease=4s"), SL_CLI_RUN);
    assert_int_equal(parsed.settings.times.lease_ns, 4 * SL_CLOCK_NS_PER_S);
    assert_int_equal(parse(SL_PROGRAM_PS, "[all]\nlease = soon\n", "--lease=4s"), SL_ERR_INVALID);
    expect_words(parsed.reason.text, WORDS(":2: lease=soon: accepts a duration"));
    static const char sections[] = "[server]\nlease = 2s\n[all]\nlease = soon\n";
    assert_int_equal(parse(SL_PROGRAM_PS, sections, NULL), SL_ERR_INVALID);
    expect_words(parsed.reason.text, WORDS(":4: lease=soon: accepts a duration"));
    assert_int_equal(parse(SL_PROGRAM_PS, "[server]\nlease = 2s\n[all]\nlease = 1s\n", NULL), 0);
    assert_int_equal(parsed.settings.times.lease_ns, 2 * SL_CLOCK_NS_PER_S);
    sl_config_file_fini(&parsed.settings.file);
}

CASE(config_file__refuses_keys_and_values_with_their_place)
{
    static const struct {
        enum sl_program program;
        const char *text, *words[4];
    } cases[] = {
        {SL_PROGRAM_PS,
         "[server]\nleese = 1s\n",
         {":2: unknown key leese in [server]", "did you mean lease?"}},
        {SL_PROGRAM_PS, "[all]\nbatch-size = 1\n", {":2: unknown key batch-size in [all]"}},
        {SL_PROGRAM_PS, "[server]\nepochs = 1\n", {":2: unknown key epochs"}},
        {SL_PROGRAM_PS, "[server]\nconfig = f\n", {":2: config is a flag, and no key"}},
        {SL_PROGRAM_PS, "[all]\nlease = soon\n", {":2: lease=soon: accepts a duration from 100ms"}},
        {SL_PROGRAM_PS,
         "[all]\nlease = 1s\n  replicas = 1\n",
         {":3: lease takes one value", "first column"}},
        {SL_PROGRAM_PS, "[all]\nlease = 1s\nlease = 1s\n", {":3: lease is already in line 2"}},
        {SL_PROGRAM_PS,
         "[server]\nrdma = 1\nserve-rdma = 0\n",
         {":3: serve-rdma: another name", ":2: rdma: accepts one"}},
        {SL_PROGRAM_WORKER, "[worker]\nlease = 1s\n", {":2: unknown key lease"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(parse(cases[i].program, cases[i].text, NULL), SL_ERR_INVALID);
        expect_words(parsed.reason.text, cases[i].words);
        expect_words(parsed.reason.text, WORDS(path));
        sl_config_file_fini(&parsed.settings.file);
    }
    /* Keys that other programs have. */
    assert_int_equal(parse(SL_PROGRAM_WORKER, "[all]\nlease = 1s\n[server]\nx = 1\n", NULL), 0);
    assert_int_equal(parse(SL_PROGRAM_DOCTOR, "[server]\nlease = 1s\nreactors = 3\n", NULL), 0);
    assert_int_equal(parsed.settings.reactors.count, 3);
    sl_config_file_fini(&parsed.settings.file);
}

CASE(config_file__lists_have_an_item_a_line)
{
    assert_int_equal(
        parse(SL_PROGRAM_PS, "[server]\ndpdk-device = a?addr=1.1.1.1\n  b?addr=1.1.1.2\n", NULL),
        0);
    assert_int_equal(parsed.settings.flags.dpdk_devices.count, 2);
    assert_string_equal(parsed.settings.flags.dpdk_devices.items[1], "b?addr=1.1.1.2");
    sl_settings_fini(&parsed.settings);
}

CASE(config_file__a_list_with_commas_continues_on_indented_lines)
{
    char text[8192] = "[all]\nlease = 1s\n[server]\nps-hosts = 10.0.0.1:1,10.0.0.2:2,\n",
         *at = text;
    for (int i = 3; i <= 200; i++) {
        at += strlen(at);
        (void)snprintf(at, 40, "    10.0.0.%d:%d\n", i, i);
    }
    (void)snprintf(at + strlen(at), 80, "task-index = 0\nrdma-device = a\n  b\n");
    assert_int_equal(parse(SL_PROGRAM_PS, text, NULL), SL_CLI_RUN);
    assert_string_equal(parsed.settings.rdma.device, "");
    assert_int_equal(sl_settings_resolve(SL_PROGRAM_PS, &parsed.cli, &parsed.settings, &reason), 0);
    assert_int_equal(parsed.settings.cluster.ps_count, 200);
    assert_string_equal(parsed.settings.cluster.ps[1].control.host, "10.0.0.2");
    assert_string_equal(parsed.settings.cluster.ps[199].control.host, "10.0.0.200");
    assert_int_equal(parsed.settings.cluster.ps[199].control.port, 200);
    assert_string_equal(parsed.settings.rdma.device, "a,b");
    assert_int_equal(parsed.settings.times.lease_ns, SL_CLOCK_NS_PER_S);
    sl_settings_fini(&parsed.settings);
    /* Keys of another program that are lists there. */
    assert_int_equal(parse(SL_PROGRAM_PS, "[worker]\nps-hosts = a:1\n  b:1\ndata = c\n  d\n", NULL),
                     SL_CLI_RUN);
    sl_config_file_fini(&parsed.settings.file);
}

/* The file that the package installs, with its example. */
CASE(config_file__installed_file_is_right_with_its_example)
{
    static char text[65536], *to = text;
    FILE *in = fopen(INSTALLED_FILE, "r");
    assert_non_null(in);
    for (char line[512]; fgets(line, sizeof line, in) != NULL;) {
        const char *rest = line + (line[0] == ';' && line[1] == ' ' ? 2 : 0);
        const bool is_example = rest != line && (strstr(rest, " = ") != NULL || rest[0] == ' ');
        to += snprintf(to, 512, "%s", is_example ? rest : line);
    }
    (void)fclose(in);
    assert_non_null(strstr(text, "\nps-hosts = "));
    for (int instance = 0; instance < 2; instance++) {
        const char *const task = instance == 0 ? "--task-index=0" : "--task-index=1";
        assert_int_equal(parse(SL_PROGRAM_PS, text, task), SL_CLI_RUN);
        parsed.settings.flags.security.secret_file = NULL; /* there is none here */
        const int err = sl_settings_resolve(SL_PROGRAM_PS, &parsed.cli, &parsed.settings, &reason);
        if (err != 0) {
            fail_msg("%s", reason.text);
        }
        assert_true(parsed.settings.cluster.ps_count >= 2);
        assert_non_null(parsed.settings.checkpoint.dir);
        assert_int_equal(parsed.settings.http.endpoint.port, 0); /* several servers on a host */
        sl_settings_fini(&parsed.settings);
    }
}

/* The environment has precedence, TF_CONFIG too. */
CASE(config_file__describes_no_cluster_beside_the_environment)
{
    static const char text[] = "[all]\nps-hosts = f:1\nnum-workers = 7\ntask-index = 0\n";
    assert_int_equal(parse(SL_PROGRAM_PS, text, NULL), SL_CLI_RUN);
    assert_int_equal(sl_settings_resolve(SL_PROGRAM_PS, &parsed.cli, &parsed.settings, &reason), 0);
    assert_string_equal(parsed.settings.cluster.ps[0].control.host, "f");
    assert_int_equal(parsed.settings.cluster.worker_count, 7);
    sl_settings_fini(&parsed.settings);
    setenv("TF_CONFIG",
           "{\"cluster\":{\"ps\":[\"t:1\",\"t:2\"],\"worker\":[\"w\"]},"
           "\"task\":{\"type\":\"ps\",\"index\":1}}",
           1);
    setenv("PS_HEARTBEAT_TIMEOUT", "3", 1);
    assert_int_equal(parse(SL_PROGRAM_PS, text, NULL), SL_CLI_RUN);
    assert_int_equal(sl_settings_resolve(SL_PROGRAM_PS, &parsed.cli, &parsed.settings, &reason), 0);
    assert_string_equal(parsed.settings.cluster.ps[0].control.host, "t");
    assert_int_equal(parsed.settings.cluster.task_index, 1);
    assert_int_equal(parsed.settings.cluster.worker_count, 1);
    sl_settings_fini(&parsed.settings);
}

CASE(config_file__values_are_listed_with_their_sources)
{
    setenv("PS_DISABLE_PIN_CORES", "0", 1);
    assert_int_equal(parse(SL_PROGRAM_PS, "[server]\nps-hosts = h:1\n", "--memory-limit=64G"), 0);
    assert_int_equal(sl_settings_resolve(SL_PROGRAM_PS, &parsed.cli, &parsed.settings, &reason), 0);
    char source[64];
    (void)snprintf(source, sizeof source, "file %s:2", path);
    const struct sl_option_value expected[] = {
        {"ps-hosts", "h:1", source},
        {"memory-limit", "64G", "flag"},
        {"pin-cores", "true", "environment PS_DISABLE_PIN_CORES"},
        {"lease", "10s", "default"},
        {"secret-file", "", "default"}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        uint32_t at = 0;
        while (strcmp(parsed.settings.values.items[at].name, expected[i].name) != 0) {
            at++;
            assert_true(at < parsed.settings.values.count);
        }
        assert_string_equal(parsed.settings.values.items[at].value, expected[i].value);
        assert_string_equal(parsed.settings.values.items[at].source, expected[i].source);
    }
    sl_settings_fini(&parsed.settings);
}
