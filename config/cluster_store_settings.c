#include "config/cluster_store_settings.h"

#include <string.h>

#include "config/secret.h"
#include "core/endpoint.h"

#define USER_FILE "STARLING_CLUSTER_STORE_USER_FILE"

#define ACCEPTED  "accepts etcd://host:port,host:port/prefix, or etcds:// for TLS"

struct reading {
    const struct sl_cli_given *url;
    struct sl_reason *reason;
};

static int refuse(const struct reading *reading, const char *what)
{
    return sl_reason_fail(reading->reason, SL_ERR_INVALID, "%s%s=%.200s: %s; " ACCEPTED,
                          reading->url->dashes, reading->url->source, reading->url->text, what);
}

/* Reads "host:port" up to a comma. Validates it as an endpoint, keeps it as written. */
static int read_endpoint(const struct reading *reading, const char *text, size_t length,
                         struct sl_cluster_store_settings *out)
{
    struct sl_reason why;
    struct sl_endpoint endpoint;
    if (out->endpoint_count == SL_CLUSTER_STORE_SETTINGS_ENDPOINTS) {
        sl_reason_set(&why, "more than %d endpoints", SL_CLUSTER_STORE_SETTINGS_ENDPOINTS);
        return refuse(reading, why.text);
    }
    char *written = out->endpoints[out->endpoint_count];
    if (length == 0 || length >= sizeof out->endpoints[0] || memchr(text, '@', length) != NULL) {
        return refuse(reading, "an endpoint is missing or too long, or contains a user, which "
                               "belongs into the file of " USER_FILE);
    }
    memcpy(written, text, length);
    written[length] = '\0';
    if (strstr(written, "://") != NULL || sl_endpoint_parse(written, &endpoint, &why) != 0 ||
        endpoint.port == 0) {
        return refuse(reading, "an endpoint is not host:port");
    }
    out->endpoint_count++;
    return 0;
}

static int read_prefix(const struct reading *reading, const char *text,
                       struct sl_cluster_store_settings *out)
{
    static const char ACCEPTS[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "._-/";
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] == '/') {
        length--;
    }
    if (length < 2) {
        return refuse(reading,
                      "it has no prefix, which separates this job's keys from those of other jobs");
    }
    if (length >= sizeof out->prefix || strspn(text, ACCEPTS) != strlen(text)) {
        return refuse(reading, "the prefix has more than 127 characters, or others than letters, "
                               "digits, '.', '_', '-' and '/'");
    }
    memcpy(out->prefix, text, length);
    out->prefix[length] = '\0';
    return 0;
}

static int read_url(const struct reading *reading, struct sl_cluster_store_settings *out)
{
    static const char PLAIN[] = "etcd://";
    static const char TLS[] = "etcds://";
    const char *at = reading->url->text;
    if (strncmp(at, TLS, sizeof TLS - 1) == 0) {
        out->tls = true;
        at += sizeof TLS - 1;
    } else if (strncmp(at, PLAIN, sizeof PLAIN - 1) == 0) {
        at += sizeof PLAIN - 1;
    } else {
        return refuse(reading, "unknown scheme");
    }
    const char *end = at + strcspn(at, "/");
    int err = 0;
    while (err == 0) {
        size_t length = strcspn(at, ",/");
        err = read_endpoint(reading, at, length, out);
        at += length;
        if (at >= end) {
            break;
        }
        at++;
    }
    return err != 0 ? err : read_prefix(reading, end, out);
}

static int split_user(const char *path, char *line, struct sl_cluster_store_settings *out,
                      struct sl_reason *reason)
{
    char *colon = strchr(line, ':');
    if (colon == NULL || colon == line || (size_t)(colon - line) >= sizeof out->user ||
        strlen(colon + 1) >= sizeof out->password) {
        return sl_reason_fail(
            reason, SL_ERR_INVALID,
            USER_FILE "=%.200s: accepts one line user:password, each of up to 127 characters",
            path);
    }
    *colon = '\0';
    memcpy(out->user, line, (size_t)(colon - line) + 1);
    memcpy(out->password, colon + 1, strlen(colon + 1) + 1);
    return 0;
}

/* Reads the first line of the file. */
static int read_user(const char *path, struct sl_cluster_store_settings *out,
                     struct sl_reason *reason)
{
    char line[sizeof out->user + sizeof out->password + 2] = "";
    size_t count;
    int err = sl_secret_read_file(USER_FILE "=", path, line, sizeof line - 1, &count, reason);
    if (err == 0) {
        line[strcspn(line, "\r\n")] = '\0';
        err = split_user(path, line, out, reason);
    }
    explicit_bzero(line, sizeof line);
    return err;
}

int sl_cluster_store_settings_read(const struct sl_cli_given *url, const char *user_file,
                                   struct sl_cluster_store_settings *out, struct sl_reason *reason)
{
    const struct reading reading = {.url = url, .reason = reason};
    struct sl_cluster_store_settings settings = {.is_given = url->source != NULL};
    int err = settings.is_given ? read_url(&reading, &settings) : 0;
    if (err == 0 && settings.is_given && user_file != NULL) {
        err = read_user(user_file, &settings, reason);
    }
    if (err == 0) {
        *out = settings;
    }
    explicit_bzero(&settings, sizeof settings);
    return err;
}
