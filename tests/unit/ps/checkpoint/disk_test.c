/* The machine's own disk: the same checkpoints in a folder that the test makes. */
#include "ps/checkpoint/select.h"
#include "tests/unit/ps/checkpoint/fixture.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct sl_disk *disk;
static char directory[64];

static void setup(void)
{
    disk = sl_disk_system();
    (void)snprintf(directory, sizeof directory, "/tmp/starling-disk-XXXXXX");
    assert_non_null(mkdtemp(directory));
}

static void teardown(void)
{
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", directory);
    assert_int_equal(system(command), 0);
}

#define DISK_CASE(name) SL_CASE_WITH(name, setup(), teardown())

DISK_CASE(system__keeps_checkpoints)
{
    struct fixture_findings findings;
    uint64_t number;
    uint32_t removed;
    char path[SL_DISK_PATH_BYTES];
    assert_int_equal(fixture_write(disk, directory, 1, 0), 0);
    assert_int_equal(fixture_write(disk, directory, 2, 0), 0);
    fixture_check(disk, directory, 2);
    assert_int_equal(fixture_verify(disk, directory, 2, &findings), 0);
    assert_int_equal(sl_checkpoint_newest(disk, directory, (struct sl_checkpoint_shard_range){0},
                                          &number, REASON),
                     0);
    assert_int_equal(number, 2);
    const struct sl_checkpoint_prune_options options = {.keep = 1};
    assert_int_equal(sl_checkpoint_directory_prune(disk, directory, &options, &removed, REASON), 0);
    assert_int_equal(removed, 1);
    assert_int_equal(sl_checkpoint_directory_path(directory, 1, NULL, path, REASON), 0);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(fixture_write(disk, directory, 2, 0), SL_ERR_EXISTS);
}

/* No link is followed, and nothing that could be waited for is opened. */
DISK_CASE(system__opens_regular_files_only)
{
    struct fixture_findings findings;
    char file[SL_DISK_PATH_BYTES];
    char away[SL_DISK_PATH_BYTES + 8];
    assert_int_equal(fixture_write(disk, directory, 3, 0), 0);
    assert_int_equal(
        sl_checkpoint_directory_path(directory, 3, "shard-0001-of-0002.slc", file, REASON), 0);
    (void)snprintf(away, sizeof away, "%s.away", file);
    assert_int_equal(rename(file, away), 0);
    assert_int_equal(symlink(away, file), 0);
    assert_int_equal(fixture_verify(disk, directory, 3, &findings), SL_ERR_IO);
    assert_non_null(strstr(findings.whys[0], "it is a symbolic link"));
    assert_int_equal(unlink(file), 0);
    assert_int_equal(mkfifo(file, 0600), 0);
    assert_int_equal(fixture_verify(disk, directory, 3, &findings), SL_ERR_IO);
    assert_non_null(strstr(findings.whys[0], "it is not a regular file"));
    assert_int_equal(unlink(file), 0);
    assert_int_equal(rename(away, file), 0);
    assert_int_equal(fixture_verify(disk, directory, 3, &findings), 0);
}

/* A write that the system refuses: the file may not grow beyond 300 bytes. */
DISK_CASE(system__tells_why_it_cannot_write)
{
    struct sl_disk_names names;
    struct rlimit before;
    char path[SL_DISK_PATH_BYTES];
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit low = {.rlim_cur = 300, .rlim_max = before.rlim_max};
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    int err = fixture_write(disk, directory, 4, 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(err, SL_ERR_IO);
    assert_non_null(strstr(fixture_reason.text, "cannot write "));
    assert_non_null(strstr(fixture_reason.text, "File too large"));
    assert_int_equal(sl_checkpoint_directory_path(directory, 4, NULL, path, REASON), 0);
    assert_int_equal(sl_disk_list(disk, path, &names, REASON), 0);
    assert_int_equal(names.count, 0);
    sl_disk_names_fini(&names);
    assert_int_equal(fixture_write(disk, directory, 4, 0), 0);
}

DISK_CASE(system__names_what_is_not_there)
{
    struct sl_checkpoint_list list;
    struct sl_disk_file file;
    char path[SL_DISK_PATH_BYTES];
    char name[SL_DISK_PATH_BYTES];
    assert_int_equal(sl_disk_join(directory, "none", path, REASON), 0);
    assert_int_equal(sl_checkpoint_directory_list(disk, path, &list, REASON), SL_ERR_NOT_FOUND);
    assert_non_null(strstr(fixture_reason.text, path));
    assert_int_equal(sl_disk_open(disk, path, SL_DISK_READ, &file, REASON), SL_ERR_NOT_FOUND);
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(sl_disk_join(directory, name, path, REASON), SL_ERR_TOO_LARGE);
}
