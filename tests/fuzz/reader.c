#include "tests/fuzz/reader.h"

#include <math.h>
#include <string.h>

#include "core/assert.h"
#include "core/file_kind.h"
#include "core/hash.h"
#include "core/reason.h"
#include "tests/fuzz/input.h"

/* Reads the share to its end or first fault; a number that stands for all that came. */
static uint64_t read_share(struct sl_reader *reader, const struct sl_reader_format *format,
                           const char *path)
{
    uint64_t sum = 0;
    const struct sl_reader_row *row;
    int result;
    while ((result = sl_reader_next(reader, &row)) == 1) {
        sl_assert(row->label == 0.0F || row->label == 1.0F);
        sl_assert(format->field_count == 0 || row->feature_count == format->field_count);
        sum = sl_hash_key(sum + (uint64_t)row->label);
        for (uint32_t i = 0; i < row->feature_count; i++) {
            sl_assert(isfinite(row->values[i]));
            uint32_t bits;
            memcpy(&bits, &row->values[i], sizeof bits);
            sum = sl_hash_key(sum + row->keys[i] + bits);
        }
    }
    if (result < 0) {
        sl_assert(strstr(sl_reader_reason(reader), path) == sl_reader_reason(reader));
    }
    sl_assert(sl_reader_done_bytes(reader) <= sl_reader_share_bytes(reader));
    return sl_hash_key(sum + (uint64_t)(int64_t)result);
}

void fuzz_reader_run(const struct sl_reader_format *format, const uint8_t *bytes, size_t byte_count)
{
    if (byte_count == 0) {
        return;
    }
    struct fuzz_input_file file = fuzz_input_file_open(bytes + 1, byte_count - 1);
    const char *path = file.path;
    const bool is_text = sl_file_kind_explain(bytes + 1, byte_count - 1) == NULL;
    uint32_t share_count = 1 + bytes[0] % 4U;
    for (uint32_t share = 0; share < share_count; share++) {
        const struct sl_reader_options options = {
            .format = format,
            .paths = &path,
            .path_count = 1,
            .share_index = share,
            .share_count = share_count,
            .is_silent = true,
        };
        struct sl_reader *reader;
        struct sl_reason reason;
        sl_assert((sl_reader_open(&options, &reader, &reason) == 0) == is_text);
        if (!is_text) {
            break;
        }
        uint64_t first = read_share(reader, format, path);
        sl_reader_rewind(reader);
        sl_assert(read_share(reader, format, path) == first);
        sl_reader_close(&reader);
    }
    fuzz_input_file_close(&file);
}
