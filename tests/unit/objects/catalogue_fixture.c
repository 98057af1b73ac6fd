#include "tests/unit/objects/catalogue_fixture.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/list.h"
#include "core/log.h"
#include "tests/support/unit.h"

struct sl_objects_catalogue *catalogue;
uint64_t now_ms = 1, known_term;

/* A message on its way: decoded from its own bytes. */
struct mail {
    struct sl_list_link link;
    uint64_t node;
    struct sl_objects_message message;
    uint8_t bytes[SL_OBJECTS_MESSAGE_BYTES];
};

static struct sl_list mails;
static struct mail *answer, *opened;
static uint32_t last_request;

static void decode(struct mail *mail, const struct sl_objects_message *message)
{
    struct sl_reason reason;
    const uint32_t bytes = sl_objects_message_encode(message, mail->bytes);
    if (sl_objects_message_decode(mail->bytes, bytes, &mail->message, &reason) != 0) {
        fail_msg("%s", reason.text);
    }
    mail->message.commit.image = message->commit.image; /* it is not encoded */
}

static void on_send(void *ctx, const char *address, const struct sl_objects_message *message)
{
    struct mail *mail = malloc(sizeof *mail);
    assert_non_null(mail);
    memset(&mail->link, 0, sizeof mail->link);
    assert_int_equal(sscanf(address, "node-%" SCNu64, &mail->node), 1);
    decode(mail, message);
    if (message->is_answer) {
        assert_null(answer);
        answer = mail;
    } else {
        sl_list_append(&mails, &mail->link);
    }
}

static uint64_t unix_ms(void *ctx)
{
    return 1700000000000 + now_ms;
}

static void create(uint64_t term, uint32_t settle_ms, uint32_t replicas, uint32_t keep_versions)
{
    end_catalogue();
    sl_log_setup(SL_LOG_ERROR, "catalogue");
    sl_list_init(&mails);
    const struct sl_objects_catalogue_options options = {.term = term,
                                                         .settle_ms = settle_ms,
                                                         .lease_ms = LEASE_MS,
                                                         .replicas = replicas,
                                                         .keep_versions = keep_versions,
                                                         .unix_ms = unix_ms,
                                                         .send = on_send};
    assert_int_equal(sl_objects_catalogue_create(&options, now_ms, &catalogue), 0);
}

void begin_catalogue(uint64_t term, uint32_t settle_ms)
{
    create(term, settle_ms, 0, 0);
}

void begin_catalogue_with(uint32_t replicas, uint32_t keep_versions)
{
    create(1, 0, replicas, keep_versions);
}

void begin_catalogue_of_six(void)
{
    known_term = 0;
    begin_catalogue(1000, 0);
    for (uint64_t node = 1; node <= 6; node++) {
        assert_int_equal(attach(node), 0);
    }
}

void end_catalogue(void)
{
    struct sl_list_link *link;
    while (catalogue != NULL && (link = sl_list_pop(&mails)) != NULL) {
        free(SL_CONTAINER_OF(link, struct mail, link));
    }
    free(answer);
    free(opened);
    answer = opened = NULL;
    sl_objects_catalogue_destroy(&catalogue);
}

const struct sl_objects_message *ask(uint64_t node, struct sl_objects_message message)
{
    static struct mail sent;
    char address[32];
    (void)snprintf(address, sizeof address, "node-%" PRIu64, node);
    message.node = node;
    if (!message.is_answer && message.kind != SL_OBJECTS_HOLD && message.kind != SL_OBJECTS_DROP &&
        message.kind != SL_OBJECTS_USE) {
        message.request = ++last_request;
    }
    decode(&sent, &message);
    free(answer);
    answer = NULL;
    sl_objects_catalogue_receive(catalogue, address, &sent.message, now_ms);
    if (!message.is_answer && message.request != 0) {
        assert_non_null(answer);
        assert_int_equal(answer->node, node);
        assert_int_equal(answer->message.request, message.request);
    }
    return answer == NULL ? NULL : &answer->message;
}

int attach(uint64_t node)
{
    return ask(node, (struct sl_objects_message){.kind = SL_OBJECTS_ATTACH,
                                                 .attach.host = node,
                                                 .attach.location = ""})
        ->err;
}

int alive(uint64_t node)
{
    return ask(node, (struct sl_objects_message){.kind = SL_OBJECTS_ALIVE,
                                                 .attach.host = node,
                                                 .attach.location = ""})
        ->err;
}

const struct sl_objects_message *find(uint64_t node, const char *name, uint64_t version)
{
    return ask(node, (struct sl_objects_message){
                         .kind = SL_OBJECTS_FIND, .name = name, .version = version});
}

void hold(uint64_t node, const char *name, uint64_t version, uint32_t blocks)
{
    (void)ask(node, (struct sl_objects_message){.kind = SL_OBJECTS_HOLD,
                                                .name = name,
                                                .version = version,
                                                .commit.blocks = blocks});
}

int begin(uint64_t node, const char *name, uint32_t options, uint64_t *epoch, uint64_t *version)
{
    const struct sl_objects_message *begun =
        ask(node, (struct sl_objects_message){.kind = SL_OBJECTS_BEGIN,
                                              .name = name,
                                              .part_count = 1,
                                              .begin.origin = SL_ORIGIN_CALLER,
                                              .begin.options = options});
    if (begun->err == 0) {
        *epoch = begun->epoch;
        *version = begun->version;
    }
    return begun->err;
}

struct sl_objects_message commit_of(uint64_t node, const char *name, uint64_t version,
                                    uint64_t epoch, uint64_t digest)
{
    return (struct sl_objects_message){
        .kind = SL_OBJECTS_COMMIT,
        .part_count = 1,
        .commit.record_count = 1,
        .commit.record = {.name = name,
                          .note = "a note",
                          .version = version,
                          .epoch = epoch,
                          .origin = SL_ORIGIN_CALLER,
                          .part_count = 1,
                          .parts = {{.digest = {.low = digest},
                                     .bytes = (PART_BLOCKS - 1) * SL_OBJECTS_BLOCK_BYTES,
                                     .holder = node,
                                     .manifest_bytes = 1}}},
    };
}

uint64_t publish(uint64_t node, const char *name)
{
    uint64_t epoch, version;
    assert_int_equal(begin(node, name, 0, &epoch, &version), 0);
    const struct sl_objects_message *committed =
        ask(node, commit_of(node, name, version, epoch, version));
    assert_int_equal(committed->err, 0);
    assert_int_equal(committed->commit.record.version, version);
    return version;
}

const struct sl_objects_message *received(uint64_t node)
{
    SL_LIST_FOREACH (link, &mails) {
        struct mail *mail = SL_CONTAINER_OF(link, struct mail, link);
        if (mail->node == node) {
            free(opened);
            opened = mail;
            sl_list_remove(link);
            return &mail->message;
        }
    }
    return NULL;
}

void answer_news(uint64_t node, const struct sl_objects_message *news)
{
    assert_int_equal(news->kind, SL_OBJECTS_NEWS);
    (void)ask(node, (struct sl_objects_message){
                        .kind = SL_OBJECTS_NEWS, .is_answer = true, .request = news->request});
}

void pass(uint64_t ms, uint64_t live)
{
    const uint64_t end = now_ms + ms;
    uint64_t alive_ms = now_ms;
    while (now_ms < end) {
        const uint64_t next = sl_objects_catalogue_next_ms(catalogue);
        now_ms = next < end ? (next > now_ms ? next : now_ms + 1) : end;
        for (uint64_t node = 1; node <= live && now_ms - alive_ms >= LEASE_MS / 3; node++) {
            assert_int_equal(alive(node), 0);
        }
        alive_ms = now_ms - alive_ms >= LEASE_MS / 3 ? now_ms : alive_ms;
        if (now_ms >= next) {
            sl_objects_catalogue_tick(catalogue, now_ms);
        }
    }
}

struct sl_objects_message list_of(const char *prefix, const char *name, uint64_t version)
{
    return (struct sl_objects_message){
        .kind = SL_OBJECTS_LIST, .list.prefix = prefix, .name = name, .version = version};
}

struct sl_objects_message of_name(uint32_t kind, const char *name, uint64_t version)
{
    return (struct sl_objects_message){.kind = kind, .name = name, .version = version};
}

uint32_t holders_of(const char *name)
{
    const struct sl_objects_message *listed = ask(1, list_of(name, "", 0));
    assert_int_equal(listed->list.entry_count, 1);
    return listed->list.entries[0].holders;
}
