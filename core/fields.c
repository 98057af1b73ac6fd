#include "core/fields.h"

#include <string.h>

static bool fields_in_range(const struct sl_field *field, uint64_t number)
{
    return number >= field->least && number <= field->most;
}

static uint32_t fields_count_of(const struct sl_field *field, const void *base)
{
    uint32_t count;
    memcpy(&count, (const uint8_t *)base + field->count_offset, sizeof count);
    return count;
}

/* A pointer as it lies in the struct. */
static const void *pointer_at(const uint8_t *at)
{
    const void *pointer;
    memcpy(&pointer, at, sizeof pointer);
    return pointer;
}

static bool put_text(struct sl_bytes_writer *writer, const struct sl_field *field,
                     const uint8_t *at)
{
    const char *text = field->bytes != 0 ? (const char *)at : pointer_at(at);
    text = text == NULL ? "" : text;
    const size_t length = strnlen(text, field->most);
    sl_bytes_put(writer, text, length < field->most ? length : field->most - 1);
    sl_bytes_put_u8(writer, 0);
    return field->is_valid == NULL || (length < field->most && field->is_valid(text));
}

const char *sl_fields_put(struct sl_bytes_writer *writer, const struct sl_field *field,
                          const void *from)
{
    for (; field->name != NULL; field++) {
        const uint8_t *at = (const uint8_t *)from + field->offset;
        const bool has_count = field->type == SL_FIELDS_LIST || field->type == SL_FIELDS_REST;
        uint64_t number = has_count ? fields_count_of(field, from) : 0;
        bool fits = !has_count || fields_in_range(field, number);
        if (field->type == SL_FIELDS_NUMBER) {
            memcpy(&number, at, field->bytes);
            fits = fields_in_range(field, number);
            sl_bytes_put(writer, at, field->bytes);
        } else if (field->type == SL_FIELDS_TEXT) {
            fits = put_text(writer, field, at);
        } else if (field->type == SL_FIELDS_REST && fits) {
            sl_bytes_put(writer, pointer_at(at), number);
        }
        for (uint64_t i = 0; field->type == SL_FIELDS_LIST && fits && i < number; i++) {
            const char *wrong = sl_fields_put(writer, field->items, at + i * field->bytes);
            if (wrong != NULL) {
                return wrong;
            }
        }
        if (!fits || writer->bad) {
            return field->name;
        }
    }
    return NULL;
}

static bool take_text(struct sl_bytes *cursor, const struct sl_field *field, uint8_t *at)
{
    const char *text = sl_bytes_text(cursor, field->most);
    if (field->bytes != 0) {
        memcpy(at, text, strlen(text) + 1);
    } else {
        memcpy(at, &text, sizeof text);
    }
    return field->is_valid == NULL || field->is_valid(text);
}

const char *sl_fields_take(struct sl_bytes *cursor, const struct sl_field *field, void *to)
{
    for (; field->name != NULL; field++) {
        uint8_t *at = (uint8_t *)to + field->offset;
        uint64_t number = 0;
        bool fits = true;
        if (field->type == SL_FIELDS_NUMBER) {
            sl_bytes_copy(cursor, &number, field->bytes);
            fits = fields_in_range(field, number);
            memcpy(at, &number, fits ? field->bytes : 0);
        } else if (field->type == SL_FIELDS_TEXT) {
            fits = take_text(cursor, field, at);
        } else if (field->type == SL_FIELDS_REST) {
            const uint32_t count = (uint32_t)cursor->left;
            const void *rest = sl_bytes_take(cursor, count);
            fits = fields_in_range(field, count);
            memcpy(at, &rest, sizeof rest);
            memcpy((uint8_t *)to + field->count_offset, &count, sizeof count);
        } else {
            number = fields_count_of(field, to);
            fits = fields_in_range(field, number);
        }
        for (uint64_t i = 0; field->type == SL_FIELDS_LIST && fits && i < number; i++) {
            const char *wrong = sl_fields_take(cursor, field->items, at + i * field->bytes);
            if (wrong != NULL) {
                return wrong;
            }
        }
        if (!fits || cursor->bad) {
            return field->name;
        }
    }
    return NULL;
}
