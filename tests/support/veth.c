#include "veth.h"

#include <errno.h>
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static char why[512];

/* Runs a command of blank-separated words. */
static bool run(const char *command)
{
    char text[256], *words[32], *rest = NULL;
    size_t count = 0;
    pid_t pid;
    int status = 0;
    (void)snprintf(text, sizeof text, "%s", command);
    for (char *word = strtok_r(text, " ", &rest); word != NULL && count < 31;
         word = strtok_r(NULL, " ", &rest)) {
        words[count++] = word;
    }
    words[count] = NULL;
    const int err = posix_spawnp(&pid, words[0], NULL, NULL, words, environ);
    if (err != 0) {
        (void)snprintf(why, sizeof why, "%s: %s", command, strerror(err));
        return false;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        (void)snprintf(why, sizeof why, "%s: failed", command);
        return false;
    }
    return true;
}

const char *veth_enter(void)
{
    if (geteuid() != 0) {
        return "only root may make network devices";
    }
    if (unshare(CLONE_NEWNET) != 0) {
        (void)snprintf(why, sizeof why, "no network namespace: %s", strerror(errno));
        return why;
    }
    return NULL;
}

/* The kernel's own IPv6 address would be announced. */
static void silence(const char *name, char end)
{
    char path[128];
    (void)snprintf(path, sizeof path, "/proc/sys/net/ipv6/conf/%s%c/disable_ipv6", name, end);
    FILE *file = fopen(path, "we");
    if (file != NULL) {
        (void)fputs("1", file);
        (void)fclose(file);
    }
}

bool veth_set_up(const char *name, char end, bool up)
{
    char command[128];
    (void)snprintf(command, sizeof command, "ip link set %s%c %s", name, end, up ? "up" : "down");
    return run(command);
}

const char *veth_add(const char *name, uint32_t queues, uint32_t mtu)
{
    char command[256];
    (void)snprintf(command, sizeof command,
                   "ip link add %sa mtu %u numtxqueues %u numrxqueues %u type veth "
                   "peer name %sb mtu %u numtxqueues %u numrxqueues %u",
                   name, mtu, queues, queues, name, mtu, queues, queues);
    if (!run(command)) {
        return why;
    }
    silence(name, 'a');
    silence(name, 'b');
    return veth_set_up(name, 'a', true) && veth_set_up(name, 'b', true) ? NULL : why;
}
