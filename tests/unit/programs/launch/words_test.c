#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/launch/words.h"
#include "tests/support/unit.h"

SL_CASE(words_split__as_a_shell_would)
{
    static const struct {
        const char *text;
        const char *words[5];
    } cases[] = {
        {"", {NULL}},
        {" \t\n ", {NULL}},
        {"one", {"one"}},
        {"  one  two\tthree ", {"one", "two", "three"}},
        {"'a b' \"c d\"", {"a b", "c d"}},
        {"a'b c'd\"e f\"g", {"ab cde fg"}},
        {"'' \"\"", {"", ""}},
        {"a\\ b \\'c", {"a b", "'c"}},
        {"'a\\b' \"a\\b\" \"a\\\"b\\\\\"", {"a\\b", "a\\b", "a\"b\\"}},
        {"\"it's\" 'say \"x\"'", {"it's", "say \"x\""}},
        {"$HOME * ~ `x`", {"$HOME", "*", "~", "`x`"}},
        {"end\\", {"end\\"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sl_words words;
        assert_int_equal(sl_words_split(cases[i].text, &words), 0);
        uint32_t expected = 0;
        for (; cases[i].words[expected] != NULL; expected++) {
            assert_true(expected < words.count);
            assert_string_equal(words.items[expected], cases[i].words[expected]);
        }
        assert_int_equal(words.count, expected);
        sl_words_fini(&words);
    }
}

SL_CASE(words_split__open_quote_is_invalid)
{
    static const char *const texts[] = {"'", "a 'b", "\"", "a\"b c", "\"a\\\"", "'a' 'b"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct sl_words words;
        assert_int_equal(sl_words_split(texts[i], &words), SL_ERR_INVALID);
        assert_int_equal(words.count, 0);
        assert_null(words.items);
    }
}

/* What sh makes of the quoted words, separated by \1. */
static void check_by_shell(char *const *words, uint32_t count)
{
    char *quoted = sl_words_quote(words, count);
    assert_non_null(quoted);
    char command[1024], line[1024], expected[1024] = "";
    snprintf(command, sizeof command, "printf '%%s\\001' %s", quoted);
    free(quoted);
    FILE *shell = popen(command, "r");
    assert_non_null(shell);
    const size_t got = fread(line, 1, sizeof line - 1, shell);
    line[got] = '\0';
    assert_int_equal(pclose(shell), 0);
    for (uint32_t i = 0; i < count; i++) {
        const size_t used = strlen(expected);
        snprintf(expected + used, sizeof expected - used, "%s\001", words[i]);
    }
    assert_string_equal(line, expected);
}

SL_CASE(words_quote__a_shell_gives_the_same_words_back)
{
    char *words[] = {
        (char *)"plain",     (char *)"two words",  (char *)"it's", (char *)"''",
        (char *)"\"$HOME\"", (char *)"`id`;|&<>",  (char *)"a\nb", (char *)"back\\slash",
        (char *)"",          (char *)"*?[a]{b}~!", (char *)"'"};
    check_by_shell(words, sizeof words / sizeof words[0]);
}

SL_CASE(words_quote__is_undone_by_split)
{
    char *originals[] = {(char *)"a b", (char *)"it's", (char *)"", (char *)"\\\"'"};
    char *quoted = sl_words_quote(originals, 4);
    struct sl_words words;
    assert_int_equal(sl_words_split(quoted, &words), 0);
    assert_int_equal(words.count, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_string_equal(words.items[i], originals[i]);
    }
    sl_words_fini(&words);
    free(quoted);
}
