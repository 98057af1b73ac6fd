#include "tests/unit/config/parsed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/unit.h"

int parse_settings(enum sl_program program, const char *const *arguments, struct parsed *parsed)
{
    char *argv[32] = {(char *)"starling-test"};
    int argc = 1;
    for (; *arguments != NULL; arguments++) {
        argv[argc++] = (char *)(uintptr_t)*arguments;
    }
    *parsed = (struct parsed){0};
    parsed->cli = (struct sl_cli){
        .program = "starling-test",
        .summary = "",
        .usage = "",
        .options = parsed->options,
        .option_count = sl_settings_options(program, 4, &parsed->settings, parsed->options),
        .given = parsed->given,
        .file = &parsed->settings.cli_file,
    };
    return sl_cli_parse(&parsed->cli, argc, argv, &parsed->reason);
}

void clear_variables(void)
{
    char *const names[] = {"STARLING_", "DMLC_",       "PS_",    "MC_",      "NCCL_",  "TF_CONFIG",
                           "RANK=",     "WORLD_SIZE=", "SLURM_", "NETWORK_", "WORKER_"};
    for (char **at = environ; *at != NULL;) {
        char name[128];
        bool is_ours = false;
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            is_ours = is_ours || strncmp(*at, names[i], strlen(names[i])) == 0;
        }
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(*at, "="), *at);
        at += is_ours ? 0 : 1;
        (void)(is_ours && unsetenv(name) == 0);
    }
}

void expect_words(const char *text, const char *const *words)
{
    for (; *words != NULL; words++) {
        if (strstr(text, *words) == NULL) {
            fail_msg("\"%s\" is not in \"%s\"", *words, text);
        }
    }
}
