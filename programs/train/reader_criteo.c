/* Criteo's format (Kaggle Display Advertising Challenge, 2014): label, 13 integer fields, 26
 * categorical fields in hexadecimal, separated by tabs. Any field may be empty, also the label of a
 * row to predict. Every row has 39 features: an empty field has its own key. An integer x > 2 is
 * mapped to floor(log(x + 1)^2), so that counts form few classes, as in the public preprocessing of
 * that data. Then (field, class) is hashed. */
#include <math.h>

#include "core/hash.h"
#include "programs/models/text.h"
#include "programs/train/reader.h"

enum { INTEGER_FIELDS = 13, CATEGORY_FIELDS = 26, FIELDS = INTEGER_FIELDS + CATEGORY_FIELDS };

/* Hashes an empty field with another constant than a value. */
static uint64_t feature_key(uint32_t field, uint64_t value, bool empty)
{
    uint64_t seed = sl_hash_key(((uint64_t)field << 1 | (empty ? 1U : 0U)) + 1);
    return sl_hash_key(seed ^ sl_hash_key(value));
}

uint64_t sl_reader_criteo_class(uint64_t magnitude, bool negative)
{
    if (negative) {
        return (uint64_t)0 - magnitude;
    }
    if (magnitude <= 2) {
        return magnitude;
    }
    double log_of = log((double)magnitude + 1);
    return (uint64_t)floor(log_of * log_of);
}

/* Returns whether a field may end here. */
static bool at_end(const struct sl_bytes *tail)
{
    const int byte = sl_text_peek(tail);
    return byte < 0 || byte == '\t';
}

static int parse_integer(const struct sl_bytes *line, struct sl_bytes *tail, uint32_t field,
                         uint64_t *out, struct sl_reader_fault *fault)
{
    struct sl_bytes before = *tail;
    bool negative = sl_text_skip(tail, '-');
    uint64_t magnitude;
    if (!sl_text_u64(tail, &magnitude) || !at_end(tail)) {
        return sl_reader_refuse(fault, line, &before,
                                "integer field %u of 13 is neither empty nor a whole number",
                                field + 1);
    }
    *out = sl_reader_criteo_class(magnitude, negative);
    return 0;
}

static int parse_category(const struct sl_bytes *line, struct sl_bytes *tail, uint32_t field,
                          uint64_t *out, struct sl_reader_fault *fault)
{
    const struct sl_bytes before = *tail;
    if (!sl_text_hex(tail, out) || !at_end(tail)) {
        return sl_reader_refuse(
            fault, line, &before,
            "categorical field %u of 26 is neither empty nor 1 to 16 hexadecimal digits",
            field - INTEGER_FIELDS + 1);
    }
    return 0;
}

static int parse_field(const struct sl_bytes *line, struct sl_bytes *tail, uint32_t field,
                       struct sl_reader_row *row, struct sl_reader_fault *fault)
{
    if (!sl_text_skip(tail, '\t')) { /* a field ends at a tab, or with the line */
        return sl_reader_refuse(fault, line, tail, "the line ends after %u of 40 columns",
                                field + 1);
    }
    bool empty = at_end(tail);
    uint64_t value = 0;
    int err = 0;
    if (!empty) {
        err = field < INTEGER_FIELDS ? parse_integer(line, tail, field, &value, fault)
                                     : parse_category(line, tail, field, &value, fault);
    }
    return err != 0 ? err : sl_reader_row_add(row, feature_key(field, value, empty), 1.0F);
}

static int reader_criteo_parse(struct sl_bytes line, struct sl_reader_row *row,
                               struct sl_reader_fault *fault)
{
    struct sl_bytes tail = line;
    float label = NAN;
    if (!at_end(&tail) &&
        (!sl_text_float(&tail, &label) || (label != 0 && label != 1) || !at_end(&tail))) {
        return sl_reader_refuse(fault, &line, &line, "the label is neither 0 nor 1");
    }
    row->label = label + 0.0F; /* not -0 */
    row->feature_count = 0;
    for (uint32_t field = 0; field < FIELDS; field++) {
        int err = parse_field(&line, &tail, field, row, fault);
        if (err != 0) {
            return err;
        }
    }
    return tail.left == 0 ? 0
                          : sl_reader_refuse(fault, &line, &tail, "more follows after column 40");
}

const struct sl_reader_format sl_reader_criteo = {
    .name = "criteo",
    .accepts = "a line is a label 0 or 1, 13 integers and 26 hexadecimal words, separated by tabs;"
               " all but the label may be empty",
    .field_count = FIELDS,
    .parse = reader_criteo_parse,
};
