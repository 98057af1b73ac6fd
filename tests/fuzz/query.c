/* Parameters of an HTTP request for operators: any bytes are an error with a reason, or accepted
 * names, once each, with values without control characters. */
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "net/http/query.h"
#include "tests/fuzz/input.h"

static void check(const char *text)
{
    static struct sl_query query;
    struct sl_reason reason = {.text = ""};
    if (sl_query_parse(text, "of|since|detail", &query, &reason) != 0) {
        sl_assert(reason.text[0] != '\0');
        return;
    }
    sl_assert(query.count <= 3);
    for (unsigned i = 0; i < query.count; i++) {
        const struct sl_query_parameter *one = &query.parameters[i];
        sl_assert(strcmp(one->name, "of") == 0 || strcmp(one->name, "since") == 0 ||
                  strcmp(one->name, "detail") == 0);
        sl_assert(sl_query_get(&query, one->name) == one->value);
        sl_assert(strlen(one->value) < SL_QUERY_BYTES_MAX);
        for (const char *at = one->value; *at != '\0'; at++) {
            sl_assert((unsigned char)*at >= 0x20 && *at != 0x7f);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    char *text = malloc(byte_count + 1);
    sl_assert(text != NULL);
    memcpy(text, bytes, byte_count);
    text[byte_count] = '\0';
    check(text);
    free(text);
    return 0;
}
