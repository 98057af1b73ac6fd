#include "config/settings_cli.h"

#include <starling_transfer.h>

#include "core/assert.h"

/* They mean the same by a name: a variable is for all of them. */
#define PROGRAMS_OF_A_JOB                                                                          \
    (SL_PROGRAM_PS | SL_PROGRAM_WORKER | SL_PROGRAM_LAUNCH | SL_PROGRAM_DOCTOR |                   \
     SL_PROGRAM_CLIENT | SL_PROGRAM_CTL)

void sl_settings_cli_init(enum sl_program program, uint32_t core_count, const struct sl_cli *own,
                          struct sl_settings *settings, struct sl_settings_cli *out)
{
    const uint32_t count = own->option_count;
    sl_assert(count + SL_SETTINGS_OPTIONS_MAX <= SL_CLI_OPTIONS_MAX);
    out->cli = *own;
    out->cli.option_count =
        count + sl_settings_options(program, core_count, settings, out->options + count);
    out->cli.options = out->options;
    out->cli.given = out->given;
    out->cli.file = &settings->cli_file;
    for (uint32_t i = 0; i < count; i++) {
        out->options[i] = own->options[i];
        if ((program & PROGRAMS_OF_A_JOB) == 0 && own->options[i].variable == NULL &&
            own->options[i].name != NULL && sl_settings_programs(own->options[i].name) != 0) {
            out->options[i].variable = "";
        }
    }
}

int sl_settings_cli_read(enum sl_program program, uint32_t core_count, struct sl_cli cli, int argc,
                         char **argv, struct sl_settings *settings, struct sl_reason *reason)
{
    struct sl_settings_cli all;
    sl_settings_cli_init(program, core_count, &cli, settings, &all);
    const int result = sl_cli_parse(&all.cli, argc, argv, reason);
    return result != SL_CLI_RUN ? result : sl_settings_resolve(program, &all.cli, settings, reason);
}

int sl_settings_cli_engine(struct sl_settings *settings, struct sl_transfer_options *out,
                           struct sl_reason *reason)
{
    const int err = sl_security_resolve(&settings->flags.security, &settings->security, reason);
    sl_security_engine(&settings->security, out);
    out->metadata = settings->objects.metadata;
    out->insecure = settings->insecure;
    return err;
}
