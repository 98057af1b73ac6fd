#include "random_message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "tests/support/unit.h"

void random_message_name(uint64_t *seed, char *to, size_t to_bytes)
{
    size_t length = 1 + sl_hash_random(seed) % (to_bytes - 1);
    memset(to, 0, to_bytes);
    for (size_t i = 0; i < length; i++) {
        to[i] = (char)('!' + sl_hash_random(seed) % ('~' - '!' + 1));
    }
}

static float random_fraction(uint64_t *seed)
{
    return (float)(sl_hash_random(seed) % 1000) / 1000.0f;
}

static void random_policy(uint64_t *seed, struct sl_policy_spec *policy)
{
    *policy = (struct sl_policy_spec){
        .ttl_steps = (uint32_t)(sl_hash_random(seed) >> 33) | 1U << 20,
        .protect_steps = (uint32_t)(1 + sl_hash_random(seed) % (1U << 20)),
        .count_below = (uint32_t)sl_hash_random(seed),
        .l2_below = random_fraction(seed),
        .rows_max = sl_hash_random(seed),
        .order = SL_POLICY_LFU,
        .half_life_steps = (uint32_t)sl_hash_random(seed),
        .admit_count = (uint32_t)(2 + sl_hash_random(seed) % 1000),
        .admit_age_steps = (uint32_t)(sl_hash_random(seed) % 1000),
        .ttl_seconds = (uint32_t)sl_hash_random(seed),
        .slot_shift = (uint32_t)(sl_hash_random(seed) % 57),
        .slot_bits = 8,
        .slot_count = (uint32_t)(1 + sl_hash_random(seed) % 256),
        .slots[0].admit_count = (uint32_t)(sl_hash_random(seed) % 1000),
    };
    if (sl_hash_random(seed) % 2 == 0) {
        policy->admission = SL_ADMISSION_BLOOM;
        policy->admit_count = (uint32_t)(2 + sl_hash_random(seed) % 14);
        policy->slots[0].admit_count = 0;
        policy->keys_expected = 1 + sl_hash_random(seed) % (1ULL << 33);
        policy->false_positives = 0.25F;
    }
}

struct sl_table_spec random_message_spec(uint64_t *seed)
{
    struct sl_table_spec spec;
    memset(&spec, 0, sizeof spec); /* what lies between the fields, too: it is compared as memory */
    spec.kind = (enum sl_table_kind)(sl_hash_random(seed) % 2);
    random_message_name(seed, spec.name, sizeof spec.name);
    if (spec.kind == SL_TABLE_SPARSE) {
        spec.dim = (uint32_t)(1 + sl_hash_random(seed) % SL_LIMIT_DIM);
    } else {
        spec.length = 1 + sl_hash_random(seed) % SL_LIMIT_DENSE_ELEMENTS;
    }
    spec.optimizer = (struct sl_optimizer_spec){
        .kind = (enum sl_optimizer_kind)(sl_hash_random(seed) % SL_OPTIMIZER_KIND_COUNT),
        .lr = 0.001f + random_fraction(seed),
        .momentum = random_fraction(seed),
        .rho = random_fraction(seed),
        .beta1 = random_fraction(seed),
        .beta2 = random_fraction(seed),
        .epsilon = 0.001f + random_fraction(seed),
        .weight_decay = random_fraction(seed),
        .initial_accumulator = random_fraction(seed),
        .l1 = random_fraction(seed),
        .l2 = random_fraction(seed),
        .lr_power = 0.0f - random_fraction(seed), /* -0 is encoded as 0 */
        .decay_steps = (uint32_t)(1 + sl_hash_random(seed) % 1000),
        .decay_baseline = 0.5f + random_fraction(seed),
    };
    spec.initializer.kind =
        (enum sl_initializer_kind)(sl_hash_random(seed) % SL_INITIALIZER_KIND_COUNT);
    spec.initializer.low = random_fraction(seed);
    spec.initializer.high = 1 + random_fraction(seed);
    spec.initializer.seed = sl_hash_random(seed);
    spec.consistency.mode =
        (enum sl_consistency_mode)(sl_hash_random(seed) % SL_CONSISTENCY_MODE_COUNT);
    if (spec.consistency.mode != SL_CONSISTENCY_ASP) {
        spec.consistency.worker_count = (uint32_t)(1 + sl_hash_random(seed) % SL_LIMIT_WORKERS);
    }
    if (spec.consistency.mode == SL_CONSISTENCY_SSP) {
        spec.consistency.staleness = (uint32_t)sl_hash_random(seed);
    }
    spec.reject_nonfinite = sl_hash_random(seed) % 2 == 0;
    if (spec.kind == SL_TABLE_SPARSE && spec.consistency.mode != SL_CONSISTENCY_BSP) {
        random_policy(seed, &spec.policy);
    }
    if (spec.optimizer.kind == SL_OPTIMIZER_SGD) { /* others may have a decay of their own */
        spec.update.decay = (enum sl_decay_kind)(sl_hash_random(seed) % SL_DECAY_KIND_COUNT);
    }
    spec.update.clip_norm = random_fraction(seed);
    spec.update.value_bound = random_fraction(seed);
    return spec;
}

uint64_t random_message_number(uint64_t *seed)
{
    return 1 + sl_hash_random(seed) % SL_LIMIT_CHECKPOINT_NUMBER;
}

static struct sl_message_checkpoint_file *random_files(uint64_t *seed, uint32_t count)
{
    struct sl_message_checkpoint_file *files = calloc(count + 1, sizeof *files);
    for (uint32_t i = 0; i < count; i++) {
        snprintf(files[i].name, sizeof files[i].name, "shard-%d.slc",
                 (int)(sl_hash_random(seed) % 10000));
        files[i].shard = 3 * i + (uint32_t)(sl_hash_random(seed) % 3);
        files[i].bytes = sl_hash_random(seed);
        files[i].hash = sl_hash_random(seed);
        files[i].rows = sl_hash_random(seed);
    }
    return files;
}

void random_message_part(uint64_t *seed, struct sl_message_checkpoint_part *to)
{
    to->number = random_message_number(seed);
    if (sl_hash_random(seed) % 2 == 0) {
        to->err = -(int)(1 + sl_hash_random(seed) % (uint64_t)-SL_ERR_CANCELLED);
        random_message_name(seed, to->text, sizeof to->text);
    } else {
        to->file_count = (uint32_t)(1 + sl_hash_random(seed) % 10);
    }
    to->files = random_files(seed, to->file_count);
}

void random_message_complete(uint64_t *seed, struct sl_message_checkpoint_publish *to)
{
    to->number = random_message_number(seed);
    to->base = sl_hash_random(seed) % to->number;
    to->file_count = (uint32_t)(1 + sl_hash_random(seed) % 20);
    to->files = random_files(seed, to->file_count);
    to->time_ms = sl_hash_random(seed);
}

void random_message_stats(uint64_t *seed, struct sl_message_stats *to)
{
    to->table_count = (uint32_t)(sl_hash_random(seed) % 20);
    to->tables = calloc(to->table_count + 1, sizeof *to->tables);
    to->requests = sl_hash_random(seed);
    to->bytes_in = sl_hash_random(seed);
    to->bytes_out = sl_hash_random(seed);
    to->stalls = sl_hash_random(seed);
    to->degraded_writes = sl_hash_random(seed);
    to->degraded_ms = sl_hash_random(seed);
    to->degraded_shards = sl_hash_random(seed);
    for (uint32_t i = 0; i < to->table_count; i++) {
        random_message_name(seed, to->tables[i].name, sizeof to->tables[i].name);
        to->tables[i].rows = sl_hash_random(seed);
        to->tables[i].bytes = sl_hash_random(seed);
        to->tables[i].pulled_rows = sl_hash_random(seed);
        to->tables[i].pushed_rows = sl_hash_random(seed);
    }
}

void random_message_placements(uint64_t *seed, struct sl_message_cluster *to)
{
    for (uint32_t i = 0; i < to->ps_count; i++) {
        to->shard_count += (uint32_t)(sl_hash_random(seed) % 2); /* a gap: of a drained server */
        to->ps[i].first_shard = to->shard_count;
        to->ps[i].shard_count = (uint32_t)(sl_hash_random(seed) % 100);
        to->shard_count += to->ps[i].shard_count;
    }
    to->shard_count++;
    to->placements = calloc(to->shard_count, sizeof *to->placements);
    for (uint32_t shard = 0; shard < to->shard_count; shard++) {
        struct sl_message_placement *placement = &to->placements[shard];
        const uint32_t primary = (uint32_t)(sl_hash_random(seed) % to->ps_count);
        const uint32_t backup = (uint32_t)(sl_hash_random(seed) % to->ps_count);
        placement->epoch = 1 + sl_hash_random(seed) % 1000;
        placement->primary = to->ps[primary].task_index;
        placement->backup_plus_1 = primary == backup ? 0 : 1 + to->ps[backup].task_index;
        placement->in_sync = sl_hash_random(seed) % 2 == 0;
        placement->moves = sl_hash_random(seed) % 2 == 0;
    }
}

static void random_numbers(uint64_t *seed, struct sl_message_numbers *to)
{
    uint64_t number = 0;
    to->count = (uint32_t)(sl_hash_random(seed) % (SL_MESSAGE_NUMBERS_MAX + 1));
    for (uint32_t i = to->count; i > 0; i--) {
        number += 1 + sl_hash_random(seed) % 1000;
        to->items[i - 1] = number;
    }
}

void random_message_lists(uint64_t *seed, struct sl_message_register *to)
{
    to->replicas = (uint32_t)(sl_hash_random(seed) % 2);
    to->replica_report_count = (uint32_t)(sl_hash_random(seed) % 20);
    to->replica_reports = calloc(to->replica_report_count + 1, sizeof *to->replica_reports);
    for (uint32_t i = 0; i < to->replica_report_count; i++) {
        to->replica_reports[i].shard = (uint32_t)(sl_hash_random(seed) % SL_LIMIT_SHARDS);
        to->replica_reports[i].epoch = sl_hash_random(seed);
        to->replica_reports[i].in_sync = sl_hash_random(seed) % 2 == 0;
        to->replica_reports[i].is_undecided = sl_hash_random(seed) % 2 == 0;
        to->replica_reports[i].role = (enum sl_message_replica_role)(sl_hash_random(seed) % 3);
    }
    random_numbers(seed, &to->complete);
    random_numbers(seed, &to->unfinished);
}

uint8_t *random_message_encode(const struct sl_message *message, size_t *bytes)
{
    *bytes = sl_message_encoded_bytes(message);
    uint8_t *to = malloc(*bytes);
    sl_message_encode(message, to);
    return to;
}

int random_message_decode(const struct sl_message *message)
{
    struct sl_message decoded;
    size_t bytes;
    uint8_t *encoded = random_message_encode(message, &bytes);
    const int err = sl_message_decode(encoded, bytes, &decoded);
    if (err == SL_OK) {
        sl_message_fini(&decoded);
    }
    free(encoded);
    return err;
}

void random_message_assert_returned(const struct sl_message *message)
{
    struct sl_message decoded;
    size_t bytes, again_bytes;
    uint8_t *encoded = random_message_encode(message, &bytes);
    assert_int_equal(sl_message_decode(encoded, bytes, &decoded), SL_OK);
    assert_int_equal(decoded.kind, message->kind);
    uint8_t *again = random_message_encode(&decoded, &again_bytes);
    assert_int_equal(again_bytes, bytes);
    assert_memory_equal(again, encoded, bytes);
    sl_message_fini(&decoded);
    free(again);
    free(encoded);
}
