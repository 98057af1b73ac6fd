/* The inbox of an engine, on its first reactor: notices of clients that are numbers. */
#include "net/transfer/inbox.h"

#include <string.h>

#include "net/transfer/engine.h"
#include "tests/support/reactor_thread.h"
#include "tests/support/unit.h"

#define SENDERS (SL_LIMIT_TRANSFER_SEGMENTS + 1) /* one more than an inbox remembers */

struct fixture {
    struct sl_transfer *transfer;
    struct reactor_thread thread;
    struct sl_transfer_io *io;
    struct sl_transfer_inbox_reader reader;
    struct sl_list guest;            /* a connection's questions */
    struct sl_transfer_asked *asked; /* of the last `put` */
    struct sl_reason reason;
    uint32_t puts;
};

static void note(struct sl_transfer_inbox_reader *reader)
{
    SL_CONTAINER_OF(reader, struct fixture, reader)->puts++;
}

static void set_up(struct fixture *f)
{
    const struct sl_transfer_options options = {.name = "127.0.0.1:0"};
    memset(f, 0, sizeof *f);
    assert_int_equal(sl_transfer_create(&options, &f->transfer), 0);
    f->io = &f->transfer->ios[0];
    f->reader = (struct sl_transfer_inbox_reader){.name = "test/2", .put = note};
    sl_list_init(&f->guest);
    reactor_thread_use(&f->thread, f->io->reactor);
}

static void close_here(void *ctx)
{
    sl_transfer_inbox_close(&((struct fixture *)ctx)->reader);
}

static void tear_down(struct fixture *f)
{
    reactor_thread_run(&f->thread, close_here, f);
    reactor_thread_fini(&f->thread);
    sl_transfer_destroy(&f->transfer);
}

/* Runs on the reactor. */
#define CASE(name)                                                                                 \
    static void name##_here(struct fixture *f);                                                    \
    static void name##_run(void *ctx)                                                              \
    {                                                                                              \
        name##_here(ctx);                                                                          \
    }                                                                                              \
    SL_CASE_USING(name, struct fixture, fixture, set_up, tear_down)                                \
    {                                                                                              \
        reactor_thread_run(&fixture->thread, name##_run, fixture);                                 \
    }                                                                                              \
    static void name##_here(struct fixture *f)

static void answer(struct sl_transfer_asked *asked, const void *bytes, uint32_t count)
{
    sl_transfer_inbox_keep(asked, bytes, count);
}

static int put(struct fixture *f, uint64_t client_id, uint64_t sequence, uint64_t answered)
{
    struct sl_message_notice notice = {.sequence = sequence,
                                       .sender = "127.0.0.1:1",
                                       .name = "test/2",
                                       .asks = true,
                                       .answered = answered};
    const int err = sl_transfer_inbox_put(f->io, client_id, &notice, &f->asked, &f->reason);
    if (err == 0) {
        f->asked->answer = answer;
        sl_list_append(&f->guest, &f->asked->by_guest);
    }
    return err;
}

static struct sl_transfer_asked *next(struct fixture *f)
{
    static struct sl_transfer_noticed noticed;
    struct sl_transfer_asked *asked;
    assert_true(sl_transfer_inbox_next(&f->reader, &noticed, &asked));
    return asked;
}

static void open_reader(struct fixture *f)
{
    assert_int_equal(sl_transfer_inbox_open(&f->io->inbox, &f->reader), 0);
}

CASE(inbox_put__of_an_answered_question_finds_its_answer)
{
    open_reader(f);
    assert_int_equal(put(f, 7, 1, 1), 0);
    struct sl_transfer_asked *first = f->asked;
    assert_null(first->bytes);
    assert_int_equal(put(f, 7, 1, 1), 0); /* again, before the answer */
    assert_ptr_equal(f->asked, first);
    assert_int_equal(f->puts, 1);
    assert_ptr_equal(next(f), first);
    first->answer(first, "yes", 3);
    assert_int_equal(put(f, 7, 1, 1), 0);
    assert_ptr_equal(f->asked, first);
    assert_int_equal(first->count, 3);
    assert_memory_equal(first->bytes, "yes", 3);
    assert_int_equal(f->puts, 1);
    assert_int_equal(put(f, 7, 2, 2), 0); /* it has the answer to the first one */
    assert_int_equal(f->io->asked_count, 1);
    assert_int_equal(put(f, 7, 1, 1), SL_ERR_CLOSED);
    struct sl_transfer_asked *second = next(f);
    second->answer(second, NULL, 0);
}

CASE(inbox_put__keeps_no_error_and_no_answer_that_nobody_needs)
{
    open_reader(f);
    assert_int_equal(put(f, 7, 1, 1), 0);
    struct sl_transfer_asked *first = next(f);
    first->answer(first, NULL, 0);
    assert_int_equal(f->io->asked_count, 0);
    assert_int_equal(put(f, 7, 2, 2), 0);
    struct sl_transfer_asked *forgotten = next(f);
    assert_int_equal(put(f, 7, 3, 3), 0); /* its sender has given it up */
    forgotten->answer(forgotten, "late", 4);
    assert_int_equal(f->io->asked_count, 1);
    struct sl_transfer_asked *third = next(f);
    third->answer(third, NULL, 0);
}

CASE(inbox_put__is_bounded)
{
    open_reader(f);
    for (uint64_t i = 1; i <= SL_LIMIT_TRANSFER_NOTICES; i++) {
        assert_int_equal(put(f, 7, i, 1), 0);
    }
    assert_int_equal(put(f, 7, SL_LIMIT_TRANSFER_NOTICES + 1, 1), SL_ERR_AGAIN);
    assert_string_equal(f->reason.text, "1024 notices wait to be taken");
    struct sl_transfer_asked *first = next(f);
    first->answer(first, "yes", 3);
    assert_int_equal(put(f, 7, SL_LIMIT_TRANSFER_NOTICES + 1, 1), 0);
}

CASE(inbox_put__names_another_version_and_a_reader_that_is_missing)
{
    assert_int_equal(put(f, 7, 1, 1), SL_ERR_AGAIN);
    assert_string_equal(f->reason.text, "it does not answer test/2 yet");
    f->reader.name = "test/3";
    open_reader(f);
    assert_int_equal(put(f, 7, 1, 1), SL_ERR_VERSION);
    assert_string_equal(f->reason.text, "it speaks test/3, and test/2 came: update the older");
}

/* The connection of a client that asked outlives what the inbox knows of it, and then ends. */
CASE(inbox_keep__of_a_forgotten_sender_frees_the_question)
{
    open_reader(f);
    assert_int_equal(put(f, 1, 1, 1), 0);
    struct sl_transfer_asked *first = next(f);
    for (uint64_t client = 2; client <= SENDERS; client++) {
        assert_int_equal(put(f, client, 1, 1), 0);
        struct sl_transfer_asked *other = next(f);
        other->answer(other, NULL, 0);
    }
    assert_null(first->sender);
    assert_true(sl_list_linked(&first->by_guest));
    while (sl_list_pop(&f->guest) != NULL) {
    }
    first->answer(first, "yes", 3);
    assert_int_equal(f->io->asked_count, 0);
}
