/* Memory of an outbox that a burst has left behind goes back to the system. */
#include <sys/mman.h>
#include <unistd.h>

#include "net/outbox_block.h"

#define LOOKS 64 /* for the whole outbox, behind the quiet ones: 0.1 ms each for 128 MiB */

/* A block's first page stays: it links the free ones. */
static void chill(struct sl_outbox_block *block)
{
    const size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    (void)madvise((uint8_t *)block + page_bytes, SL_OUTBOX_BLOCK_BYTES - page_bytes, MADV_DONTNEED);
    block->is_cold = true;
}

/* Those that were used last are the first of the free ones. Returns how many are not cold. */
static uint32_t look_at_blocks(struct sl_outbox *outbox)
{
    const uint32_t used = outbox->block_count - outbox->free_count;
    const size_t warm =
        sl_warm_look(&outbox->blocks_warm, used, outbox->block_count / LOOKS + 1) - used;
    uint32_t at = 0;
    uint32_t left = 0;
    for (struct sl_outbox_block *block = outbox->free; block != NULL; block = block->next) {
        if (at++ >= warm && !block->is_cold) {
            chill(block);
        }
        left += !block->is_cold;
    }
    return left;
}

static uint32_t units_end(const struct sl_outbox *outbox)
{
    uint32_t end = outbox->unit_count;
    while (end > 0 && !outbox->units[end - 1]) {
        end--;
    }
    return end;
}

/* Frames take the first units that are free. Returns how many have memory. */
static uint32_t look_at_units(struct sl_outbox *outbox)
{
    const uint32_t warm = (uint32_t)sl_warm_look(&outbox->units_warm, units_end(outbox),
                                                 outbox->unit_count / LOOKS + 1);
    if (outbox->units_touched > warm) {
        (void)madvise(sl_outbox_unit_at(outbox, warm),
                      (outbox->units_touched - warm) * (size_t)SL_OUTBOX_UNIT_BYTES, MADV_DONTNEED);
        outbox->units_touched = warm;
    }
    return outbox->units_touched;
}

bool sl_outbox_give_back(struct sl_outbox *outbox)
{
    if (outbox->is_registered) {
        return false;
    }
    const uint32_t blocks = look_at_blocks(outbox);
    const uint32_t units = look_at_units(outbox);
    return blocks > 0 || units > 0 || outbox->frame_count > 0;
}
