#include "net/transfer/setup.h"

#include <sys/random.h>

void sl_transfer_setup_wait(const struct sl_transfer_setup *setup, struct sl_completion *completion)
{
    if (setup->wait != NULL) {
        setup->wait(setup->ctx, completion);
    } else {
        sl_completion_wait(completion);
    }
}

uint64_t sl_transfer_setup_random(const struct sl_transfer_setup *setup)
{
    uint64_t number = 0;
    while (number == 0) {
        if (setup->random != NULL) {
            number = setup->random(setup->ctx);
        } else {
            (void)!getrandom(&number, sizeof number, 0);
        }
    }
    return number;
}
