/* Servers and the scheduler are played here: what they do, the tests say by a variable. */
#include "bench/pslite_job.h"
#include "tests/support/unit.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <starling_kv.h>

enum { PATIENCE_MS = 30000, ROLES_MAX = 16, TEXT_BYTES = 128 };

/* What the processes leave. */
struct notes {
    volatile int workers_ended;
    char scheduler[TEXT_BYTES], server[TEXT_BYTES], worker[TEXT_BYTES];
};
static struct notes *notes;

static const char *value_of(const char *name)
{
    const char *value = getenv(name);
    return value == NULL ? "-" : value;
}

static void note(char *text)
{
    (void)snprintf(text, TEXT_BYTES, "%s %s:%s %s %s %s %s", value_of("DMLC_ROLE"),
                   value_of("DMLC_PS_ROOT_URI"), value_of("DMLC_NUM_WORKER"),
                   value_of("DMLC_NUM_SERVER"), value_of("STARLING_SHM"), value_of("TF_CONFIG"),
                   value_of("PS_ENABLE_POLLING"));
}

static void pause_a_little(void)
{
    const struct timespec wait = {.tv_nsec = 1000000};
    (void)nanosleep(&wait, NULL);
}

/* Goes on until two workers have ended, as a server does. */
int sl_kv_serve(int argc, char **argv, const struct sl_kv_handler *handler)
{
    const bool is_scheduler = strcmp(value_of("DMLC_ROLE"), "scheduler") == 0;
    note(is_scheduler ? notes->scheduler : notes->server);
    if (handler != NULL && handler->handle == NULL) {
        return 3; /* as one test asks */
    }
    while (notes->workers_ended < 2) {
        pause_a_little();
    }
    return 0;
}

static int work(void *ctx, uint32_t worker)
{
    if (worker == 0) {
        note(notes->worker);
    }
    (void)__atomic_add_fetch(&notes->workers_ended, 1, __ATOMIC_SEQ_CST);
    return 0;
}

static int end_badly(void *ctx, uint32_t worker)
{
    return worker == 1 ? 7 : 0;
}

static int stay(void *ctx, uint32_t worker)
{
    (void)pause(); /* until it is killed */
    return 1;
}

static struct sl_bench_pslite_job_options options_of(int (*does)(void *, uint32_t))
{
    *notes = (struct notes){0};
    return (struct sl_bench_pslite_job_options){
        .workers = 2, .server_core = -1, .worker_core = -1, .work = does};
}

SL_CASE(start__roles_know_each_other)
{
    struct sl_bench_pslite_job_options options = options_of(work);
    struct sl_bench_pslite_job job;
    options.no_shm = true;
    options.server_polling = "true";
    assert_int_equal(setenv("TF_CONFIG", "{}", 1), 0);
    assert_int_equal(sl_bench_pslite_job_start(&options, &job), 0);
    assert_int_equal(sl_bench_pslite_job_wait(&job, PATIENCE_MS), 0);
    assert_int_equal(unsetenv("TF_CONFIG"), 0);
    assert_string_equal(notes->scheduler, "scheduler 127.0.0.1:2 1 0 - true");
    assert_string_equal(notes->server, "server 127.0.0.1:2 1 0 - true");
    assert_string_equal(notes->worker, "worker 127.0.0.1:2 1 0 - true");
    sl_bench_pslite_job_stop(&job);
}

SL_CASE(wait__tells_a_worker_that_failed)
{
    const struct sl_bench_pslite_job_options options = options_of(end_badly);
    struct sl_bench_pslite_job job;
    assert_int_equal(sl_bench_pslite_job_start(&options, &job), 0);
    assert_int_equal(sl_bench_pslite_job_wait(&job, PATIENCE_MS), SL_ERR_CLOSED);
    sl_bench_pslite_job_stop(&job);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
}

SL_CASE(wait__has_a_deadline)
{
    const struct sl_bench_pslite_job_options options = options_of(stay);
    struct sl_bench_pslite_job job;
    assert_int_equal(sl_bench_pslite_job_start(&options, &job), 0);
    assert_int_equal(sl_bench_pslite_job_look(&job), 0);
    assert_int_equal(sl_bench_pslite_job_wait(&job, 20), SL_ERR_DEADLINE);
    sl_bench_pslite_job_stop(&job);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

SL_CASE(look__notices_a_server_that_ended)
{
    static const struct sl_kv_handler none = {0};
    struct sl_bench_pslite_job_options options = options_of(stay);
    struct sl_bench_pslite_job job;
    options.handler = &none;
    assert_int_equal(sl_bench_pslite_job_start(&options, &job), 0);
    int err = 0;
    for (int i = 0; i < PATIENCE_MS && err == 0; i++) {
        pause_a_little();
        err = sl_bench_pslite_job_look(&job);
    }
    assert_int_equal(err, SL_ERR_CLOSED);
    sl_bench_pslite_job_stop(&job);
}

/* The letter of its state in /proc/PID/stat. */
static char state_of(pid_t pid)
{
    char path[64];
    char letter = '?';
    (void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*d %*s %c", &letter), 1);
    (void)fclose(file);
    return letter;
}

static void await_state(pid_t pid, bool stopped)
{
    for (int i = 0; i < PATIENCE_MS && (state_of(pid) == 'T') != stopped; i++) {
        pause_a_little();
    }
    assert_int_equal(state_of(pid) == 'T', stopped);
}

SL_CASE(park__stops_the_server_in_its_place)
{
    const struct sl_bench_pslite_job_options options = options_of(stay);
    struct sl_bench_pslite_job job;
    assert_int_equal(sl_bench_pslite_job_start(&options, &job), 0);
    sl_bench_pslite_job_park(&job, true);
    await_state(job.server, true);
    assert_int_equal(sl_bench_pslite_job_look(&job), 0);
    sl_bench_pslite_job_park(&job, false);
    await_state(job.server, false);
    sl_bench_pslite_job_park(&job, true);
    sl_bench_pslite_job_stop(&job); /* also what is parked */
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

SL_UNIT_SETUP()
{
    notes = mmap(NULL, sizeof *notes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(notes != MAP_FAILED);
}
