#include "programs/launch/words.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int sl_words_append(struct sl_words *words, const char *word)
{
    char **items = realloc(words->items, (words->count + 2) * sizeof *items);
    if (items == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    words->items = items;
    items[words->count] = strdup(word);
    if (items[words->count] == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    items[++words->count] = NULL;
    return 0;
}

int sl_words_append_format(struct sl_words *words, const char *format, ...)
{
    char *word = NULL;
    va_list arguments;
    va_start(arguments, format);
    const int bytes = vasprintf(&word, format, arguments);
    va_end(arguments);
    if (bytes < 0) {
        return SL_ERR_NO_MEMORY;
    }
    int err = sl_words_append(words, word);
    free(word);
    return err;
}

int sl_words_append_all(struct sl_words *words, const char *const *items, uint32_t count)
{
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < count; i++) {
        err = sl_words_append(words, items[i]);
    }
    return err;
}

void sl_words_fini(struct sl_words *words)
{
    for (uint32_t i = 0; i < words->count; i++) {
        free(words->items[i]);
    }
    free(words->items);
    *words = (struct sl_words){0};
}

/* Copies one unquoted word to `word`, which is as long as the text, and advances *text. False:
 * unterminated quote. */
static bool take_word(const char **text, char *word)
{
    const char *at = *text;
    char quote = '\0';
    while (*at != '\0' && (quote != '\0' || !isspace((unsigned char)*at))) {
        if (quote == '\0' && (*at == '\'' || *at == '"')) {
            quote = *at;
        } else if (*at == quote) {
            quote = '\0';
        } else if (*at == '\\' && quote != '\'' && at[1] != '\0' &&
                   (quote == '\0' || strchr("\"\\", at[1]) != NULL)) {
            at++;
            *word++ = *at;
        } else {
            *word++ = *at;
        }
        at++;
    }
    *word = '\0';
    *text = at;
    return quote == '\0';
}

int sl_words_split(const char *text, struct sl_words *out)
{
    struct sl_words words = {0};
    char *word = malloc(strlen(text) + 1);
    int err = word == NULL ? SL_ERR_NO_MEMORY : 0;
    while (err == 0) {
        while (isspace((unsigned char)*text)) {
            text++;
        }
        if (*text == '\0') {
            break;
        }
        err = take_word(&text, word) ? sl_words_append(&words, word) : SL_ERR_INVALID;
    }
    free(word);
    if (err != 0) {
        sl_words_fini(&words);
    }
    *out = words;
    return err;
}

/* Puts a word in single quotes. A single quote in it becomes '\'': end quotes, \', start quotes. */
static char *quote_word(char *to, const char *word)
{
    *to++ = '\'';
    for (; *word != '\0'; word++) {
        if (*word == '\'') {
            memcpy(to, "'\\''", 4);
            to += 4;
        } else {
            *to++ = *word;
        }
    }
    *to++ = '\'';
    return to;
}

char *sl_words_quote(char *const *words, uint32_t count)
{
    size_t bytes = 1;
    for (uint32_t i = 0; i < count; i++) {
        bytes += 4 * strlen(words[i]) + 3;
    }
    char *text = malloc(bytes);
    if (text == NULL) {
        return NULL;
    }
    char *to = text;
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0) {
            *to++ = ' ';
        }
        to = quote_word(to, words[i]);
    }
    *to = '\0';
    return text;
}
