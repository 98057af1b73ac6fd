/* Reads an example of docs/protocol.md: the block that begins with "```" and `title`, of lines of
 * an offset, a colon, and bytes in hex. Returns the number of bytes. */
#ifndef SL_TESTS_SUPPORT_PAGE_EXAMPLE_H
#define SL_TESTS_SUPPORT_PAGE_EXAMPLE_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/unit.h"

static inline uint32_t sl_page_example(const char *title, uint8_t *to)
{
    FILE *page = fopen(PROTOCOL_PAGE, "r");
    assert_non_null(page);
    char line[1024], begin[64];
    bool inside = false;
    uint32_t bytes = 0;
    snprintf(begin, sizeof begin, "```%s\n", title);
    while (fgets(line, sizeof line, page) != NULL && !(inside && line[0] == '`')) {
        const char *at = strchr(line, ':');
        char *end;
        for (at = at != NULL ? at + 1 : line; inside; at = end) {
            const unsigned long byte = strtoul(at, &end, 16);
            if (end == at) {
                break;
            }
            to[bytes++] = (uint8_t)byte;
        }
        inside |= strcmp(line, begin) == 0;
    }
    fclose(page);
    return bytes;
}

#endif
