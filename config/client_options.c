#include "config/client_options.h"

#include <stdlib.h>
#include <string.h>

#include "config/settings_cli.h"
#include "core/log.h"
#include "core/struct_size.h"

#define DASHES "--starling-"
#define MACRO  "SL_CLIENT_OPTIONS_INIT"

/* Settings that the options point into. */
struct sl_client_settings {
    struct sl_settings settings;
    char *coordinator;
};

static bool is_flag(const char *argument)
{
    return strncmp(argument, DASHES, sizeof DASHES - 1) == 0;
}

/* Copies the flags of this library, behind the name of the program. Returns their number + 1. */
static int take_flags(int argc, char **argv, char **out)
{
    int count = 1;
    out[0] = NULL;
    for (int i = 1; i < argc; i++) {
        if (is_flag(argv[i])) {
            out[count++] = argv[i];
        }
    }
    return count;
}

static void remove_flags(int *argc, char **argv)
{
    int kept = *argc > 0 ? 1 : 0;
    for (int i = 1; i < *argc; i++) {
        if (!is_flag(argv[i])) {
            argv[kept++] = argv[i];
        }
    }
    if (kept < *argc) {
        argv[kept] = NULL;
        *argc = kept;
    }
}

static int read_settings(struct sl_client_settings *owned, const char *const *variables, int argc,
                         char **argv, struct sl_reason *reason)
{
    struct sl_settings *settings = &owned->settings;
    const struct sl_cli cli = {.dashes = DASHES, .variables = variables};
    int err = sl_settings_cli_read(SL_PROGRAM_CLIENT, 1, cli, argc, argv, settings, reason);
    if (err != 0) {
        return err;
    }
    const char *given = settings->flags.cluster.coordinator;
    owned->coordinator = given != NULL
                             ? strdup(given)
                             : sl_cluster_places(&settings->cluster, settings->store.is_given);
    return owned->coordinator != NULL ? 0
                                      : sl_reason_fail(reason, SL_ERR_NO_MEMORY, "out of memory");
}

static void client_options_destroy(struct sl_client_settings *owned)
{
    if (owned != NULL) {
        free(owned->coordinator);
        sl_settings_fini(&owned->settings);
        free(owned);
    }
}

int sl_client_options_read(struct sl_client_options *options, const char *const *variables,
                           int *argc, char **argv, struct sl_reason *reason)
{
    struct sl_client_options read;
    int err = sl_struct_size_read(options, &read, sizeof read, MACRO, reason);
    if (err != 0) {
        return err;
    }
    struct sl_client_settings *owned = calloc(1, sizeof *owned);
    const int arguments = argc == NULL ? 0 : *argc;
    char **flags = calloc((size_t)arguments + 1, sizeof *flags);
    err = owned == NULL || flags == NULL
              ? sl_reason_fail(reason, SL_ERR_NO_MEMORY, "out of memory")
              : read_settings(owned, variables, take_flags(arguments, argv, flags), flags, reason);
    free(flags);
    if (err != 0) {
        client_options_destroy(owned);
        return err;
    }
    sl_settings_client(&owned->settings, &read);
    read.coordinator = owned->coordinator;
    read.settings = owned;
    sl_struct_size_write(&read, options, sizeof read);
    if (argc != NULL) {
        remove_flags(argc, argv);
    }
    return 0;
}

const struct sl_settings *sl_client_options_settings(const struct sl_client_options *options)
{
    return &options->settings->settings;
}

int sl_client_options_from_env(struct sl_client_options *options, int *argc, char **argv)
{
    struct sl_reason reason;
    int err = sl_client_options_read(options, NULL, argc, argv, &reason);
    if (err != 0) {
        return sl_reason_report(err, "client: %s", reason.text);
    }
    const enum sl_log_level level = sl_client_options_settings(options)->log_level;
    if (level != SL_LOG_INFO) { /* else the program's choice, if it has made one, stays */
        sl_log_setup(level, "client");
    }
    sl_log_set_json(sl_client_options_settings(options)->log_format == SL_SETTINGS_LOG_JSON);
    sl_settings_log(sl_client_options_settings(options));
    return 0;
}

void sl_client_options_fini(struct sl_client_options *options)
{
    struct sl_client_options own;
    const struct sl_client_options none = SL_CLIENT_OPTIONS_INIT;
    if (sl_struct_size_read(options, &own, sizeof own, MACRO, NULL) == 0) {
        client_options_destroy(own.settings);
        sl_struct_size_write(&none, options, sizeof none);
    }
}
