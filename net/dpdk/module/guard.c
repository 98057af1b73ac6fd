#include "net/dpdk/module/guard.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <rte_alarm.h>
#include <rte_log.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "net/dpdk/module/module.h"

atomic_bool sl_module_guard_closed;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* never taken inside */
static struct sl_module_guard *guards;
static int memif_log_type = -1;

void sl_module_guard_start(void)
{
    (void)syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
    memif_log_type = rte_log_register("pmd.net.memif"); /* as the driver has done */
    if (memif_log_type >= 0) {
        (void)rte_log_set_level((uint32_t)memif_log_type, RTE_LOG_DEBUG);
    }
}

void sl_module_guard_add(struct sl_module_guard *guard)
{
    (void)pthread_mutex_lock(&lock);
    guard->next = guards;
    guards = guard;
    (void)pthread_mutex_unlock(&lock);
}

void sl_module_guard_remove(struct sl_module_guard *guard)
{
    (void)pthread_mutex_lock(&lock);
    struct sl_module_guard **at = &guards;
    while (*at != guard) {
        at = &(*at)->next;
    }
    *at = guard->next;
    (void)pthread_mutex_unlock(&lock);
}

/* On the same thread as the driver's work, hence after it. */
static void open_again(void *ctx)
{
    (void)ctx;
    atomic_store_explicit(&sl_module_guard_closed, false, memory_order_release);
}

/* A reactor is inside for microseconds, unless it lost its processor there. */
void sl_module_guard_hear(int log_type)
{
    if (log_type != memif_log_type || memif_log_type < 0 || sl_module_eal_has_joined()) {
        return;
    }
    if (atomic_load_explicit(&sl_module_guard_closed, memory_order_relaxed)) {
        return; /* and they are all out */
    }
    atomic_store_explicit(&sl_module_guard_closed, true, memory_order_seq_cst);
    if (rte_eal_alarm_set(1, open_again, NULL) != 0) {
        open_again(NULL);
        return;
    }
    (void)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    (void)pthread_mutex_lock(&lock);
    for (struct sl_module_guard *guard = guards; guard != NULL; guard = guard->next) {
        while (atomic_load_explicit(&guard->inside, memory_order_acquire)) {
            (void)sched_yield();
        }
    }
    (void)pthread_mutex_unlock(&lock);
}
