/* Reads small text files, such as those of the kernel below /proc and /sys. Any thread; blocks on
 * the file; what does not fit is left out. */
#ifndef SL_CORE_TEXT_FILE_H
#define SL_CORE_TEXT_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* Reads up to text_bytes - 1 bytes, and appends a NUL. Returns the number of bytes; 0: the file is
 * empty or cannot be read. */
size_t sl_text_file_read(const char *path, char *text, size_t text_bytes);

/* Reads the first line, without its end. False, and "": the file is empty or cannot be read. */
bool sl_text_file_line(const char *path, char *line, size_t line_bytes);

#endif
