/* Lists of words: built one by one or from quoted text, and quoted for a shell. */
#ifndef SL_PROGRAMS_LAUNCH_WORDS_H
#define SL_PROGRAMS_LAUNCH_WORDS_H

#include <stdint.h>

#include "core/err.h"

struct sl_words {
    char **items; /* each allocated, then NULL; no items: NULL. sl_words_fini */
    uint32_t count;
};

/* Splits at white space; '...', "..." and \ quote as in a shell, without expansion. Errors: INVALID
 * (unterminated quote), NO_MEMORY; *out is then empty. */
int sl_words_split(const char *text, struct sl_words *out);

/* Appends a copy of the word. Errors: NO_MEMORY. */
int sl_words_append(struct sl_words *words, const char *word);

/* Appends a word of printf's format. Errors: NO_MEMORY. */
int sl_words_append_format(struct sl_words *words, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Appends copies of `count` words. Errors: NO_MEMORY. */
int sl_words_append_all(struct sl_words *words, const char *const *items, uint32_t count);

/* Returns an allocated string that any POSIX shell splits into the same words; NULL: no memory. */
char *sl_words_quote(char *const *words, uint32_t count);

void sl_words_fini(struct sl_words *words);

#endif
