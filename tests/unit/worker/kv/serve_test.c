/* sl_kv_serve as a function: what one call is told is not for the next. */

#include <dirent.h>
#include <starling_kv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/unit.h"

/* The exit status, and what was written to `fd`. */
static int serve(int fd, char *const *arguments, char *text, size_t text_bytes)
{
    char *argv[20] = {0};
    int argc = 0;
    for (; arguments[argc] != NULL; argc++) {
        argv[argc] = arguments[argc];
    }
    FILE *file = tmpfile();
    const int kept = dup(fd);
    assert_non_null(file);
    assert_true(kept >= 0);
    (void)fflush(NULL);
    assert_int_equal(dup2(fileno(file), fd), fd);
    const int status = sl_kv_serve(argc, argv, NULL);
    (void)fflush(NULL);
    assert_int_equal(dup2(kept, fd), fd);
    (void)close(kept);
    rewind(file);
    const size_t bytes = fread(text, 1, text_bytes - 1, file);
    text[bytes] = '\0';
    (void)fclose(file);
    return status;
}

SL_CASE(kv_serve__begins_with_the_defaults)
{
    static char before[32768], after[32768], reason[4096];
    char *const help[] = {"starling-ps", "--help", NULL};
    char *const bad[] = {"starling-ps", "--start-timeout", "7", "--replicas", "1", "--bogus", NULL};
    assert_int_equal(serve(STDOUT_FILENO, help, before, sizeof before), 0);
    assert_non_null(strstr(before, "Default: 60s"));
    assert_int_equal(serve(STDERR_FILENO, bad, reason, sizeof reason), 2);
    assert_non_null(strstr(reason, "--bogus"));
    assert_int_equal(serve(STDOUT_FILENO, help, after, sizeof after), 0);
    assert_string_equal(after, before);
}

static void remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        (void)unlinkat(dirfd(folder), entry->d_name, 0);
    }
    (void)closedir(folder);
    assert_int_equal(rmdir(path), 0);
}

/* A call that fails once it has taken the folder for checkpoints leaves it to the next. */
SL_CASE(kv_serve__gives_the_folder_back_where_it_fails)
{
    char folder[] = "/tmp/starling-serve-XXXXXX";
    char reason[4096];
    assert_non_null(mkdtemp(folder));
    char *const small[] = {"starling-ps", "--ps-hosts",
                           "127.0.0.1:1", "--worker-hosts",
                           "a",           "--job-name",
                           "ps",          "--task-index",
                           "0",           "--checkpoint-dir",
                           folder,        "--memory-limit",
                           "1M",          NULL};
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(serve(STDERR_FILENO, small, reason, sizeof reason), 2);
        assert_non_null(strstr(reason, "--memory-limit 1M is too small"));
    }
    remove_folder(folder);
}
