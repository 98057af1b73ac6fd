/* A program of Mooncake's C functions, for mooncake_test.py: it calls them as NIXL's plug-in and
 * the P2P store do.
 *
 *   mooncake_peer target METADATA NAME                      prints its name and its memory's
 * address; until end of input mooncake_peer initiator METADATA NAME PEER ADDRESS      writes, reads
 * back and compares; sends messages */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <transfer_engine_c.h>

#define BYTES    (4U << 20)
#define REQUESTS 64U
#define PIECE    (BYTES / REQUESTS)

static uint8_t memory[BYTES], copy[BYTES];

static int fail(const char *what)
{
    (void)fprintf(stderr, "failed: %s\n", what);
    return 1;
}

static int serve(transfer_engine_t engine)
{
    char name[256];
    int size = 0, seen = 0;
    if (registerLocalMemory(engine, memory, BYTES, "*", 1) != 0 ||
        getLocalIpAndPort(engine, name, sizeof name) != 0) {
        return fail("target");
    }
    (void)printf("serves %s %llu\n", name, (unsigned long long)(uintptr_t)memory);
    (void)fflush(stdout);
    (void)getchar();
    notify_msg_t *found = getNotifsFromEngine(engine, &size);
    for (; seen < size; seen++) {
        (void)printf("%s=%s\n", found[seen].name, found[seen].msg);
    }
    (void)freeNotifsMsgBuf(found, size);
    return unregisterLocalMemory(engine, memory) == 0 ? 0 : fail("unregisterLocalMemory");
}

/* One request for each piece, in one batch. */
static int move(transfer_engine_t engine, segment_id_t segment, int opcode, uint64_t remote,
                notify_msg_t *message)
{
    const struct timespec pause = {.tv_nsec = 50000};
    struct transfer_request requests[REQUESTS];
    struct transfer_status status = {.status = STATUS_WAITING};
    for (uint32_t i = 0; i < REQUESTS; i++) {
        requests[i] = (struct transfer_request){.opcode = opcode,
                                                .source = memory + i * PIECE,
                                                .target_id = segment,
                                                .target_offset = remote + i * PIECE,
                                                .length = PIECE};
    }
    const batch_id_t batch = allocateBatchID(engine, REQUESTS);
    const int result = message != NULL
                           ? submitTransferWithNotify(engine, batch, requests, REQUESTS, *message)
                           : submitTransfer(engine, batch, requests, REQUESTS);
    if (batch == INVALID_BATCH || result != 0) {
        return fail("submitTransfer");
    }
    for (size_t task = 0; task < REQUESTS;) {
        if (getTransferStatus(engine, batch, task, &status) != 0 ||
            status.status == STATUS_FAILED) {
            return fail("getTransferStatus");
        }
        task += status.status == STATUS_COMPLETED ? 1 : 0;
        (void)nanosleep(&pause, NULL);
    }
    return freeBatchID(engine, batch) == 0 ? 0 : fail("freeBatchID");
}

static int initiate(transfer_engine_t engine, const char *peer, uint64_t remote)
{
    char name[] = "agent", text[] = "first", last[] = "last";
    struct buffer_entry entries[] = {{memory, BYTES}};
    void *addresses[] = {memory};
    if (registerLocalMemoryBatch(engine, entries, 1, "cpu:0") != 0) {
        return fail("registerLocalMemoryBatch");
    }
    const segment_id_t segment = openSegment(engine, peer);
    if (segment < 0 || openSegmentNoCache(engine, peer) != segment ||
        syncSegmentCache(engine) != 0) {
        return fail("openSegment");
    }
    for (uint32_t i = 0; i < BYTES; i++) {
        memory[i] = copy[i] = (uint8_t)(i * 7 + i / 999);
    }
    notify_msg_t first = {.name = name, .msg = text}, message = {.name = name, .msg = last};
    int result = move(engine, segment, OPCODE_WRITE, remote, &first);
    memset(memory, 0, BYTES);
    result = result != 0 ? result : move(engine, segment, OPCODE_READ, remote, NULL);
    if (result == 0 && memcmp(memory, copy, BYTES) != 0) {
        result = fail("the bytes are others");
    }
    if (result == 0 && genNotifyInEngine(engine, (uint64_t)segment, message) != 0) {
        result = fail("genNotifyInEngine");
    }
    if (result == 0 && (closeSegment(engine, segment) != 0 ||
                        unregisterLocalMemoryBatch(engine, addresses, 1) != 0)) {
        result = fail("the end");
    }
    return result;
}

int main(int argc, char **argv)
{
    if (argc != 4 && argc != 6) {
        return fail("arguments");
    }
    transfer_engine_t engine = createTransferEngine(argv[2], argv[3], "127.0.0.1", 12345, 0);
    void *args[] = {NULL, NULL};
    if (engine == NULL || installTransport(engine, "tcp", args) == NULL) {
        return fail("createTransferEngine");
    }
    const int result =
        argc == 4 ? serve(engine) : initiate(engine, argv[4], strtoull(argv[5], NULL, 10));
    destroyTransferEngine(engine);
    return result;
}
