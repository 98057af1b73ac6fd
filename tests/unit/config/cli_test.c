#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config/cli.h"
#include "tests/support/unit.h"

/* One target of each kind, with the defaults that every test starts from. */
static struct {
    bool quiet, pin;
    const char *name;
    struct sl_cli_list files;
    uint64_t count, any;
    int64_t offset;
    double rate;
    int model;
} targets;

static const struct sl_cli_option options[] = {
    {.kind = SL_CLI_SECTION, .name = "What to do"},
    {.kind = SL_CLI_BOOL, .name = "quiet", .target = &targets.quiet, .help = "Says nothing."},
    {.kind = SL_CLI_BOOL, .name = "pin", .target = &targets.pin, .help = "Pins."},
    {.kind = SL_CLI_STRING,
     .name = "worker-hosts",
     .target = &targets.name,
     .metavar = "HOSTS",
     .help = "Hosts of the workers, in the order of their indices, each with or without a port, "
             "separated by commas and written without any spaces between them."},
    {.kind = SL_CLI_STRINGS, .name = "data", .target = &targets.files, .metavar = "FILE..."},
    {.kind = SL_CLI_SECTION, .help = "Numbers"},
    {.kind = SL_CLI_U64,
     .name = "batch-rows-in-one-step-of-training",
     .target = &targets.count,
     .help = "Rows.",
     .least = 1,
     .most = 100},
    {.kind = SL_CLI_U64, .name = "any", .target = &targets.any, .help = "Any number."},
    {.kind = SL_CLI_I64, .name = "offset", .target = &targets.offset, .least = -5, .most = 5},
    {.kind = SL_CLI_F64, .name = "lr", .target = &targets.rate, .least = 0, .most = 1},
    {.kind = SL_CLI_CHOICE,
     .name = "model",
     .target = &targets.model,
     .choices = "lr|fm|deepfm",
     .help = "The model."},
};

static const struct sl_cli cli = {
    .program = "starling-test",
    .summary = "Tests the command line.",
    .usage = "[options]",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
};

static void reset(void)
{
    sl_cli_list_fini(&targets.files);
    memset(&targets, 0, sizeof targets);
    targets.pin = true;
    targets.count = 10;
    targets.rate = 0.05;
    targets.model = 2;
}

static int parse(struct sl_reason *reason, const char *const *arguments)
{
    char *argv[32] = {(char *)"starling-test"};
    int argc = 1;
    for (; *arguments != NULL; arguments++) {
        argv[argc++] = (char *)*arguments;
    }
    return sl_cli_parse(&cli, argc, argv, reason);
}
#define ARGUMENTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void accept(const char *const *arguments)
{
    struct sl_reason reason = {0};
    if (parse(&reason, arguments) != SL_CLI_RUN) {
        fail_msg("refused: %s", reason.text);
    }
}

#define CASE(name) SL_CASE_WITH(name, reset(), reset())

CASE(cli_parse__every_kind_in_both_spellings)
{
    accept(ARGUMENTS("--quiet", "--pin=false", "--worker-hosts", "a,b", "--data", "one", "two",
                     "--offset", "-5", "--lr=1e-3", "--model=FM", "--any", "18446744073709551615",
                     "--data=three", "--batch-rows-in-one-step-of-training=100"));
    assert_true(targets.quiet);
    assert_false(targets.pin);
    assert_string_equal(targets.name, "a,b");
    assert_int_equal(targets.files.count, 3);
    assert_string_equal(targets.files.items[1], "two");
    assert_string_equal(targets.files.items[2], "three");
    assert_int_equal(targets.offset, -5);
    assert_true(targets.rate == 1e-3);
    assert_int_equal(targets.model, 1);
    assert_true(targets.any == UINT64_MAX);
    assert_int_equal(targets.count, 100);
}

CASE(cli_parse__the_last_of_two_counts)
{
    accept(ARGUMENTS("--any", "1", "--any=2", "--quiet", "--quiet=0"));
    assert_true(targets.any == 2);
    assert_false(targets.quiet);
}

CASE(cli_parse__values_may_begin_with_dashes)
{
    accept(ARGUMENTS("--worker-hosts", "--polling --x", "--data=--model"));
    assert_string_equal(targets.name, "--polling --x");
    assert_string_equal(targets.files.items[0], "--model");
    accept(ARGUMENTS("--worker-hosts="));
    assert_string_equal(targets.name, "");
}

CASE(cli_parse__refuses_with_flag_value_and_accepted)
{
    static const struct {
        const char *arguments[5];
        const char *reason;
    } cases[] = {
        {{"--batch-rows-in-one-step-of-training", "0"}, "=0: accepts a whole number from 1 to 100"},
        {{"--batch-rows-in-one-step-of-training=101"}, "from 1 to 100"},
        {{"--any", "-1"}, "--any=-1: accepts a whole number from 0"},
        {{"--any", "18446744073709551616"}, "accepts a whole number"},
        {{"--any", "1e3"}, "accepts a whole number"},
        {{"--any", " 1"}, "accepts a whole number"},
        {{"--any", "0x10"}, "accepts a whole number"},
        {{"--any="}, "--any=: accepts a whole number"},
        {{"--offset", "6"}, "--offset=6: accepts a whole number from -5 to 5"},
        {{"--offset", "--5"}, "--offset=--5: accepts"},
        {{"--offset", "9223372036854775808"}, "accepts"},
        {{"--lr", "nan"}, "--lr=nan: accepts a number from 0 to 1"},
        {{"--lr", "inf"}, "accepts a number"},
        {{"--lr", "1.5"}, "accepts a number from 0 to 1"},
        {{"--lr", "0.1x"}, "accepts a number"},
        {{"--lr", "."}, "accepts a number"},
        {{"--lr", ""}, "accepts a number"},
        {{"--model", "svm"}, "--model=svm: accepts lr|fm|deepfm"},
        {{"--model", "l"}, "accepts lr|fm|deepfm"},
        {{"--model", "lr|fm"}, "accepts lr|fm|deepfm"},
        {{"--quiet=maybe"}, "--quiet=maybe: accepts 0, 1, true or false"},
        {{"--any"}, "--any needs a value"},
        {{"--any", "--quiet"}, "--any needs a value"},
        {{"--data"}, "--data needs a value"},
        {{"--data", "--any=1"}, "--data needs a value"},
        {{"--data", "a", "--any", "x"}, "--any=x"},
        {{"stray"}, "unexpected argument \"stray\""},
        {{"--quiet", "stray"}, "unexpected argument \"stray\""},
        {{"--data=a", "b"}, "unexpected argument \"b\""},
        {{""}, "unexpected argument"},
        {{"--"}, "unknown flag --"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        reset();
        struct sl_reason reason = {0};
        const int result = parse(&reason, cases[i].arguments);
        if (result != SL_ERR_INVALID || strstr(reason.text, cases[i].reason) == NULL) {
            fail_msg("case %zu: result %d, reason \"%s\"", i, result, reason.text);
        }
        assert_null(targets.files.items);
        assert_int_equal(targets.files.count, 0);
    }
}

CASE(cli_parse__words_come_before_the_flags)
{
    static const struct {
        const char *arguments[4], *reason;
    } refused[] = {
        {{NULL}, "an argument is missing"},
        {{"--quiet", "a"}, "an argument is missing"},
        {{"a", "b", "c"}, "unexpected argument \"c\""},
        {{"a", "--quiet", "b"}, "unexpected argument \"b\""},
    };
    struct sl_cli_words words = {.least = 1, .most = 2};
    struct sl_cli with_words = cli;
    struct sl_reason reason = {0};
    with_words.words = &words;
    char *accepted[] = {(char *)"starling-test", (char *)"a", (char *)"b", (char *)"--quiet", NULL};
    assert_int_equal(sl_cli_parse(&with_words, 4, accepted, &reason), SL_CLI_RUN);
    assert_int_equal(words.count, 2);
    assert_string_equal(words.items[1], "b");
    assert_true(targets.quiet);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        char *argv[5] = {(char *)"starling-test"};
        int argc = 1;
        for (; argc <= 3 && refused[i].arguments[argc - 1] != NULL; argc++) {
            argv[argc] = (char *)refused[i].arguments[argc - 1];
        }
        assert_int_equal(sl_cli_parse(&with_words, argc, argv, &reason), SL_ERR_INVALID);
        assert_non_null(strstr(reason.text, refused[i].reason));
        assert_int_equal(sl_cli_exit(&with_words, SL_ERR_INVALID, &reason), SL_CLI_EXIT_USAGE);
    }
}

CASE(cli_parse__unknown_flag_names_the_nearest)
{
    static const struct {
        const char *argument, *reason;
    } cases[] = {
        {"--wroker-hosts", "unknown flag --wroker-hosts; did you mean --worker-hosts?"},
        {"-e", "unknown flag -e: flags begin with two dashes"},
        {"--worker-host=a", "unknown flag --worker-host; did you mean --worker-hosts?"},
        {"--ofset", "did you mean --offset?"},
        {"-quiet", "did you mean --quiet?"},
        {"--Model", "did you mean --model?"},
        {"--worker_hosts", "did you mean --worker-hosts?"},
    };
    struct sl_reason reason;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(parse(&reason, ARGUMENTS(cases[i].argument)), SL_ERR_INVALID);
        assert_non_null(strstr(reason.text, cases[i].reason));
    }
    char longest[4096] = "--";
    memset(longest + 2, 'x', sizeof longest - 3);
    assert_int_equal(parse(&reason, ARGUMENTS(longest)), SL_ERR_INVALID);
    assert_null(strstr(reason.text, "did you mean"));
    assert_int_equal(parse(&reason, ARGUMENTS("--something-else")), SL_ERR_INVALID);
    assert_null(strstr(reason.text, "did you mean"));
}

/* What parse prints to stdout. */
static void capture(const char *const *arguments, char *out, size_t out_bytes)
{
    int pipe_fds[2];
    assert_int_equal(pipe(pipe_fds), 0);
    fflush(stdout);
    const int saved = dup(STDOUT_FILENO);
    dup2(pipe_fds[1], STDOUT_FILENO);
    const int result = parse(NULL, arguments);
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    close(pipe_fds[1]);
    const ssize_t got = read(pipe_fds[0], out, out_bytes - 1);
    close(pipe_fds[0]);
    assert_int_equal(result, SL_CLI_EXIT_OK);
    assert_true(got > 0);
    out[got] = '\0';
}

CASE(cli_parse__help_shows_defaults_in_two_columns)
{
    char text[8192];
    capture(ARGUMENTS("--lr", "0.5", "--help", "--rubbish"), text, sizeof text);
    static const char *const parts[] = {
        "Usage: starling-test [options]\nTests the command line.\n",
        "\nWhat to do:\n",
        "\nNumbers:\n",
        "\n  --quiet                     Says nothing.\n",
        "\n  --pin                       Pins. Default: on; --pin=false turns it off.\n",
        "\n  --data FILE...\n",
        "\n  --batch-rows-in-one-step-of-training N\n",
        "\n                              Rows. Default: 10\n",
        "\n  --offset N                  Default: 0\n",
        "\n  --lr X                      Default: 0.05\n",
        "\n  --model lr|fm|deepfm        The model. Default: deepfm\n",
        "\n  --help                      Print this text and exit; also -h.\n",
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (strstr(text, parts[i]) == NULL) {
            fail_msg("\"%s\" is not in\n%s", parts[i], text);
        }
    }
    for (const char *line = text; *line != '\0';) {
        const size_t length = strcspn(line, "\n");
        assert_true(length <= 100);
        assert_true(length == 0 || line[length - 1] != ' ');
        line += length + 1;
    }
}
