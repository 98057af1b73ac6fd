/* Shell words: splits quoted text, and quotes words for a shell. */
#ifndef SL_TOOLS_LAUNCH_SHELL_SPLIT_H
#define SL_TOOLS_LAUNCH_SHELL_SPLIT_H

#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

struct sl_shell_words {
    char **items; /* each allocated; sl_shell_split_fini */
    uint32_t count;
};

/* Splits at white space; '...', "..." and \ quote as in a shell, without expansion. Errors: INVALID
 * (unterminated quote), NO_MEMORY; *out is then empty. */
int sl_shell_split_words(const char *text, struct sl_shell_words *out);

/* Appends a copy of the word. Errors: NO_MEMORY. */
int sl_shell_split_append(struct sl_shell_words *words, const char *word);

/* Appends copies of `count` words. Errors: NO_MEMORY. */
int sl_shell_split_append_all(struct sl_shell_words *words, const char *const *items,
                              uint32_t count);

/* Returns an allocated string that any POSIX shell splits into the same words; NULL: no memory. */
char *sl_shell_split_quote(char *const *words, uint32_t count);

void sl_shell_split_fini(struct sl_shell_words *words);

#endif
