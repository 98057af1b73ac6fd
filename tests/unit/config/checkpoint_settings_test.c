

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/checkpoint_settings.h"
#include "tests/support/unit.h"

static const char *const VARIABLES[] = {"STARLING_CHECKPOINT_DIR",   "STARLING_CHECKPOINT_EVERY",
                                        "STARLING_CHECKPOINT_ADDS",  "STARLING_CHECKPOINT_KEEP",
                                        "STARLING_CHECKPOINT_LEVEL", "STARLING_RESTORE"};

static int unset_all(void **state)
{
    int failed = 0;
    for (size_t i = 0; i < sizeof VARIABLES / sizeof VARIABLES[0]; i++) {
        failed |= unsetenv(VARIABLES[i]);
    }
    return failed;
}

static void set(const char *name, const char *value)
{
    assert_int_equal(setenv(name, value, 1), 0);
}

static struct sl_checkpoint_settings read_all(struct sl_checkpoint_settings_flags flags,
                                              bool orders)
{
    struct sl_checkpoint_settings settings;
    char reason[512] = "";
    if (sl_checkpoint_settings_read(&flags, orders, &settings, reason, sizeof reason) != 0) {
        fail_msg("refused: %s", reason);
    }
    return settings;
}

static void refuse(struct sl_checkpoint_settings_flags flags, const char *const *words)
{
    struct sl_checkpoint_settings settings = {.keep = 77};
    char reason[512] = "";
    assert_int_equal(sl_checkpoint_settings_read(&flags, false, &settings, reason, sizeof reason),
                     SL_ERR_INVALID);
    assert_int_equal(settings.keep, 77);
    for (; *words != NULL; words++) {
        if (strstr(reason, *words) == NULL) {
            fail_msg("\"%s\" is not in \"%s\"", *words, reason);
        }
    }
}
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define FLAGS(...) ((struct sl_checkpoint_settings_flags){__VA_ARGS__})

SL_CASE_WITH(read__has_defaults, unset_all, NULL)
{
    struct sl_checkpoint_settings settings = read_all(FLAGS(.dir = "/c"), false);
    assert_string_equal(settings.dir, "/c");
    assert_int_equal(settings.every_s, 600);
    assert_int_equal(settings.incrementals_max, 7);
    assert_int_equal(settings.keep, 2);
    assert_int_equal(settings.compression_level, 1);
    assert_int_equal(settings.restore, SL_CHECKPOINT_RESTORE_NONE);
    assert_false(settings.fall_back);
}

SL_CASE_WITH(read__takes_variables_and_flags_before_them, unset_all, NULL)
{
    set("STARLING_CHECKPOINT_DIR", "/v");
    set("STARLING_CHECKPOINT_EVERY", "0");
    set("STARLING_CHECKPOINT_ADDS", "63");
    set("STARLING_CHECKPOINT_KEEP", "1000");
    set("STARLING_CHECKPOINT_LEVEL", "19");
    set("STARLING_RESTORE", "12");
    struct sl_checkpoint_settings settings = read_all(FLAGS(.fall_back = true), false);
    assert_string_equal(settings.dir, "/v");
    assert_int_equal(settings.every_s, 0);
    assert_int_equal(settings.incrementals_max, 63);
    assert_int_equal(settings.keep, 1000);
    assert_int_equal(settings.compression_level, 19);
    assert_int_equal(settings.restore, SL_CHECKPOINT_RESTORE_NUMBER);
    assert_int_equal(settings.number, 12);
    assert_true(settings.fall_back);
    settings = read_all(FLAGS(.dir = "/f", .every = "5", .incrementals_max = "0", .keep = "1",
                              .compression_level = "0", .restore = "newest"),
                        false);
    assert_string_equal(settings.dir, "/f");
    assert_int_equal(settings.every_s, 5);
    assert_int_equal(settings.incrementals_max, 0);
    assert_int_equal(settings.keep, 1);
    assert_int_equal(settings.compression_level, 0);
    assert_int_equal(settings.restore, SL_CHECKPOINT_RESTORE_NEWEST);
}

SL_CASE_WITH(read__of_a_scheduler_needs_no_folder, unset_all, NULL)
{
    struct sl_checkpoint_settings settings =
        read_all(FLAGS(.every = "5", .incrementals_max = "2"), true);
    assert_null(settings.dir);
    assert_int_equal(settings.every_s, 5);
    assert_int_equal(settings.incrementals_max, 2);
}

SL_CASE_WITH(read__refuses_what_is_out_of_range, unset_all, NULL)
{
    refuse(FLAGS(.dir = ""), WORDS("--checkpoint-dir", "path of a directory"));
    refuse(FLAGS(.dir = "/c", .every = "often"),
           WORDS("--checkpoint-every=often", "seconds from 0 to"));
    refuse(FLAGS(.dir = "/c", .every = "-1"), WORDS("--checkpoint-every=-1"));
    refuse(FLAGS(.dir = "/c", .incrementals_max = "64"),
           WORDS("--checkpoint-adds=64", "from 0 to 63"));
    refuse(FLAGS(.dir = "/c", .keep = "0"), WORDS("--checkpoint-keep=0", "from 1 to 1000"));
    refuse(FLAGS(.dir = "/c", .compression_level = "20"),
           WORDS("--checkpoint-level=20", "from 0 to 19"));
    refuse(FLAGS(.dir = "/c", .restore = "oldest"),
           WORDS("--restore=oldest", "newest", "number of a checkpoint"));
    refuse(FLAGS(.dir = "/c", .restore = "0"), WORDS("--restore=0"));
    set("STARLING_CHECKPOINT_KEEP", "many");
    refuse(FLAGS(.dir = "/c"), WORDS("STARLING_CHECKPOINT_KEEP=many"));
}

SL_CASE_WITH(read__refuses_what_says_nothing, unset_all, NULL)
{
    refuse(FLAGS(.every = "5"), WORDS("--checkpoint-every", "without --checkpoint-dir"));
    refuse(FLAGS(.incrementals_max = "5"), WORDS("--checkpoint-adds", "without --checkpoint-dir"));
    refuse(FLAGS(.keep = "5"), WORDS("--checkpoint-keep", "without --checkpoint-dir"));
    refuse(FLAGS(.compression_level = "5"),
           WORDS("--checkpoint-level", "without --checkpoint-dir"));
    refuse(FLAGS(.restore = "newest"), WORDS("--restore", "without --checkpoint-dir"));
    refuse(FLAGS(.fall_back = true), WORDS("--restore-fallback", "without --checkpoint-dir"));
    refuse(FLAGS(.dir = "/c", .fall_back = true), WORDS("--restore-fallback", "without --restore"));
    set("STARLING_RESTORE", "latest");
    refuse(FLAGS(0), WORDS("STARLING_RESTORE", "without --checkpoint-dir"));
}

SL_CASE_WITH(read__refuses_an_empty_variable, unset_all, NULL)
{
    set("STARLING_CHECKPOINT_DIR", "");
    refuse(FLAGS(0), WORDS("STARLING_CHECKPOINT_DIR=: ", "path of a directory"));
    set("STARLING_CHECKPOINT_DIR", "/c");
    set("STARLING_RESTORE", "");
    refuse(FLAGS(0), WORDS("STARLING_RESTORE=: ", "newest"));
}

SL_CASE_WITH(check__makes_the_folder_and_says_why_it_cannot, unset_all, NULL)
{
    char parent[] = "/tmp/sl_checkpoint_settings_XXXXXX", path[64], reason[512] = "";
    assert_non_null(mkdtemp(parent));
    (void)snprintf(path, sizeof path, "%s/c", parent);
    struct sl_checkpoint_settings settings = {.dir = path};
    assert_int_equal(sl_checkpoint_settings_check(&settings, reason, sizeof reason), 0);
    assert_int_equal(sl_checkpoint_settings_check(&settings, reason, sizeof reason), 0);
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    assert_true(S_ISDIR(status.st_mode));
    assert_int_equal(rmdir(path), 0); /* nothing is left in it */

    (void)snprintf(path, sizeof path, "%s/none/c", parent);
    assert_int_equal(sl_checkpoint_settings_check(&settings, reason, sizeof reason),
                     SL_ERR_INVALID);
    assert_non_null(strstr(reason, path));
    assert_non_null(strstr(reason, "No such file or directory"));

    (void)snprintf(path, sizeof path, "%s/file", parent);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    (void)fclose(file);
    assert_int_equal(sl_checkpoint_settings_check(&settings, reason, sizeof reason),
                     SL_ERR_INVALID);
    assert_non_null(strstr(reason, "Not a directory"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(parent), 0);
    settings.dir = NULL;
    assert_int_equal(sl_checkpoint_settings_check(&settings, reason, sizeof reason), 0);
}

/* flock is of the open file, so one process can meet itself. */
SL_CASE(lock__is_of_one_process_for_each_ps)
{
    char folder[] = "/tmp/sl_checkpoint_settings_XXXXXX", path[64], reason[512] = "", pid[32];
    assert_non_null(mkdtemp(folder));
    const struct sl_checkpoint_settings settings = {.dir = folder};
    int locks[2], again;
    assert_int_equal(sl_checkpoint_settings_lock(&settings, 0, &locks[0], reason, sizeof reason),
                     0);
    assert_int_equal(sl_checkpoint_settings_lock(&settings, 1, &locks[1], reason, sizeof reason),
                     0);
    assert_int_equal(sl_checkpoint_settings_lock(&settings, 0, &again, reason, sizeof reason),
                     SL_ERR_IN_USE);
    (void)snprintf(pid, sizeof pid, "process %ld", (long)getpid());
    assert_non_null(strstr(reason, folder));
    assert_non_null(strstr(reason, pid));
    assert_int_equal(close(locks[0]), 0);
    assert_int_equal(sl_checkpoint_settings_lock(&settings, 0, &locks[0], reason, sizeof reason),
                     0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(close(locks[i]), 0);
        (void)snprintf(path, sizeof path, "%s/.ps-%d.lock", folder, i);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(folder), 0);
}
