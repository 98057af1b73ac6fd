/* libsvm's format, "label index:value index:value ...", and libffm's, "label field:index:value
 * ...": words separated by blanks; "# ..." ends a line. The index is the key. libffm numbers
 * features across all fields, so the field is checked but not part of the key. */
#include <math.h>

#include "programs/models/text.h"
#include "programs/train/reader.h"

static void skip_blanks(struct sl_bytes *tail)
{
    while (sl_text_skip(tail, ' ') || sl_text_skip(tail, '\t')) {
    }
}

/* Returns whether a word may end here. */
static bool at_blank(const struct sl_bytes *tail)
{
    int byte = sl_text_peek(tail);
    return byte < 0 || byte == ' ' || byte == '\t';
}

/* A line without a label begins with a feature: "INDEX:" or "FIELD:". */
static bool is_feature(struct sl_bytes tail)
{
    uint64_t number;
    return sl_text_u64(&tail, &number) && sl_text_skip(&tail, ':');
}

static int parse_label(const struct sl_bytes *line, struct sl_bytes *tail, float *label,
                       struct sl_reader_fault *fault)
{
    struct sl_bytes at = *tail;
    float value;
    if (is_feature(at)) {
        *label = NAN;
        return 0;
    }
    if (!sl_text_float(&at, &value) || (value != 0 && value != 1 && value != -1) ||
        !at_blank(&at)) {
        return sl_reader_refuse(fault, line, tail, "the label is none of 0, 1, -1, +1");
    }
    *label = value > 0 ? 1.0F : 0.0F;
    *tail = at;
    return 0;
}

/* Takes a "qid:N", which stands behind the label in data for ranking. */
static bool take_query(struct sl_bytes *tail)
{
    static const char name[] = "qid:";
    struct sl_bytes at = *tail;
    uint64_t number;
    for (const char *byte = name; *byte != '\0'; byte++) {
        if (!sl_text_skip(&at, *byte)) {
            return false;
        }
    }
    if (!sl_text_u64(&at, &number) || !at_blank(&at)) {
        return false;
    }
    *tail = at;
    return true;
}

/* Parses an integer and a colon. */
static int parse_number(const struct sl_bytes *line, struct sl_bytes *tail, const char *what,
                        uint64_t *out, struct sl_reader_fault *fault)
{
    const struct sl_bytes before = *tail;
    if (!sl_text_u64(tail, out)) {
        return sl_reader_refuse(fault, line, tail,
                                "the %s is no whole number from 0 to 18446744073709551615", what);
    }
    return sl_text_skip(tail, ':')
               ? 0
               : sl_reader_refuse(fault, line, &before, "a colon must follow the %s", what);
}

static int parse_feature(const struct sl_bytes *line, struct sl_bytes *tail, bool has_field,
                         struct sl_reader_row *row, struct sl_reader_fault *fault)
{
    uint64_t field, key;
    float value;
    int err = has_field ? parse_number(line, tail, "field", &field, fault) : 0;
    err = err != 0 ? err : parse_number(line, tail, "index", &key, fault);
    if (err != 0) {
        return err;
    }
    struct sl_bytes before = *tail;
    const bool is_number = sl_text_float(tail, &value);
    if (is_number && !has_field && sl_text_peek(tail) == ':') {
        return sl_reader_refuse(fault, line, &before,
                                "a second colon: is it FIELD:INDEX:VALUE (--format libffm)?");
    }
    if (!is_number || !at_blank(tail)) {
        return sl_reader_refuse(fault, line, &before, "the value is no finite decimal number");
    }
    return sl_reader_row_add(row, key, value);
}

static int reader_libsvm_parse(struct sl_bytes line, bool has_field, struct sl_reader_row *row,
                               struct sl_reader_fault *fault)
{
    struct sl_bytes tail = line;
    skip_blanks(&tail);
    int err = parse_label(&line, &tail, &row->label, fault);
    row->feature_count = 0;
    skip_blanks(&tail);
    row->has_query = err == 0 && take_query(&tail);
    while (err == 0) {
        skip_blanks(&tail);
        if (tail.left == 0 || sl_text_peek(&tail) == '#') {
            break;
        }
        err = parse_feature(&line, &tail, has_field, row, fault);
    }
    return err;
}

static int parse_libsvm(struct sl_bytes line, struct sl_reader_row *row,
                        struct sl_reader_fault *fault)
{
    return reader_libsvm_parse(line, false, row, fault);
}

static int parse_libffm(struct sl_bytes line, struct sl_reader_row *row,
                        struct sl_reader_fault *fault)
{
    return reader_libsvm_parse(line, true, row, fault);
}

const struct sl_reader_format sl_reader_libsvm = {
    .name = "libsvm",
    .accepts = "a line is \"LABEL INDEX:VALUE INDEX:VALUE ...\" with the label 0, 1, -1 or +1",
    .has_comments = true,
    .parse = parse_libsvm,
};

const struct sl_reader_format sl_reader_libffm = {
    .name = "libffm",
    .accepts = "a line is \"LABEL FIELD:INDEX:VALUE ...\" with the label 0, 1, -1 or +1",
    .has_comments = true,
    .parse = parse_libffm,
};
