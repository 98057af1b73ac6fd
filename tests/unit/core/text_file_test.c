#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/text_file.h"
#include "tests/support/unit.h"

static void write_text(char *path, const char *text)
{
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    assert_int_equal(close(fd), 0);
}

SL_CASE(text_file_line__is_the_first_one_without_its_end)
{
    char path[] = "/tmp/starling-text-file-XXXXXX", text[8];
    write_text(path, "one\ntwo three\n");
    assert_true(sl_text_file_line(path, text, sizeof text));
    assert_string_equal(text, "one");
    assert_int_equal(sl_text_file_read(path, text, sizeof text), sizeof text - 1);
    assert_string_equal(text, "one\ntwo");
    assert_int_equal(unlink(path), 0);
    assert_false(sl_text_file_line(path, text, sizeof text)); /* there is none any more */
    assert_string_equal(text, "");
}

SL_CASE(text_file_line__of_an_empty_file_is_none)
{
    char path[] = "/tmp/starling-text-file-XXXXXX", text[8] = "before";
    write_text(path, "");
    assert_false(sl_text_file_line(path, text, sizeof text));
    assert_string_equal(text, "");
    assert_int_equal(unlink(path), 0);
}
