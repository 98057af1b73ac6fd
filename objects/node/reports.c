#include "objects/node/reports.h"

#include <string.h>

#include "objects/node/node.h"

#define SINGLES_MAX 64    /* in flight */
#define BATCH_MS    10000 /* without an answer */

static void reports_pump(struct sl_objects *node);

/* Reports go on with the next ALIVE, all of them. */
static void reports_lose(struct sl_objects *node)
{
    struct sl_objects_membership *membership = &node->membership;
    if (membership->is_attached && !membership->reports.is_lost) {
        membership->reports.is_lost = true;
        sl_reactor_arm(node->reactor, &membership->timer,
                       sl_backoff_next(&membership->backoff, sl_reactor_random(node->reactor)));
    }
}

/* A message is in the catalogue's inbox, or it is lost. */
static void reports_sent(void *ctx, int err, const char *reason)
{
    struct sl_objects *node = ctx;
    node->membership.reports.singles--;
    if (err == 0) {
        reports_pump(node);
    } else {
        reports_lose(node);
    }
}

static void reports_report(struct sl_objects *node, struct sl_objects_message *message)
{
    message->term = node->membership.term;
    if (node->membership.catalogue[0] != '\0') {
        node->membership.reports.singles++;
        sl_objects_link_send(node->link, node->membership.catalogue, message, reports_sent, node);
    }
}

/* Fills the HOLD that reports a copy. False: no HOLD is due, or that of the file is. */
static bool describe_copy(const struct sl_objects *node, const struct sl_objects_copy *copy,
                          struct sl_objects_message *out)
{
    if (copy->is_withdrawn || copy->is_uncommitted || /* its DROP was sent; it is reported then */
        sl_objects_stored_of_copy(node, copy) != NULL) {
        return false;
    }
    *out = (struct sl_objects_message){
        .kind = SL_OBJECTS_HOLD,
        .name = copy->name,
        .version = copy->version,
        .part = copy->part,
        .commit = {.blocks = copy->verified.range_count == 0
                                 ? 0
                                 : copy->verified.count +
                                       (uint32_t)sl_objects_block_count(copy->info.manifest_bytes),
                   .record_count = copy->record != NULL ? 1 : 0,
                   .record = copy->record != NULL ? *copy->record : (struct sl_objects_record){0}},
    };
    return true;
}

/* A file has all of the part, whatever the pool has. */
static bool describe_stored(const struct sl_objects_stored *stored, struct sl_objects_message *out)
{
    const bool is_due = stored->is_kept && stored->has_file && !stored->is_dropped;
    if (is_due) {
        sl_objects_stored_read(stored, out);
    }
    return is_due;
}

void sl_objects_report(struct sl_objects *node, const struct sl_objects_copy *copy)
{
    struct sl_objects_message message;
    if (node->membership.is_attached && describe_copy(node, copy, &message)) {
        reports_report(node, &message);
    }
}

void sl_objects_report_stored(struct sl_objects *node, const struct sl_objects_stored *stored)
{
    struct sl_objects_message message;
    if (node->membership.is_attached && describe_stored(stored, &message)) {
        reports_report(node, &message);
    }
}

/* Its answer may be on the way: the catalogue counts on the copy. */
static bool is_committing(const struct sl_objects *node, const char *name, uint64_t version,
                          uint32_t part)
{
    bool is = false;
    SL_LIST_FOREACH (link, &node->membership.asks) {
        const struct sl_objects_message *message =
            &SL_CONTAINER_OF(link, struct sl_objects_ask, link)->message;
        is = is || (message->kind == SL_OBJECTS_COMMIT && message->part == part &&
                    message->commit.record.version == version &&
                    strcmp(message->commit.record.name, name) == 0);
    }
    return is;
}

void sl_objects_report_none(struct sl_objects *node, const char *name, uint64_t version,
                            uint32_t part)
{
    if (sl_objects_copy_find(node, name, version, part) != NULL ||
        is_committing(node, name, version, part) ||
        sl_objects_stored_in_file(node, name, version, part) != NULL) {
        return;
    }
    struct sl_objects_message message = {/* also while a catalogue that knows the copy seems lost */
                                         .kind = SL_OBJECTS_DROP,
                                         .name = name,
                                         .version = version,
                                         .part = part};
    reports_report(node, &message);
}

/* Rounds */

/* Takes the first item that this round has not reported. Items go to the end of their list, so
 * those of earlier rounds come first. out->kind 0: there is nothing to say of it. Returns false if
 * the round is over. */
static bool reports_take_next(struct sl_objects *node, struct sl_objects_message *out)
{
    struct sl_objects_reports *reports = &node->membership.reports;
    struct sl_list_link *link = sl_list_first(&node->copies);
    struct sl_objects_copy *copy =
        link != NULL ? SL_CONTAINER_OF(link, struct sl_objects_copy, link) : NULL;
    out->kind = 0;
    if (copy != NULL && copy->reported_round != reports->round) {
        copy->reported_round = reports->round;
        sl_list_append(&node->copies, link);
        (void)describe_copy(node, copy, out);
        return true;
    }
    link = sl_list_first(&node->stored);
    struct sl_objects_stored *stored =
        link != NULL ? SL_CONTAINER_OF(link, struct sl_objects_stored, link) : NULL;
    if (stored != NULL && stored->reported_round != reports->round) {
        stored->reported_round = reports->round;
        sl_list_append(&node->stored, link);
        (void)describe_stored(stored, out);
        return true;
    }
    while (reports->next_follow < SL_LIMIT_OBJECTS_FOLLOWS) {
        const struct sl_objects_follow *follow = node->follows.items[reports->next_follow++];
        if (follow != NULL) {
            *out = (struct sl_objects_message){
                .kind = SL_OBJECTS_USE, .name = follow->name, .version = follow->in_use};
            return true;
        }
    }
    return false;
}

static void begin_round(struct sl_objects_reports *reports)
{
    reports->round += reports->round == UINT32_MAX ? 2 : 1; /* items begin with 0 */
    reports->next_follow = 0;
}

static void end_round(struct sl_objects *node)
{
    struct sl_objects_reports *reports = &node->membership.reports;
    begin_round(reports);
    reports->credit = 0; /* until the next ALIVE */
    if (!reports->is_complete) {
        reports->is_complete = true;
        sl_reactor_arm(node->reactor, &node->membership.timer, 0); /* ALIVE says so */
    }
}

static void batch_answered(struct sl_objects_request *request,
                           const struct sl_objects_message *answer, int err, const char *reason)
{
    struct sl_objects_reports_batch *batch =
        SL_CONTAINER_OF(request, struct sl_objects_reports_batch, request);
    struct sl_objects *node = batch->node;
    batch->node = NULL;
    if (err == 0) {
        reports_pump(node);
    } else {
        reports_lose(node);
    }
}

/* NULL: all are in flight. */
static struct sl_objects_reports_batch *find_batch(struct sl_objects_reports *reports)
{
    for (uint32_t i = 0; i < SL_OBJECTS_REPORTS_BATCHES; i++) {
        if (reports->batches[i].node == NULL) {
            return &reports->batches[i];
        }
    }
    return NULL;
}

static bool may_report(const struct sl_objects *node)
{
    const struct sl_objects_reports *reports = &node->membership.reports;
    return node->membership.is_attached && !reports->is_lost &&
           (!reports->is_complete || reports->credit > 0);
}

/* Sends items until a batch has no room for another one of the usual size, or the round is over. */
static void send_batch(struct sl_objects *node, struct sl_objects_reports_batch *batch)
{
    struct sl_objects_reports *reports = &node->membership.reports;
    uint8_t text[SL_OBJECTS_BATCH_BYTES];
    struct sl_objects_message items = {
        .kind = SL_OBJECTS_BATCH, .term = node->membership.term, .batch.messages = text};
    struct sl_objects_message item;
    while (may_report(node) && items.batch.bytes <= sizeof text - SL_OBJECTS_BATCH_ROOM) {
        if (!reports_take_next(node, &item)) {
            end_round(node);
            break;
        }
        reports->credit -= reports->is_complete;
        item.term = node->membership.term;
        if (item.kind != 0 && !sl_objects_message_batch(&items, text, &item)) {
            reports_report(node, &item); /* a record of many parts */
        }
    }
    if (items.batch.bytes > 0) {
        batch->node = node;
        batch->request.answered = batch_answered;
        sl_objects_link_request(node->link, &batch->request, node->membership.catalogue, &items,
                                BATCH_MS);
    }
}

static void reports_pump(struct sl_objects *node)
{
    struct sl_objects_reports *reports = &node->membership.reports;
    struct sl_objects_reports_batch *batch;
    while (may_report(node) && reports->singles < SINGLES_MAX &&
           (batch = find_batch(reports)) != NULL) {
        send_batch(node, batch);
    }
}

void sl_objects_reports_cancel(struct sl_objects *node)
{
    struct sl_objects_reports *reports = &node->membership.reports;
    for (uint32_t i = 0; i < SL_OBJECTS_REPORTS_BATCHES; i++) {
        if (reports->batches[i].node != NULL) {
            sl_objects_link_cancel(node->link, &reports->batches[i].request);
            reports->batches[i].node = NULL;
        }
    }
}

void sl_objects_reports_begin(struct sl_objects *node)
{
    struct sl_objects_reports *reports = &node->membership.reports;
    begin_round(reports);
    reports->is_complete = reports->is_lost = false;
    reports_pump(node);
}

void sl_objects_reports_continue(struct sl_objects *node)
{
    struct sl_objects_reports *reports = &node->membership.reports;
    if (reports->is_lost) {
        sl_objects_reports_begin(node);
        return;
    }
    reports->credit = SL_OBJECTS_REPORTS_AN_ALIVE;
    reports_pump(node);
}
