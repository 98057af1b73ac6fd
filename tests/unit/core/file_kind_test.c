#include "core/file_kind.h"
#include "tests/support/unit.h"

#include <string.h>

SL_CASE(file_kind_explain__names_kind_and_remedy)
{
    const struct {
        const char *text, *words;
    } cases[] = {
        {"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "git lfs pull"},
        {"\x1f\x8b\x08", "gzip"},
        {"\x28\xb5\x2f\xfd", "zstd"},
        {"BZh91AY", "bzip2"},
        {"\xfd"
         "7zXZ",
         "xz"},
        {"PK\x03\x04\x14", "zip"},
        {"\x80\x02}q", "pickle"},
        {"<!DOCTYPE html>", "HTML"},
        {"<HTML>", "HTML"},
        {"<?xml version", "XML"},
        {"{\"a\": 1}", "JSON"},
        {"\xff\xfe"
         "0",
         "UTF-16"},
        {"\xef\xbb\xbf", "byte order mark"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *kind = sl_file_kind_explain(cases[i].text, strlen(cases[i].text));
        assert_non_null(kind);
        assert_non_null(strstr(kind, cases[i].words));
    }
}

SL_CASE(file_kind_explain__other_beginnings_are_unknown)
{
    assert_null(sl_file_kind_explain("0 1:1\n", 6));
    assert_null(sl_file_kind_explain("version https://git-lfs", 22)); /* ends too early */
    assert_null(sl_file_kind_explain("\x1f", 1));
    assert_null(sl_file_kind_explain("\x08\x07\x12", 3));
    assert_null(sl_file_kind_explain("", 0));
}
