#include "ps/coordinator/table.h"

#include <stdlib.h>
#include <string.h>

#include "core/array.h"
#include "core/event.h"
#include "core/reason.h"
#include "net/session/message_spec.h"
#include "ps/coordinator/placement.h"
#include "ps/coordinator/restore.h"

static bool is_used(const struct sl_coordinator *coordinator, uint32_t id)
{
    return id < coordinator->tables.count && coordinator->tables.specs[id].name[0] != '\0';
}

/* Returns the table's id; SL_LIMIT_TABLES: not found. */
static uint32_t coordinator_table_find(const struct sl_coordinator *coordinator, const char *name)
{
    for (uint32_t id = 0; id < coordinator->tables.count; id++) {
        if (strcmp(coordinator->tables.specs[id].name, name) == 0) {
            return id;
        }
    }
    return SL_LIMIT_TABLES;
}

/* Chooses an id above all others first: a free id below may belong to a table whose clients have
 * not reconnected yet. SL_LIMIT_TABLES: none is left. */
static uint32_t choose(const struct sl_coordinator *coordinator)
{
    uint32_t id = coordinator->tables.count;
    if (id == SL_LIMIT_TABLES) {
        for (id = 0;
             id < SL_LIMIT_TABLES &&
             (is_used(coordinator, id) || sl_message_dropped_has(&coordinator->tables.dropped, id));
             id++) {
        }
    }
    return id;
}

/* Makes room for `id`. Errors: NO_MEMORY. */
static int coordinator_table_reserve(struct sl_coordinator *coordinator, uint32_t id)
{
    if (!sl_array_make_room(&coordinator->tables.specs, &coordinator->tables.max, id,
                            sizeof *coordinator->tables.specs)) {
        return SL_ERR_NO_MEMORY;
    }
    if (id >= coordinator->tables.count) {
        memset(&coordinator->tables.specs[coordinator->tables.count], 0,
               (id + 1 - coordinator->tables.count) * sizeof *coordinator->tables.specs);
        coordinator->tables.count = id + 1;
    }
    return 0;
}

int sl_coordinator_table_load(struct sl_coordinator *coordinator, uint32_t id,
                              const struct sl_message_table_open *open)
{
    int err = coordinator_table_reserve(coordinator, id);
    if (err == 0) {
        coordinator->tables.specs[id] = open->spec;
        coordinator->tables.restored[id] = open->is_restored;
        if (open->spec.name[0] == '\0') {
            sl_message_dropped_add(&coordinator->tables.dropped, id);
        }
    }
    return err;
}

/* Adds an unknown table, under the id that it had (keep_id) or a new one. */
static int place(struct sl_coordinator *coordinator, const struct sl_message_table_open *open,
                 uint32_t *id, struct sl_reason *reason)
{
    const char *name = open->spec.name;
    *id = open->keep_id ? open->table_id : choose(coordinator);
    if (*id >= SL_LIMIT_TABLES) {
        return sl_reason_fail(reason, SL_ERR_TOO_LARGE,
                              "table %s would be one more than the limit of %d; the job's dropped "
                              "tables count too, since their ids are not used again",
                              name, SL_LIMIT_TABLES);
    }
    if (sl_message_dropped_has(&coordinator->tables.dropped, *id)) {
        return sl_reason_fail(reason, SL_ERR_NOT_FOUND, "table %s was dropped", name);
    }
    if (is_used(coordinator, *id)) {
        return sl_reason_fail(reason, SL_ERR_EXISTS,
                              "table %s cannot keep its id %u: table %s has it", name, *id,
                              coordinator->tables.specs[*id].name);
    }
    int err = coordinator_table_reserve(coordinator, *id);
    if (err != 0) {
        return sl_reason_fail(reason, err, "the coordinator has no memory for table %s", name);
    }
    coordinator->tables.specs[*id] = open->spec;
    coordinator->tables.restored[*id] = open->is_restored;
    sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_TABLE, *id);
    /* A table that has an id already belongs to a job older than this coordinator. */
    coordinator->tables.are_older = coordinator->tables.are_older || open->keep_id;
    for (uint32_t task = 0;
         open->keep_id && coordinator->cluster.is_ready && task < coordinator->placement.ps_end;
         task++) {
        sl_coordinator_restore_check_values(coordinator, task);
    }
    return 0;
}

/* Decides about the open of a known table whose policy alone differs. A server may have restored an
 * older policy: its shards take that of the next client. */
static int compare_policy(struct sl_coordinator *coordinator,
                          const struct sl_coordinator_member *member,
                          const struct sl_message_table_open *open, uint32_t id,
                          struct sl_reason *reason)
{
    struct sl_table_spec *existing = &coordinator->tables.specs[id];
    const enum sl_coordinator_restore_policy which = coordinator->options.restore_policy;
    struct sl_reason difference;
    const int err = sl_message_compare_specs(existing, &open->spec, &difference);
    if (open->is_restored) {
        return 0;
    }
    if (!coordinator->tables.restored[id]) {
        return sl_reason_fail(reason, err, "%s", difference.text);
    }
    if (which == SL_COORDINATOR_RESTORE_POLICY_REFUSE) {
        return sl_reason_fail(reason, err,
                              "without --restore-policy keep|new at the servers, the policy of a "
                              "restored table is required: %s",
                              difference.text);
    }
    if (which == SL_COORDINATOR_RESTORE_POLICY_KEEP) {
        sl_log_info("%s: the policy of the checkpoint stays (--restore-policy keep): %s",
                    member->name, difference.text);
        return 0;
    }
    sl_log_event(SL_LOG_WARN,
                 SL_EVENT("policy_replaced", SL_EVENT_TEXT("table", existing->name),
                          SL_EVENT_NUMBER("id", id), SL_EVENT_TEXT("by", member->name)),
                 "%s: its policy replaces that of the checkpoint (--restore-policy new): %s",
                 member->name, difference.text);
    existing->policy = open->spec.policy;
    coordinator->tables.restored[id] = false;
    sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_TABLE, id);
    return 0;
}

/* Compares the request with the known table of that name. */
static int compare(struct sl_coordinator *coordinator, const struct sl_coordinator_member *member,
                   const struct sl_message_table_open *open, uint32_t id, struct sl_reason *reason)
{
    const struct sl_table_spec *existing = &coordinator->tables.specs[id];
    if (open->keep_id && open->table_id != id) {
        return sl_reason_fail(reason, SL_ERR_EXISTS,
                              "table %s cannot keep its id %u: it has id %u now", open->spec.name,
                              open->table_id, id);
    }
    if (sl_message_specs_differ_in_policy(existing, &open->spec)) {
        return compare_policy(coordinator, member, open, id, reason);
    }
    const int err = sl_message_compare_specs(existing, &open->spec, reason);
    if (err == 0 && open->is_restored && !coordinator->tables.restored[id]) {
        coordinator->tables.restored[id] = true;
        sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_TABLE, id);
    }
    return err;
}

/* Answers a tool that knows only the table's name with all it needs to open the table. */
static void answer_lookup(struct sl_coordinator *coordinator,
                          const struct sl_coordinator_member *member,
                          const struct sl_message *message)
{
    const char *name = message->table_open.spec.name;
    const uint32_t id =
        name[0] == '\0' ? SL_LIMIT_TABLES : coordinator_table_find(coordinator, name);
    if (id == SL_LIMIT_TABLES) {
        sl_coordinator_refuse(coordinator, member, message->id, SL_ERR_NOT_FOUND,
                              "no client has opened a table of the name \"%s\"", name);
        return;
    }
    const struct sl_message answer = {
        .kind = SL_MESSAGE_TABLE_OPEN,
        .id = message->id,
        .table_open = {.spec = coordinator->tables.specs[id], .table_id = id},
    };
    sl_coordinator_send(coordinator, member, &answer);
}

void sl_coordinator_table_open(struct sl_coordinator *coordinator,
                               const struct sl_coordinator_member *member,
                               const struct sl_message *message)
{
    const struct sl_message_table_open *open = &message->table_open;
    if (open->asks) {
        answer_lookup(coordinator, member, message);
        return;
    }
    struct sl_reason reason;
    int err = sl_message_check_spec(&open->spec, &reason);
    if (err == 0 && open->is_restored && member->hello.role != SL_MESSAGE_ROLE_PS) {
        err = sl_reason_fail(&reason, SL_ERR_PROTOCOL, "only a server restores tables");
    }
    uint32_t id = err == 0 ? coordinator_table_find(coordinator, open->spec.name) : SL_LIMIT_TABLES;
    if (err == 0 && id < SL_LIMIT_TABLES) {
        err = compare(coordinator, member, open, id, &reason);
    } else if (err == 0) {
        err = place(coordinator, open, &id, &reason);
        if (err == 0) {
            sl_log_event(SL_LOG_INFO,
                         SL_EVENT("table_opened", SL_EVENT_TEXT("table", open->spec.name),
                                  SL_EVENT_NUMBER("id", id), SL_EVENT_TEXT("by", member->name)),
                         "table %s has id %u (opened first by %s)", open->spec.name, id,
                         member->name);
        }
    }
    if (err != 0) {
        sl_coordinator_refuse(coordinator, member, message->id, err, "%s", reason.text);
        return;
    }
    struct sl_message answer = sl_message_table_opened(message->id, id, &open->spec);
    answer.policy = coordinator->tables.specs[id].policy;
    answer.keeps_policy = memcmp(&answer.policy, &open->spec.policy, sizeof answer.policy) != 0;
    sl_coordinator_send(coordinator, member, &answer);
}

void sl_coordinator_table_list(struct sl_coordinator *coordinator,
                               const struct sl_coordinator_member *member,
                               const struct sl_message *message)
{
    struct sl_table_spec specs[SL_MESSAGE_TABLES_MAX];
    struct sl_message answer = {
        .kind = SL_MESSAGE_TABLES, .id = message->id, .tables = {.specs = specs}};
    struct sl_message_tables *page = &answer.tables;
    for (uint32_t id = message->table_id; id < coordinator->tables.count && page->next == 0; id++) {
        if (!is_used(coordinator, id)) {
            continue;
        }
        if (page->count < SL_MESSAGE_TABLES_MAX) {
            specs[page->count++] = coordinator->tables.specs[id];
        } else {
            page->next = id;
        }
    }
    sl_coordinator_send(coordinator, member, &answer);
}

/* The record of a table without a name says that it was dropped. */
static void forget(struct sl_coordinator *coordinator, uint32_t id)
{
    coordinator->tables.specs[id] = (struct sl_table_spec){.name = ""};
    coordinator->tables.restored[id] = false;
    sl_message_dropped_add(&coordinator->tables.dropped, id);
    sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_TABLE, id);
}

void sl_coordinator_table_drop(struct sl_coordinator *coordinator,
                               const struct sl_coordinator_member *member,
                               const struct sl_message *message)
{
    const char *name = message->table_name;
    const uint32_t id = coordinator_table_find(coordinator, name);
    if (id == SL_LIMIT_TABLES) {
        sl_coordinator_refuse(coordinator, member, message->id, SL_ERR_NOT_FOUND,
                              "there is no table of the name \"%s\"", name);
        return;
    }
    forget(coordinator, id);
    coordinator->cluster.version++;
    sl_coordinator_note(coordinator, SL_COORDINATOR_RECORD_JOB, 0);
    sl_log_event(SL_LOG_WARN,
                 SL_EVENT("table_dropped", SL_EVENT_TEXT("table", name), SL_EVENT_NUMBER("id", id),
                          SL_EVENT_TEXT("by", member->name)),
                 "table %s (id %u) was dropped by %s", name, id, member->name);
    const struct sl_message answer = {
        .kind = SL_MESSAGE_TABLE_DROPPED, .id = message->id, .table_id = id};
    sl_coordinator_send(coordinator, member, &answer);
}

void sl_coordinator_table_take_dropped(struct sl_coordinator *coordinator,
                                       const struct sl_message_dropped *dropped)
{
    for (uint32_t id = 0; dropped->has_bits && id < SL_LIMIT_TABLES; id++) {
        if (sl_message_dropped_has(dropped, id) &&
            !sl_message_dropped_has(&coordinator->tables.dropped, id) &&
            coordinator_table_reserve(coordinator, id) == 0) {
            forget(coordinator, id);
            coordinator->cluster.version++;
        }
    }
}

void sl_coordinator_table_stats(struct sl_coordinator *coordinator,
                                const struct sl_coordinator_member *member, uint64_t id)
{
    struct sl_message_table_stats *tables = calloc(coordinator->tables.count + 1, sizeof *tables);
    if (tables == NULL) {
        sl_coordinator_refuse(coordinator, member, id, SL_ERR_NO_MEMORY, "no memory");
        return;
    }
    uint32_t count = 0;
    for (uint32_t i = 0; i < coordinator->tables.count; i++) {
        if (is_used(coordinator, i)) {
            memcpy(tables[count++].name, coordinator->tables.specs[i].name, sizeof tables[0].name);
        }
    }
    struct sl_message answer = {
        .kind = SL_MESSAGE_STATS,
        .id = id,
        .stats = {.tables = tables,
                  .table_count = count,
                  .degraded_shards = sl_coordinator_placement_degraded(coordinator)},
    };
    sl_coordinator_send(coordinator, member, &answer);
    free(tables);
}
