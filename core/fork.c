#include "core/fork.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#include "core/assert.h"

#define DESCRIPTORS_MAX 65536 /* higher ones are not closed in a child */

static pthread_once_t once = PTHREAD_ONCE_INIT;
uint32_t sl_fork_counted;
static _Atomic uint64_t registered[DESCRIPTORS_MAX / 64];

/* Runs in the child before fork returns, on its only thread: async-signal-safe calls alone. */
static void enter_child(void)
{
    sl_fork_counted++;
    for (size_t i = 0; i < sizeof registered / sizeof *registered; i++) {
        uint64_t left = atomic_exchange_explicit(&registered[i], 0, memory_order_relaxed);
        for (; left != 0; left &= left - 1) {
            (void)close((int)(i * 64) + __builtin_ctzll(left));
        }
    }
}

static void fork_watch(void)
{
    int err = pthread_atfork(NULL, NULL, enter_child);
    sl_assert(err == 0);
}

uint32_t sl_fork_count(void)
{
    (void)pthread_once(&once, fork_watch);
    return sl_fork_counted;
}

void sl_fork_register(int fd)
{
    (void)pthread_once(&once, fork_watch);
    if (fd < DESCRIPTORS_MAX) {
        atomic_fetch_or_explicit(&registered[fd / 64], UINT64_C(1) << (fd % 64),
                                 memory_order_relaxed);
    }
}

void sl_fork_unregister(int fd)
{
    if (fd < DESCRIPTORS_MAX) {
        atomic_fetch_and_explicit(&registered[fd / 64], ~(UINT64_C(1) << (fd % 64)),
                                  memory_order_relaxed);
    }
}

void sl_fork_close(int fd)
{
    sl_fork_unregister(fd);
    (void)close(fd);
}
