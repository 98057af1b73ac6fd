#include "ps/leader/coordinator_log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"

#define WRITE_BYTES_MAX    (700U << 10) /* of one; etcd takes 1.5 MiB, and base64 makes 4 of 3 */
#define READ_TIMEOUTS      10
#define KEPT_BYTES_DEFAULT ((size_t)256 << 20)
#define VALUE_BYTES        640 /* of the term's key */

/* Of each kind: its part of the key, and of how many it is. */
static const struct {
    const char *name;
    uint32_t count;
} KINDS[] = {
    [SL_COORDINATOR_RECORD_JOB] = {"job", 1},
    [SL_COORDINATOR_RECORD_PS] = {"ps", SL_LIMIT_PS},
    [SL_COORDINATOR_RECORD_WORKER] = {"worker", SL_LIMIT_WORKERS},
    [SL_COORDINATOR_RECORD_TABLE] = {"table", SL_LIMIT_TABLES},
    [SL_COORDINATOR_RECORD_DONE] = {"done", SL_COORDINATOR_DONE_BARRIERS},
};
#define KIND_COUNT (sizeof KINDS / sizeof KINDS[0])

/* A message that is kept back until all changes up to `needs` are written. */
struct kept {
    struct kept *next;
    uint64_t needs;
    sl_coordinator_peer peer;
    bool is_dropped; /* the peer is gone */
    size_t bytes;
    uint8_t message[]; /* encoded */
};

struct sl_coordinator_log {
    struct sl_coordinator_log_options options;
    char prefix[SL_METASTORE_KEY_BYTES]; /* of the records, with a slash at its end */
    char key[SL_METASTORE_KEY_BYTES];
    struct sl_coordinator *coordinator;
    bool is_ready, has_failed, is_destroyed;

    char won[VALUE_BYTES];   /* of the key of the term, as it was at first */
    char value[VALUE_BYTES]; /* likewise, as it is */
    uint64_t turn;           /* of the writes, in it */

    bool *changed[KIND_COUNT]; /* [count]: the record is to be written */
    uint32_t changed_count;
    bool erases;             /* all records are to be removed first */
    uint64_t change_number;  /* grows with every change */
    uint64_t written_number; /* all changes up to this are written */

    struct kept *kept_first, *kept_last;
    size_t kept_bytes;

    struct sl_metastore_request ask;
    bool asking;
    uint64_t asking_number; /* all changes up to this are in what is being written; 0: not all */
    struct sl_metastore_change changes[SL_METASTORE_CHANGES_MAX];
};

static void fail(struct sl_coordinator_log *ledger, const char *why)
{
    if (!ledger->has_failed && !ledger->is_destroyed) {
        ledger->has_failed = true;
        ledger->options.failed(ledger->options.ctx, why);
    }
}

/* ---- What the coordinator sends ---------------------------------------------------------------
 */

static void keep(struct sl_coordinator_log *ledger, sl_coordinator_peer peer,
                 const struct sl_message *message)
{
    const size_t bytes = sl_message_encoded_bytes(message);
    const size_t bytes_max =
        ledger->options.bytes_max == 0 ? KEPT_BYTES_DEFAULT : ledger->options.bytes_max;
    struct kept *kept =
        ledger->kept_bytes + bytes > bytes_max ? NULL : malloc(sizeof *kept + bytes);
    if (kept == NULL) {
        fail(ledger, "no memory for what waits for the cluster store");
        return;
    }
    *kept = (struct kept){.needs = ledger->change_number, .peer = peer, .bytes = bytes};
    sl_message_encode(message, kept->message);
    if (ledger->kept_first == NULL) {
        ledger->kept_first = kept;
    } else {
        ledger->kept_last->next = kept;
    }
    ledger->kept_last = kept;
    ledger->kept_bytes += bytes;
}

static void pass_on(struct sl_coordinator_log *ledger, sl_coordinator_peer peer,
                    const struct sl_message *message)
{
    const struct sl_coordinator_options *options = &ledger->options.coordinator;
    if (ledger->options.may_act(ledger->options.ctx)) {
        options->send(options->ctx, peer, message);
    }
}

static void on_send(void *ctx, sl_coordinator_peer peer, const struct sl_message *message)
{
    struct sl_coordinator_log *ledger = ctx;
    if (ledger->has_failed) {
        return;
    }
    if (ledger->kept_first == NULL && ledger->change_number == ledger->written_number) {
        pass_on(ledger, peer, message);
    } else {
        keep(ledger, peer, message);
    }
}

static void on_close(void *ctx, sl_coordinator_peer peer, const char *why)
{
    struct sl_coordinator_log *ledger = ctx;
    const struct sl_coordinator_options *options = &ledger->options.coordinator;
    sl_coordinator_log_gone(ledger, peer);
    if (options->close != NULL) {
        options->close(options->ctx, peer, why);
    }
}

static void on_stage(void *ctx, enum sl_coordinator_stage stage, int err, const char *why)
{
    const struct sl_coordinator_options *options =
        &((struct sl_coordinator_log *)ctx)->options.coordinator;
    options->stage_changed(options->ctx, stage, err, why);
}

static void send_kept(struct sl_coordinator_log *ledger, const struct kept *kept)
{
    struct sl_message message;
    if (kept->is_dropped || ledger->has_failed) {
        return;
    }
    if (sl_message_decode(kept->message, kept->bytes, &message) != 0) {
        fail(ledger, "no memory for what waited for the cluster store");
        return;
    }
    pass_on(ledger, kept->peer, &message);
    sl_message_fini(&message);
}

static void release(struct sl_coordinator_log *ledger)
{
    while (ledger->kept_first != NULL && ledger->kept_first->needs <= ledger->written_number) {
        struct kept *kept = ledger->kept_first;
        ledger->kept_first = kept->next;
        ledger->kept_bytes -= kept->bytes;
        send_kept(ledger, kept);
        free(kept);
    }
}

void sl_coordinator_log_gone(struct sl_coordinator_log *ledger, sl_coordinator_peer peer)
{
    for (struct kept *kept = ledger->kept_first; kept != NULL; kept = kept->next) {
        kept->is_dropped = kept->is_dropped || kept->peer == peer;
    }
}

/* ---- Writing ----------------------------------------------------------------------------------
 */

static void on_changed(void *ctx, enum sl_coordinator_record kind, uint32_t index)
{
    struct sl_coordinator_log *ledger = ctx;
    ledger->change_number++;
    if (kind == SL_COORDINATOR_RECORD_ALL) {
        ledger->erases = true;
        for (size_t k = 0; k < KIND_COUNT; k++) {
            memset(ledger->changed[k], 0, KINDS[k].count * sizeof(bool));
        }
        ledger->changed_count = 0;
    } else if (!ledger->changed[kind][index]) {
        ledger->changed[kind][index] = true;
        ledger->changed_count++;
    }
    ledger->options.wake(ledger->options.ctx);
}

static void free_changes(struct sl_coordinator_log *ledger)
{
    for (size_t i = 0; i < ledger->ask.change_count; i++) {
        free(ledger->changes[i].value);
    }
    ledger->ask.change_count = 0;
}

/* The key of the term, first of what a write changes; false: no memory. */
static bool take_turn(struct sl_coordinator_log *ledger)
{
    struct sl_metastore_change *change = &ledger->changes[0];
    *change =
        (struct sl_metastore_change){.lease = ledger->options.lease, .value = malloc(VALUE_BYTES)};
    if (change->value == NULL) {
        return false;
    }
    memcpy(change->key, ledger->key, sizeof change->key);
    const int length =
        snprintf((char *)change->value, VALUE_BYTES, "%.*s,\"turn\":\"%" PRIx64 "\"}",
                 (int)strlen(ledger->won) - 1, ledger->won, ++ledger->turn);
    sl_assert(length < VALUE_BYTES);
    change->value_bytes = (size_t)length;
    ledger->ask.change_count = 1;
    return true;
}

/* One record; false: no memory. */
static bool take_change(struct sl_coordinator_log *ledger, enum sl_coordinator_record kind,
                        uint32_t index)
{
    struct sl_metastore_change *change = &ledger->changes[ledger->ask.change_count];
    *change = (struct sl_metastore_change){0};
    int length = snprintf(change->key, sizeof change->key, "%s%s/%05u", ledger->prefix,
                          KINDS[kind].name, index);
    sl_assert(length < (int)sizeof change->key);
    if (sl_coordinator_record_write(ledger->coordinator, kind, index, &change->value,
                                    &change->value_bytes) != 0) {
        return false;
    }
    ledger->ask.change_count++;
    return true;
}

/* As many as fit; false: no memory. */
static bool take_changes(struct sl_coordinator_log *ledger)
{
    size_t bytes = 0;
    for (size_t k = 0; k < KIND_COUNT && ledger->changed_count > 0; k++) {
        for (uint32_t i = 0; i < KINDS[k].count && ledger->changed_count > 0; i++) {
            if (!ledger->changed[k][i]) {
                continue;
            }
            if (ledger->ask.change_count == SL_METASTORE_CHANGES_MAX || bytes >= WRITE_BYTES_MAX) {
                return true;
            }
            if (!take_change(ledger, (enum sl_coordinator_record)k, i)) {
                return false;
            }
            bytes += ledger->changes[ledger->ask.change_count - 1].value_bytes;
            ledger->changed[k][i] = false;
            ledger->changed_count--;
        }
    }
    return true;
}

/* A range that is removed and a key in it that is set exclude each other in one write. */
static void take_erasure(struct sl_coordinator_log *ledger)
{
    struct sl_metastore_change *change = &ledger->changes[ledger->ask.change_count++];
    *change = (struct sl_metastore_change){.removes = true, .is_prefix = true};
    memcpy(change->key, ledger->prefix, sizeof change->key);
    ledger->erases = false;
}

static void on_answer(void *ctx, struct sl_metastore_request *ask);

static void ask_store(struct sl_coordinator_log *ledger)
{
    ledger->asking = true;
    sl_metastore_request(ledger->options.store, &ledger->ask);
}

void sl_coordinator_log_run(struct sl_coordinator_log *ledger)
{
    if (!ledger->is_ready || ledger->asking || ledger->has_failed) {
        return;
    }
    if (ledger->ask.change_count > 0) {
        ask_store(ledger); /* it was not answered: the same again */
        return;
    }
    if (!ledger->erases && ledger->changed_count == 0) {
        return;
    }
    ledger->ask = (struct sl_metastore_request){
        .kind = SL_METASTORE_WRITE,
        .timeout_ns = ledger->options.timeout_ns,
        .guard = SL_METASTORE_CREATED,
        .revision = ledger->options.epoch,
        .was = ledger->value,
        .changes = ledger->changes,
        .done = on_answer,
        .ctx = ledger,
    };
    memcpy(ledger->ask.key, ledger->key, sizeof ledger->ask.key);
    bool is_taken = take_turn(ledger);
    if (is_taken && ledger->erases) {
        take_erasure(ledger);
    } else if (is_taken) {
        is_taken = take_changes(ledger);
    }
    if (!is_taken) {
        fail(ledger, "no memory for what the cluster store has to know");
        return;
    }
    ledger->asking_number = ledger->changed_count == 0 ? ledger->change_number : 0;
    ask_store(ledger);
}

/* It holds, or did when it was asked for before, and not answered. */
static bool is_written(const struct sl_coordinator_log *ledger,
                       const struct sl_metastore_answer *answer)
{
    const struct sl_metastore_item *pair = answer->pair_count == 0 ? NULL : &answer->pairs[0];
    return answer->held || (pair != NULL && pair->created == ledger->options.epoch &&
                            pair->value_bytes == ledger->changes[0].value_bytes &&
                            memcmp(pair->value, ledger->changes[0].value, pair->value_bytes) == 0);
}

static void written(struct sl_coordinator_log *ledger, const struct sl_metastore_request *ask)
{
    const struct sl_metastore_answer *answer = &ask->answer;
    bool is_out = answer->err == SL_ERR_DEADLINE || answer->err == SL_ERR_IO;
    if (is_out) {
        ledger->options.wake(ledger->options.ctx); /* the election knows when it is too late */
        return;
    }
    const bool is_done = answer->err == 0 && is_written(ledger, answer);
    if (is_done) {
        memcpy(ledger->value, ledger->changes[0].value, ledger->changes[0].value_bytes + 1);
    }
    free_changes(ledger);
    if (answer->err != 0) {
        fail(ledger, answer->reason);
    } else if (!is_done) {
        fail(ledger, "another process hosts it");
    } else if (ledger->asking_number != 0) {
        ledger->written_number = ledger->asking_number;
        release(ledger);
    }
    ledger->options.wake(ledger->options.ctx);
}

/* ---- Reading ----------------------------------------------------------------------------------
 */

/* "worker/00012" */
static bool parse_key(const char *text, enum sl_coordinator_record *kind, uint32_t *index)
{
    for (size_t k = 0; k < KIND_COUNT; k++) {
        size_t length = strlen(KINDS[k].name);
        if (strncmp(text, KINDS[k].name, length) != 0 || text[length] != '/') {
            continue;
        }
        const char *digits = text + length + 1;
        char *end;
        errno = 0;
        unsigned long number = strtoul(digits, &end, 10);
        *kind = (enum sl_coordinator_record)k;
        *index = (uint32_t)number;
        return digits[0] >= '0' && digits[0] <= '9' && *end == '\0' && errno == 0 &&
               number < KINDS[k].count;
    }
    return false;
}

static int read_pair(struct sl_coordinator_log *ledger, const struct sl_metastore_item *pair)
{
    enum sl_coordinator_record kind;
    uint32_t index;
    char reason[SL_METASTORE_REASON_BYTES] = "it is none of a coordinator's keys";
    int err = SL_ERR_CORRUPT;
    if (parse_key(pair->key + strlen(ledger->prefix), &kind, &index)) {
        err = sl_coordinator_record_read(ledger->coordinator, kind, index, pair->value,
                                         pair->value_bytes, reason, sizeof reason);
    }
    if (err != 0) {
        sl_log_error("%s in the cluster store: %s", pair->key, reason);
    }
    return err;
}

/* What was read into the coordinator counts as no change. */
static void forget_changes(struct sl_coordinator_log *ledger)
{
    for (size_t k = 0; k < KIND_COUNT; k++) {
        memset(ledger->changed[k], 0, KINDS[k].count * sizeof(bool));
    }
    ledger->changed_count = 0;
    ledger->change_number = ledger->written_number = 1;
}

static void read_all(struct sl_coordinator_log *ledger, const struct sl_metastore_request *ask)
{
    const struct sl_metastore_answer *answer = &ask->answer;
    int err = answer->err;
    if (err == SL_ERR_DEADLINE || err == SL_ERR_IO) {
        ask_store(ledger); /* as long as the lease lasts */
        return;
    }
    if (err != 0) {
        fail(ledger, answer->reason);
        return;
    }
    for (size_t i = 0; i < answer->pair_count && err == 0; i++) {
        err = read_pair(ledger, &answer->pairs[i]);
    }
    if (err != 0) {
        fail(ledger, "the records of the job cannot be used: give another prefix, or remove them");
        return;
    }
    forget_changes(ledger);
    ledger->is_ready = true;
    ledger->options.ready(ledger->options.ctx, answer->pair_count == 0);
}

static void free_ledger(struct sl_coordinator_log *ledger)
{
    while (ledger->kept_first != NULL) {
        struct kept *next = ledger->kept_first->next;
        free(ledger->kept_first);
        ledger->kept_first = next;
    }
    free_changes(ledger);
    for (size_t k = 0; k < KIND_COUNT; k++) {
        free(ledger->changed[k]);
    }
    if (ledger->coordinator != NULL) {
        sl_coordinator_destroy(&ledger->coordinator);
    }
    free(ledger);
}

static void on_answer(void *ctx, struct sl_metastore_request *ask)
{
    struct sl_coordinator_log *ledger = ctx;
    ledger->asking = false;
    if (ledger->is_destroyed) {
        sl_metastore_answer_fini(&ask->answer);
        free_ledger(ledger);
        return;
    }
    struct sl_metastore_request answered = *ask; /* the ask may be used again in here */
    if (ledger->has_failed) {
        free_changes(ledger);
    } else if (ask->kind == SL_METASTORE_READ) {
        read_all(ledger, &answered);
    } else {
        written(ledger, &answered);
    }
    sl_metastore_answer_fini(&answered.answer);
}

/* ---- Life -------------------------------------------------------------------------------------
 */

static int create_coordinator(struct sl_coordinator_log *ledger)
{
    struct sl_coordinator_options options = ledger->options.coordinator;
    options.send = on_send;
    options.close = on_close;
    options.stage_changed = options.stage_changed == NULL ? NULL : on_stage;
    options.changed = on_changed;
    options.ctx = ledger;
    return sl_coordinator_create(&options, &ledger->coordinator);
}

int sl_coordinator_log_create(const struct sl_coordinator_log_options *options,
                              struct sl_coordinator_log **out)
{
    struct sl_coordinator_log *ledger = calloc(1, sizeof *ledger);
    if (ledger == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    ledger->options = *options;
    int err = 0;
    for (size_t k = 0; k < KIND_COUNT && err == 0; k++) {
        ledger->changed[k] = calloc(KINDS[k].count, sizeof(bool));
        err = ledger->changed[k] == NULL ? SL_ERR_NO_MEMORY : 0;
    }
    int length = snprintf(ledger->prefix, sizeof ledger->prefix, "%s/state/", options->prefix);
    if (err == 0 && (size_t)length + sizeof "worker/00000" > sizeof ledger->prefix) {
        err = SL_ERR_INVALID;
    }
    if (err == 0) {
        err = create_coordinator(ledger);
    }
    if (err != 0) {
        free_ledger(ledger);
        return err;
    }
    (void)snprintf(ledger->key, sizeof ledger->key, "%s", options->key);
    (void)snprintf(ledger->won, sizeof ledger->won, "%s", options->value);
    memcpy(ledger->value, ledger->won, sizeof ledger->value);
    ledger->ask = (struct sl_metastore_request){
        .kind = SL_METASTORE_READ,
        .is_prefix = true,
        .timeout_ns = READ_TIMEOUTS * options->timeout_ns,
        .done = on_answer,
        .ctx = ledger,
    };
    memcpy(ledger->ask.key, ledger->prefix, sizeof ledger->ask.key);
    ask_store(ledger);
    *out = ledger;
    return 0;
}

struct sl_coordinator *sl_coordinator_log_coordinator(struct sl_coordinator_log *ledger)
{
    return ledger->coordinator;
}

bool sl_coordinator_log_is_clean(const struct sl_coordinator_log *ledger)
{
    return ledger->change_number == ledger->written_number && !ledger->asking;
}

void sl_coordinator_log_erase(struct sl_coordinator_log *ledger)
{
    on_changed(ledger, SL_COORDINATOR_RECORD_ALL, 0);
}

void sl_coordinator_log_destroy(struct sl_coordinator_log **ledger)
{
    struct sl_coordinator_log *gone = *ledger;
    *ledger = NULL;
    gone->is_destroyed = true;
    if (!gone->asking) {
        free_ledger(gone);
    }
}
