/* Segments, batches and messages of Mooncake's C functions. */
#include <stdio.h>
#include <string.h>

#include "duo.h"
#include "tests/support/unit.h"

#define REQUESTS 128U
#define PIECE    (DUO_BYTES / REQUESTS)

static struct duo duo;

#define CASE(name) SL_CASE_WITH(name, duo_init(&duo), duo_fini(&duo))

static void fill(uint8_t *bytes, uint32_t seed)
{
    for (uint32_t i = 0; i < DUO_BYTES; i++) {
        bytes[i] = (uint8_t)(i * 31 + i / 4096 + seed);
    }
}

/* One for each piece of the memory. */
static void prepare(struct transfer_request *requests, int opcode, segment_id_t segment)
{
    for (uint32_t i = 0; i < REQUESTS; i++) {
        requests[i] = (struct transfer_request){.opcode = opcode,
                                                .source = duo.local + i * PIECE,
                                                .target_id = segment,
                                                .target_offset = (uintptr_t)duo.remote + i * PIECE,
                                                .length = PIECE};
    }
}

CASE(batch__moves_what_it_says)
{
    struct transfer_request requests[REQUESTS];
    struct transfer_status status;
    const int opcodes[] = {OPCODE_WRITE, OPCODE_READ};
    for (uint32_t turn = 0; turn < 2; turn++) {
        fill(duo.local, turn);
        fill(duo.remote, turn + 100);
        prepare(requests, opcodes[turn], duo.segment);
        const batch_id_t batch = allocateBatchID(duo.here, REQUESTS);
        assert_int_equal(submitTransfer(duo.here, batch, requests, REQUESTS), 0);
        for (uint32_t i = 0; i < REQUESTS; i++) {
            assert_int_equal(duo_wait(duo.here, batch, i), STATUS_COMPLETED);
            assert_int_equal(getTransferStatus(duo.here, batch, i, &status), 0);
            assert_int_equal(status.transferred_bytes, PIECE);
        }
        assert_memory_equal(duo.local, duo.remote, DUO_BYTES);
        assert_int_equal(duo.local[0], turn == 0 ? 0 : 101);
        assert_int_equal(freeBatchID(duo.here, batch), 0);
    }
}

CASE(batch__has_several_submissions)
{
    struct transfer_request requests[REQUESTS];
    fill(duo.local, 3);
    prepare(requests, OPCODE_WRITE, duo.segment);
    const batch_id_t batch = allocateBatchID(duo.here, REQUESTS);
    assert_int_equal(submitTransfer(duo.here, batch, requests, 28), 0);
    assert_int_equal(submitTransfer(duo.here, batch, requests + 28, 100),
                     0); /* the first may run */
    assert_int_equal(submitTransfer(duo.here, batch, requests, 1), -2);
    assert_int_equal(submitTransfer(duo.here, batch, requests, 0), 0);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        assert_int_equal(duo_wait(duo.here, batch, i), STATUS_COMPLETED);
    }
    assert_memory_equal(duo.local, duo.remote, DUO_BYTES);
    struct transfer_status status;
    assert_int_equal(getTransferStatus(duo.here, batch, REQUESTS, &status), -1);
    assert_int_equal(freeBatchID(duo.here, batch), 0);
}

CASE(batch__that_does_not_exist)
{
    struct transfer_request request[REQUESTS];
    struct transfer_status status;
    prepare(request, OPCODE_WRITE, duo.segment);
    const batch_id_t first = allocateBatchID(duo.here, 1);
    assert_int_equal(getTransferStatus(duo.here, first, 0, &status), -1);
    assert_int_equal(getTransferStatus(duo.here, first, 0, NULL), -1);
    assert_int_equal(submitTransfer(duo.here, first, NULL, 1), -1);
    assert_int_equal(freeBatchID(duo.here, first), 0);
    const batch_id_t second = allocateBatchID(duo.here, 1);
    assert_true(first != second && second != 0);
    const batch_id_t wrong[] = {first, 0, INVALID_BATCH, second + 1};
    for (uint32_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(submitTransfer(duo.here, wrong[i], request, 1), -1);
        assert_int_equal(getTransferStatus(duo.here, wrong[i], 0, &status), -1);
        assert_int_equal(freeBatchID(duo.here, wrong[i]), -1);
    }
    assert_int_equal(freeBatchID(duo.here, second), 0);
}

CASE(batch__with_requests_that_are_wrong)
{
    static uint8_t other[64];
    struct transfer_request requests[REQUESTS];
    struct transfer_status status;
    assert_int_equal(duo_move(&duo, OPCODE_WRITE, other, duo.remote, 64), STATUS_FAILED);
    assert_int_equal(duo_move(&duo, OPCODE_WRITE, duo.local, other, 64), STATUS_FAILED);
    assert_int_equal(duo_move(&duo, OPCODE_WRITE, duo.local, duo.remote + DUO_BYTES - 8, 9),
                     STATUS_FAILED);
    assert_int_equal(duo_move(&duo, OPCODE_WRITE, duo.local, duo.remote, 0), -1);
    assert_int_equal(duo_move(&duo, 2, duo.local, duo.remote, 8), -1);
    prepare(requests, OPCODE_WRITE, duo.segment);
    requests[1].source = other;
    requests[3].target_id = duo.segment + 1;
    const batch_id_t batch = allocateBatchID(duo.here, REQUESTS);
    assert_int_equal(submitTransfer(duo.here, batch, requests, 4), -1);
    assert_int_equal(getTransferStatus(duo.here, batch, 0, &status), -1);
    assert_int_equal(submitTransfer(duo.here, batch, requests, 3), 0); /* one fails by itself */
    assert_int_equal(duo_wait(duo.here, batch, 0), STATUS_COMPLETED);
    assert_int_equal(duo_wait(duo.here, batch, 1), STATUS_FAILED);
    assert_int_equal(duo_wait(duo.here, batch, 2), STATUS_COMPLETED);
    assert_int_equal(freeBatchID(duo.here, batch), 0);
}

CASE(batch__to_the_engine_itself)
{
    static uint8_t more[64];
    struct transfer_request request = {.opcode = OPCODE_READ,
                                       .source = more,
                                       .target_id = LOCAL_SEGMENT,
                                       .target_offset = (uintptr_t)duo.local,
                                       .length = sizeof more};
    fill(duo.local, 9);
    assert_int_equal(registerLocalMemory(duo.here, more, sizeof more, "*", 1), 0);
    const batch_id_t batch = allocateBatchID(duo.here, 1);
    assert_int_equal(submitTransfer(duo.here, batch, &request, 1), 0);
    assert_int_equal(duo_wait(duo.here, batch, 0), STATUS_COMPLETED);
    assert_memory_equal(more, duo.local, sizeof more);
    assert_int_equal(freeBatchID(duo.here, batch), 0);
    assert_int_equal(openSegment(duo.here, duo.here_name), LOCAL_SEGMENT);
    assert_int_equal(unregisterLocalMemory(duo.here, more), 0);
}

CASE(batch__names_memory_that_was_registered_a_moment_ago)
{
    static uint8_t late[64];
    for (uint32_t i = 0; i < 50; i++) {
        assert_int_equal(registerLocalMemory(duo.there, late, sizeof late, "*", 1), 0);
        assert_int_equal(duo_move(&duo, OPCODE_WRITE, duo.local, late, 64), STATUS_COMPLETED);
        assert_int_equal(unregisterLocalMemory(duo.there, late), 0);
    }
}

CASE(segment__has_one_number)
{
    assert_int_equal(openSegment(duo.here, duo.there_name), duo.segment);
    assert_int_equal(openSegmentNoCache(duo.here, duo.there_name), duo.segment);
    assert_int_equal(closeSegment(duo.here, duo.segment), 0);
    assert_int_equal(closeSegment(duo.here, duo.segment), 0);
    assert_int_equal(duo_move(&duo, OPCODE_WRITE, duo.local, duo.remote, 8), STATUS_COMPLETED);
    assert_int_equal(closeSegment(duo.here, duo.segment), 0);
    assert_int_equal(duo_move(&duo, OPCODE_WRITE, duo.local, duo.remote, 8), -1);
    assert_int_equal(closeSegment(duo.here, duo.segment), -1);
    assert_int_equal(closeSegment(duo.here, -1), -1);
    assert_int_equal(closeSegment(duo.here, 4000), -1);
    assert_int_equal(openSegment(duo.here, NULL), -1);
    assert_int_equal(openSegment(duo.here, ""), -1);
    assert_int_equal(openSegment(duo.here, duo.there_name), duo.segment);
    assert_int_equal(duo_move(&duo, OPCODE_WRITE, duo.local, duo.remote, 8), STATUS_COMPLETED);
}

CASE(segment__of_a_batch_is_closed_after_it)
{
    struct transfer_request requests[REQUESTS];
    prepare(requests, OPCODE_WRITE, duo.segment);
    const batch_id_t batch = allocateBatchID(duo.here, REQUESTS);
    assert_int_equal(submitTransfer(duo.here, batch, requests, REQUESTS), 0);
    assert_int_equal(closeSegment(duo.here, duo.segment), 0);
    assert_int_equal(duo_wait(duo.here, batch, 7), STATUS_COMPLETED);
    assert_int_equal(freeBatchID(duo.here, batch), 0);
}

CASE(segment__of_a_peer_that_was_started_again)
{
    destroyTransferEngine(duo.there);
    assert_int_equal(duo_move(&duo, OPCODE_WRITE, duo.local, duo.remote, 8), STATUS_FAILED);
    duo.there = createTransferEngine("P2PHANDSHAKE", duo.there_name, "", 0, 1);
    assert_int_equal(registerLocalMemory(duo.there, duo.remote, DUO_BYTES, "*", 1), 0);
    assert_int_equal(openSegmentNoCache(duo.here, duo.there_name), duo.segment);
    assert_int_equal(duo_move(&duo, OPCODE_WRITE, duo.local, duo.remote, 8), STATUS_COMPLETED);
    destroyTransferEngine(duo.there);
    assert_int_equal(duo_move(&duo, OPCODE_WRITE, duo.local, duo.remote, 8), STATUS_FAILED);
    assert_int_equal(syncSegmentCache(duo.here), 0); /* closes it */
    assert_int_equal(duo_move(&duo, OPCODE_WRITE, duo.local, duo.remote, 8), -1);
    duo.there = createTransferEngine("P2PHANDSHAKE", duo.there_name, "", 0, 1);
}

CASE(message__arrives)
{
    char name[] = "agent", text[] = "a message", empty[] = "", more[] = "another", second[] = "b";
    int size = -1;
    assert_null(getNotifsFromEngine(duo.there, &size));
    assert_int_equal(size, 0);
    assert_int_equal(genNotifyInEngine(duo.here, (uint64_t)duo.segment,
                                       (notify_msg_t){.name = name, .msg = text}),
                     0);
    assert_int_equal(genNotifyInEngine(duo.here, (uint64_t)duo.segment,
                                       (notify_msg_t){.name = second, .msg = more}),
                     0);
    notify_msg_t *found = getNotifsFromEngine(duo.there, &size);
    assert_int_equal(size, 2);
    assert_string_equal(found[0].name, name);
    assert_string_equal(found[0].msg, text);
    assert_string_equal(found[1].msg, more);
    assert_int_equal(freeNotifsMsgBuf(found, size), 0);
    assert_int_equal(genNotifyInEngine(duo.here, (uint64_t)duo.segment,
                                       (notify_msg_t){.name = empty, .msg = text}),
                     -1);
    assert_int_equal(genNotifyInEngine(duo.here, 77, (notify_msg_t){.name = name, .msg = text}),
                     -1);
    assert_int_equal(
        genNotifyInEngine(duo.here, UINT64_MAX, (notify_msg_t){.name = name, .msg = text}), -1);
    assert_null(getNotifsFromEngine(duo.there, NULL));
}

CASE(message__of_a_submission_follows_its_bytes)
{
    struct transfer_request requests[REQUESTS];
    static char text[5000];
    char name[] = "done";
    notify_msg_t message = {.name = name, .msg = text};
    int size = 0;
    memset(text, 'x', sizeof text - 1);
    fill(duo.local, 5);
    prepare(requests, OPCODE_WRITE, duo.segment);
    const batch_id_t batch = allocateBatchID(duo.here, 2 * REQUESTS);
    assert_int_equal(submitTransferWithNotify(duo.here, batch, requests, REQUESTS, message), -2);
    text[4096] = '\0';
    assert_int_equal(submitTransferWithNotify(duo.here, batch, requests, 0, message), -2);
    assert_int_equal(submitTransferWithNotify(duo.here, batch, requests, REQUESTS, message), 0);
    notify_msg_t *found = NULL;
    while (found == NULL) {
        found = getNotifsFromEngine(duo.there, &size);
    }
    assert_memory_equal(duo.local, duo.remote, DUO_BYTES);
    assert_int_equal(size, 1);
    assert_string_equal(found->name, name);
    assert_int_equal(strlen(found->msg), 4096);
    assert_int_equal(freeNotifsMsgBuf(found, size), 0);
    assert_int_equal(duo_wait(duo.here, batch, 0), STATUS_COMPLETED);
    requests[1].target_id = openSegment(duo.here, duo.here_name); /* a message has one receiver */
    assert_int_equal(submitTransferWithNotify(duo.here, batch, requests, 2, message), -1);
    assert_int_equal(freeBatchID(duo.here, batch), 0);
}
