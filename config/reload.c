#include "config/reload.h"

#include <string.h>

#include "config/cli_values.h"
#include "core/end_signals.h"
#include "core/log.h"

#define REST                                                                                       \
    "other options, and the files of --secret-file and --http-token-file, apply after a restart"

/* Copies, which outlive the settings. */
static struct {
    const char *certificate, *key, *authority; /* NULL: no TLS */
    const char *config;                        /* NULL: no file */
    const char *const *sections;
    const char *log_source; /* of --log, which has precedence over the file; NULL: none */
    sl_reload_tls_fn *tls;
} service;

static void reload_tls(void)
{
    if (service.certificate == NULL) {
        return;
    }
    if (service.tls(service.certificate, service.key, service.authority) == 0) {
        sl_log_info("SIGHUP: new connections use certificate %s as it is now, with its key and "
                    "authority; the page of --http keeps its own until a restart",
                    service.certificate);
    } else {
        sl_log_warn("SIGHUP: certificate, key and authority stay as they were: see above");
    }
}

/* The first section has precedence. NULL: no line. */
static const char *level_in(const struct sl_config_file *file)
{
    for (const char *const *section = service.sections; *section != NULL; section++) {
        for (uint32_t i = 0; i < file->count; i++) {
            if (strcmp(file->entries[i].section, *section) == 0 &&
                strcmp(file->entries[i].key, "log") == 0) {
                return file->entries[i].value;
            }
        }
    }
    return NULL;
}

static void reload_log(void)
{
    struct sl_config_file file = {0};
    struct sl_reason reason;
    enum sl_log_level level;
    if (service.config == NULL || service.log_source != NULL) {
        return;
    }
    if (sl_config_file_read(service.config, &file, &reason) != 0) {
        sl_log_warn("SIGHUP: %s; the log level stays as it was", reason.text);
        return;
    }
    const char *text = level_in(&file);
    if (text != NULL && !sl_log_parse_level(text, &level)) {
        sl_log_warn("SIGHUP: %s: log = %.64s: accepts debug, info, warn, error or off; the log "
                    "level stays as it was",
                    service.config, text);
    } else if (text != NULL) {
        sl_log_redirect(level, NULL, NULL); /* a service has no callback */
        sl_log_info("SIGHUP: log = %s, of %s", text, service.config);
    }
    sl_config_file_fini(&file);
}

static void reload(void)
{
    reload_tls();
    reload_log();
    if (service.log_source != NULL) {
        sl_log_info("SIGHUP: --log stays as %s has it; " REST, service.log_source);
    } else {
        sl_log_info("SIGHUP: " REST);
    }
}

/* Returns the source of --log, unless the configuration file has it, or would have it. */
static const char *source_of_log(const struct sl_option_values *values)
{
    for (uint32_t i = 0; i < values->count; i++) {
        const char *source = values->items[i].source;
        if (strcmp(values->items[i].name, "log") == 0 && strncmp(source, "default", 7) != 0 &&
            strncmp(source, "file ", 5) != 0) {
            return source;
        }
    }
    return NULL;
}

static bool copy(const char *text, const char **out)
{
    *out = text == NULL ? NULL : strdup(text);
    return text == NULL || *out != NULL;
}

int sl_reload_start(const struct sl_cli *cli, struct sl_settings *settings, sl_reload_tls_fn *tls,
                    struct sl_reason *reason)
{
    const struct sl_security_flags *files = &settings->flags.security;
    int err = cli == NULL ? 0 : sl_cli_values_read(cli, &settings->values);
    service.tls = tls;
    service.sections = settings->cli_file.sections;
    if (err != 0 || !copy(files->tls_cert, &service.certificate) ||
        !copy(files->tls_key, &service.key) || !copy(files->tls_ca, &service.authority) ||
        !copy(settings->flags.config, &service.config) ||
        !copy(source_of_log(&settings->values), &service.log_source)) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "out of memory");
    }
    err = sl_end_signals_reload_at_hangup(reload);
    return err == 0 ? 0 : sl_reason_fail(reason, err, "no thread for SIGHUP");
}
