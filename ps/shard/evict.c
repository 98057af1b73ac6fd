#include "ps/shard/evict.h"

#include <string.h>

#include "ps/shard/lookup.h"
#include "ps/shard/section.h"
#include "ps/shard/snapshot_hooks.h"

#define ROUND_PART       4  /* a round lasts this part of the threshold */
#define MARK_PART        16 /* marks of the time in ttl_seconds */
#define RECORDS_PER_COST 8  /* records judged by their header for one unit of budget */

/* To make room, the rows go that are worth no more than a quarter of the rows of a sample, which
 * come from all over the table. After WALK_RECORDS records, another sample is taken. */
#define SAMPLE_COUNT     64
#define SAMPLE_PART      4
#define SAMPLE_VISITS    512 /* of records, most of which may be free */
#define WALK_RECORDS     4096

/* Pushes wait while a table exceeds its limit of rows by BEYOND_ROWS and a part of the limit. */
#define BEYOND_ROWS      1024
#define BEYOND_PART      32

/* Above this share of the memory limit, a table keeps min(FREE_RECORDS, records / FREE_PART)
 * records free for new rows. */
#define FULL_PERCENT     92
#define FREE_RECORDS     8192
#define FREE_PART        4
#define SMALL_RECORDS    32768
#define SMALL_BYTES      (4U << 20)

/* Records tidied for each row evicted, and in addition. */
#define TIDY_SHARE       2
#define TIDY_LEAST       64

bool sl_shard_eviction_has(const struct sl_table_spec *spec)
{
    return spec->policy.order != SL_POLICY_NONE || sl_policy_has_thresholds(&spec->policy) ||
           sl_policy_has_admission(&spec->policy);
}

bool sl_shard_eviction_may_await(const struct sl_shard_table *table)
{
    return table->spec.policy.order != SL_POLICY_NONE || table->admits;
}

static uint32_t shorter(uint32_t least, uint32_t steps)
{
    return steps > 0 && (least == 0 || steps < least) ? steps : least;
}

void sl_shard_eviction_init(struct sl_shard_table *table)
{
    const struct sl_policy_spec *policy = &table->spec.policy;
    uint32_t least = policy->ttl_steps;
    if (policy->count_below > 0 || policy->l2_below > 0) {
        least = shorter(least, policy->protect_steps);
    }
    for (uint32_t i = 0; i < policy->slot_count; i++) {
        least = shorter(least, policy->slots[i].ttl_steps);
    }
    table->eviction.round_steps = least / ROUND_PART + (least > 0 && least < ROUND_PART);
}

/* Notes the table's step of this second, and finds the last step that is ttl_seconds ago. */
static void mark(struct sl_shard_eviction *eviction, uint32_t ttl_seconds, uint64_t step)
{
    const uint32_t spacing = (ttl_seconds + MARK_PART - 1) / MARK_PART;
    const uint32_t count = eviction->mark_count;
    const uint64_t last =
        count == 0 ? 0 : eviction->marks[(count - 1) % SL_SHARD_EVICT_MARKS].second;
    if (count == 0 || eviction->second - last >= spacing) {
        eviction->marks[count % SL_SHARD_EVICT_MARKS].second = eviction->second;
        eviction->marks[count % SL_SHARD_EVICT_MARKS].step = step;
        eviction->mark_count++;
    }
    uint32_t i = eviction->mark_count < SL_SHARD_EVICT_MARKS
                     ? 0
                     : eviction->mark_count - SL_SHARD_EVICT_MARKS;
    for (; i < eviction->mark_count &&
           eviction->second - eviction->marks[i % SL_SHARD_EVICT_MARKS].second > ttl_seconds;
         i++) {
        eviction->old_step = eviction->marks[i % SL_SHARD_EVICT_MARKS].step;
    }
}

void sl_shard_eviction_clock(struct sl_shard *shard, uint64_t second)
{
    for (uint32_t i = 0; shard->evicting_count > 0 && i < shard->table_count; i++) {
        struct sl_shard_table *table = shard->tables[i];
        if (table != NULL && table->spec.policy.ttl_seconds > 0 &&
            table->eviction.second != second) {
            table->eviction.second = second;
            mark(&table->eviction, table->spec.policy.ttl_seconds, table->step);
        }
    }
}

/* Returns how many of the records a hand should have passed so long after its round began. */
static uint64_t part_of(uint64_t records, uint64_t passed, uint64_t round)
{
    return passed >= round ? records : records * passed / round;
}

/* Returns how many records the hand should have judged by now. */
static uint32_t hand_goal(const struct sl_shard_table *table)
{
    const struct sl_shard_eviction *eviction = &table->eviction;
    const uint64_t records =
        eviction->hand > 0 ? eviction->round_records : sl_sparse_table_record_count(table->sparse);
    uint64_t goal = 0;
    if (eviction->round_steps > 0) {
        goal = part_of(records, table->step - eviction->round_step, eviction->round_steps);
    }
    if (eviction->old_step > 0) {
        const uint64_t seconds = eviction->second - eviction->round_second;
        const uint64_t by_time =
            part_of(records, seconds * ROUND_PART, table->spec.policy.ttl_seconds);
        goal = by_time > goal ? by_time : goal;
    }
    return (uint32_t)goal;
}

/* Returns true when the table should get by with the records that it has. A small one may grow into
 * what is left. */
static bool is_full(const struct sl_shard *shard, const struct sl_shard_table *table)
{
    const size_t bytes_max = shard->options.memory_bytes_max;
    const bool may_grow = sl_sparse_table_record_count(table->sparse) < SMALL_RECORDS &&
                          sl_shard_memory_left(shard) > SMALL_BYTES;
    return bytes_max > 0 && shard->memory_bytes / FULL_PERCENT >= bytes_max / 100 && !may_grow;
}

static uint64_t free_records(const struct sl_shard_table *table)
{
    return sl_sparse_table_record_count(table->sparse) - sl_sparse_table_row_count(table->sparse);
}

/* Returns the shard's share of rows_max, rounded up. */
static uint64_t rows_most(const struct sl_shard *shard, const struct sl_shard_table *table)
{
    const uint64_t rows_max = table->spec.policy.rows_max;
    return rows_max / shard->options.count + (rows_max % shard->options.count > 0);
}

/* Returns how many rows the table has beyond its share. */
static uint64_t rows_beyond(const struct sl_shard *shard, const struct sl_shard_table *table)
{
    const uint64_t most = rows_most(shard, table);
    const uint64_t rows = sl_sparse_table_row_count(table->sparse);
    return most > 0 && rows > most ? rows - most : 0;
}

/* A push of more keys than half of the records does not wait for memory: it would empty the
 * table. */
bool sl_shard_eviction_awaited(const struct sl_shard *shard, struct sl_shard_table *table,
                               uint32_t key_count)
{
    const struct sl_policy_spec *policy = &table->spec.policy;
    if (table->waiting != NULL && sl_shard_eviction_awaited(shard, table->waiting, key_count)) {
        return true;
    }
    if (policy->order == SL_POLICY_NONE || table->step < table->eviction.fruitless_end) {
        return false;
    }
    if (rows_beyond(shard, table) > BEYOND_ROWS + rows_most(shard, table) / BEYOND_PART) {
        return true;
    }
    if (!is_full(shard, table) || free_records(table) >= key_count ||
        key_count > sl_sparse_table_record_count(table->sparse) / 2) {
        return false;
    }
    if (key_count > table->eviction.push_max) {
        table->eviction.push_max = key_count;
    }
    return true;
}

/* Returns the memory of a table with an order; keys that wait have one. */
static size_t evictable_bytes(const struct sl_shard_table *table)
{
    return table == NULL
               ? 0
               : (table->spec.policy.order == SL_POLICY_NONE ? 0 : table->counted.memory) +
                     evictable_bytes(table->waiting);
}

/* Returns the table's part of the free records that tables should have because memory is above the
 * share. An index grows further even if rows do not, so more of them go, until it need not grow. */
static uint64_t records_above(const struct sl_shard *shard, const struct sl_shard_table *table)
{
    const size_t most = shard->options.memory_bytes_max / 100 * FULL_PERCENT;
    size_t bytes = 0;
    for (uint32_t i = 0; i < shard->table_count; i++) {
        bytes += evictable_bytes(sl_shard_table_in_use(shard, i));
    }
    const double part = (double)table->counted.memory / (double)bytes;
    const double above = shard->memory_bytes > most ? (double)(shard->memory_bytes - most) : 0;
    return (uint64_t)(above * part) / sl_sparse_table_record_bytes(table->sparse);
}

/* Returns how many rows should go to make room. */
static uint64_t excess(const struct sl_shard *shard, const struct sl_shard_table *table)
{
    if (table->spec.policy.order == SL_POLICY_NONE || table->step < table->eviction.fruitless_end) {
        return 0;
    }
    const uint64_t beyond = rows_beyond(shard, table);
    if (!is_full(shard, table)) {
        return beyond;
    }
    const uint64_t part = sl_sparse_table_record_count(table->sparse) / FREE_PART;
    const uint64_t some = part < FREE_RECORDS ? part : FREE_RECORDS;
    const uint64_t least = some > table->eviction.push_max ? some : table->eviction.push_max;
    const uint64_t above = records_above(shard, table);
    const uint64_t wanted = above > least ? above : least;
    const uint64_t free = free_records(table);
    const uint64_t missing = wanted > free ? wanted - free : 0;
    const uint64_t rows = sl_sparse_table_row_count(table->sparse);
    const uint64_t most = beyond > missing ? beyond : missing;
    return most < rows ? most : rows;
}

static bool is_due(const struct sl_shard *shard, const struct sl_shard_table *table)
{
    return sl_shard_eviction_has(&table->spec) &&
           table->spec.consistency.mode != SL_CONSISTENCY_BSP &&
           (hand_goal(table) > table->eviction.hand || excess(shard, table) > 0);
}

/* Returns the table with this id, or that of its waiting keys, if some of its rows may be due; else
 * NULL. Where memory is short, keys that wait go before rows. */
static struct sl_shard_table *due_table(const struct sl_shard *shard, uint32_t id)
{
    struct sl_shard_table *table = sl_shard_table_in_use(shard, id);
    if (table != NULL && table->waiting != NULL) {
        table->waiting->step = table->step;
        if (is_due(shard, table->waiting)) {
            return table->waiting;
        }
    }
    return table != NULL && is_due(shard, table) ? table : NULL;
}

/* Returns the cost of judging so many records by a policy. */
static uint32_t judge_cost(const struct sl_shard_table *table, const struct sl_policy_spec *policy,
                           uint32_t count)
{
    return policy->l2_below > 0 || policy->order == SL_POLICY_L2
               ? count * table->key_cost
               : (count + RECORDS_PER_COST - 1) / RECORDS_PER_COST;
}

static void evict_add(struct sl_shard_table *table, const struct sl_row *row,
                      enum sl_eviction_reason reason, struct sl_shard_evicted *out)
{
    table->eviction.evicted[reason]++;
    out->keys[out->count++] = row->key;
}

/* Returns the age in steps of rows that are older than the policy's ttl_seconds. */
static uint64_t seconds_age(const struct sl_shard_table *table)
{
    const uint64_t old_step = table->eviction.old_step;
    return old_step == 0 ? UINT64_MAX : table->step - old_step;
}

/* Judges records downwards from *end, at most to `first`, and moves *end. Returns the cost. */
static uint32_t judge_records(struct sl_shard_table *table, const struct sl_policy_spec *policy,
                              uint64_t age, uint64_t *end, uint64_t first, uint32_t budget,
                              struct sl_shard_evicted *out)
{
    /* Such a row was created by a buffered push, at no certain moment. */
    const bool is_bsp = table->spec.consistency.mode == SL_CONSISTENCY_BSP;
    const uint32_t records = sl_sparse_table_record_count(table->sparse);
    uint32_t judged = 0;
    while (*end > first && out->count < SL_SHARD_EVICT_KEYS &&
           judge_cost(table, policy, judged) < budget) {
        const uint64_t number = --*end;
        judged++;
        if (number >= records) {
            continue; /* the table has shrunk */
        }
        const struct sl_row *row = sl_sparse_table_record(table->sparse, (uint32_t)number);
        const enum sl_eviction_reason reason =
            row->count == SL_ROW_ERASED || (is_bsp && row->last_step == 0)
                ? SL_EVICTION_NONE
                : sl_policy_judge(policy, sl_sparse_table_layout(table->sparse), row, table->step,
                                  age);
        if (reason != SL_EVICTION_NONE) {
            evict_add(table, row, reason, out);
        }
    }
    return judge_cost(table, policy, judged);
}

/* Moves the hand, at most to the goal. Returns the cost. */
static uint32_t judge(struct sl_shard_table *table, uint32_t goal, uint32_t budget,
                      struct sl_shard_evicted *out)
{
    struct sl_shard_eviction *eviction = &table->eviction;
    if (eviction->hand == 0) {
        eviction->round_records = sl_sparse_table_record_count(table->sparse);
    }
    goal = goal < eviction->round_records ? goal : eviction->round_records;
    uint64_t end = eviction->round_records - eviction->hand;
    const uint32_t cost = judge_records(table, &table->spec.policy, seconds_age(table), &end,
                                        eviction->round_records - goal, budget, out);
    eviction->hand = eviction->round_records - (uint32_t)end;
    if (eviction->hand >= eviction->round_records) {
        eviction->hand = 0;
        eviction->round_step = table->step;
        eviction->round_second = eviction->second;
    }
    return cost;
}

/* Returns the record of a visit. Multiples of the golden ratio, modulo 1, lie evenly: neighbours,
 * which are often of one age, are not visited together. */
static uint32_t visit_record(const struct sl_shard_table *table, uint64_t visit)
{
    const uint32_t place = (uint32_t)visit * 2654435769U; /* 2^32 / 1.618 */
    return (uint32_t)((uint64_t)place * sl_sparse_table_record_count(table->sparse) >> 32);
}

/* Returns true when the row of a record may go to make room. */
static bool is_candidate(const struct sl_shard_table *table, const struct sl_row *row)
{
    return row->count != SL_ROW_ERASED &&
           !sl_policy_protects(&table->spec.policy, row, table->step);
}

static uint64_t worth_of(const struct sl_shard_table *table, const struct sl_row *row)
{
    return sl_policy_worth(&table->spec.policy, sl_sparse_table_layout(table->sparse), row,
                           table->step);
}

/* Sets worth_most from a sample of rows: a quarter of them are worth at most that. Without a
 * candidate in the sample, each may go. Returns the number of visits. */
static uint32_t take_sample(struct sl_shard_table *table)
{
    struct sl_shard_eviction *eviction = &table->eviction;
    uint64_t worths[SAMPLE_COUNT]; /* ascending */
    uint32_t count = 0, visits = 0;
    for (; count < SAMPLE_COUNT && visits < SAMPLE_VISITS; visits++) {
        const uint32_t record = visit_record(table, eviction->visits++);
        const struct sl_row *row = sl_sparse_table_record(table->sparse, record);
        if (is_candidate(table, row)) {
            const uint64_t worth = worth_of(table, row);
            uint32_t at = count++;
            for (; at > 0 && worths[at - 1] > worth; at--) {
                worths[at] = worths[at - 1];
            }
            worths[at] = worth;
        }
    }
    eviction->worth_most = count == 0 ? UINT64_MAX : worths[(count - 1) / SAMPLE_PART];
    return visits;
}

/* Adds up to `wanted` rows that are worth little, none twice. It visits the records in order, which
 * is several times faster than any other. Returns the cost. */
static uint32_t make_room(struct sl_shard_table *table, uint64_t wanted, uint32_t budget,
                          struct sl_shard_evicted *out)
{
    struct sl_shard_eviction *eviction = &table->eviction;
    const uint32_t records = sl_sparse_table_record_count(table->sparse);
    const uint32_t left = SL_SHARD_EVICT_KEYS - out->count;
    const uint32_t end = out->count + (wanted < left ? (uint32_t)wanted : left);
    uint32_t visits = 0;
    if (eviction->walk_left == 0) {
        const uint32_t part = records / SAMPLE_PART + 1; /* beyond it, the sample is too old */
        eviction->walk_left = part < WALK_RECORDS ? part : WALK_RECORDS;
        visits = take_sample(table);
    }
    for (; out->count < end && eviction->walk_left > 0 &&
           judge_cost(table, &table->spec.policy, visits) < budget;
         eviction->walk_left--, visits++) {
        eviction->room_hand = eviction->room_hand + 1 < records ? eviction->room_hand + 1 : 0;
        const struct sl_row *row = sl_sparse_table_record(table->sparse, eviction->room_hand);
        eviction->barren++;
        if (is_candidate(table, row) && worth_of(table, row) <= eviction->worth_most) {
            evict_add(table, row, SL_EVICTION_ROOM, out);
            eviction->barren = 0;
        }
    }
    if (eviction->barren > 2 * (uint64_t)records) {
        eviction->fruitless_end = table->step + 1 + table->spec.policy.protect_steps / ROUND_PART;
        eviction->barren = 0;
    }
    return judge_cost(table, &table->spec.policy, visits);
}

/* Erases the rows added from `from` on. Returns the cost. */
static uint32_t evict_erase(struct sl_shard *shard, struct sl_shard_table *table,
                            const struct sl_shard_evicted *out, uint32_t from)
{
    const uint32_t count = out->count - from;
    table->holds_erased |= count > 0 && table->buffered_count > 0;
    sl_sparse_table_erase(table->sparse, out->keys + from, count);
    return count * table->key_cost + sl_shard_snapshot_copy_debt(shard);
}

bool sl_shard_evict_at_commit(struct sl_shard *shard, struct sl_shard_table *table,
                              uint64_t step_before, uint32_t budget, uint32_t *spent)
{
    const uint32_t round = table->eviction.round_steps;
    struct sl_shard_evicted out = {.count = 0};
    if (round == 0 || table->step / round == step_before / round) {
        return true;
    }
    do {
        out.count = 0;
        *spent += judge(table, UINT32_MAX, budget - *spent, &out);
        *spent += evict_erase(shard, table, &out, 0);
    } while (table->eviction.hand > 0 && *spent < budget);
    sl_shard_count_memory(shard, table);
    return table->eviction.hand == 0;
}

/* Tidies the table after an eviction. Returns the cost. */
static uint32_t evict_tidy(struct sl_shard *shard, struct sl_shard_table *table, uint32_t count)
{
    const uint32_t cost = sl_shard_tidy(shard, table, NULL, TIDY_SHARE * count + TIDY_LEAST);
    sl_shard_count_memory(shard, table);
    return cost;
}

static uint32_t evict_table(struct sl_shard *shard, struct sl_shard_table *table, uint32_t budget,
                            struct sl_shard_evicted *out)
{
    uint32_t spent = judge(table, hand_goal(table), budget, out);
    spent += evict_erase(shard, table, out, 0);
    uint64_t wanted;
    while (spent < budget && out->count < SL_SHARD_EVICT_KEYS &&
           (wanted = excess(shard, table)) > 0) {
        const uint32_t from = out->count;
        spent += make_room(table, wanted, budget - spent, out);
        spent += evict_erase(shard, table, out, from);
    }
    spent += evict_tidy(shard, table, out->count);
    if (free_records(table) >= table->eviction.push_max) {
        table->eviction.push_max = 0; /* the push may go on */
    }
    return spent;
}

/* In an EVICT, `done` counts the records left to judge, and `bags_done` the rows evicted. */

static bool has_thresholds(const struct sl_request_section *section)
{
    return section->command > 0 || section->bag_count > 0 || sl_request_evict_l2(section) > 0;
}

int sl_shard_evict_begin(struct sl_shard *shard, const struct sl_shard_table *table,
                         struct sl_shard_request *request, struct sl_shard_slice *slice)
{
    if (!has_thresholds(&request->view.section) && !sl_policy_has_thresholds(&table->spec.policy)) {
        return sl_shard_fail(shard, request, slice, SL_ERR_INVALID,
                             "the table's policy has no threshold of age, count or norm: give "
                             "ttl_steps, count_below or l2_below");
    }
    request->done = sl_sparse_table_record_count(table->sparse);
    shard->round.request = request;
    return SL_SHARD_DONE;
}

int sl_shard_evict_run(struct sl_shard *shard, const struct sl_shard_request *request,
                       uint8_t *reply)
{
    if (request->done > 0) {
        return SL_SHARD_AGAIN;
    }
    const uint64_t count = request->bags_done;
    memcpy(reply + request->reply_done, &count, sizeof count);
    shard->round.request = NULL;
    return SL_SHARD_DONE;
}

/* Returns the table of the EVICT that may go on; NULL: none. Iterations of BSP go first. */
static struct sl_shard_table *round_table(const struct sl_shard *shard)
{
    const struct sl_shard_request *request = shard->round.request;
    if (request == NULL || request->done == 0) {
        return NULL;
    }
    struct sl_shard_table *table = sl_shard_table_in_use(shard, request->view.section.table_id);
    const bool waits =
        table != NULL && table->spec.consistency.mode == SL_CONSISTENCY_BSP && shard->iteration.due;
    return waits ? NULL : table;
}

static uint32_t evict_round(struct sl_shard *shard, struct sl_shard_table *table, uint32_t budget,
                            struct sl_shard_evicted *out)
{
    struct sl_shard_request *request = shard->round.request;
    const struct sl_request_section *section = &request->view.section;
    const bool by_policy = !has_thresholds(section);
    const struct sl_policy_spec own = {.ttl_steps = section->command,
                                       .protect_steps = table->spec.policy.protect_steps,
                                       .count_below = section->bag_count,
                                       .l2_below = sl_request_evict_l2(section)};
    out->table_id = section->table_id;
    uint32_t spent =
        judge_records(table, by_policy ? &table->spec.policy : &own,
                      by_policy ? seconds_age(table) : UINT64_MAX, &request->done, 0, budget, out);
    request->bags_done += out->count;
    spent += evict_erase(shard, table, out, 0);
    return spent + evict_tidy(shard, table, out->count);
}

bool sl_shard_eviction_due(const struct sl_shard *shard)
{
    if (round_table(shard) != NULL) {
        return true;
    }
    for (uint32_t i = 0; shard->evicting_count > 0 && i < shard->table_count; i++) {
        if (due_table(shard, i) != NULL) {
            return true;
        }
    }
    return false;
}

uint32_t sl_shard_evict(struct sl_shard *shard, uint32_t budget, struct sl_shard_evicted *out)
{
    out->count = 0;
    if (shard->large.owner != NULL) {
        return 0;
    }
    struct sl_shard_table *called = round_table(shard);
    shard->round.goes_first = !shard->round.goes_first;
    if (called != NULL && shard->round.goes_first) {
        return evict_round(shard, called, budget, out);
    }
    for (uint32_t i = 0; i < shard->table_count; i++) {
        const uint32_t id = (shard->evict_next + i) % shard->table_count;
        struct sl_shard_table *table = due_table(shard, id);
        if (table != NULL) {
            shard->evict_next = id + 1;
            out->table_id = id;
            return evict_table(shard, table, budget, out);
        }
    }
    return called != NULL ? evict_round(shard, called, budget, out) : 0;
}
