#include "config/http_settings.h"

#include <stdio.h>
#include <string.h>

#include "config/secret.h"

static bool http_settings_parse_address(const char *text, struct sl_endpoint *out)
{
    return strstr(text, "://") == NULL && sl_endpoint_parse(text, out, NULL) == 0;
}

bool sl_http_settings_parse(const char *text, void *target)
{
    struct sl_endpoint endpoint;
    *(const char **)target = text;
    return strcmp(text, "off") == 0 || http_settings_parse_address(text, &endpoint);
}

/* A header cannot hold other bytes. */
static bool is_printable(const struct sl_secret *token)
{
    for (uint32_t i = 0; i < token->byte_count; i++) {
        if (token->bytes[i] <= ' ' || token->bytes[i] >= 0x7f) {
            return false;
        }
    }
    return true;
}

static int read_token(const char *path, struct sl_secret *out, struct sl_reason *reason)
{
    struct sl_reason why;
    int err = sl_secret_read(path, out, &why);
    if (err == 0 && !is_printable(out)) {
        sl_reason_set(&why, "%.200s: printable characters without blanks are accepted", path);
        explicit_bzero(out, sizeof *out);
        err = SL_ERR_INVALID;
    }
    return err == 0 ? 0 : sl_reason_fail(reason, err, "--http-token-file: %.1024s", why.text);
}

int sl_http_settings_resolve(const struct sl_http_settings_flags *flags,
                             const struct sl_cli_given *given, const bool *is_insecure,
                             struct sl_http_settings *out, struct sl_reason *reason)
{
    *out = (struct sl_http_settings){.is_on = strcmp(flags->address, "off") != 0};
    if (!out->is_on) {
        return 0;
    }
    out->is_default = given->source[0] == '\0';
    (void)snprintf(out->source, sizeof out->source, "%s=%s",
                   out->is_default ? "--http" : given->source, flags->address);
    if (!http_settings_parse_address(flags->address, &out->endpoint)) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "%s: accepted: " SL_HTTP_SETTINGS_ACCEPTS,
                              out->source);
    }
    if (flags->token_file != NULL) {
        return read_token(flags->token_file, &out->token, reason);
    }
    const bool is_allowed = is_insecure != NULL && *is_insecure;
    if (!is_allowed && !sl_endpoint_is_loopback(&out->endpoint)) {
        return sl_reason_fail(
            reason, SL_ERR_INVALID,
            "%s is open to the network: give --http-token-file%s; or an address "
            "of loopback, such as 127.0.0.1:0",
            out->source, is_insecure != NULL ? ", or --insecure when the network is trusted" : "");
    }
    return 0;
}
