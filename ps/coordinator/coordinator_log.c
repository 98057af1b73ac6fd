#include "ps/coordinator/coordinator_log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "core/reason.h"

#define WRITE_BYTES_MAX                                                                            \
    (700U << 10) /* per write; etcd's limit is 1.5 MiB, and base64 adds a third */
#define READ_TIMEOUTS      10
#define KEPT_BYTES_DEFAULT ((size_t)256 << 20)
#define VALUE_BYTES        640 /* of the term key */

/* Key component and number of records of each kind. */
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

/* A message that is held until all changes up to `needs` are written. */
struct kept {
    struct kept *next;
    uint64_t needs;
    sl_coordinator_peer peer;
    bool is_dropped; /* its connection is closed */
    size_t bytes;
    uint8_t message[]; /* encoded */
};

enum state {
    LOADING,
    READY,
    FAILED,   /* the owner was notified; nothing is sent any more */
    DESTROYED /* the memory is freed with the answer to the request in flight */
};

struct sl_coordinator_log {
    struct sl_coordinator_log_options options;
    char prefix[SL_METASTORE_KEY_BYTES]; /* of the records, with a trailing slash */
    char key[SL_METASTORE_KEY_BYTES];
    struct sl_coordinator *coordinator;
    enum state state;

    char won[VALUE_BYTES];   /* first value of the term key */
    char value[VALUE_BYTES]; /* current value of the term key */
    uint64_t turn;           /* number of this term's last write; part of value */

    bool *changed[KIND_COUNT]; /* [count]: the record must be written */
    uint32_t changed_count;
    bool erases;             /* all records must be removed first */
    uint64_t change_number;  /* of the last change */
    uint64_t written_number; /* of the last change written */

    struct kept *kept_first, *kept_last;
    size_t kept_bytes;

    struct sl_metastore_request ask;
    bool asking;
    uint64_t asking_number; /* of the last change covered by the write in flight; 0: it does not
                               cover all */
    struct sl_metastore_change changes[SL_METASTORE_CHANGES_MAX];
};

static void coordinator_log_fail(struct sl_coordinator_log *log, const char *why)
{
    if (log->state == LOADING || log->state == READY) {
        log->state = FAILED;
        log->options.failed(log->options.ctx, why);
    }
}

/* Outgoing messages */

static void keep(struct sl_coordinator_log *log, sl_coordinator_peer peer,
                 const struct sl_message *message)
{
    const size_t bytes = sl_message_encoded_bytes(message);
    const size_t bytes_max =
        log->options.bytes_max == 0 ? KEPT_BYTES_DEFAULT : log->options.bytes_max;
    struct kept *kept = log->kept_bytes + bytes > bytes_max ? NULL : malloc(sizeof *kept + bytes);
    if (kept == NULL) {
        coordinator_log_fail(log, "no memory for what waits for the cluster store");
        return;
    }
    *kept = (struct kept){.needs = log->change_number, .peer = peer, .bytes = bytes};
    sl_message_encode(message, kept->message);
    if (log->kept_first == NULL) {
        log->kept_first = kept;
    } else {
        log->kept_last->next = kept;
    }
    log->kept_last = kept;
    log->kept_bytes += bytes;
}

static void coordinator_log_pass_on(struct sl_coordinator_log *log, sl_coordinator_peer peer,
                                    const struct sl_message *message)
{
    const struct sl_coordinator_options *options = &log->options.coordinator;
    if (log->options.may_act(log->options.ctx)) {
        options->send(options->ctx, peer, message);
    }
}

static void on_send(void *ctx, sl_coordinator_peer peer, const struct sl_message *message)
{
    struct sl_coordinator_log *log = ctx;
    if (log->state >= FAILED) {
        return;
    }
    if (log->kept_first == NULL && log->change_number == log->written_number) {
        coordinator_log_pass_on(log, peer, message);
    } else {
        keep(log, peer, message);
    }
}

static void on_close(void *ctx, sl_coordinator_peer peer, const char *why)
{
    struct sl_coordinator_log *log = ctx;
    const struct sl_coordinator_options *options = &log->options.coordinator;
    sl_coordinator_log_gone(log, peer);
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

static bool coordinator_log_on_report(void *ctx, const struct sl_message_hello *member,
                                      const struct sl_message_report *report)
{
    const struct sl_coordinator_options *options =
        &((struct sl_coordinator_log *)ctx)->options.coordinator;
    return options->report(options->ctx, member, report);
}

static void send_kept(struct sl_coordinator_log *log, const struct kept *kept)
{
    struct sl_message message;
    if (kept->is_dropped || log->state >= FAILED) {
        return;
    }
    if (sl_message_decode(kept->message, kept->bytes, &message) != 0) {
        coordinator_log_fail(log, "no memory for what waited for the cluster store");
        return;
    }
    coordinator_log_pass_on(log, kept->peer, &message);
    sl_message_fini(&message);
}

static void release(struct sl_coordinator_log *log)
{
    while (log->kept_first != NULL && log->kept_first->needs <= log->written_number) {
        struct kept *kept = log->kept_first;
        log->kept_first = kept->next;
        log->kept_bytes -= kept->bytes;
        send_kept(log, kept);
        free(kept);
    }
}

void sl_coordinator_log_gone(struct sl_coordinator_log *log, sl_coordinator_peer peer)
{
    for (struct kept *kept = log->kept_first; kept != NULL; kept = kept->next) {
        kept->is_dropped = kept->is_dropped || kept->peer == peer;
    }
}

/* Writing */

static void clear_changes(struct sl_coordinator_log *log)
{
    for (size_t k = 0; k < KIND_COUNT; k++) {
        memset(log->changed[k], 0, KINDS[k].count * sizeof(bool));
    }
    log->changed_count = 0;
}

static void on_changed(void *ctx, enum sl_coordinator_record kind, uint32_t index)
{
    struct sl_coordinator_log *log = ctx;
    log->change_number++;
    if (kind == SL_COORDINATOR_RECORD_ALL) {
        log->erases = true;
        clear_changes(log);
    } else if (!log->changed[kind][index]) {
        log->changed[kind][index] = true;
        log->changed_count++;
    }
    log->options.wake(log->options.ctx);
}

static void free_changes(struct sl_coordinator_log *log)
{
    for (size_t i = 0; i < log->ask.change_count; i++) {
        free(log->changes[i].value);
    }
    log->ask.change_count = 0;
}

/* Adds the change of the term key, the first of each write. Returns false if there is no memory. */
static bool take_turn(struct sl_coordinator_log *log)
{
    struct sl_metastore_change *change = &log->changes[0];
    *change =
        (struct sl_metastore_change){.lease = log->options.lease, .value = malloc(VALUE_BYTES)};
    if (change->value == NULL) {
        return false;
    }
    memcpy(change->key, log->key, sizeof change->key);
    const int length =
        snprintf((char *)change->value, VALUE_BYTES, "%.*s,\"turn\":\"%" PRIx64 "\"}",
                 (int)strlen(log->won) - 1, log->won, ++log->turn);
    sl_assert(length < VALUE_BYTES);
    change->value_bytes = (size_t)length;
    log->ask.change_count = 1;
    return true;
}

/* Adds one record. Returns false if there is no memory. */
static bool take_change(struct sl_coordinator_log *log, enum sl_coordinator_record kind,
                        uint32_t index)
{
    struct sl_metastore_change *change = &log->changes[log->ask.change_count];
    *change = (struct sl_metastore_change){0};
    int length = snprintf(change->key, sizeof change->key, "%s%s/%05u", log->prefix,
                          KINDS[kind].name, index);
    sl_assert(length < (int)sizeof change->key);
    if (sl_coordinator_record_write(log->coordinator, kind, index, &change->value,
                                    &change->value_bytes) != 0) {
        return false;
    }
    log->ask.change_count++;
    return true;
}

/* Adds as many records as fit. Returns false if there is no memory. */
static bool take_changes(struct sl_coordinator_log *log)
{
    size_t bytes = 0;
    for (size_t k = 0; k < KIND_COUNT && log->changed_count > 0; k++) {
        for (uint32_t i = 0; i < KINDS[k].count && log->changed_count > 0; i++) {
            if (!log->changed[k][i]) {
                continue;
            }
            if (log->ask.change_count == SL_METASTORE_CHANGES_MAX || bytes >= WRITE_BYTES_MAX) {
                return true;
            }
            if (!take_change(log, (enum sl_coordinator_record)k, i)) {
                return false;
            }
            bytes += log->changes[log->ask.change_count - 1].value_bytes;
            log->changed[k][i] = false;
            log->changed_count--;
        }
    }
    return true;
}

/* etcd rejects a transaction that deletes a range and sets a key inside it, so erasing is a write
 * of its own. */
static void take_erasure(struct sl_coordinator_log *log)
{
    struct sl_metastore_change *change = &log->changes[log->ask.change_count++];
    *change = (struct sl_metastore_change){.removes = true, .is_prefix = true};
    memcpy(change->key, log->prefix, sizeof change->key);
    log->erases = false;
}

static void coordinator_log_on_answer(void *ctx, struct sl_metastore_request *ask);

static void coordinator_log_ask_metastore(struct sl_coordinator_log *log)
{
    log->asking = true;
    sl_metastore_request(log->options.metastore, &log->ask);
}

void sl_coordinator_log_run(struct sl_coordinator_log *log)
{
    if (log->state != READY || log->asking) {
        return;
    }
    if (log->ask.change_count > 0) {
        coordinator_log_ask_metastore(log); /* unanswered: repeat it */
        return;
    }
    if (!log->erases && log->changed_count == 0) {
        return;
    }
    log->ask = (struct sl_metastore_request){
        .kind = SL_METASTORE_WRITE,
        .timeout_ns = log->options.timeout_ns,
        .guard = SL_METASTORE_CREATED,
        .revision = log->options.term,
        .was = log->value,
        .changes = log->changes,
        .done = coordinator_log_on_answer,
        .ctx = log,
    };
    memcpy(log->ask.key, log->key, sizeof log->ask.key);
    bool is_taken = take_turn(log);
    if (is_taken && log->erases) {
        take_erasure(log);
    } else if (is_taken) {
        is_taken = take_changes(log);
    }
    if (!is_taken) {
        coordinator_log_fail(log, "no memory for what the cluster store has to know");
        return;
    }
    log->asking_number = log->changed_count == 0 ? log->change_number : 0;
    coordinator_log_ask_metastore(log);
}

/* True if the write took effect, now or in an earlier unanswered attempt. */
static bool is_written(const struct sl_coordinator_log *log,
                       const struct sl_metastore_answer *answer)
{
    const struct sl_metastore_item *item = answer->item_count == 0 ? NULL : &answer->pairs[0];
    return answer->held || (item != NULL && item->created == log->options.term &&
                            item->value_bytes == log->changes[0].value_bytes &&
                            memcmp(item->value, log->changes[0].value, item->value_bytes) == 0);
}

static void written(struct sl_coordinator_log *log, const struct sl_metastore_request *ask)
{
    const struct sl_metastore_answer *answer = &ask->answer;
    bool is_out = answer->err == SL_ERR_DEADLINE || answer->err == SL_ERR_IO;
    if (is_out) {
        log->options.wake(log->options.ctx); /* the election decides when to give up */
        return;
    }
    const bool is_done = answer->err == 0 && is_written(log, answer);
    if (is_done) {
        memcpy(log->value, log->changes[0].value, log->changes[0].value_bytes + 1);
    }
    free_changes(log);
    if (answer->err != 0) {
        coordinator_log_fail(log, answer->reason);
    } else if (!is_done) {
        coordinator_log_fail(log, "another process hosts it");
    } else if (log->asking_number != 0) {
        log->written_number = log->asking_number;
        release(log);
    }
    log->options.wake(log->options.ctx);
}

/* Loading */

/* E.g. "worker/00012". */
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

static int read_item(struct sl_coordinator_log *log, const struct sl_metastore_item *item)
{
    enum sl_coordinator_record kind;
    uint32_t index;
    struct sl_reason reason = {.text = "it is none of a coordinator's keys"};
    int err = SL_ERR_CORRUPT;
    if (parse_key(item->key + strlen(log->prefix), &kind, &index)) {
        err = sl_coordinator_record_read(log->coordinator, kind, index, item->value,
                                         item->value_bytes, &reason);
    }
    if (err != 0) {
        sl_log_error("%s in the cluster store: %s", item->key, reason.text);
    }
    return err;
}

static void read_all(struct sl_coordinator_log *log, const struct sl_metastore_request *ask)
{
    const struct sl_metastore_answer *answer = &ask->answer;
    int err = answer->err;
    if (err == SL_ERR_DEADLINE || err == SL_ERR_IO) {
        coordinator_log_ask_metastore(log); /* retries while the lease lasts */
        return;
    }
    if (err != 0) {
        coordinator_log_fail(log, answer->reason);
        return;
    }
    for (size_t i = 0; i < answer->item_count && err == 0; i++) {
        err = read_item(log, &answer->pairs[i]);
    }
    if (err != 0) {
        coordinator_log_fail(
            log, "the records of the job cannot be used: give another prefix, or remove them");
        return;
    }
    clear_changes(log); /* loaded records do not count as changes */
    log->change_number = log->written_number = 1;
    log->state = READY;
    log->options.ready(log->options.ctx, answer->item_count == 0);
}

static void free_log(struct sl_coordinator_log *log)
{
    while (log->kept_first != NULL) {
        struct kept *next = log->kept_first->next;
        free(log->kept_first);
        log->kept_first = next;
    }
    free_changes(log);
    for (size_t k = 0; k < KIND_COUNT; k++) {
        free(log->changed[k]);
    }
    if (log->coordinator != NULL) {
        sl_coordinator_destroy(&log->coordinator);
    }
    free(log);
}

static void coordinator_log_on_answer(void *ctx, struct sl_metastore_request *ask)
{
    struct sl_coordinator_log *log = ctx;
    log->asking = false;
    if (log->state == DESTROYED) {
        sl_metastore_answer_fini(&ask->answer);
        free_log(log);
        return;
    }
    struct sl_metastore_request answered = *ask; /* the callback may reuse the request */
    if (log->state == FAILED) {
        free_changes(log);
    } else if (ask->kind == SL_METASTORE_READ) {
        read_all(log, &answered);
    } else {
        written(log, &answered);
    }
    sl_metastore_answer_fini(&answered.answer);
}

/* Create and destroy */

static int create_coordinator(struct sl_coordinator_log *log)
{
    struct sl_coordinator_options options = log->options.coordinator;
    options.send = on_send;
    options.close = on_close;
    options.stage_changed = options.stage_changed == NULL ? NULL : on_stage;
    options.changed = on_changed;
    options.report = options.report == NULL ? NULL : coordinator_log_on_report;
    options.ctx = log;
    return sl_coordinator_create(&options, &log->coordinator);
}

int sl_coordinator_log_create(const struct sl_coordinator_log_options *options,
                              struct sl_coordinator_log **out)
{
    struct sl_coordinator_log *log = calloc(1, sizeof *log);
    if (log == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    log->options = *options;
    int err = 0;
    for (size_t k = 0; k < KIND_COUNT && err == 0; k++) {
        log->changed[k] = calloc(KINDS[k].count, sizeof(bool));
        err = log->changed[k] == NULL ? SL_ERR_NO_MEMORY : 0;
    }
    int length = snprintf(log->prefix, sizeof log->prefix, "%s/state/", options->prefix);
    if (err == 0 && (size_t)length + sizeof "worker/00000" > sizeof log->prefix) {
        err = SL_ERR_INVALID;
    }
    err = err != 0 ? err : create_coordinator(log);
    if (err != 0) {
        free_log(log);
        return err;
    }
    (void)snprintf(log->key, sizeof log->key, "%s", options->key);
    (void)snprintf(log->won, sizeof log->won, "%s", options->value);
    memcpy(log->value, log->won, sizeof log->value);
    log->ask = (struct sl_metastore_request){
        .kind = SL_METASTORE_READ,
        .is_prefix = true,
        .timeout_ns = READ_TIMEOUTS * options->timeout_ns,
        .done = coordinator_log_on_answer,
        .ctx = log,
    };
    memcpy(log->ask.key, log->prefix, sizeof log->ask.key);
    coordinator_log_ask_metastore(log);
    *out = log;
    return 0;
}

struct sl_coordinator *sl_coordinator_log_coordinator(struct sl_coordinator_log *log)
{
    return log->coordinator;
}

bool sl_coordinator_log_is_clean(const struct sl_coordinator_log *log)
{
    return log->change_number == log->written_number && !log->asking;
}

void sl_coordinator_log_erase(struct sl_coordinator_log *log)
{
    on_changed(log, SL_COORDINATOR_RECORD_ALL, 0);
}

void sl_coordinator_log_destroy(struct sl_coordinator_log **log)
{
    struct sl_coordinator_log *gone = *log;
    *log = NULL;
    gone->state = DESTROYED;
    if (!gone->asking) {
        free_log(gone);
    }
}
