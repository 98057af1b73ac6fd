/* Tables: specifications, counts and memory; drop. */
#include <starling_rows.h>

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/table_names.h"
#include "programs/ckpt/spec_text.h"
#include "programs/ctl/ctl.h"

/* "optimizer=sgd,lr=0.1" as an object. */
static json_t *describe_words(const struct sl_table_spec *spec)
{
    const struct sl_snapshot_table table = {.spec = *spec};
    char text[SL_SPEC_TEXT_BYTES];
    sl_spec_text_show(&table, text); /* without the state, which is 0 */
    json_t *words = json_object();
    for (char *rest = text, *word; (word = strsep(&rest, ",")) != NULL;) {
        char *value = strchr(word, '=');
        if (value == NULL) {
            continue;
        }
        *value++ = '\0';
        json_t *number = json_loads(value, JSON_DECODE_ANY, NULL);
        (void)json_object_set_new(words, word, number != NULL ? number : json_string(value));
    }
    return words;
}

static json_t *describe(const struct sl_table_spec *spec)
{
    return json_pack("{s:s, s:s, s:I, s:I, s:o}", "name", spec->name, "kind",
                     sl_table_names_kind[spec->kind], "dim", (json_int_t)spec->dim, "length",
                     (json_int_t)spec->length, "spec", describe_words(spec));
}

/* ctx: the list. */
static void add_table(void *ctx, const struct sl_table_spec *spec)
{
    (void)json_array_append_new(ctx, describe(spec));
}

int sl_ctl_tables(struct sl_ctl *ctl, json_t **out)
{
    json_t *list = json_array();
    const int err = sl_client_tables(ctl->client, sl_ctl_time_left_ms(ctl), add_table, list);
    if (err != 0) {
        json_decref(list);
        return sl_ctl_failed(ctl, err);
    }
    *out = list;
    return 0;
}

#define COUNT(member)                                                                              \
    {                                                                                              \
#member, offsetof(struct sl_table_info, member)                                            \
    }

int sl_ctl_table(struct sl_ctl *ctl, json_t **out)
{
    static const struct {
        const char *name;
        size_t offset;
    } counts[] = {
        COUNT(rows),        COUNT(bytes),           COUNT(bytes_rows),
        COUNT(bytes_index), COUNT(bytes_admission), COUNT(steps),
        COUNT(pulled_rows), COUNT(pushed_rows),     COUNT(rows_created),
        COUNT(rows_erased), COUNT(evicted_ttl),     COUNT(evicted_count),
        COUNT(evicted_l2),  COUNT(evicted_room),    COUNT(admitted),
        COUNT(refused),     COUNT(waiting),
    };
    struct sl_table *table;
    struct sl_table_spec spec;
    struct sl_table_info info = SL_TABLE_INFO_INIT;
    int err = sl_ctl_open_table(ctl, &table, &spec);
    if (err == 0) {
        err = sl_client_table_info(ctl->client, table, sl_ctl_time_left_ms(ctl), &info);
        err = err != 0 ? sl_ctl_failed(ctl, err) : 0;
    }
    if (err != 0) {
        return err;
    }
    *out = describe(&spec);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        uint64_t count;
        memcpy(&count, (const char *)&info + counts[i].offset, sizeof count);
        (void)json_object_set_new(*out, counts[i].name, json_integer((json_int_t)count));
    }
    sl_ctl_add_rates(ctl, *out);
    return 0;
}

int sl_ctl_drop(struct sl_ctl *ctl, json_t **out)
{
    struct sl_table *table;
    struct sl_table_spec spec;
    struct sl_table_info info = SL_TABLE_INFO_INIT;
    char what[256];
    int err = sl_ctl_open_table(ctl, &table, &spec);
    if (err != 0) {
        return err;
    }
    err = sl_client_table_info(ctl->client, table, sl_ctl_time_left_ms(ctl), &info);
    if (err != 0) {
        return sl_ctl_failed(ctl, err);
    }
    (void)snprintf(what, sizeof what, "drop table %s with %" PRIu64 " rows", spec.name, info.rows);
    err = sl_ctl_confirm(ctl, what);
    if (err != 0) {
        return err;
    }
    err = sl_client_table_drop(ctl->client, spec.name, sl_ctl_time_left_ms(ctl));
    *out = err == 0 ? json_pack("{s:s}", "done", what) : NULL;
    return err == 0 ? 0 : sl_ctl_failed(ctl, err);
}
