#include "net/transfer/part.h"

#include <stdio.h>
#include <string.h>

#include "core/assert.h"

void sl_transfer_part_init(struct sl_transfer_part *part, struct sl_transfer_item *items,
                           struct sl_transfer_causes *causes)
{
    *part = (struct sl_transfer_part){
        .items = items,
        .causes = causes,
        .first = SL_TRANSFER_PART_END,
        .at = SL_TRANSFER_PART_END,
        .is_small = true,
    };
    sl_list_init(&part->again);
}

void sl_transfer_part_add(struct sl_transfer_part *part, uint32_t item)
{
    part->items[item].next = SL_TRANSFER_PART_END;
    part->is_small = part->is_small && part->items[item].bytes <= SL_TRANSFER_PART_SMALL_BYTES;
    if (part->first == SL_TRANSFER_PART_END) {
        part->first = part->at = item;
    } else {
        part->items[part->last].next = item;
    }
    part->last = item;
}

/* Whether b continues a in both memories. A device reaches local memory by its registration. */
static bool joins(const struct sl_transfer_item *a, const struct sl_transfer_item *b)
{
    return a->op == b->op && a->key == b->key && a->local_key == b->local_key &&
           a->local + a->bytes == b->local && a->offset + a->bytes == b->offset;
}

/* Moves the cursor to an item that has not failed. */
static void skip_failed(struct sl_transfer_part *part)
{
    while (part->at != SL_TRANSFER_PART_END && part->items[part->at].err != 0) {
        part->at = part->items[part->at].next;
        part->at_offset = 0;
    }
}

/* Takes up to bytes_max from the cursor on, as far as the items join. */
static void take(struct sl_transfer_part *part, uint32_t bytes_max, struct sl_transfer_slice *slice)
{
    const struct sl_transfer_item *item = &part->items[part->at];
    slice->rma = (struct sl_rma_slice){
        .local = item->local + part->at_offset,
        .key = item->key,
        .offset = item->offset + part->at_offset,
        .op = item->op == SL_TRANSFER_READ ? SL_RMA_READ : SL_RMA_WRITE,
    };
    slice->part = part;
    slice->item = part->at;
    slice->item_offset = part->at_offset;
    slice->attempts = 0;
    slice->is_posted = slice->needs_frames = false;
    for (;;) {
        const uint64_t rest = item->bytes - part->at_offset;
        const uint32_t room = bytes_max - slice->rma.bytes;
        if (rest > room) {
            slice->rma.bytes += room;
            part->at_offset += room;
            return;
        }
        slice->rma.bytes += (uint32_t)rest;
        part->at = item->next;
        part->at_offset = 0;
        if (part->at == SL_TRANSFER_PART_END || slice->rma.bytes == bytes_max ||
            part->items[part->at].err != 0 || !joins(item, &part->items[part->at])) {
            return;
        }
        item = &part->items[part->at];
    }
}

const struct sl_transfer_item *sl_transfer_part_peek(struct sl_transfer_part *part)
{
    const struct sl_transfer_slice *again =
        SL_LIST_FIRST(struct sl_transfer_slice, rma.link, &part->again);
    if (again != NULL) {
        return &part->items[again->item];
    }
    skip_failed(part);
    return part->at != SL_TRANSFER_PART_END ? &part->items[part->at] : NULL;
}

struct sl_transfer_slice *sl_transfer_part_next(struct sl_transfer_part *part, uint32_t bytes_max,
                                                struct sl_list *free_slices)
{
    const bool is_new = sl_list_empty(&part->again);
    if (is_new) {
        skip_failed(part);
    }
    if (is_new && (part->at == SL_TRANSFER_PART_END || sl_list_empty(free_slices))) {
        return NULL;
    }
    struct sl_transfer_slice *slice =
        SL_LIST_POP(struct sl_transfer_slice, rma.link, is_new ? free_slices : &part->again);
    if (is_new) {
        take(part, bytes_max, slice);
    }
    part->in_flight++;
    return slice;
}

void sl_transfer_part_return(struct sl_transfer_part *part, struct sl_transfer_slice *slice)
{
    sl_assert(part->in_flight > 0);
    sl_assert(!part->is_stopped);
    part->in_flight--;
    sl_list_prepend(&part->again, &slice->rma.link);
}

static void record(struct sl_transfer_item *item, uint64_t bytes, int err, uint8_t cause)
{
    if (err != 0 && item->err == 0) {
        item->err = err;
        item->state = SL_TRANSFER_FAILED;
        item->cause = cause;
    } else if (err == 0) {
        sl_assert(bytes <= item->left);
        item->left -= bytes;
        if (item->left == 0 && item->err == 0) {
            item->state = SL_TRANSFER_COMPLETED;
        }
    }
}

static void record_all(struct sl_transfer_part *part, const struct sl_transfer_slice *slice,
                       int err, uint8_t cause)
{
    uint32_t left = slice->rma.bytes;
    uint64_t offset = slice->item_offset;
    for (uint32_t at = slice->item; left > 0; at = part->items[at].next) {
        struct sl_transfer_item *item = &part->items[at];
        const uint64_t rest = item->bytes - offset;
        const uint32_t bytes = rest < left ? (uint32_t)rest : left;
        record(item, bytes, err, cause);
        left -= bytes;
        offset = 0;
    }
}

void sl_transfer_part_done(struct sl_transfer_part *part, struct sl_transfer_slice *slice, int err,
                           uint8_t cause)
{
    sl_assert(part->in_flight > 0);
    part->in_flight--;
    record_all(part, slice, err, cause);
    sl_list_append(slice->home, &slice->rma.link);
}

void sl_transfer_part_stop(struct sl_transfer_part *part)
{
    sl_transfer_schedule_remove(&part->turn);
    part->is_stopped = true;
    part->at = SL_TRANSFER_PART_END;
    SL_LIST_EACH (struct sl_transfer_slice, slice, rma.link, &part->again) {
        sl_list_append(slice->home, &slice->rma.link);
    }
}

void sl_transfer_part_fail(struct sl_transfer_part *part, int err, enum sl_transfer_state state,
                           uint8_t cause)
{
    for (uint32_t at = part->first; at != SL_TRANSFER_PART_END; at = part->items[at].next) {
        struct sl_transfer_item *item = &part->items[at];
        if (item->left > 0 && item->err == 0) {
            item->err = err;
            item->state = (uint8_t)state;
            item->cause = cause;
        }
    }
}

uint8_t sl_transfer_part_cause(struct sl_transfer_causes *causes, const char *text)
{
    for (uint32_t i = 0; i < causes->count; i++) {
        if (strncmp(causes->texts[i], text, sizeof causes->texts[i] - 1) == 0) {
            return (uint8_t)i;
        }
    }
    if (causes->count < SL_TRANSFER_CAUSE_COUNT) {
        (void)snprintf(causes->texts[causes->count], sizeof causes->texts[0], "%s", text);
        causes->count++;
    }
    return (uint8_t)(causes->count - 1);
}
