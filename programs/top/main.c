/* starling-top shows the state of a job in the terminal. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/cli.h"
#include "core/clock.h"
#include "programs/top/panel.h"
#include "programs/top/screen.h"
#include "programs/top/source.h"

#define PROGRAM "starling-top"
#define USAGE   "[URL] [options]"

struct flags {
    struct sl_source_options source;
    uint64_t interval_ns;
    bool once, json;
};

static int parse(int argc, char **argv, struct flags *flags, struct sl_reason *reason)
{
    const struct sl_cli_option options[] = {
        SL_CLI_OPTION(BOOL, &flags->once, .name = "once",
                      .help =
                          "Print the state once, as text. So does an output that is no terminal."),
        SL_CLI_OPTION(BOOL, &flags->json, .name = "json", .help = "Print the state once, as JSON."),
        SL_CLI_OPTION(DURATION, &flags->interval_ns, .name = "interval", .preset = "1s",
                      .least = 0.1, .most = 3600,
                      .help = "Time between two updates of the screen."),
        SL_CLI_OPTION(STRING, &flags->source.token_file, .name = "http-token-file",
                      .metavar = "FILE", .help = "The servers' token."),
        SL_CLI_OPTION(STRING, &flags->source.authority, .name = "tls-ca", .metavar = "FILE",
                      .help = "Authority of servers at https://HOST:PORT, PEM."),
    };
    const struct sl_cli cli = {
        .program = PROGRAM,
        .summary = "Shows the servers, workers, tables, hot keys and slow requests of a "
                   "job. URL: any server's --http address, default "
                   "http://127.0.0.1:9480.",
        .usage = USAGE,
        .options = options,
        .option_count = sizeof options / sizeof options[0]};
    const int first = argc > 1 && argv[1][0] != '-'; /* the URL is before or after the flags */
    const int last = first == 0 && strstr(argv[argc - 1], "://") != NULL;
    flags->source.url = first != 0 ? argv[1] : last != 0 ? argv[argc - 1] : "http://127.0.0.1:9480";
    return sl_cli_parse(&cli, argc - first - last, argv + first, reason);
}

/* All panels as text, lines as long as they need. */
static int print_text(const json_t *state)
{
    char job[SL_PANEL_LINE_BYTES], totals[SL_PANEL_LINE_BYTES];
    sl_panel_summary(state, job, totals);
    (void)printf("%s\n%s\n", job, totals);
    for (uint32_t panel = 0; panel < SL_PANEL_COUNT; panel++) {
        uint32_t count;
        struct sl_panel_row *rows = sl_panel_rows(panel, state, (struct sl_panel_order){0}, "",
                                                  SL_PANEL_LINE_BYTES, &count);
        if (rows == NULL) {
            return SL_ERR_NO_MEMORY;
        }
        (void)printf("\n%s\n", sl_panel_title(panel, 0));
        for (uint32_t row = 0; row <= count; row++) {
            (void)puts(rows[row].line);
        }
        free(rows);
    }
    return 0;
}

static int show(const struct flags *flags, struct sl_source *source, json_t *state)
{
    int err = 0;
    if (flags->json) {
        err = json_dumpf(state, stdout, JSON_COMPACT | JSON_ENSURE_ASCII) == 0 &&
                      putchar('\n') == '\n'
                  ? 0
                  : SL_ERR_IO;
    } else if (flags->once || !isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO)) {
        err = print_text(state);
    } else {
        sl_screen_run(source, json_incref(state), flags->interval_ns);
    }
    return err != 0 || fflush(stdout) == 0 ? err : SL_ERR_IO;
}

int main(int argc, char **argv)
{
    struct flags flags = {0};
    struct sl_reason reason = {""};
    struct sl_source *source = NULL;
    json_t *state = NULL;
    int err = parse(argc, argv, &flags, &reason);
    if (err != 0) {
        if (err != SL_CLI_EXIT_OK) {
            (void)fprintf(stderr, PROGRAM ": %s\nusage: " PROGRAM " " USAGE "\n", reason.text);
        }
        return err == SL_CLI_EXIT_OK ? EXIT_SUCCESS : SL_CLI_EXIT_USAGE;
    }
    err = sl_source_create(&flags.source, &source, &reason);
    err = err != 0 ? err : sl_source_fetch(source, &state, &reason);
    if (err == 0 && (err = show(&flags, source, state)) != 0) {
        sl_reason_set(&reason, "cannot write to the standard output");
    }
    json_decref(state);
    sl_source_destroy(&source);
    if (err != 0) {
        (void)fprintf(stderr, PROGRAM ": %s\n", reason.text);
    }
    return err == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
