#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/checkpoint_settings.h"
#include "tests/support/unit.h"

SL_CASE(checkpoint_settings_check__creates_the_directory)
{
    struct sl_reason reason = {0};
    char parent[] = "/tmp/sl_checkpoint_settings_XXXXXX", path[64];
    assert_non_null(mkdtemp(parent));
    (void)snprintf(path, sizeof path, "%s/c", parent);
    struct sl_checkpoint_settings settings = {.dir = path};
    assert_int_equal(sl_checkpoint_settings_prepare_dir(&settings, &reason), 0);
    assert_int_equal(sl_checkpoint_settings_prepare_dir(&settings, &reason), 0);
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    assert_true(S_ISDIR(status.st_mode));
    assert_int_equal(rmdir(path), 0); /* nothing is left in it */

    (void)snprintf(path, sizeof path, "%s/none/c", parent);
    assert_int_equal(sl_checkpoint_settings_prepare_dir(&settings, &reason), SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, path));
    assert_non_null(strstr(reason.text, "No such file or directory"));

    (void)snprintf(path, sizeof path, "%s/file", parent);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    (void)fclose(file);
    assert_int_equal(sl_checkpoint_settings_prepare_dir(&settings, &reason), SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "Not a directory"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(parent), 0);
    settings.dir = NULL;
    assert_int_equal(sl_checkpoint_settings_prepare_dir(&settings, &reason), 0);
}

/* flock belongs to the open file, so one process can conflict with itself. */
SL_CASE(checkpoint_settings_lock__one_process_for_each_server)
{
    struct sl_reason reason = {0};
    char folder[] = "/tmp/sl_checkpoint_settings_XXXXXX", path[64], pid[32];
    assert_non_null(mkdtemp(folder));
    const struct sl_checkpoint_settings settings = {.dir = folder};
    int locks[2], again;
    assert_int_equal(sl_checkpoint_settings_lock_dir(&settings, 0, &locks[0], &reason), 0);
    assert_int_equal(sl_checkpoint_settings_lock_dir(&settings, 1, &locks[1], &reason), 0);
    assert_int_equal(sl_checkpoint_settings_lock_dir(&settings, 0, &again, &reason), SL_ERR_IN_USE);
    (void)snprintf(pid, sizeof pid, "process %ld", (long)getpid());
    assert_non_null(strstr(reason.text, folder));
    assert_non_null(strstr(reason.text, pid));
    assert_int_equal(close(locks[0]), 0);
    assert_int_equal(sl_checkpoint_settings_lock_dir(&settings, 0, &locks[0], &reason), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(close(locks[i]), 0);
        (void)snprintf(path, sizeof path, "%s/.ps-%d.lock", folder, i);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(folder), 0);
}
