#include <pthread.h>
#include <unistd.h>

#include "reactor/completion.h"
#include "tests/support/unit.h"

static void *end_later(void *ctx)
{
    (void)usleep(20000);
    sl_completion_end(ctx);
    return NULL;
}

static void *wait_for(void *ctx)
{
    sl_completion_wait(ctx);
    return NULL;
}

SL_CASE(completion__is_ended_at_first)
{
    struct sl_completion completion = {0};
    assert_true(sl_completion_ended(&completion));
    sl_completion_wait(&completion);
}

SL_CASE(completion_wait__sleeps_until_the_end)
{
    struct sl_completion completion = {0};
    for (uint32_t round = 0; round < 5; round++) {
        pthread_t thread;
        sl_completion_begin(&completion);
        assert_false(sl_completion_ended(&completion));
        assert_int_equal(pthread_create(&thread, NULL, end_later, &completion), 0);
        sl_completion_wait(&completion);
        assert_true(sl_completion_ended(&completion));
        pthread_join(thread, NULL);
    }
}

SL_CASE(completion_wait__returns_in_every_thread_that_waits)
{
    struct sl_completion completion = {0};
    pthread_t threads[4];
    sl_completion_begin(&completion);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, wait_for, &completion), 0);
    }
    (void)usleep(20000);
    sl_completion_end(&completion);
    for (uint32_t i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
}
