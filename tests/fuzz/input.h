/* What a fuzz target reads its decisions from: a cursor over the fuzzer's bytes that yields zeros
 * behind their end. */
#ifndef SL_TESTS_FUZZ_INPUT_H
#define SL_TESTS_FUZZ_INPUT_H

#include "core/bytes.h"

/* The fuzzer's entry point, which each target defines; returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count);

static inline bool fuzz_input_has_more(const struct sl_bytes *input)
{
    return input->left > 0 && !input->bad;
}

/* Up to `bytes_max` bytes of those that are left, as many as the next two bytes say. */
static inline struct sl_bytes fuzz_input_piece(struct sl_bytes *input, size_t bytes_max)
{
    size_t bytes = sl_bytes_u16(input);
    bytes = bytes < bytes_max ? bytes : bytes_max;
    bytes = bytes < input->left ? bytes : input->left;
    const void *at = sl_bytes_take(input, bytes);
    return at == NULL ? sl_bytes_over("", 0) : sl_bytes_over(at, bytes);
}

/* A regular file with these bytes, for readers that take a path, and its path. Asserts that the
 * system gives one. */
struct fuzz_input_file {
    int fd;
    char path[32];
};

struct fuzz_input_file fuzz_input_file_open(const uint8_t *bytes, size_t byte_count);
void fuzz_input_file_close(const struct fuzz_input_file *file);

#endif
