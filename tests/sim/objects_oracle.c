#include "tests/sim/objects_oracle.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "objects/catalogue/manifest.h"
#include "objects/catalogue/message.h"
#include "tests/sim/random.h"

#define SHARED      (1U << 23)               /* above the numbers of contents */
#define LEASE_NS    (11 * SL_CLOCK_NS_PER_S) /* and a second */
#define RECOVERY_NS (20 * SL_CLOCK_NS_PER_S) /* a lease, and a new start of the catalogue */

void sl_sim_objects_oracle_init(struct sl_sim_objects_oracle *oracle,
                                const struct sl_sim_objects_plan *plan,
                                const struct sl_sim_network *network)
{
    *oracle = (struct sl_sim_objects_oracle){.plan = plan,
                                             .network = network,
                                             .content_count = 1,
                                             .content_room = 64,
                                             .holding_room = 64,
                                             .left_room = 64,
                                             .random = sl_hash_key(plan->seed ^ 0x0b1ec9)};
    oracle->contents = calloc(oracle->content_room, sizeof *oracle->contents);
    oracle->holdings = calloc(oracle->holding_room, sizeof *oracle->holdings);
    oracle->left = calloc(oracle->left_room, sizeof *oracle->left);
    sl_assert(oracle->contents != NULL && oracle->holdings != NULL && oracle->left != NULL);
    for (uint32_t i = 0; i < SL_SIM_OBJECTS_NAMES_MAX; i++) {
        for (uint32_t part = 0; part < SL_SIM_OBJECTS_PARTS_MAX; part++) {
            oracle->part_next[i][part] = 1;
        }
    }
}

void sl_sim_objects_oracle_fini(struct sl_sim_objects_oracle *oracle)
{
    free(oracle->contents);
    free(oracle->holdings);
    free(oracle->left);
}

/* Contents */

static uint64_t draw_bytes(struct sl_sim_objects_oracle *oracle)
{
    const uint32_t most = oracle->plan->bytes_max;
    return 1 + sl_sim_below(&oracle->random, sl_sim_chance(&oracle->random, 200) ? 300 : most);
}

uint32_t sl_sim_objects_oracle_content(struct sl_sim_objects_oracle *oracle, uint32_t name,
                                       uint64_t version)
{
    for (uint32_t i = 1; version != 0 && i < oracle->content_count; i++) {
        if (oracle->contents[i].name == name && oracle->contents[i].version == version) {
            return i;
        }
    }
    if (oracle->content_count == oracle->content_room) {
        oracle->content_room *= 2;
        oracle->contents =
            realloc(oracle->contents, oracle->content_room * sizeof *oracle->contents);
        sl_assert(oracle->contents != NULL);
    }
    struct sl_sim_objects_content *content = &oracle->contents[oracle->content_count];
    *content = (struct sl_sim_objects_content){
        .name = name, .version = version, .may_go = oracle->removing[name] > 0};
    for (uint32_t i = 0; i < oracle->plan->part_counts[name]; i++) {
        content->bytes[i] = draw_bytes(oracle);
    }
    return oracle->content_count++;
}

/* Every third block is equal in some contents: pools share it. Of the others, these contents differ
 * in one word of 13: deltas are short. */
static uint64_t word_at(uint32_t content, uint32_t part, uint64_t index)
{
    const uint64_t block = index / (SL_OBJECTS_BLOCK_BYTES / sizeof index);
    const bool is_own = index % 13 == 0 && block % 3 != 2;
    const uint64_t of = is_own ? content : SHARED | content / 64;
    return sl_hash_key(of << 40 | (uint64_t)part << 32 | index);
}

void sl_sim_objects_oracle_fill(uint32_t content, uint32_t part, uint8_t *memory, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        const uint64_t word = word_at(content, part, at / sizeof word);
        memcpy(memory + at, &word, bytes - at < sizeof word ? bytes - at : sizeof word);
    }
}

bool sl_sim_objects_oracle_matches(uint32_t content, uint32_t part, const uint8_t *memory,
                                   uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        const uint64_t word = word_at(content, part, at / sizeof word);
        if (memcmp(memory + at, &word, bytes - at < sizeof word ? bytes - at : sizeof word) != 0) {
            return false;
        }
    }
    return true;
}

/* Versions */

bool sl_sim_objects_oracle_is_certain(const struct sl_sim_objects_oracle *oracle, uint32_t host,
                                      uint64_t since_ns)
{
    return oracle->certain_ns[host] <= since_ns && oracle->certain_ns[0] <= since_ns;
}

static bool part_is_held(const struct sl_sim_objects_oracle *oracle, uint32_t content,
                         uint32_t part, uint64_t since_ns)
{
    for (uint32_t i = 0; i < oracle->holding_count; i++) {
        const struct sl_sim_objects_holding *holding = &oracle->holdings[i];
        if (holding->content == content && holding->until_ns == SL_CLOCK_NEVER &&
            (holding->part == part || holding->part == SL_SIM_OBJECTS_ALL) &&
            holding->since_ns <= since_ns &&
            sl_sim_objects_oracle_is_certain(oracle, holding->host, since_ns)) {
            return true;
        }
    }
    return false;
}

static bool has_left(const struct sl_sim_objects_oracle *oracle,
                     const struct sl_sim_objects_content *content)
{
    bool is = false;
    for (uint32_t i = 0; i < oracle->left_count; i++) {
        is = is ||
             (oracle->left[i].name == content->name && oracle->left[i].version == content->version);
    }
    return is;
}

/* Of each part some node has had it since then, without a break and without a fault. */
static bool is_held(const struct sl_sim_objects_oracle *oracle, uint32_t index, uint64_t since_ns)
{
    const struct sl_sim_objects_content *content = &oracle->contents[index];
    bool held = content->acknowledged && !content->may_go && !has_left(oracle, content);
    for (uint32_t part = 0; held && part < oracle->plan->part_counts[content->name]; part++) {
        held = part_is_held(oracle, index, part, since_ns);
    }
    return held;
}

uint64_t sl_sim_objects_oracle_newest(const struct sl_sim_objects_oracle *oracle, uint32_t name,
                                      uint64_t since_ns)
{
    uint64_t newest = 0;
    for (uint32_t i = 1; i < oracle->content_count; i++) {
        const struct sl_sim_objects_content *content = &oracle->contents[i];
        if (content->name == name && content->version > newest && is_held(oracle, i, since_ns)) {
            newest = content->version;
        }
    }
    return newest;
}

bool sl_sim_objects_oracle_exists(const struct sl_sim_objects_oracle *oracle, uint32_t name,
                                  uint64_t version, uint64_t since_ns)
{
    bool exists = false;
    for (uint32_t i = 1; i < oracle->content_count; i++) {
        const struct sl_sim_objects_content *content = &oracle->contents[i];
        exists = exists || (content->name == name && content->version == version &&
                            is_held(oracle, i, since_ns));
    }
    return exists;
}

/* The content was seen as that version, of which there is one only. */
static void set_version(struct sl_sim_objects_oracle *oracle, uint32_t index, uint64_t version)
{
    struct sl_sim_objects_content *content = &oracle->contents[index];
    if (content->version != 0 && content->version != version) {
        sl_sim_fail(&oracle->breach, "bytes",
                    "content %u is version %" PRIu64 " and %" PRIu64 " of n%u", index,
                    content->version, version, content->name);
    }
    content->version = version;
    for (uint32_t i = 1; i < oracle->content_count; i++) {
        struct sl_sim_objects_content *other = &oracle->contents[i];
        if (i == index || other->name != content->name || other->version != version) {
            continue;
        }
        if (is_held(oracle, i, sl_sim_network_now(oracle->network))) {
            sl_sim_fail(&oracle->breach, "digest",
                        "n%u@%" PRIu64 " is content %u, and is content %u too", content->name,
                        version, index, i);
        }
        other->may_go = true; /* nobody had it just then */
    }
}

uint32_t sl_sim_objects_oracle_judge(struct sl_sim_objects_oracle *oracle, uint32_t host,
                                     uint32_t name, uint64_t version, const uint8_t *const *parts,
                                     const uint64_t *part_bytes)
{
    for (uint32_t i = 1; i < oracle->content_count; i++) {
        const struct sl_sim_objects_content *content = &oracle->contents[i];
        bool matches =
            content->name == name && (content->version == 0 || content->version == version);
        for (uint32_t part = 0; matches && part < oracle->plan->part_counts[name]; part++) {
            matches = content->bytes[part] == part_bytes[part] &&
                      sl_sim_objects_oracle_matches(i, part, parts[part], part_bytes[part]);
        }
        if (matches) {
            set_version(oracle, i, version);
            oracle->fetched++;
            return i;
        }
    }
    sl_sim_fail(&oracle->breach, "bytes",
                "node %u has got bytes as n%u@%" PRIu64 " that nobody published", host, name,
                version);
    return 0;
}

void sl_sim_objects_oracle_committed(struct sl_sim_objects_oracle *oracle, uint32_t content,
                                     uint64_t version)
{
    set_version(oracle, content, version);
    oracle->contents[content].acknowledged = true;
    oracle->committed++;
}

/* Holders */

void sl_sim_objects_oracle_hold(struct sl_sim_objects_oracle *oracle, uint32_t content,
                                uint32_t part, uint32_t host)
{
    if (oracle->holding_count == oracle->holding_room) {
        oracle->holding_room *= 2;
        oracle->holdings =
            realloc(oracle->holdings, oracle->holding_room * sizeof *oracle->holdings);
        sl_assert(oracle->holdings != NULL);
    }
    oracle->holdings[oracle->holding_count++] =
        (struct sl_sim_objects_holding){.content = content,
                                        .part = part,
                                        .host = host,
                                        .since_ns = sl_sim_network_now(oracle->network),
                                        .until_ns = SL_CLOCK_NEVER};
}

/* A withdraw is of a number: of what was removed earlier, too, and of what has the number now. */
static bool have_one_number(const struct sl_sim_objects_content *a,
                            const struct sl_sim_objects_content *b)
{
    return a->name == b->name && a->version == b->version;
}

void sl_sim_objects_oracle_store(struct sl_sim_objects_oracle *oracle, uint32_t content,
                                 uint32_t part, uint64_t node)
{
    for (uint32_t host = 0; host < oracle->plan->node_count; host++) {
        if (oracle->node_ids[host] == node) {
            sl_sim_objects_oracle_hold(oracle, content, part, host);
            oracle->holdings[oracle->holding_count - 1].is_stored = true;
        }
    }
}

static bool is_committed(const struct memory_disk_node *record)
{
    struct sl_objects_message message;
    return record != NULL &&
           sl_objects_message_decode(record->bytes, (uint32_t)record->count, &message, NULL) == 0 &&
           message.kind == SL_OBJECTS_HOLD && message.commit.record_count == 1 &&
           message.commit.record.time_ms != 0;
}

void sl_sim_objects_oracle_judge_files(struct sl_sim_objects_oracle *oracle, uint32_t host,
                                       struct memory_disk *disk)
{
    for (uint32_t i = 0; i < oracle->holding_count; i++) {
        const struct sl_sim_objects_holding *holding = &oracle->holdings[i];
        const struct sl_sim_objects_content *content = &oracle->contents[holding->content];
        char path[MEMORY_DISK_PATH];
        if (holding->host != host || !holding->is_stored || content->may_go ||
            has_left(oracle, content)) {
            continue;
        }
        (void)snprintf(path, sizeof path, "/c/n%u/%" PRIu64 ".%u.record", content->name,
                       content->version, holding->part);
        const bool has_record = is_committed(memory_disk_find(disk, path));
        (void)snprintf(path, sizeof path, "/c/n%u/%" PRIu64 ".%u.data", content->name,
                       content->version, holding->part);
        const struct memory_disk_node *data = memory_disk_find(disk, path);
        const uint64_t bytes = content->bytes[holding->part];
        if (!has_record || data == NULL || data->count < bytes ||
            !sl_sim_objects_oracle_matches(holding->content, holding->part,
                                           data->bytes + data->count - bytes, bytes)) {
            sl_sim_fail(&oracle->breach, "files", "node %u starts without all of %s", host, path);
        }
    }
}

void sl_sim_objects_oracle_restart(struct sl_sim_objects_oracle *oracle, uint32_t host)
{
    for (uint32_t i = 0; i < oracle->holding_count; i++) {
        struct sl_sim_objects_holding *holding = &oracle->holdings[i];
        if (holding->host == host && holding->is_stored) {
            holding->since_ns = sl_sim_network_now(oracle->network);
            holding->until_ns = SL_CLOCK_NEVER;
        }
    }
}

void sl_sim_objects_oracle_drop(struct sl_sim_objects_oracle *oracle, uint32_t content,
                                uint32_t host)
{
    for (uint32_t i = 0; i < oracle->holding_count; i++) {
        struct sl_sim_objects_holding *holding = &oracle->holdings[i];
        if (holding->host == host &&
            (content == 0 ||
             have_one_number(&oracle->contents[content], &oracle->contents[holding->content])) &&
            holding->until_ns == SL_CLOCK_NEVER) {
            holding->until_ns = sl_sim_network_now(oracle->network);
            holding->is_stored = holding->is_stored && content == 0;
        }
    }
}

void sl_sim_objects_oracle_end(struct sl_sim_objects_oracle *oracle, uint32_t host, bool killed)
{
    const uint64_t now_ns = sl_sim_network_now(oracle->network);
    const struct sl_sim_network_options *network = &oracle->plan->network;
    const bool has_detached = !killed && sl_sim_objects_oracle_is_certain(oracle, host, now_ns) &&
                              network->connect_fail_permille + network->break_per_10000 == 0;
    sl_sim_objects_oracle_drop(oracle, 0, host);
    for (uint32_t name = 0; name < SL_SIM_OBJECTS_NAMES_MAX; name++) {
        if (oracle->attempted[host][name] && oracle->gone_count < SL_SIM_OBJECTS_GONE_MAX) {
            oracle->gone[oracle->gone_count++] = (struct sl_sim_objects_gone){
                .name = name,
                .publisher = oracle->published[host][name] ? host : UINT32_MAX,
                .until_ns = now_ns + (has_detached ? 0 : LEASE_NS)};
        }
        oracle->attempted[host][name] = oracle->published[host][name] = false;
    }
}

void sl_sim_objects_oracle_judge_holders(struct sl_sim_objects_oracle *oracle, uint32_t name,
                                         uint32_t holders, uint64_t since_ns)
{
    uint32_t possible = 0;
    for (uint32_t host = 0; host < oracle->plan->node_count; host++) {
        possible += oracle->attempted[host][name] || host - 1 < oracle->plan->keeper_count;
    }
    for (uint32_t i = 0; i < oracle->gone_count; i++) {
        possible += oracle->gone[i].name == name && oracle->gone[i].until_ns > since_ns;
    }
    if (holders > possible && oracle->certain_ns[0] <= since_ns) {
        sl_sim_fail(&oracle->breach, "lease", "n%u has %u holders; %u can be", name, holders,
                    possible);
    }
}

void sl_sim_objects_oracle_judge_publisher(struct sl_sim_objects_oracle *oracle, uint32_t name,
                                           uint32_t host, uint64_t since_ns)
{
    bool possible = oracle->published[host][name] || oracle->certain_ns[0] > since_ns;
    for (uint32_t i = 0; i < oracle->gone_count; i++) {
        const struct sl_sim_objects_gone *gone = &oracle->gone[i];
        possible = possible ||
                   (gone->name == name && gone->publisher == host && gone->until_ns > since_ns);
    }
    if (!possible) {
        sl_sim_fail(&oracle->breach, "lease", "n%u is refused: node %u publishes it, and has ended",
                    name, host);
    }
}

void sl_sim_objects_oracle_remove(struct sl_sim_objects_oracle *oracle, uint32_t name,
                                  uint64_t version)
{
    for (uint32_t i = 1; i < oracle->content_count; i++) {
        struct sl_sim_objects_content *content = &oracle->contents[i];
        content->may_go |= content->name == name && (version == 0 || content->version == version ||
                                                     content->version == 0); /* may get it */
    }
    oracle->removing[name]++;
}

void sl_sim_objects_oracle_removed(struct sl_sim_objects_oracle *oracle, uint32_t name)
{
    oracle->removing[name]--;
}

bool sl_sim_objects_oracle_may_be_removed(const struct sl_sim_objects_oracle *oracle, uint32_t name,
                                          uint64_t version)
{
    bool may_be = false;
    for (uint32_t i = 1; i < oracle->content_count; i++) {
        const struct sl_sim_objects_content *content = &oracle->contents[i];
        may_be = may_be || (content->name == name && content->may_go &&
                            (content->version == version || content->version == 0));
    }
    return may_be;
}

/* Retention */

void sl_sim_objects_oracle_commit(struct sl_sim_objects_oracle *oracle, uint32_t name)
{
    oracle->commits[name]++;
}

/* After an error the request may still arrive. */
void sl_sim_objects_oracle_commit_ended(struct sl_sim_objects_oracle *oracle, uint32_t name,
                                        int err)
{
    const uint64_t until_ns = sl_sim_network_now(oracle->network) + (err == 0 ? 0 : RECOVERY_NS);
    oracle->commits[name]--;
    oracle->commit_until_ns[name] =
        until_ns > oracle->commit_until_ns[name] ? until_ns : oracle->commit_until_ns[name];
}

void sl_sim_objects_oracle_left(struct sl_sim_objects_oracle *oracle,
                                const struct sl_sim_objects_known *version, uint32_t newer,
                                uint32_t keep)
{
    const uint32_t name = version->name;
    const bool is_removed = oracle->removing[name] > 0 ||
                            sl_sim_objects_oracle_may_be_removed(oracle, name, version->version);
    const bool is_by_commit = oracle->commits[name] > 0 ||
                              oracle->commit_until_ns[name] > sl_sim_network_now(oracle->network);
    if (!is_removed && (!is_by_commit || newer < keep || version->origin == SL_ORIGIN_CALLER)) {
        sl_sim_fail(&oracle->breach, "retention",
                    "n%u@%" PRIu64 " of origin %u is retired%s; %u newer ones are left of %u", name,
                    version->version, version->origin, is_by_commit ? "" : " without a commit",
                    newer, keep);
    }
    if (oracle->left_count == oracle->left_room) {
        oracle->left_room *= 2;
        oracle->left = realloc(oracle->left, oracle->left_room * sizeof *oracle->left);
        sl_assert(oracle->left != NULL);
    }
    oracle->left[oracle->left_count++] = *version;
}

void sl_sim_objects_oracle_touch(struct sl_sim_objects_oracle *oracle, uint32_t host,
                                 uint64_t until_ns)
{
    until_ns += RECOVERY_NS;
    oracle->certain_ns[host] =
        until_ns > oracle->certain_ns[host] ? until_ns : oracle->certain_ns[host];
}
