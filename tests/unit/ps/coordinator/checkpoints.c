#include "tests/unit/ps/coordinator/checkpoints.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <stdlib.h>

void start_with(struct fixture *f, uint64_t interval_ns, uint32_t adds)
{
    f->checkpoint_interval_ns = interval_ns;
    f->checkpoint_adds = adds;
    fixture_remake(f, 2, 3);
    cluster_start(f);
}

void register_restoring(struct fixture *f, sl_coordinator_peer peer, uint64_t id, uint64_t restore,
                        uint64_t newest, bool serving)
{
    struct sl_message message = {
        .kind = SL_MESSAGE_REGISTER,
        .id = id,
        .reg = {
            .shard_count = 2, .restore = restore, .checkpoint_newest = newest, .serving = serving}};
    (void)snprintf(message.reg.data_endpoint, sizeof message.reg.data_endpoint, "tcp://host%u:1",
                   (unsigned)peer);
    say(f, peer, message);
}

static struct sl_message_numbers numbers_of(const char *text)
{
    struct sl_message_numbers numbers = {.count = 0};
    char *end = NULL;
    for (uint64_t number = strtoull(text, &end, 10); number != 0;
         number = strtoull(end, &end, 10)) {
        numbers.items[numbers.count++] = number;
    }
    return numbers;
}

void both_register(struct fixture *f, bool first_serving, bool second_serving)
{
    register_restoring(f, 11, 1, 0, 0, first_serving);
    register_restoring(f, 12, 1, 0, 0, second_serving);
}

void register_having(struct fixture *f, sl_coordinator_peer peer, uint64_t id, uint64_t restore,
                     const char *complete, const char *unfinished)
{
    struct sl_message message = {.kind = SL_MESSAGE_REGISTER,
                                 .id = id,
                                 .reg = {.shard_count = 2,
                                         .restore = restore,
                                         .checkpoint_newest = 20,
                                         .complete = numbers_of(complete),
                                         .unfinished = numbers_of(unfinished)}};
    (void)snprintf(message.reg.data_endpoint, sizeof message.reg.data_endpoint, "tcp://host%u:1",
                   (unsigned)peer);
    say(f, peer, message);
}

void part_of(struct fixture *f, sl_coordinator_peer peer, uint64_t number, uint32_t first_shard,
             uint32_t count)
{
    struct sl_message_checkpoint_file files[4] = {0};
    for (uint32_t i = 0; i < count; i++) {
        files[i].shard = first_shard + i;
        (void)snprintf(files[i].name, sizeof files[i].name, "f%u-%u", (unsigned)number,
                       first_shard + i);
    }
    struct sl_message message = {
        .kind = SL_MESSAGE_CHECKPOINT_PART,
        .checkpoint_part = {
            .number = number, .files = files, .file_count = count, .has_worker = f->knows_worker}};
    say(f, peer, message);
}

void part(struct fixture *f, sl_coordinator_peer peer, uint64_t number)
{
    part_of(f, peer, number, peer == 11 ? 0 : 2, 2);
}

void part_fails(struct fixture *f, sl_coordinator_peer peer, uint64_t number, int err,
                const char *text)
{
    struct sl_message message = {.kind = SL_MESSAGE_CHECKPOINT_PART,
                                 .checkpoint_part = {.number = number, .err = err}};
    (void)snprintf(message.checkpoint_part.text, sizeof message.checkpoint_part.text, "%s", text);
    say(f, peer, message);
}

void done(struct fixture *f, sl_coordinator_peer peer, uint64_t number)
{
    say(f, peer,
        (struct sl_message){.kind = SL_MESSAGE_CHECKPOINT_DONE, .checkpoint_number = number});
}

void ask(struct fixture *f, sl_coordinator_peer peer, uint64_t id, uint32_t timeout_ms)
{
    say(f, peer,
        (struct sl_message){.kind = SL_MESSAGE_CHECKPOINT_ASK, .id = id, .timeout_ms = timeout_ms});
}

void expect_of_both(struct fixture *f, const char *text)
{
    for (unsigned peer = 11; peer <= 12; peer++) {
        char line[256];
        (void)snprintf(line, sizeof line, "%u#0 %s", peer, text);
        expect(f, line);
    }
}

void make_it(struct fixture *f, uint64_t number)
{
    part(f, 11, number);
    part(f, 12, number);
    f->sent_count = 0;
    done(f, 11, number);
    expect_nothing(f);
    done(f, 12, number);
}

void client_joins(struct fixture *f, sl_coordinator_peer peer)
{
    assert_int_equal(hello(f, peer, SL_MESSAGE_ROLE_CLIENT, 0), 0);
}
