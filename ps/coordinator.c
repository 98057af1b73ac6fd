#include "ps/coordinator.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/log.h"
#include "ps/coordinator_internal.h"

#define WAITING_INTERVAL_DEFAULT_NS (3 * SL_CLOCK_NS_PER_S)

int sl_coordinator_create(const struct sl_coordinator_options *options, struct sl_coordinator **out)
{
    sl_assert(options->send != NULL);
    sl_assert(options->ps_count > 0);
    sl_assert(options->ps_count <= SL_LIMIT_PS);
    struct sl_coordinator *coordinator = calloc(1, sizeof *coordinator);
    if (coordinator == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    coordinator->options = *options;
    if (options->waiting_interval_ns == 0) {
        coordinator->options.waiting_interval_ns = WAITING_INTERVAL_DEFAULT_NS;
    }
    coordinator->worker_count = options->worker_count;
    (void)snprintf(coordinator->worker_count_from, sizeof coordinator->worker_count_from,
                   "the coordinator");
    *out = coordinator;
    return 0;
}

void sl_coordinator_destroy(struct sl_coordinator **coordinator)
{
    sl_coordinator_barrier_fini(*coordinator);
    for (uint32_t i = 0; i < (*coordinator)->member_count; i++) {
        free((*coordinator)->members[i]);
    }
    free((*coordinator)->members);
    free((*coordinator)->peers);
    free((*coordinator)->tables);
    free(*coordinator);
    *coordinator = NULL;
}

void sl_coordinator_send(struct sl_coordinator *coordinator,
                         const struct sl_coordinator_member *member, struct sl_message *message)
{
    coordinator->options.send(coordinator->options.ctx, member->peer, message);
}

void sl_coordinator_refuse(struct sl_coordinator *coordinator,
                           const struct sl_coordinator_member *member, uint64_t id, int err,
                           const char *format, ...)
{
    struct sl_message message = {.kind = SL_MESSAGE_ERROR, .id = id, .error.err = err};
    va_list args;
    va_start(args, format);
    (void)vsnprintf(message.error.text, sizeof message.error.text, format, args);
    va_end(args);
    sl_log_warn("refused %s: %s", member->name, message.error.text);
    sl_coordinator_send(coordinator, member, &message);
}

struct sl_coordinator_member *sl_coordinator_find(const struct sl_coordinator *coordinator,
                                                  enum sl_message_role role, uint32_t task_index)
{
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        struct sl_coordinator_member *member = coordinator->members[i];
        if (member->hello.role == role && member->hello.task_index == task_index) {
            return member;
        }
    }
    return NULL;
}

static struct sl_coordinator_member *find_peer(const struct sl_coordinator *coordinator,
                                               sl_coordinator_peer peer, uint32_t *index)
{
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        if (coordinator->peers[i] == peer) {
            *index = i;
            return coordinator->members[i];
        }
    }
    return NULL;
}

/* Makes room for one more item in an array that is allocated anew when full; false: no memory. */
static bool grow(void **items, size_t item_bytes, uint32_t max)
{
    void *grown = reallocarray(*items, max, item_bytes);
    if (grown == NULL) {
        return false;
    }
    *items = grown;
    return true;
}

static bool members_grow(struct sl_coordinator *coordinator)
{
    if (coordinator->member_count < coordinator->member_max) {
        return true;
    }
    uint32_t max = coordinator->member_max == 0 ? 64 : 2 * coordinator->member_max;
    void *peers = coordinator->peers;
    void *members = coordinator->members;
    bool grown = grow(&peers, sizeof *coordinator->peers, max);
    coordinator->peers = peers;
    grown = grown && grow(&members, sizeof(void *), max);
    coordinator->members = members;
    coordinator->member_max = grown ? max : coordinator->member_max;
    return grown;
}

static int check_hello(const struct sl_coordinator *coordinator,
                       const struct sl_message_hello *hello, char *reason, size_t reason_bytes)
{
    if (hello->role == SL_MESSAGE_ROLE_CLIENT) {
        return 0;
    }
    bool is_ps = hello->role == SL_MESSAGE_ROLE_PS;
    const char *role = is_ps ? "ps" : "worker";
    uint32_t count = is_ps ? coordinator->options.ps_count : coordinator->worker_count;
    if (count != 0 && hello->task_index >= count) {
        (void)snprintf(reason, reason_bytes, "%s/%u: the cluster has %u %s, %s/0 to %s/%u", role,
                       hello->task_index, count, is_ps ? "ps" : "workers", role, role, count - 1);
        return SL_ERR_INVALID;
    }
    if (sl_coordinator_find(coordinator, hello->role, hello->task_index) != NULL) {
        (void)snprintf(reason, reason_bytes, "%s/%u is a member already: is it started twice?",
                       role, hello->task_index);
        return SL_ERR_EXISTS;
    }
    return 0;
}

static void set_name(struct sl_coordinator_member *member)
{
    const struct sl_message_hello *hello = &member->hello;
    if (hello->role == SL_MESSAGE_ROLE_CLIENT) {
        (void)snprintf(member->name, sizeof member->name, "client %016" PRIx64, hello->client_id);
    } else {
        (void)snprintf(member->name, sizeof member->name, "%s/%u",
                       hello->role == SL_MESSAGE_ROLE_PS ? "ps" : "worker", hello->task_index);
    }
}

int sl_coordinator_hello(struct sl_coordinator *coordinator, sl_coordinator_peer peer,
                         const struct sl_message_hello *hello, uint64_t now_ns, char *reason,
                         size_t reason_bytes)
{
    (void)now_ns;
    int err = check_hello(coordinator, hello, reason, reason_bytes);
    if (err != 0) {
        return err;
    }
    struct sl_coordinator_member *member = calloc(1, sizeof *member);
    if (member == NULL || !members_grow(coordinator)) {
        free(member);
        (void)snprintf(reason, reason_bytes, "the coordinator has no memory for another member");
        return SL_ERR_NO_MEMORY;
    }
    member->hello = *hello;
    member->peer = peer;
    set_name(member);
    coordinator->peers[coordinator->member_count] = peer;
    coordinator->members[coordinator->member_count] = member;
    coordinator->member_count++;
    sl_log_debug("%s joined (%s)", member->name, hello->software);
    return 0;
}

void sl_coordinator_gone(struct sl_coordinator *coordinator, sl_coordinator_peer peer,
                         bool expected, uint64_t now_ns)
{
    (void)now_ns;
    uint32_t index;
    struct sl_coordinator_member *member = find_peer(coordinator, peer, &index);
    if (member == NULL) {
        return;
    }
    if (member->said_goodbye || expected) {
        sl_log_debug("%s left", member->name);
    } else {
        sl_log_warn("%s vanished: its connection closed without a goodbye", member->name);
    }
    sl_coordinator_barrier_leave(coordinator, member);
    coordinator->member_count--;
    coordinator->peers[index] = coordinator->peers[coordinator->member_count];
    coordinator->members[index] = coordinator->members[coordinator->member_count];
    free(member);
}

void sl_coordinator_miss(struct sl_message_waiting *waiting, uint32_t *missing_total,
                         const char *role, uint32_t task_index)
{
    const uint32_t last = SL_MESSAGE_MISSING_COUNT - 1;
    (*missing_total)++;
    if (*missing_total <= SL_MESSAGE_MISSING_COUNT) {
        waiting->missing_count = *missing_total;
        (void)snprintf(waiting->missing[*missing_total - 1], sizeof waiting->missing[0], "%s/%u",
                       role, task_index);
    } else {
        (void)snprintf(waiting->missing[last], sizeof waiting->missing[0], "%u more",
                       *missing_total - last);
    }
}

/* Names the ps that have not registered; returns how many. */
static uint32_t missing_ps(const struct sl_coordinator *coordinator,
                           struct sl_message_waiting *waiting)
{
    bool here[SL_LIMIT_PS] = {false};
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        const struct sl_coordinator_member *member = coordinator->members[i];
        if (member->hello.role == SL_MESSAGE_ROLE_PS && member->registered) {
            here[member->hello.task_index] = true;
        }
    }
    uint32_t total = 0;
    for (uint32_t task = 0; task < coordinator->options.ps_count; task++) {
        if (!here[task]) {
            sl_coordinator_miss(waiting, &total, "ps", task);
        }
    }
    return total;
}

static void fill_cluster(const struct sl_coordinator *coordinator, struct sl_message_ps *ps)
{
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        const struct sl_coordinator_member *member = coordinator->members[i];
        if (member->hello.role != SL_MESSAGE_ROLE_PS) {
            continue;
        }
        struct sl_message_ps *to = &ps[member->hello.task_index];
        to->task_index = member->hello.task_index;
        to->shard_count = member->reg.shard_count;
        memcpy(to->data_endpoint, member->reg.data_endpoint, sizeof to->data_endpoint);
    }
}

/* When all ps are there, tells the cluster to everyone who waits for it. */
static void publish_cluster(struct sl_coordinator *coordinator)
{
    struct sl_message_waiting nobody = {0};
    if (missing_ps(coordinator, &nobody) > 0) {
        return;
    }
    struct sl_message_ps *ps = calloc(coordinator->options.ps_count, sizeof *ps);
    if (ps == NULL) {
        sl_log_error("no memory to tell the members the cluster; trying again");
        return;
    }
    fill_cluster(coordinator, ps);
    struct sl_message message = {
        .kind = SL_MESSAGE_CLUSTER,
        .cluster = {.ps = ps,
                    .ps_count = coordinator->options.ps_count,
                    .worker_count = coordinator->worker_count},
    };
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        struct sl_coordinator_member *member = coordinator->members[i];
        if (member->waits_for_cluster) {
            member->waits_for_cluster = false;
            message.id = member->cluster_request;
            sl_coordinator_send(coordinator, member, &message);
        }
    }
    free(ps);
}

/* Do the counts that the member expects agree with what others said before? */
static bool counts_agree(struct sl_coordinator *coordinator,
                         const struct sl_coordinator_member *member,
                         const struct sl_message *message)
{
    const struct sl_message_register *reg = &message->reg;
    if (reg->ps_count != 0 && reg->ps_count != coordinator->options.ps_count) {
        sl_coordinator_refuse(coordinator, member, message->id, SL_ERR_INVALID,
                              "%s expects %u ps, the coordinator %u", member->name, reg->ps_count,
                              coordinator->options.ps_count);
        return false;
    }
    if (reg->worker_count == 0) {
        return true;
    }
    if (coordinator->worker_count == 0) {
        coordinator->worker_count = reg->worker_count;
        memcpy(coordinator->worker_count_from, member->name, sizeof member->name);
    }
    if (reg->worker_count != coordinator->worker_count) {
        sl_coordinator_refuse(coordinator, member, message->id, SL_ERR_INVALID,
                              "%s expects %u workers, %s %u", member->name, reg->worker_count,
                              coordinator->worker_count_from, coordinator->worker_count);
        return false;
    }
    return true;
}

/* A ps says where it is. One that comes back must have as many shards as before, since the keys are
 * spread over them. */
static bool register_ps(struct sl_coordinator *coordinator, struct sl_coordinator_member *member,
                        const struct sl_message *message)
{
    const struct sl_message_register *reg = &message->reg;
    uint32_t *known = &coordinator->known_shards[member->hello.task_index];
    uint32_t others = 0;
    for (uint32_t task = 0; task < coordinator->options.ps_count; task++) {
        others += task == member->hello.task_index ? 0 : coordinator->known_shards[task];
    }
    const char *why = reg->shard_count == 0           ? "a ps has at least one shard"
                      : reg->data_endpoint[0] == '\0' ? "a ps must name its data endpoint"
                      : others + reg->shard_count > SL_LIMIT_SHARDS
                          ? "the cluster would have more shards than the limit of 4096"
                      : *known != 0 && *known != reg->shard_count
                          ? "it came back with another number of shards"
                          : NULL;
    if (why != NULL) {
        sl_coordinator_refuse(coordinator, member, message->id, SL_ERR_INVALID,
                              "%s with %u shards: %s", member->name, reg->shard_count, why);
        return false;
    }
    if (*known != 0) {
        sl_log_warn("%s came back; its tables begin anew", member->name);
    }
    *known = reg->shard_count;
    member->reg = *reg;
    return true;
}

static void on_register(struct sl_coordinator *coordinator, struct sl_coordinator_member *member,
                        const struct sl_message *message, uint64_t now_ns)
{
    if (!counts_agree(coordinator, member, message)) {
        return;
    }
    bool is_ps = member->hello.role == SL_MESSAGE_ROLE_PS;
    if (is_ps && !member->registered && !register_ps(coordinator, member, message)) {
        return;
    }
    member->registered = true;
    member->waits_for_cluster = true;
    member->cluster_request = message->id;
    member->remind_ns = now_ns + coordinator->options.waiting_interval_ns;
    publish_cluster(coordinator);
}

static void on_table_open(struct sl_coordinator *coordinator,
                          const struct sl_coordinator_member *member,
                          const struct sl_message *message)
{
    const struct sl_table_spec *spec = &message->table_open.spec;
    char reason[SL_MESSAGE_TEXT_BYTES];
    int err = sl_message_check_spec(spec, reason, sizeof reason);
    uint32_t id = 0;
    while (id < coordinator->table_count && strcmp(coordinator->tables[id].name, spec->name) != 0) {
        id++;
    }
    if (err == 0 && id < coordinator->table_count) {
        err = sl_message_compare_specs(&coordinator->tables[id], spec, reason, sizeof reason);
    }
    if (err == 0 && id == SL_LIMIT_TABLES) {
        err = SL_ERR_TOO_LARGE;
        (void)snprintf(reason, sizeof reason, "table %s would be one more than the limit of %d",
                       spec->name, SL_LIMIT_TABLES);
    }
    if (err == 0 && id == coordinator->table_max) {
        uint32_t max = coordinator->table_max == 0 ? 16 : 2 * coordinator->table_max;
        void *tables = coordinator->tables;
        if (grow(&tables, sizeof *coordinator->tables, max)) {
            coordinator->tables = tables;
            coordinator->table_max = max;
        } else {
            err = SL_ERR_NO_MEMORY;
            (void)snprintf(reason, sizeof reason, "the coordinator has no memory");
        }
    }
    if (err != 0) {
        sl_coordinator_refuse(coordinator, member, message->id, err, "%s", reason);
        return;
    }
    if (id == coordinator->table_count) {
        coordinator->tables[coordinator->table_count++] = *spec;
        sl_log_info("table %s has id %u (opened first by %s)", spec->name, id, member->name);
    }
    struct sl_message answer = {.kind = SL_MESSAGE_TABLE_OPENED, .id = message->id, .table_id = id};
    sl_coordinator_send(coordinator, member, &answer);
}

/* The registered tables by name; what they hold is known to the shards only. */
static void on_stats_get(struct sl_coordinator *coordinator,
                         const struct sl_coordinator_member *member, uint64_t id)
{
    struct sl_message_table_stats *tables = calloc(coordinator->table_count + 1, sizeof *tables);
    if (tables == NULL) {
        sl_coordinator_refuse(coordinator, member, id, SL_ERR_NO_MEMORY, "no memory");
        return;
    }
    for (uint32_t i = 0; i < coordinator->table_count; i++) {
        memcpy(tables[i].name, coordinator->tables[i].name, sizeof tables[i].name);
    }
    struct sl_message answer = {
        .kind = SL_MESSAGE_STATS,
        .id = id,
        .stats = {.tables = tables, .table_count = coordinator->table_count},
    };
    sl_coordinator_send(coordinator, member, &answer);
    free(tables);
}

void sl_coordinator_message(struct sl_coordinator *coordinator, sl_coordinator_peer peer,
                            const struct sl_message *message, uint64_t now_ns)
{
    uint32_t index;
    struct sl_coordinator_member *member = find_peer(coordinator, peer, &index);
    sl_assert(member != NULL);
    switch (message->kind) {
    case SL_MESSAGE_REGISTER:
        on_register(coordinator, member, message, now_ns);
        break;
    case SL_MESSAGE_TABLE_OPEN:
        on_table_open(coordinator, member, message);
        break;
    case SL_MESSAGE_BARRIER:
        sl_coordinator_barrier_come(coordinator, member, message, now_ns);
        break;
    case SL_MESSAGE_STATS_GET:
        on_stats_get(coordinator, member, message->id);
        break;
    case SL_MESSAGE_GOODBYE:
        member->said_goodbye = true;
        break;
    default:
        sl_coordinator_refuse(coordinator, member, message->id, SL_ERR_PROTOCOL,
                              "the coordinator does not take messages of kind %d",
                              (int)message->kind);
    }
}

static void remind_of_cluster(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    struct sl_message message = {.kind = SL_MESSAGE_WAITING};
    if (missing_ps(coordinator, &message.waiting) == 0) {
        publish_cluster(coordinator); /* it failed for want of memory before */
        return;
    }
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        struct sl_coordinator_member *member = coordinator->members[i];
        if (member->waits_for_cluster && now_ns >= member->remind_ns) {
            member->remind_ns = now_ns + coordinator->options.waiting_interval_ns;
            message.id = member->cluster_request;
            sl_coordinator_send(coordinator, member, &message);
        }
    }
}

void sl_coordinator_tick(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    remind_of_cluster(coordinator, now_ns);
    sl_coordinator_barrier_remind(coordinator, now_ns);
}
