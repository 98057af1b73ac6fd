/* What the targets of the data formats share. */
#ifndef SL_TESTS_FUZZ_READER_H
#define SL_TESTS_FUZZ_READER_H

#include "programs/train/reader.h"

/* Reads the bytes as a file, in as many shares as the first byte says (1 to 4); checks that rows
 * are whole and finite, that a share gives the same rows again, and that a fault has a place. */
void fuzz_reader_run(const struct sl_reader_format *format, const uint8_t *bytes,
                     size_t byte_count);

#endif
