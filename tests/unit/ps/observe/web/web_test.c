/* The files of the live page, as they are in the program. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "ps/observe/web/web.h"
#include "tests/support/unit.h"

static const struct sl_web_file *find(const char *path)
{
    for (size_t i = 0; i < sl_web_file_count; i++) {
        if (strcmp(sl_web_files[i].path, path) == 0) {
            return &sl_web_files[i];
        }
    }
    return NULL;
}

/* The text of a file, which the caller frees. */
static char *inflated(const struct sl_web_file *file)
{
    const size_t room = 1 << 20;
    char *text = calloc(1, room);
    assert_non_null(text);
    z_stream stream = {.next_in = (unsigned char *)(uintptr_t)file->bytes,
                       .avail_in = (uInt)file->length,
                       .next_out = (unsigned char *)text,
                       .avail_out = (uInt)room - 1};
    assert_int_equal(inflateInit2(&stream, 16 + MAX_WBITS), Z_OK); /* 16: with the head of gzip */
    assert_int_equal(inflate(&stream, Z_FINISH), Z_STREAM_END);
    assert_int_equal(stream.avail_in, 0);
    inflateEnd(&stream);
    return text;
}

/* Every file that text names between `before` and a quotation mark is in the program. */
static int assert_named_files_exist(const char *text, const char *before, const char *folder)
{
    int count = 0;
    for (const char *at = strstr(text, before); at != NULL; at = strstr(at, before), count++) {
        at += strlen(before);
        char path[128];
        snprintf(path, sizeof path, "%s%.*s", folder, (int)strcspn(at, "\""), at);
        if (find(path) == NULL) {
            fail_msg("the page names %s, which the program does not have", path);
        }
    }
    return count;
}

SL_CASE(web_files__hold_all_that_the_page_loads)
{
    int named = 0;
    for (size_t i = 0; i < sl_web_file_count; i++) {
        char *text = inflated(&sl_web_files[i]);
        named += assert_named_files_exist(text, "href=\"", "/");
        named += assert_named_files_exist(text, "src=\"", "/");
        named += assert_named_files_exist(text, "from \"./", "/");
        free(text);
    }
    assert_true(named >= 9); /* icon twice, two style sheets, app.js, and what modules import */
}

SL_CASE(web_files__have_types_and_etags_of_their_own)
{
    for (size_t i = 0; i < sl_web_file_count; i++) {
        const struct sl_web_file *file = &sl_web_files[i];
        assert_int_equal(file->etag[0], '"');
        assert_int_equal(strlen(file->etag), 18);
        for (size_t j = 0; j < i; j++) {
            assert_string_not_equal(file->etag, sl_web_files[j].etag);
        }
    }
    assert_string_equal(find("/")->type, "text/html; charset=utf-8");
    assert_string_equal(find("/app.js")->type, "text/javascript; charset=utf-8");
    assert_string_equal(find("/style.css")->type, "text/css; charset=utf-8");
}

/* The policy default-src 'self' refuses scripts and styles that are written into a page. */
SL_CASE(web_files__have_no_inline_script_or_style)
{
    char *text = inflated(find("/"));
    assert_null(strstr(text, "<style"));
    assert_null(strstr(text, " style="));
    assert_null(strstr(text, " onclick="));
    assert_null(strstr(text, "<script>"));
    assert_non_null(strstr(text, "<script type=\"module\" src="));
    free(text);
}
