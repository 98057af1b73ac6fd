#include "ps/snapshot/copied_set.h"

#include "core/arena_pages.h"
#include "core/assert.h"

#define PAGE_BYTES  ((size_t)4096)
#define GIVEN_BYTES ((size_t)64 << 10) /* unmapped at a time */

void sl_copied_set_init(struct sl_copied_set *marks, uint32_t count)
{
    *marks = (struct sl_copied_set){.count = count};
}

/* Maps whole pages, so that the last word is inside the mapping. */
int sl_copied_set_map(struct sl_copied_set *marks)
{
    const size_t bytes = ((size_t)marks->count / 8 + PAGE_BYTES) / PAGE_BYTES * PAGE_BYTES;
    marks->words = sl_arena_pages_map(bytes, false);
    if (marks->words == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    marks->bytes = bytes;
    marks->unmapped_bytes = 0;
    return 0;
}

static void copied_set_give(struct sl_copied_set *marks, size_t bytes)
{
    sl_arena_pages_unmap((uint8_t *)marks->words + marks->unmapped_bytes, bytes);
    marks->unmapped_bytes += bytes;
}

void sl_copied_set_pass(struct sl_copied_set *marks, uint32_t at)
{
    sl_assert(at >= marks->at);
    sl_assert(at <= marks->count);
    marks->at = at;
    while (marks->words != NULL && at / 8 >= marks->unmapped_bytes + GIVEN_BYTES) {
        copied_set_give(marks, GIVEN_BYTES);
    }
}

void sl_copied_set_fini(struct sl_copied_set *marks)
{
    if (marks->words != NULL && marks->unmapped_bytes < marks->bytes) {
        copied_set_give(marks, marks->bytes - marks->unmapped_bytes);
    }
    marks->words = NULL;
}
