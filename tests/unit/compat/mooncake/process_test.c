/* The peer of Mooncake's C functions is another process, which is stopped and killed. */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/assert.h"
#include "core/clock.h"
#include "duo.h"
#include "tests/support/unit.h"

#define BYTES (8U << 20)

struct child {
    pid_t pid;
    char name[64];
    uint64_t address;
};

static uint8_t memory[BYTES];

static void serve(int out)
{
    struct child self = {.pid = getpid(), .address = (uintptr_t)memory};
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    transfer_engine_t engine = duo_engine();
    if (engine == NULL || registerLocalMemory(engine, memory, BYTES, "*", 1) != 0 ||
        getLocalIpAndPort(engine, self.name, sizeof self.name) != 0 ||
        write(out, &self, sizeof self) != sizeof self) {
        _exit(1);
    }
    for (;;) {
        (void)pause();
    }
}

static struct child start(void)
{
    int ends[2];
    struct child child;
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        serve(ends[1]);
    }
    assert_int_equal(read(ends[0], &child, sizeof child), sizeof child);
    (void)close(ends[0]);
    (void)close(ends[1]);
    return child;
}

static uint64_t now_ms(void)
{
    return sl_clock_now_ns(sl_clock_system()) / SL_CLOCK_NS_PER_MS;
}

static batch_id_t submit(transfer_engine_t engine, segment_id_t segment, const struct child *child)
{
    struct transfer_request request = {.opcode = OPCODE_WRITE,
                                       .source = memory,
                                       .target_id = segment,
                                       .target_offset = child->address,
                                       .length = BYTES};
    const batch_id_t batch = allocateBatchID(engine, 1);
    assert_int_equal(submitTransfer(engine, batch, &request, 1), 0);
    return batch;
}

static transfer_engine_t engine_with_timeout(const char *seconds)
{
    assert_int_equal(setenv("MC_TRANSFER_TIMEOUT", seconds, 1), 0);
    transfer_engine_t engine = duo_engine();
    assert_int_equal(unsetenv("MC_TRANSFER_TIMEOUT"), 0);
    assert_int_equal(registerLocalMemory(engine, memory, BYTES, "*", 0), 0);
    return engine;
}

static void end(const struct child *child)
{
    assert_int_equal(kill(child->pid, SIGKILL), 0);
    assert_int_equal(waitpid(child->pid, NULL, 0), child->pid);
}

SL_CASE(process__that_is_stopped_or_killed_fails_what_it_was_asked)
{
    const struct child child = start();
    transfer_engine_t patient = engine_with_timeout("400"), engine = engine_with_timeout("2");
    segment_id_t segment = openSegment(patient, child.name);
    batch_id_t batch = submit(patient, segment, &child);
    assert_int_equal(duo_wait(patient, batch, 0), STATUS_COMPLETED);
    assert_int_equal(freeBatchID(patient, batch), 0);
    destroyTransferEngine(patient);

    segment = openSegment(engine, child.name);
    assert_int_equal(kill(child.pid, SIGSTOP), 0);
    const uint64_t begun_ms = now_ms();
    batch = submit(engine, segment, &child);
    assert_int_equal(freeBatchID(engine, batch), -4); /* it runs */
    assert_int_equal(duo_wait(engine, batch, 0), STATUS_FAILED);
    assert_true(now_ms() - begun_ms >= 1900);
    assert_int_equal(freeBatchID(engine, batch), 0);
    memset(memory, 1, BYTES); /* no thread reads it any more */

    assert_int_equal(kill(child.pid, SIGCONT), 0);
    end(&child);
    batch = submit(engine, segment, &child);
    assert_int_equal(duo_wait(engine, batch, 0), STATUS_FAILED);
    destroyTransferEngine(engine); /* with a batch and a segment */
}

#define THREADS 4
#define TURNS   50
#define SHARE   (BYTES / THREADS / 2)

struct user {
    transfer_engine_t engine;
    const struct child *child;
    uint32_t index;
    pthread_t thread;
};

/* Memory of its own, batches, and opens and closes of the segment that all have. */
static void *use(void *argument)
{
    const struct user *user = argument;
    uint8_t *mine = memory + user->index * SHARE;
    struct transfer_status status;
    for (uint32_t i = 0; i < TURNS; i++) {
        const segment_id_t segment = openSegment(user->engine, user->child->name);
        struct transfer_request request = {.opcode = i % 2 == 0 ? OPCODE_WRITE : OPCODE_READ,
                                           .source = mine,
                                           .target_id = segment,
                                           .target_offset =
                                               user->child->address + user->index * SHARE,
                                           .length = SHARE};
        const batch_id_t batch = allocateBatchID(user->engine, 2);
        memset(mine, (int)i, SHARE);
        sl_assert(registerLocalMemory(user->engine, mine, SHARE, "*", 0) == 0);
        sl_assert(submitTransfer(user->engine, batch, &request, 1) == 0);
        sl_assert(submitTransfer(user->engine, batch, &request, 1) == 0);
        for (size_t task = 0; task < 2;) {
            sl_assert(getTransferStatus(user->engine, batch, task, &status) == 0);
            sl_assert(status.status == STATUS_PENDING || status.status == STATUS_COMPLETED);
            task += status.status == STATUS_COMPLETED ? 1 : 0;
        }
        sl_assert(freeBatchID(user->engine, batch) == 0);
        sl_assert(unregisterLocalMemory(user->engine, mine) == 0);
        sl_assert(closeSegment(user->engine, segment) == 0);
    }
    return NULL;
}

SL_CASE(process__is_used_by_several_threads)
{
    const struct child child = start();
    struct user users[THREADS];
    assert_int_equal(setenv("MC_TRANSFER_TIMEOUT", "400", 1), 0);
    transfer_engine_t engine = duo_engine();
    assert_int_equal(unsetenv("MC_TRANSFER_TIMEOUT"), 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        users[i] = (struct user){.engine = engine, .child = &child, .index = i};
        assert_int_equal(pthread_create(&users[i].thread, NULL, use, &users[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(users[i].thread, NULL), 0);
    }
    destroyTransferEngine(engine);
    end(&child);
}
