#include "net/transfer/schedule.h"

#include "core/assert.h"

void sl_transfer_schedule_init(struct sl_transfer_schedule *schedule, uint32_t turn_bytes)
{
    sl_list_init(&schedule->turns);
    schedule->turn_bytes = turn_bytes;
}

void sl_transfer_schedule_add(struct sl_transfer_schedule *schedule, struct sl_transfer_turn *turn)
{
    if (!sl_list_linked(&turn->link)) {
        turn->left_bytes = schedule->turn_bytes;
        sl_list_append(&schedule->turns, &turn->link);
    }
}

void sl_transfer_schedule_remove(struct sl_transfer_turn *turn)
{
    sl_list_remove(&turn->link);
}

void sl_transfer_schedule_spend(struct sl_transfer_schedule *schedule,
                                struct sl_transfer_turn *turn, uint32_t bytes)
{
    sl_assert(bytes <= schedule->turn_bytes);
    turn->left_bytes -= bytes;
    if (turn->left_bytes <= 0) {
        turn->left_bytes += schedule->turn_bytes;
        sl_list_append(&schedule->turns, &turn->link);
    }
}
