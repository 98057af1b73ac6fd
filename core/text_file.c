#include "core/text_file.h"

#include <stdio.h>
#include <string.h>

size_t sl_text_file_read(const char *path, char *text, size_t text_bytes)
{
    FILE *file = fopen(path, "re");
    const size_t bytes = file != NULL ? fread(text, 1, text_bytes - 1, file) : 0;
    text[bytes] = '\0';
    if (file != NULL) {
        (void)fclose(file);
    }
    return bytes;
}

bool sl_text_file_line(const char *path, char *line, size_t line_bytes)
{
    const size_t bytes = sl_text_file_read(path, line, line_bytes);
    line[strcspn(line, "\n")] = '\0';
    return bytes > 0;
}
