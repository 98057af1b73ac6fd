#include "programs/launch/ssh.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/number.h"
#include "core/clock.h"
#include "core/endpoint.h"
#include "core/limits.h"
#include "core/log.h"

/* Runs around the program on the remote host. ssh forwards no signals, and does not end the remote
 * command when it dies, but standard input ends in both cases. A watcher reads it, asks the program
 * to end at EOF, and kills it after the grace period. Where setsid(1) exists, the program has its
 * own process group, which ends with it, as on this host. $1: working directory; $2: host for ssh;
 * $3: grace period in seconds; the rest: command. */
static const char script[] =
    "cd \"$1\" || { echo \"starling-launch: cannot enter the working directory $1 on $2: start "
    "from a directory that every host has\" >&2; exit 127; }; g=$3; shift 3; exec 3<&0; c=; "
    "command -v setsid >/dev/null && c=setsid; $c \"$@\" 3<&- </dev/null & p=$!; { while read -r "
    "x; do :; done <&3; kill -TERM $p; while [ $g -gt 0 ] && kill -0 $p; do sleep 1; g=$((g-1)); "
    "done; kill -KILL $p; } >/dev/null 2>&1 & w=$!; exec 3<&-; wait $p; s=$?; { kill $w; [ -z "
    "\"$c\" ] || kill -KILL -$p; } 2>/dev/null; exit $s";

/* The parsed host list: one "user@host" per process, by role. */
struct host_list {
    const char *path;
    uint32_t line;
    struct sl_words targets[SL_PLAN_ROLES]; /* of agents: each host once */
    struct sl_reason *reason;
};

static int ssh_refuse(const struct host_list *list, const char *text, const char *why)
{
    return sl_reason_fail(list->reason, SL_ERR_INVALID,
                          "%s:%u: \"%.80s\": %s; expected [user@]host[:slots] ps|worker",
                          list->path, list->line, text, why);
}

/* Writes the host part of "user@host" for an endpoint, with brackets for IPv6. */
static void ssh_host_of(const char *target, char *host, size_t host_bytes)
{
    const char *at = strrchr(target, '@');
    const char *name = at == NULL ? target : at + 1;
    snprintf(host, host_bytes, strchr(name, ':') != NULL ? "[%s]" : "%s", name);
}

static unsigned first_port(const struct sl_launch_options *options)
{
    return options->port_base != 0 ? (unsigned)options->port_base : SL_SSH_PORT_BASE;
}

/* Returns true for a valid host that ssh cannot mistake for an option. */
static bool is_target(const char *target)
{
    static const char user[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    char host[300], with_port[320];
    struct sl_endpoint endpoint;
    const char *at = strrchr(target, '@');
    if (target[0] == '-' || (at != NULL && strspn(target, user) != (size_t)(at - target))) {
        return false;
    }
    ssh_host_of(target, host, sizeof host);
    snprintf(with_port, sizeof with_port, "%s:0", host);
    return host[0] != '-' && sl_endpoint_parse(with_port, &endpoint, NULL) == 0;
}

/* Removes ":slots" and the brackets of IPv6. False: slots is not a number, or a bracket is
 * missing. */
static bool take_slots(char *target, uint32_t *out)
{
    *out = 1;
    char *open = strchr(target, '['), *close = strchr(target, ']');
    char *colon = strchr(close != NULL ? close : target, ':');
    if (colon != NULL) {
        *colon = '\0';
        if (!sl_number_parse_u32(colon + 1, 1, SL_LIMIT_WORKERS, out)) {
            return false;
        }
    }
    if (open == NULL || close == NULL) {
        return open == close;
    }
    if (close < open || close[1] != '\0') {
        return false;
    }
    *close = '\0';
    memmove(open, open + 1, strlen(open));
    return true;
}

static int parse_line(struct host_list *list, char *line)
{
    char whole[128], *rest;
    snprintf(whole, sizeof whole, "%.*s", (int)strcspn(line, "\r\n"), line);
    char *target = strtok_r(line, " \t\r\n", &rest);
    if (target == NULL || target[0] == '#') {
        return 0;
    }
    const char *role_name = strtok_r(NULL, " \t\r\n", &rest);
    const bool is_ps = role_name != NULL && strcmp(role_name, "ps") == 0;
    if (!is_ps && (role_name == NULL || strcmp(role_name, "worker") != 0)) {
        return ssh_refuse(list, whole, "the role is missing or unknown");
    }
    if (strtok_r(NULL, " \t\r\n", &rest) != NULL) {
        return ssh_refuse(list, whole, "more than a host and a role");
    }
    uint32_t slots;
    if (!take_slots(target, &slots)) {
        return ssh_refuse(list, whole,
                          "slots is not a number from 1, or an address lacks brackets");
    }
    if (!is_target(target)) {
        return ssh_refuse(list, whole, "not a host");
    }
    struct sl_words *targets = &list->targets[is_ps ? SL_CLUSTER_PS : SL_CLUSTER_WORKER];
    if (slots + targets->count > (is_ps ? SL_LIMIT_PS : SL_LIMIT_WORKERS)) {
        char why[80];
        snprintf(why, sizeof why, "more than %d servers or %d workers in all", SL_LIMIT_PS,
                 SL_LIMIT_WORKERS);
        return ssh_refuse(list, whole, why);
    }
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < slots; i++) {
        err = sl_words_append(targets, target);
    }
    return err;
}

static int read_list(struct host_list *list)
{
    char line[512];
    FILE *file = fopen(list->path, "re");
    if (file == NULL) {
        sl_reason_set(list->reason, "--host-list=%s: %s", list->path, strerror(errno));
        return errno == ENOENT ? SL_ERR_NOT_FOUND : SL_ERR_IO;
    }
    int err = 0;
    while (err == 0 && fgets(line, sizeof line, file) != NULL) {
        list->line++;
        /* A NUL also hides the newline, so binary files are rejected. */
        if (strchr(line, '\n') == NULL && !feof(file)) {
            err = ssh_refuse(list, line, "too long, or a NUL byte");
        } else {
            err = parse_line(list, line);
        }
    }
    if (err == 0 && ferror(file)) {
        err = sl_reason_fail(list->reason, SL_ERR_IO, "--host-list=%s: cannot read it", list->path);
    }
    fclose(file);
    return err;
}

/* The list must have both roles, and match --ps and --workers if given. */
static int check_counts(const struct sl_launch_options *options, const struct host_list *list)
{
    const uint32_t ps = list->targets[SL_CLUSTER_PS].count;
    const uint32_t workers = list->targets[SL_CLUSTER_WORKER].count;
    if (ps == 0 || workers == 0) {
        return sl_reason_fail(
            list->reason, SL_ERR_INVALID,
            "--host-list=%s: it names %u server%s and %u worker%s; at least one of each is needed",
            list->path, ps, sl_log_plural(ps), workers, sl_log_plural(workers));
    }
    if ((options->ps.count != 0 && options->ps.count != ps) ||
        (options->worker.count != 0 && options->worker.count != workers)) {
        return sl_reason_fail(list->reason, SL_ERR_INVALID,
                              "--host-list=%s names %u server%s and %u worker%s, but --ps or "
                              "--workers says otherwise; leave them out",
                              list->path, ps, sl_log_plural(ps), workers, sl_log_plural(workers));
    }
    if (first_port(options) + (options->objects ? 2 : 1) * ps - 1 > UINT16_MAX) {
        return sl_reason_fail(list->reason, SL_ERR_INVALID,
                              "--port-base=%u: %u server%s would need ports beyond 65535",
                              first_port(options), ps, sl_log_plural(ps));
    }
    return 0;
}

static int check_ssh(const char *ssh, struct sl_reason *reason)
{
    struct sl_words words = {0};
    int err = sl_words_split(ssh, &words);
    if (err == SL_ERR_INVALID || (err == 0 && words.count == 0)) {
        err = sl_reason_fail(reason, SL_ERR_INVALID, "--ssh=%.120s: %s", ssh,
                             err != 0 ? "a quote is not closed" : "accepts a command");
    }
    sl_words_fini(&words);
    return err;
}

static int list_agents(struct host_list *list)
{
    struct sl_words *agents = &list->targets[SL_PLAN_AGENT];
    int err = 0;
    for (uint32_t role = SL_CLUSTER_PS; role <= SL_CLUSTER_WORKER; role++) {
        const struct sl_words *targets = &list->targets[role];
        for (uint32_t i = 0; err == 0 && i < targets->count; i++) {
            uint32_t at = 0;
            while (at < agents->count && strcmp(agents->items[at], targets->items[i]) != 0) {
                at++;
            }
            err = at < agents->count ? 0 : sl_words_append(agents, targets->items[i]);
        }
    }
    return err;
}

static int list_hosts(const struct sl_launch_options *options, const struct host_list *list,
                      struct sl_plan_hosts *hosts)
{
    char host[300];
    int err = 0;
    const struct sl_words *workers = &list->targets[SL_CLUSTER_WORKER];
    for (uint32_t i = 0; err == 0 && i < workers->count; i++) {
        ssh_host_of(workers->items[i], host, sizeof host);
        err = sl_words_append(&hosts->workers, host);
    }
    const struct sl_words *ps = &list->targets[SL_CLUSTER_PS];
    for (uint32_t i = 0; err == 0 && i < ps->count; i++) {
        ssh_host_of(ps->items[i], host, sizeof host);
        err = sl_plan_hosts_append(hosts, options, host, first_port(options) + i,
                                   first_port(options) + ps->count + i);
    }
    hosts->agent_count = list->targets[SL_PLAN_AGENT].count;
    hosts->master_port = options->master_port;
    return err;
}

/* Builds: sh -c SCRIPT starling DIRECTORY TARGET GRACE env NAME=VALUE... */
static int begin_remote(const struct sl_launch_options *options, const char *directory,
                        const char *target, const struct sl_plan_task *task, struct sl_words *words)
{
    char grace[24];
    const uint64_t grace_s = (options->grace_ns + SL_CLOCK_NS_PER_S - 1) / SL_CLOCK_NS_PER_S;
    snprintf(grace, sizeof grace, "%llu", (unsigned long long)grace_s);
    const char *const begin[] = {"sh", "-c", script, "starling", directory, target, grace, "env"};
    int err = sl_words_append_all(words, begin, sizeof begin / sizeof begin[0]);
    return err != 0 ? err : sl_plan_append_variables(words, task);
}

/* Wraps the task's local command: ssh's command, the target, one string. */
static int wrap(const struct sl_launch_options *options, const char *directory, const char *target,
                struct sl_plan_task *task)
{
    struct sl_words remote = {0}, outer = {0};
    char *text = NULL;
    int err = begin_remote(options, directory, target, task, &remote);
    if (err == 0) {
        err = sl_words_append_all(&remote, (const char *const *)task->argv.items, task->argv.count);
    }
    if (err == 0) {
        text = sl_words_quote(remote.items, remote.count);
        err = text == NULL ? SL_ERR_NO_MEMORY : sl_words_split(options->ssh, &outer);
    }
    err = err != 0 ? err : sl_words_append_all(&outer, (const char *const[]){target, text}, 2);
    free(text);
    sl_words_fini(&remote);
    sl_plan_wrap(task, &outer, SL_PLAN_STOP_STDIN, target);
    return err;
}

static int fill(const struct sl_launch_options *options, const struct host_list *list,
                struct sl_plan *plan)
{
    struct sl_plan_hosts hosts = {0};
    char *directory = getcwd(NULL, 0);
    if (directory == NULL) {
        sl_reason_set(list->reason,
                      "the working directory has no path that the other machines could enter: %s",
                      strerror(errno));
        return errno == ENOMEM ? SL_ERR_NO_MEMORY : SL_ERR_NOT_FOUND;
    }
    int err = list_hosts(options, list, &hosts);
    err = err != 0 ? err : sl_plan_fill(plan, options, &hosts, list->reason);
    for (uint32_t i = 0; err == 0 && i < plan->task_count; i++) {
        struct sl_plan_task *task = &plan->tasks[i];
        err = wrap(options, directory, list->targets[task->role].items[task->index], task);
    }
    free(directory);
    sl_plan_hosts_fini(&hosts);
    return err;
}

int sl_ssh_plan(const struct sl_launch_options *options, struct sl_plan *plan,
                struct sl_reason *reason)
{
    struct host_list list = {.path = options->host_list, .reason = reason};
    sl_reason_set(reason, "out of memory");
    int err = check_ssh(options->ssh, reason);
    err = err != 0 ? err : read_list(&list);
    err = err != 0 ? err : check_counts(options, &list);
    err = err != 0 || !options->agents ? err : list_agents(&list);
    err = err != 0 ? err : fill(options, &list, plan);
    for (uint32_t role = 0; role < SL_PLAN_ROLES; role++) {
        sl_words_fini(&list.targets[role]);
    }
    return err;
}
