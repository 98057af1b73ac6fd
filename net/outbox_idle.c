/* Returns memory of an outbox to the system after a burst. */
#include <sys/mman.h>
#include <unistd.h>

#include "net/outbox_block.h"

/* Calls of sl_warm_look that return the whole outbox, after SL_WARM_QUIET_LOOKS; 0.1 ms each for
 * 128 MiB. */
#define LOOKS 64

/* Keeps the block's first page, which has the link of the free list. */
static void chill(struct sl_outbox_block *block)
{
    const size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    (void)madvise((uint8_t *)block + page_bytes, SL_OUTBOX_BLOCK_BYTES - page_bytes, MADV_DONTNEED);
    block->is_cold = true;
}

/* The free list starts with the blocks used last. Returns the number of blocks not cold. */
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

/* Frames take the first free units. Returns the number of units with memory. */
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
