/* libsvm's format: "label index:value index:value ...", separated by blanks; "# ..." ends a line.
 * The index is the key as it stands. */
#include "worker/train/reader.h"
#include "worker/train/text.h"

static void skip_blanks(struct sl_bytes *rest)
{
    while (sl_text_skip(rest, ' ') || sl_text_skip(rest, '\t')) {
    }
}

/* True where a word may end. */
static bool at_blank(const struct sl_bytes *rest)
{
    int byte = sl_text_peek(rest);
    return byte < 0 || byte == ' ' || byte == '\t';
}

static int parse_label(const struct sl_bytes *line, struct sl_bytes *rest, float *label,
                       struct sl_reader_fault *fault)
{
    struct sl_bytes at = *rest;
    bool negative = sl_text_skip(&at, '-');
    if (!negative) {
        (void)sl_text_skip(&at, '+');
    }
    uint64_t value;
    if (!sl_text_u64(&at, &value) || value > 1 || (negative && value == 0) || !at_blank(&at)) {
        return sl_reader_refuse(fault, line, rest, "the label is none of 0, 1, -1, +1");
    }
    *label = negative ? 0.0F : (float)value;
    *rest = at;
    return 0;
}

static int parse_feature(const struct sl_bytes *line, struct sl_bytes *rest,
                         struct sl_reader_row *row, struct sl_reader_fault *fault)
{
    uint64_t key;
    float value;
    if (!sl_text_u64(rest, &key)) {
        return sl_reader_refuse(fault, line, rest,
                                "the index is no whole number from 0 to 18446744073709551615");
    }
    if (!sl_text_skip(rest, ':')) {
        return sl_reader_refuse(fault, line, rest, "a colon and a value must follow the index");
    }
    struct sl_bytes before = *rest;
    if (!sl_text_float(rest, &value) || !at_blank(rest)) {
        return sl_reader_refuse(fault, line, &before, "the value is no finite decimal number");
    }
    return sl_reader_row_add(row, key, value);
}

static int parse(struct sl_bytes line, struct sl_reader_row *row, struct sl_reader_fault *fault)
{
    struct sl_bytes rest = line;
    skip_blanks(&rest);
    int err = parse_label(&line, &rest, &row->label, fault);
    row->feature_count = 0;
    while (err == 0) {
        skip_blanks(&rest);
        if (rest.left == 0 || sl_text_peek(&rest) == '#') {
            break;
        }
        err = parse_feature(&line, &rest, row, fault);
    }
    return err;
}

const struct sl_reader_format sl_reader_libsvm = {
    .name = "libsvm",
    .accepts = "a line is \"LABEL INDEX:VALUE INDEX:VALUE ...\" with the label 0, 1, -1 or +1",
    .parse = parse,
};
