#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/assert.h"
#include "tests/fuzz/input.h"

struct fuzz_input_file fuzz_input_file_open(const uint8_t *bytes, size_t byte_count)
{
    struct fuzz_input_file file = {.fd = memfd_create("input", MFD_CLOEXEC)};
    sl_assert(file.fd >= 0);
    sl_assert(write(file.fd, bytes, byte_count) == (ssize_t)byte_count);
    (void)snprintf(file.path, sizeof file.path, "/proc/self/fd/%d", file.fd);
    return file;
}

void fuzz_input_file_close(const struct fuzz_input_file *file)
{
    (void)close(file->fd);
}
