/* Where the shards of a job are, and moves of shards. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "programs/ctl/ctl.h"

/* Writes the shards of the servers to a list, by their numbers. */
static json_t *list_shards(const json_t *servers)
{
    json_t *by_shard[SL_LIMIT_SHARDS] = {NULL}, *list = json_array();
    const json_t *server, *shard;
    size_t i, k;
    json_array_foreach(servers, i, server)
    {
        json_array_foreach(json_object_get(server, "shards"), k, shard)
        {
            const json_int_t number = json_integer_value(json_object_get(shard, "shard"));
            if (number >= 0 && number < SL_LIMIT_SHARDS && by_shard[number] == NULL) {
                by_shard[number] = json_pack("{s:I, s:O, s:O, s:O, s:O}", "shard", number,
                                             "primary", json_object_get(server, "name"), "backup",
                                             json_object_get(shard, "backup"), "in_sync",
                                             json_object_get(shard, "in_sync"), "moves_to",
                                             json_object_get(shard, "moves_to"));
            }
        }
    }
    for (uint32_t number = 0; number < SL_LIMIT_SHARDS; number++) {
        if (by_shard[number] != NULL) {
            (void)json_array_append_new(list, by_shard[number]);
        }
    }
    return list;
}

static const char *word(const json_t *value)
{
    return json_is_string(value)  ? json_string_value(value)
           : json_is_true(value)  ? "yes"
           : json_is_false(value) ? "no"
                                  : "-";
}

int sl_ctl_shards(struct sl_ctl *ctl, json_t **out)
{
    json_t *state = NULL, *shard;
    size_t i;
    const int err = sl_ctl_fetch_state(ctl, &state);
    json_t *list = list_shards(json_object_get(json_object_get(state, "cluster"), "servers"));
    json_decref(state);
    if (err == 0 && ctl->flags.json) {
        *out = list;
        return 0;
    }
    if (err == 0) {
        (void)puts("SHARD  PRIMARY  BACKUP   SYNC  MOVES");
        json_array_foreach(list, i, shard)
        {
            (void)printf(
                "%5lld  %-7s  %-7s  %-4s  %s\n",
                (long long)json_integer_value(json_object_get(shard, "shard")),
                word(json_object_get(shard, "primary")), word(json_object_get(shard, "backup")),
                word(json_object_get(shard, "in_sync")), word(json_object_get(shard, "moves_to")));
        }
    }
    json_decref(list);
    return err;
}

/* Parses a number up to `most`, after this prefix. */
static int read_number(struct sl_ctl *ctl, const char *text, const char *prefix, uint32_t most,
                       uint32_t *out)
{
    const size_t length = strlen(prefix);
    const char *digits = strncmp(text, prefix, length) == 0 ? text + length : "";
    char *end;
    const unsigned long number = strtoul(digits, &end, 10);
    if (digits[0] < '0' || digits[0] > '9' || *end != '\0' || number > most) {
        return sl_reason_fail(&ctl->reason, SL_ERR_INVALID, "%s: accepted is %s0 to %s%u", text,
                              prefix, prefix, most);
    }
    *out = (uint32_t)number;
    return 0;
}

static void add_move(void *ctx, uint32_t shard, uint32_t from, uint32_t to)
{
    char names[2][16];
    (void)snprintf(names[0], sizeof names[0], "ps/%u", from);
    (void)snprintf(names[1], sizeof names[1], "ps/%u", to);
    (void)json_array_append_new(
        ctx, json_pack("{s:i, s:s, s:s}", "shard", (int)shard, "from", names[0], "to", names[1]));
}

static int change(struct sl_ctl *ctl, enum sl_placement_change verb, uint32_t shard, uint32_t task,
                  const char *what, json_t **out)
{
    json_t *moves = json_array();
    int err = ctl->flags.dry_run ? 0 : sl_ctl_confirm(ctl, what);
    if (err == 0) {
        err = sl_client_change_placement(ctl->client, verb, shard, task, ctl->flags.dry_run,
                                         sl_ctl_time_left_ms(ctl), add_move, moves);
        err = err != 0 ? sl_ctl_failed(ctl, err) : 0;
    }
    if (err != 0) {
        json_decref(moves);
        return err;
    }
    *out = moves;
    return 0;
}

int sl_ctl_move(struct sl_ctl *ctl, json_t **out)
{
    uint32_t shard, task;
    char what[64];
    int err = read_number(ctl, ctl->words[0], "", SL_LIMIT_SHARDS - 1, &shard);
    err = err != 0 ? err : read_number(ctl, ctl->words[1], "ps/", SL_LIMIT_PS - 1, &task);
    if (err != 0) {
        return err;
    }
    (void)snprintf(what, sizeof what, "move shard %u to ps/%u", shard, task);
    return change(ctl, SL_PLACEMENT_MOVE, shard, task, what, out);
}

int sl_ctl_drain(struct sl_ctl *ctl, json_t **out)
{
    uint32_t task;
    char what[64];
    const int err = read_number(ctl, ctl->words[0], "ps/", SL_LIMIT_PS - 1, &task);
    if (err != 0) {
        return err;
    }
    (void)snprintf(what, sizeof what, "drain ps/%u: move its shards away, and end it", task);
    return change(ctl, SL_PLACEMENT_DRAIN, 0, task, what, out);
}

int sl_ctl_balance(struct sl_ctl *ctl, json_t **out)
{
    return change(ctl, SL_PLACEMENT_BALANCE, 0, 0, "balance the shards of all servers", out);
}
