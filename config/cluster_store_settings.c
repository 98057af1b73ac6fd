#include "config/cluster_store_settings.h"

#include <string.h>

#include "config/secret.h"

#define USER_FILE "STARLING_CLUSTER_STORE_USER_FILE"

#define ACCEPTED  "accepts etcd://host:port,host:port/prefix, or etcds:// for TLS"

struct reading {
    const struct sl_cli_given *url;
    struct sl_reason *reason;
};

static int refuse(const struct reading *reading, const char *what)
{
    return sl_reason_fail(reading->reason, SL_ERR_INVALID, "%s=%.200s: %s; " ACCEPTED,
                          reading->url->source, reading->url->text, what);
}

static int read_url(const struct reading *reading, struct sl_cluster_store_settings *out)
{
    struct sl_reason why;
    const char *text = reading->url->text;
    if (strstr(text, "://") == NULL) {
        return refuse(reading, "unknown scheme");
    }
    if (strchr(text, '@') != NULL) {
        return refuse(reading, "it contains a user, which belongs into the file of " USER_FILE);
    }
    if (sl_etcd_url_parse(text, &out->etcd, &why) != 0) {
        return refuse(reading, why.text);
    }
    return out->etcd.prefix[0] != '\0'
               ? 0
               : refuse(reading, "it has no prefix, which separates this job's keys from those of "
                                 "other jobs");
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
    struct sl_cluster_store_settings settings = {.is_given = url->from != SL_CLI_FROM_DEFAULT};
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
