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

static struct {
    struct sl_source_options source;
    uint64_t interval_ns;
    const char *history;
    bool once, json;
} flags;

static const struct sl_cli_option options[] = {
    SL_CLI_OPTION(BOOL, &flags.once, .name = "once",
                  .help = "Print the state once, as text. So does an output that is no terminal."),
    SL_CLI_OPTION(BOOL, &flags.json, .name = "json", .help = "Print the state once, as JSON."),
    SL_CLI_OPTION(STRING, &flags.history, .name = "history", .metavar = "FILE",
                  .help =
                      "Show a state that Save of the live page, or --json, wrote to a file, such "
                      "as that of a job that has ended."),
    SL_CLI_OPTION(DURATION, &flags.interval_ns, .name = "interval", .preset = "1s", .least = 0.1,
                  .most = 3600, .help = "Time between two updates of the screen."),
    SL_CLI_OPTION(STRING, &flags.source.token_file, .name = "http-token-file", .metavar = "FILE",
                  .help = "The servers' token."),
    SL_CLI_OPTION(STRING, &flags.source.authority, .name = "tls-ca", .metavar = "FILE",
                  .help = "Authority of servers at https://HOST:PORT, PEM."),
};

/* All panels as text, lines as long as they need. */
static int print_text(const json_t *state)
{
    struct sl_panel_summary summary;
    sl_panel_summary(state, &summary);
    (void)printf("%s\n%s\n%s\n", summary.job, summary.training, summary.totals);
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

static int show(struct sl_source *source, json_t *state)
{
    if (flags.json) {
        return json_dumpf(state, stdout, JSON_COMPACT | JSON_ENSURE_ASCII) == 0 &&
                       putchar('\n') == '\n'
                   ? 0
                   : SL_ERR_IO;
    }
    if (flags.once || !isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO)) {
        return print_text(state);
    }
    sl_screen_run(source, json_incref(state), flags.interval_ns);
    return 0;
}

int main(int argc, char **argv)
{
    struct sl_reason reason = {""};
    struct sl_source *source = NULL;
    json_t *state = NULL;
    struct sl_cli_words words = {.most = 1};
    const struct sl_cli cli = {
        .program = "starling-top",
        .summary = "Shows the servers, workers, tables, hot keys and slow requests of a "
                   "job. URL: any server's --http address, default "
                   "http://127.0.0.1:9480.",
        .usage = "[URL] [options]",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
        .words = &words};
    /* The URL is before or after the flags. */
    const bool is_last = argc > 2 && argv[1][0] == '-' && strstr(argv[argc - 1], "://") != NULL;
    int err = sl_cli_parse(&cli, argc - is_last, argv, &reason);
    if (err != SL_CLI_RUN) {
        return sl_cli_exit(&cli, err, &reason);
    }
    if (flags.history != NULL && (is_last || words.count > 0)) {
        return sl_cli_end(&cli,
                          sl_reason_fail(&reason, SL_ERR_INVALID,
                                         "--history FILE and an URL: accepted is one of them"),
                          &reason);
    }
    flags.source.url = is_last           ? argv[argc - 1]
                       : words.count > 0 ? words.items[0]
                                         : "http://127.0.0.1:9480";
    if (flags.history != NULL) {
        err = sl_source_read(flags.history, &state, &reason);
    } else {
        err = sl_source_create(&flags.source, &source, &reason);
        err = err != 0 ? err : sl_source_fetch(source, &state, &reason);
    }
    if (err == 0 && (err = show(source, state)) != 0) {
        sl_reason_set(&reason, "cannot write to the standard output");
    }
    json_decref(state);
    sl_source_destroy(&source);
    return sl_cli_end(&cli, err, &reason);
}
