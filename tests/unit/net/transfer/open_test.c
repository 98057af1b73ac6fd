/* A segment is opened whose target, played here, welcomes the peer and then breaks rules. */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/session/greeting.h"
#include "net/wire/frame.h"
#include "pair.h"

#define OPEN_MS 300

struct played {
    int listener;
    uint32_t step; /* between the pages' addresses, each with more to come; NO_PAGES: none */
    uint32_t page;
};

#define NO_PAGES UINT32_MAX

static void send_message(int fd, const struct sl_message *message)
{
    uint8_t bytes[SL_FRAME_HEADER_BYTES + 4096];
    const struct sl_frame frame = {.type = SL_FRAME_CONTROL,
                                   .payload_bytes = (uint32_t)sl_message_encoded_bytes(message)};
    sl_frame_encode(&frame, bytes);
    sl_message_encode(message, bytes + SL_FRAME_HEADER_BYTES);
    (void)send(fd, bytes, SL_FRAME_HEADER_BYTES + frame.payload_bytes, MSG_NOSIGNAL);
}

static bool receive_message(int fd, struct sl_message *message)
{
    uint8_t header[SL_FRAME_HEADER_BYTES], payload[4096];
    struct sl_frame frame;
    return recv(fd, header, sizeof header, MSG_WAITALL) == sizeof header &&
           sl_frame_decode(header, &frame) == 0 && frame.payload_bytes <= sizeof payload &&
           recv(fd, payload, frame.payload_bytes, MSG_WAITALL) == frame.payload_bytes &&
           sl_message_decode(payload, frame.payload_bytes, message) == 0;
}

static void answer_page(int fd, uint64_t id, uint64_t address)
{
    struct sl_message_endpoint endpoint = {.endpoint = "tcp://127.0.0.1:1"};
    struct sl_message_buffer buffer = {.key = 1, .address = address, .bytes = 1, .access = 3};
    const struct sl_message page = {.kind = SL_MESSAGE_SEGMENT,
                                    .id = id,
                                    .segment = {.incarnation = 1,
                                                .endpoints = &endpoint,
                                                .endpoint_count = 1,
                                                .buffers = {.items = &buffer, .count = 1},
                                                .more = true}};
    send_message(fd, &page);
}

static void *play(void *arg)
{
    struct played *played = arg;
    struct sl_message message;
    struct sl_greeting greeting = {0};
    const int fd = accept(played->listener, NULL, NULL);
    while (receive_message(fd, &message)) { /* until the peer gives up */
        if (message.kind == SL_MESSAGE_HELLO) {
            (void)sl_greeting_hello(&greeting, &message);
            struct sl_message welcome = sl_greeting_welcome(&greeting);
            welcome.welcome.incarnation = 1;
            send_message(fd, &welcome);
        } else if (played->step != NO_PAGES) {
            answer_page(fd, message.id, 4096 + (uint64_t)played->page++ * played->step);
        }
        sl_message_fini(&message);
    }
    close(fd);
    return NULL;
}

/* Whether the error contains the word. */
static bool open_played(uint32_t step, uint32_t timeout_ms, int err, const char *word)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t address_bytes = sizeof address;
    struct played played = {.listener = socket(AF_INET, SOCK_STREAM, 0), .step = step};
    assert_int_equal(bind(played.listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(played.listener, 8), 0);
    getsockname(played.listener, (struct sockaddr *)&address, &address_bytes);
    char name[SL_TRANSFER_NAME_BYTES];
    (void)snprintf(name, sizeof name, "127.0.0.1:%u", ntohs(address.sin_port));

    pthread_t thread;
    struct sl_transfer *transfer;
    struct sl_transfer_segment *segment = NULL;
    const struct sl_transfer_options options = {.name = "127.0.0.1:0"};
    assert_int_equal(pthread_create(&thread, NULL, play, &played), 0);
    assert_int_equal(sl_transfer_create(&options, &transfer), 0);
    assert_int_equal(sl_transfer_segment_open(transfer, name, timeout_ms, &segment), err);
    const bool has_word = strstr(sl_transfer_last_error(), word) != NULL;
    assert_null(segment);
    sl_transfer_destroy(&transfer);
    pthread_join(thread, NULL);
    close(played.listener);
    return has_word;
}

SL_CASE(segment_open__keeps_its_deadline_when_the_target_is_silent)
{
    uint32_t timeout_ms = OPEN_MS; /* not the longer limit of a page */
    while (!open_played(NO_PAGES, timeout_ms, SL_ERR_DEADLINE, "list")) {
        timeout_ms *= 4; /* a busy machine may need longer for the welcome */
        assert_true(timeout_ms <= PAIR_TIMEOUT_MS);
    }
}

SL_CASE(segment_open__refuses_a_list_that_does_not_advance)
{
    assert_true(open_played(0, PAIR_TIMEOUT_MS, SL_ERR_PROTOCOL, "out of order"));
}

SL_CASE(segment_open__refuses_a_list_without_end)
{
    assert_true(open_played(1, PAIR_TIMEOUT_MS, SL_ERR_TOO_LARGE, "large"));
}
