/* Shell words, both ways: splitting what the user quoted, quoting what a shell will split. */
#ifndef SL_LAUNCH_WORDS_H
#define SL_LAUNCH_WORDS_H

#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

struct sl_words {
    char **items; /* each allocated; sl_words_fini */
    uint32_t count;
};

/* Splits at white space; '...', "..." and \ quote as in a shell, nothing is expanded. Errors:
 * INVALID (a quote is not closed), NO_MEMORY; *out is then empty. */
int sl_words_split(const char *text, struct sl_words *out);

/* Appends a copy of the word. Errors: NO_MEMORY. */
int sl_words_append(struct sl_words *words, const char *word);

/* The words as one string, allocated, that any POSIX shell splits into the same words again; NULL
 * when there is no memory. */
char *sl_words_quote(char *const *words, uint32_t count);

void sl_words_fini(struct sl_words *words);

#endif
