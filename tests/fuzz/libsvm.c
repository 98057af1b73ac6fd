/* The libsvm reader. */
#include "tests/fuzz/input.h"
#include "tests/fuzz/reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    fuzz_reader_run(&sl_reader_libsvm, bytes, byte_count);
    return 0;
}
