/* The configuration file: any file gives entries that each have a section, a key and a value, and
 * options of a server, or a reason that begins with the file's name. */
#include <stdio.h>
#include <string.h>

#include "config/settings.h"
#include "core/assert.h"
#include "tests/fuzz/input.h"

static void check_entries(const struct sl_config_file *file)
{
    for (uint32_t i = 0; i < file->count; i++) {
        const struct sl_config_entry *entry = &file->entries[i];
        sl_assert(entry->section != NULL && entry->key[0] != '\0' && entry->line > 0);
        sl_assert(strlen(entry->value) < SL_CONFIG_FILE_LINE_BYTES);
        sl_assert(!entry->continues || strcmp(entry->key, entry[-1].key) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    static struct sl_settings settings;
    static struct sl_cli_option options[SL_SETTINGS_OPTIONS_MAX];
    static struct sl_cli_given given[SL_SETTINGS_OPTIONS_MAX];
    struct fuzz_input_file file = fuzz_input_file_open(bytes, byte_count);
    struct sl_reason reason = {0};
    char flag[256];
    char *argv[] = {(char *)"starling-ps", flag};
    const struct sl_cli cli = {
        .program = "starling-ps",
        .options = options,
        .option_count = sl_settings_options(SL_PROGRAM_PS, 4, &settings, options),
        .given = given,
        .file = &settings.cli_file,
    };
    (void)snprintf(flag, sizeof flag, "--config=%s", file.path);
    if (sl_cli_parse(&cli, 2, argv, &reason) != SL_CLI_RUN) {
        sl_assert(strstr(reason.text, file.path) != NULL);
    }
    check_entries(&settings.file);
    sl_settings_fini(&settings);
    fuzz_input_file_close(&file);
    return 0;
}
