/* An engine of transfer_faults_test.py: target and initiator in one, driven by lines on standard
 * input. Every answer is a line: "ERROR TOOK_US LATE_US TEXT", LATE_US beyond the deadline. */
#include <starling_transfer.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/err.h"

#define FREE_MS  5000
#define BEGIN_MS 60000 /* of the first batches of a run */

struct peer {
    struct sl_transfer *transfer;
    struct sl_transfer_segment *segment;
    struct sl_transfer_batch *batch;
    uint8_t *remote; /* what peers reach; private or shared */
    uint8_t *local;  /* of this side's batches */
    size_t bytes;
    bool is_shared;
};

static int64_t now_us(void)
{
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

static void answer(int err, int64_t begin_us, uint32_t timeout_ms)
{
    const int64_t took_us = now_us() - begin_us;
    const int64_t late_us = took_us - (int64_t)timeout_ms * 1000;
    (void)printf("%s %lld %lld %s\n", err == 0 ? "ok" : sl_err_name(err), (long long)took_us,
                 (long long)(late_us > 0 ? late_us : 0), err == 0 ? "" : sl_transfer_last_error());
    (void)fflush(stdout);
}

static int create(struct peer *peer, char **argv)
{
    const struct sl_transfer_options options = {
        .name = argv[1], .metadata = argv[2], .endpoints = argv[3][0] == '-' ? NULL : argv[3]};
    const unsigned access = SL_TRANSFER_PEERS_READ | SL_TRANSFER_PEERS_WRITE;
    peer->is_shared = strcmp(argv[4], "shared") == 0;
    peer->bytes = strtoull(argv[5], NULL, 10);
    peer->local = calloc(1, peer->bytes);
    peer->remote = peer->is_shared ? NULL : calloc(1, peer->bytes);
    const struct sl_transfer_memory ranges[] = {
        {.base = peer->local, .bytes = peer->bytes},
        {.base = peer->remote, .bytes = peer->bytes, .access = access}};
    int err = sl_transfer_create(&options, &peer->transfer);
    err = err != 0 ? err : sl_transfer_register(peer->transfer, ranges, peer->is_shared ? 1 : 2);
    if (err == 0 && peer->is_shared) {
        void *made;
        err = sl_transfer_memory_create(peer->transfer, peer->bytes, -1, access, &made);
        peer->remote = made;
    }
    return err != 0 ? err : sl_transfer_batch_create(peer->transfer, 1, &peer->batch);
}

static void destroy(struct peer *peer)
{
    void *made = peer->is_shared ? peer->remote : NULL;
    if (made != NULL) {
        (void)sl_transfer_memory_free(peer->transfer, &made, FREE_MS);
    }
    sl_transfer_destroy(&peer->transfer);
    free(peer->local);
    free(peer->is_shared ? NULL : peer->remote);
}

static int move(struct peer *peer, enum sl_transfer_op op, uint32_t timeout_ms)
{
    struct sl_transfer_buffer buffer = {0};
    uint32_t count;
    int err = sl_transfer_segment_buffers(peer->segment, &buffer, 1, &count);
    const struct sl_transfer_request request = {.op = op,
                                                .local = peer->local,
                                                .segment = peer->segment,
                                                .remote = buffer.address,
                                                .bytes = peer->bytes};
    err = err != 0 ? err : sl_transfer_batch_submit(peer->batch, &request, 1, timeout_ms, NULL);
    return err != 0 ? err : sl_transfer_batch_wait(peer->batch);
}

/* READs and WRITEs until one fails. */
static void run(struct peer *peer, uint32_t timeout_ms)
{
    int64_t begin_us;
    int err = 0;
    for (uint32_t i = 0; err == 0; i++) {
        begin_us = now_us();
        err = move(peer, i % 2 == 0 ? SL_TRANSFER_READ : SL_TRANSFER_WRITE,
                   i < 2 ? BEGIN_MS : timeout_ms);
        if (i == 1) {
            (void)printf("moving\n");
            (void)fflush(stdout);
        }
    }
    answer(err, begin_us, timeout_ms);
}

/* The peer's WRITEs are ordered before it by the script only, which ThreadSanitizer does not see.
 */
__attribute__((no_sanitize("thread"))) static bool is_all(const uint8_t *memory, size_t bytes,
                                                          uint8_t value)
{
    size_t i = 0;
    while (i < bytes && memory[i] == value) {
        i++;
    }
    return i == bytes;
}

static void obey(struct peer *peer, const char *command, uint32_t timeout_ms, const char *word)
{
    const int64_t begin_us = now_us();
    const uint8_t value = (uint8_t)strtoul(word, NULL, 10);
    if (strcmp(command, "open") == 0) {
        answer(sl_transfer_segment_open(peer->transfer, word, timeout_ms, &peer->segment), begin_us,
               timeout_ms);
    } else if (strcmp(command, "close") == 0) {
        sl_transfer_segment_close(&peer->segment);
        answer(0, begin_us, 0);
    } else if (strcmp(command, "read") == 0) {
        answer(move(peer, SL_TRANSFER_READ, timeout_ms), begin_us, timeout_ms);
    } else if (strcmp(command, "write") == 0) {
        memset(peer->local, value, peer->bytes);
        answer(move(peer, SL_TRANSFER_WRITE, timeout_ms), begin_us, timeout_ms);
    } else if (strcmp(command, "run") == 0) {
        run(peer, timeout_ms);
    } else { /* holds: whether its own memory has this value */
        (void)printf("%s\n", is_all(peer->remote, peer->bytes, value) ? "yes" : "no");
        (void)fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    struct peer peer = {0};
    char line[512];
    char command[16];
    char word[256];
    unsigned timeout_ms;
    if (argc != 6) {
        (void)fprintf(stderr, "usage: %s NAME METADATA ENDPOINTS|- private|shared BYTES\n",
                      argv[0]);
        return 2;
    }
    const int64_t begin_us = now_us();
    const int err = create(&peer, argv);
    if (err != 0) {
        answer(err, begin_us, 0);
        return 1;
    }
    (void)printf("serves %s\n", sl_transfer_name(peer.transfer));
    (void)fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL &&
           sscanf(line, "%15s %u %255s", command, &timeout_ms, word) == 3) {
        obey(&peer, command, timeout_ms, word);
    }
    destroy(&peer);
    return 0;
}
