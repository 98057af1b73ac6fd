#include "programs/serve/http/settings.h"

#include <string.h>

int sl_serve_http_settings_resolve(const struct sl_serve_http_flags *flags, bool is_insecure,
                                   struct sl_serve_http_settings *out, struct sl_reason *reason)
{
    static const struct sl_cli_given given;
    const char *address;
    if (!sl_http_settings_parse(flags->http.address, &address) || strcmp(address, "off") == 0) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "--http %.200s: HOST:PORT is accepted",
                              flags->http.address);
    }
    const int err =
        sl_http_settings_resolve(&flags->http, &given, &is_insecure, &out->http, reason);
    if (err != 0) {
        return err;
    }
    if ((flags->certificate != NULL) != (flags->key != NULL)) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "--http-tls-cert and --http-tls-key go together");
    }
    out->listen = (struct sl_http_listen){.endpoint = out->http.endpoint,
                                          .source = out->http.source,
                                          .token = &out->http.token,
                                          .certificate = flags->certificate,
                                          .key = flags->key};
    return 0;
}

void sl_serve_http_settings_fini(struct sl_serve_http_settings *settings)
{
    explicit_bzero(settings, sizeof *settings);
}
