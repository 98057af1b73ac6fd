#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/cluster_store_settings.h"
#include "tests/support/unit.h"
#include "tests/unit/config/parsed.h"

#define VARIABLE  "STARLING_CLUSTER_STORE"
#define USER_FILE "STARLING_CLUSTER_STORE_USER_FILE"

static char path[64]; /* of a file that the test makes */

static void setup(void)
{
    (void)snprintf(path, sizeof path, "/tmp/starling-store-XXXXXX");
    assert_int_equal(close(mkstemp(path)), 0);
    unsetenv(VARIABLE);
    unsetenv(USER_FILE);
}

#define CASE(name) SL_CASE_WITH(name, setup(), unlink(path))

static void set(const char *name, const char *value)
{
    assert_int_equal(setenv(name, value, 1), 0);
}

/* Parses flag, or NULL, and variables. */
static int read_store(const char *flag, struct sl_cluster_store_settings *out,
                      struct sl_reason *reason)
{
    static struct parsed parsed;
    const char *const arguments[] = {"--cluster-store", flag, NULL};
    const struct sl_settings_flags *flags = &parsed.settings.flags;
    assert_int_equal(
        parse_settings(SL_PROGRAM_PS, flag == NULL ? NO_ARGUMENTS : arguments, &parsed),
        SL_CLI_RUN);
    return sl_cluster_store_settings_read(sl_settings_given(&parsed.cli, &flags->cluster_store),
                                          flags->cluster_store_user_file, out, reason);
}

static struct sl_cluster_store_settings read_flag(const char *flag)
{
    struct sl_cluster_store_settings settings;
    struct sl_reason reason = {0};
    if (read_store(flag, &settings, &reason) != 0) {
        fail_msg("refused: %s", reason.text);
    }
    return settings;
}

/* The reason has all of the words, and nothing is written but that. */
static void refuse(const char *flag, int err, const char *const *words)
{
    struct sl_cluster_store_settings settings = {.etcd.server_count = 77};
    struct sl_reason reason = {0};
    assert_int_equal(read_store(flag, &settings, &reason), err);
    assert_int_equal(settings.etcd.server_count, 77);
    assert_string_equal(settings.password, "");
    for (; *words != NULL; words++) {
        if (strstr(reason.text, *words) == NULL) {
            fail_msg("\"%s\" is not in \"%s\"", *words, reason.text);
        }
    }
}

/* The user's file, with that text, for those whom the mode says. */
static void put_user(const char *text, mode_t mode)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fputs(text, file) >= 0, 1);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, mode), 0);
    set(USER_FILE, path);
}

CASE(read__one_server)
{
    const struct sl_cluster_store_settings settings = read_flag("etcd://localhost:2379/jobs/a");
    assert_true(settings.is_given);
    assert_false(settings.etcd.tls);
    assert_int_equal(settings.etcd.server_count, 1);
    assert_string_equal(settings.etcd.servers[0], "localhost:2379");
    assert_string_equal(settings.etcd.prefix, "/jobs/a");
    assert_string_equal(settings.user, "");
    assert_string_equal(settings.password, "");
}

CASE(read__several_servers_by_tls)
{
    const struct sl_cluster_store_settings settings =
        read_flag("etcds://10.0.0.1:2379,[::1]:2380,c.example:1/x-1_b.c//");
    assert_true(settings.etcd.tls);
    assert_int_equal(settings.etcd.server_count, 3);
    assert_string_equal(settings.etcd.servers[0], "10.0.0.1:2379");
    assert_string_equal(settings.etcd.servers[1], "[::1]:2380");
    assert_string_equal(settings.etcd.servers[2], "c.example:1");
    assert_string_equal(settings.etcd.prefix, "/x-1_b.c");
}

CASE(read__the_flag_goes_before_the_variable)
{
    set(VARIABLE, "etcd://a:1/v");
    assert_string_equal(read_flag(NULL).etcd.prefix, "/v");
    assert_string_equal(read_flag("etcd://a:1/f").etcd.prefix, "/f");
    set(VARIABLE, "zookeeper://a:1/v");
    assert_string_equal(read_flag("etcd://a:1/f").etcd.prefix, "/f");
    refuse(NULL, SL_ERR_INVALID, WORDS("STARLING_CLUSTER_STORE=zookeeper://a:1/v: "));
}

CASE(read__what_is_no_store)
{
    static const char *const CASES[][2] = {
        {"zookeeper://a:1/v", "unknown scheme"},
        {"a:1/v", "unknown scheme"},
        {"etcd:/a:1/v", "unknown scheme"},
        {"etcd://a:1", "it has no prefix, which separates this job's keys"},
        {"etcd://a:1/", "it has no prefix"},
        {"etcd://a:1///", "it has no prefix"},
        {"etcd://a:1/b c", "others than letters, digits, '.', '_', '-' and '/'"},
        {"etcd://a:1/b?c", "others than letters"},
        {"etcd:///v", "an endpoint is missing"},
        {"etcd://a:1,/v", "an endpoint is missing"},
        {"etcd://a:1,,b:1/v", "an endpoint is missing"},
        {"etcd://root:secret@a:1/v", "contains a user, which belongs into the file of "
                                     "STARLING_CLUSTER_STORE_USER_FILE"},
        {"etcd://a/v", "an endpoint is not host:port"},
        {"etcd://a:0/v", "an endpoint is not host:port"},
        {"etcd://a:70000/v", "an endpoint is not host:port"},
        {"etcd://tcp://a:1/v", "an endpoint is not host:port"},
        {"etcd://a:1,b:1,c:1,d:1,e:1,f:1,g:1,h:1,i:1,j:1/v", "more than 9 endpoints"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        refuse(CASES[i][0], SL_ERR_INVALID,
               WORDS("--cluster-store=", CASES[i][0], CASES[i][1],
                     "; accepts etcd://host:port,host:port/prefix, or etcds:// for TLS"));
    }
}

CASE(read__nine_servers_and_the_longest_prefix)
{
    char text[512] = "etcd://a:1,b:1,c:1,d:1,e:1,f:1,g:1,h:1,i:1/";
    const size_t length = strlen(text);
    memset(text + length, 'p', 126);
    struct sl_cluster_store_settings settings = read_flag(text);
    assert_int_equal(settings.etcd.server_count, 9);
    assert_int_equal(strlen(settings.etcd.prefix), 127);
    text[length + 126] = 'p';
    refuse(text, SL_ERR_INVALID, WORDS("the prefix has more than 127 characters"));
}

CASE(read__a_server_that_is_too_long)
{
    char host[SL_LIMIT_ENDPOINT_BYTES + 1] = "";
    char text[sizeof host + 16];
    memset(host, 'h', sizeof host - 1);
    (void)snprintf(text, sizeof text, "etcd://%s:1/v", host);
    refuse(text, SL_ERR_INVALID, WORDS("an endpoint is missing or too long"));
}

CASE(user__is_the_first_line_of_the_file)
{
    static const char *const TEXTS[] = {"root:a:b c", "root:a:b c\n",
                                        "root:a:b c\r\nanother:line\n"};
    for (size_t i = 0; i < sizeof TEXTS / sizeof TEXTS[0]; i++) {
        put_user(TEXTS[i], 0600);
        const struct sl_cluster_store_settings settings = read_flag("etcd://a:1/v");
        assert_string_equal(settings.user, "root");
        assert_string_equal(settings.password, "a:b c");
    }
    set(USER_FILE, "");
    refuse("etcd://a:1/v", SL_ERR_NOT_FOUND, WORDS("STARLING_CLUSTER_STORE_USER_FILE=: "));
}

CASE(user__of_up_to_127_characters_each)
{
    char text[512] = "";
    memset(text, 'u', 127);
    text[127] = ':';
    memset(text + 128, 'p', 127);
    put_user(text, 0600);
    const struct sl_cluster_store_settings settings = read_flag("etcd://a:1/v");
    assert_int_equal(strlen(settings.user), 127);
    assert_int_equal(strlen(settings.password), 127);
    text[255] = 'p';
    put_user(text, 0600);
    refuse("etcd://a:1/v", SL_ERR_INVALID, WORDS("accepts one line user:password"));
    memmove(text + 1, text, 255);
    text[0] = 'u';
    put_user(text, 0600);
    refuse("etcd://a:1/v", SL_ERR_INVALID, WORDS("each of up to 127 characters"));
}

CASE(user__that_is_none)
{
    static const char *const TEXTS[] = {"", "\n", "root\n", ":secret\n", "\nroot:secret\n"};
    for (size_t i = 0; i < sizeof TEXTS / sizeof TEXTS[0]; i++) {
        put_user(TEXTS[i], 0600);
        refuse("etcd://a:1/v", SL_ERR_INVALID,
               WORDS("STARLING_CLUSTER_STORE_USER_FILE=/tmp/starling-store-",
                     ": accepts one line user:password, each of up to 127 characters"));
    }
}

CASE(user__that_others_may_read)
{
    put_user("root:secret\n", 0640);
    refuse("etcd://a:1/v", SL_ERR_INVALID,
           WORDS("other users can access it (mode 0640): chmod 600 it"));
    put_user("root:secret\n", 0602);
    refuse("etcd://a:1/v", SL_ERR_INVALID, WORDS("other users can access it (mode 0602)"));
}

CASE(user__that_is_not_there)
{
    set(USER_FILE, "/tmp/starling-no-such-file");
    refuse("etcd://a:1/v", SL_ERR_NOT_FOUND,
           WORDS("STARLING_CLUSTER_STORE_USER_FILE=/tmp/starling-no-such-file: No such file"));
    char below[80];
    (void)snprintf(below, sizeof below, "%s/user", path);
    set(USER_FILE, below);
    refuse("etcd://a:1/v", SL_ERR_NOT_FOUND, WORDS(below, "Not a directory"));
}
