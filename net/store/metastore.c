#include "net/store/metastore.h"
#include "core/format.h"

#include <stdio.h>
#include <stdlib.h>

void sl_metastore_answer_fini(struct sl_metastore_answer *answer)
{
    for (size_t i = 0; i < answer->item_count; i++) {
        free(answer->pairs[i].value);
    }
    free(answer->pairs);
    answer->pairs = NULL;
    answer->item_count = 0;
}

struct sl_metastore_item *sl_metastore_answer_add(struct sl_metastore_answer *answer,
                                                  size_t value_bytes)
{
    /* The array is full if the count is 0 or a power of two. */
    if ((answer->item_count & (answer->item_count - 1)) == 0) {
        size_t max = answer->item_count == 0 ? 1 : 2 * answer->item_count;
        void *grown = reallocarray(answer->pairs, max, sizeof *answer->pairs);
        if (grown == NULL) {
            return NULL;
        }
        answer->pairs = grown;
    }
    struct sl_metastore_item *item = &answer->pairs[answer->item_count];
    *item =
        (struct sl_metastore_item){.value_bytes = value_bytes, .value = malloc(value_bytes + 1)};
    if (item->value == NULL) {
        return NULL;
    }
    item->value[value_bytes] = '\0';
    answer->item_count++;
    return item;
}

void sl_metastore_answer_fail(struct sl_metastore_answer *answer, int err, const char *format, ...)
{
    answer->err = err;
    SL_FORMAT(answer->reason, format);
}
