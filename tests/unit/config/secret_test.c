#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/secret.h"
#include "tests/support/unit.h"

struct fixture {
    char folder[64], path[96];
    struct sl_secret secret;
    struct sl_reason reason;
};

static void setup(struct fixture *f)
{
    (void)snprintf(f->folder, sizeof f->folder, "/tmp/sl_secret_XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    (void)snprintf(f->path, sizeof f->path, "%s/secret", f->folder);
}

static void teardown(struct fixture *f)
{
    (void)unlink(f->path);
    (void)rmdir(f->folder);
}

static void write_file(const struct fixture *f, const void *bytes, size_t count, mode_t mode)
{
    FILE *file = fopen(f->path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(f->path, mode), 0);
}

static int read_secret(struct fixture *f)
{
    return sl_secret_read(f->path, &f->secret, &f->reason);
}

#define CASE(name) SL_CASE_USING(name, struct fixture, f, setup, teardown)

CASE(secret_read__cuts_line_ends_and_nothing_else)
{
    static const char text[] = "\n a secret\0with any byte \r\n\n";
    write_file(f, text, sizeof text - 1, 0600);
    assert_int_equal(read_secret(f), 0);
    assert_int_equal(f->secret.byte_count, sizeof text - 1 - 3);
    assert_memory_equal(f->secret.bytes, text, f->secret.byte_count);
    write_file(f, text, sizeof text - 1, 0400);
    assert_int_equal(read_secret(f), 0);
}

CASE(secret_read__takes_the_least_and_the_most)
{
    char bytes[SL_SECRET_BYTES_MAX + 200];
    memset(bytes, 'x', sizeof bytes);
    static const struct {
        size_t count;
        int err;
    } cases[] = {
        {0, SL_ERR_INVALID},
        {SL_SECRET_BYTES_MIN - 1, SL_ERR_INVALID},
        {SL_SECRET_BYTES_MIN, 0},
        {SL_SECRET_BYTES_MAX, 0},
        {SL_SECRET_BYTES_MAX + 1, SL_ERR_TOO_LARGE},
        {SL_SECRET_BYTES_MAX + 200, SL_ERR_TOO_LARGE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_file(f, bytes, cases[i].count, 0600);
        assert_int_equal(read_secret(f), cases[i].err);
        if (cases[i].err == 0) {
            assert_int_equal(f->secret.byte_count, cases[i].count);
        } else {
            const char *what = cases[i].err == SL_ERR_TOO_LARGE ? "is too long" : "is too short";
            assert_non_null(strstr(f->reason.text, what));
            assert_non_null(strstr(f->reason.text, f->path));
            assert_non_null(strstr(f->reason.text, "16 to 1024"));
            assert_null(strstr(f->reason.text, "xxxx"));
        }
    }
}

CASE(secret_read__line_ends_do_not_make_it_long_enough)
{
    write_file(f, "short\n\n\n\n\n\n\n\n\n\n\n\n", 17, 0600);
    assert_int_equal(read_secret(f), SL_ERR_INVALID);
    assert_non_null(strstr(f->reason.text, "with 5 bytes"));
}

CASE(secret_read__refuses_a_file_open_to_others)
{
    static const mode_t modes[] = {0640, 0604, 0620, 0602, 0644, 0610};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        write_file(f, "0123456789abcdef", 16, modes[i]);
        assert_int_equal(read_secret(f), SL_ERR_INVALID);
        assert_non_null(strstr(f->reason.text, "other users can access it"));
        assert_non_null(strstr(f->reason.text, "chmod 600"));
    }
    assert_int_equal(f->secret.byte_count, 0);
}

CASE(secret_read__names_a_missing_file)
{
    assert_int_equal(read_secret(f), SL_ERR_NOT_FOUND);
    assert_non_null(strstr(f->reason.text, f->path));
    assert_non_null(strstr(f->reason.text, strerror(ENOENT)));
}

CASE(secret_read__refuses_what_is_no_file)
{
    assert_int_equal(sl_secret_read(f->folder, &f->secret, &f->reason), SL_ERR_INVALID);
    assert_non_null(strstr(f->reason.text, "not a regular file"));
    /* A pipe that nobody writes to: it is not waited for. */
    assert_int_equal(mkfifo(f->path, 0600), 0);
    assert_int_equal(read_secret(f), SL_ERR_INVALID);
    assert_non_null(strstr(f->reason.text, "not a regular file"));
}
