#include "bench/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/log.h"

#define REMOVALS_MAX     100
#define REMOVAL_PAUSE_US 10000

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *at)
{
    (void)status;
    (void)type;
    (void)at;
    return remove(path);
}

/* A process that removes the folder when we end, however that happens: it waits for the end of a
 * pipe whose other end only we have. Signals are blocked: Ctrl-C is not for it. */
static int start_cleaner(struct sl_bench_scratch *scratch)
{
    int ends[2];
    char byte;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return SL_ERR_IO;
    }
    (void)fflush(NULL); /* what is buffered is ours to write, once */
    scratch->cleaner = fork();
    if (scratch->cleaner == 0) {
        (void)close(ends[1]);
        while (read(ends[0], &byte, 1) < 0 && errno == EINTR) {
        }
        /* Other processes end with us, but a moment later, and may write once more. */
        for (uint32_t i = 0; i < REMOVALS_MAX && access(scratch->path, F_OK) == 0; i++) {
            (void)usleep(i > 0 ? REMOVAL_PAUSE_US : 0);
            (void)nftw(scratch->path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
        }
        _exit(0);
    }
    (void)close(ends[0]);
    scratch->pipe = ends[1];
    return scratch->cleaner < 0 ? SL_ERR_IO : 0;
}

/* No signal comes between the making of the folder and that of who removes it. */
int sl_bench_scratch_init(struct sl_bench_scratch *scratch, const char *parent, const char *name)
{
    const char *where = parent == NULL ? getenv("TMPDIR") : parent;
    sigset_t all, before;
    where = where == NULL || where[0] == '\0' ? "/tmp" : where;
    *scratch = (struct sl_bench_scratch){0};
    (void)snprintf(scratch->path, sizeof scratch->path, "%s/starling-bench-%s-XXXXXX", where, name);
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, &before);
    int err = 0;
    if (mkdtemp(scratch->path) == NULL) {
        sl_log_error("no folder can be made in %s: %s", where, strerror(errno));
        scratch->path[0] = '\0';
        err = SL_ERR_IO;
    } else if (start_cleaner(scratch) != 0) {
        sl_log_error("no process can be started: %s", strerror(errno));
        err = SL_ERR_IO;
    }
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    return err;
}

void sl_bench_scratch_fini(struct sl_bench_scratch *scratch)
{
    if (scratch->cleaner > 0) {
        (void)close(scratch->pipe);
        (void)waitpid(scratch->cleaner, NULL, 0);
    } else if (scratch->path[0] != '\0') {
        (void)rmdir(scratch->path); /* nothing is in it yet */
    }
    *scratch = (struct sl_bench_scratch){0};
}
