/* A minimal program that uses libstarling_transfer: publishes a text in its memory, or reads the
 * memory that another process has published.
 *
 *   cc transfer.c $(pkg-config --cflags --libs starling-transfer) -o transfer
 *   ./transfer publish "some text"           prints its name; until SIGINT
 *   ./transfer read 127.0.0.1:41000          the name that the other process printed */
#include <signal.h>
#include <starling_transfer.h>
#include <stdio.h>
#include <string.h>

#define TEXT_BYTES 4096
#define TIMEOUT_MS 5000

static char text[TEXT_BYTES]; /* the memory of either side */

/* Peers may read the text, but not write it, until a signal comes. */
static int publish(struct sl_transfer *transfer, const sigset_t *signals)
{
    const struct sl_transfer_memory memory = {
        .base = text, .bytes = sizeof text, .access = SL_TRANSFER_PEERS_READ};
    int err = sl_transfer_register(transfer, &memory, 1);
    if (err != 0) {
        return err;
    }
    printf("%s\n", sl_transfer_name(transfer));
    fflush(stdout);
    int signal_number;
    sigwait(signals, &signal_number);
    void *const base = text;
    return sl_transfer_unregister(transfer, &base, 1, TIMEOUT_MS);
}

/* Reads the first bytes of the segment's first buffer. */
static int read_first(struct sl_transfer_segment *segment, struct sl_transfer_batch *batch)
{
    struct sl_transfer_buffer buffer = {0};
    uint32_t count;
    int err = sl_transfer_segment_buffers(segment, &buffer, 1, &count);
    if (err != 0) {
        return err;
    }
    const struct sl_transfer_request request = {
        .op = SL_TRANSFER_READ,
        .local = text,
        .segment = segment,
        .remote = buffer.address,
        .bytes = buffer.bytes < sizeof text ? buffer.bytes : sizeof text,
    };
    err = sl_transfer_batch_submit(batch, &request, 1, TIMEOUT_MS, NULL);
    if (err != 0) {
        return err;
    }
    err = sl_transfer_batch_wait(batch); /* ends by the deadline */
    if (err != 0) {
        fprintf(stderr, "batch: %s\n", sl_transfer_batch_error(batch, 0));
    } else {
        printf("%.*s\n", TEXT_BYTES, text);
    }
    return err;
}

static int read_from(struct sl_transfer *transfer, const char *name)
{
    struct sl_transfer_segment *segment = NULL;
    struct sl_transfer_batch *batch = NULL;
    /* Local memory is registered too; peers do not reach it. */
    const struct sl_transfer_memory memory = {
        .base = text, .bytes = sizeof text, .access = SL_TRANSFER_LOCAL};
    int err = sl_transfer_register(transfer, &memory, 1);
    if (err == 0) {
        err = sl_transfer_segment_open(transfer, name, TIMEOUT_MS, &segment);
    }
    if (err == 0) {
        err = sl_transfer_batch_create(transfer, 1, &batch);
    }
    if (err == 0) {
        err = read_first(segment, batch);
        sl_transfer_batch_free(&batch);
    }
    if (segment != NULL) {
        sl_transfer_segment_close(&segment);
    }
    return err;
}

int main(int argc, char **argv)
{
    if (argc != 3 || (strcmp(argv[1], "publish") != 0 && strcmp(argv[1], "read") != 0)) {
        fprintf(stderr, "usage: %s publish TEXT | read NAME\n", argv[0]);
        return 2;
    }
    const int publishes = argv[1][0] == 'p';
    sigset_t signals; /* blocked here, and so in the threads of the engine */
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    /* On loopback, peers need no secret. */
    const struct sl_transfer_options options = {.name = "127.0.0.1:0"};
    struct sl_transfer *transfer = NULL;
    int err = sl_transfer_create(&options, &transfer);
    if (err == 0) {
        if (publishes) {
            snprintf(text, sizeof text, "%s", argv[2]);
        }
        err = publishes ? publish(transfer, &signals) : read_from(transfer, argv[2]);
    }
    if (err != 0) {
        fprintf(stderr, "%s: %s: %s\n", argv[0], sl_err_name(err), sl_transfer_last_error());
    }
    if (transfer != NULL) {
        sl_transfer_destroy(&transfer);
    }
    return err == 0 ? 0 : 1;
}
