/* One end sends pieces, the other receives them and gives a token back for each. The client is the
 * one or the other; it looks at the clock whenever a piece has arrived as far as it can tell. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "bench/bare.h"
#include "bench/bare_peer.h"
#include "bench/now.h"
#include "core/arena_pages.h"
#include "core/assert.h"
#include "core/log.h"

#define TOKEN_BYTES 32U
#define DEPTH_MAX   64U
#define BYTES_MAX   (1ULL << 30)
#define SILENCE_S   5 /* of the other end, before the client gives up */

struct end {
    const struct sl_bench_bare_bulk *options;
    int fd;
    bool counts;     /* it is the client */
    uint8_t *memory; /* `slots` pieces */
    size_t memory_bytes;
    uint32_t slot, slots; /* of the next piece */
    int err;

    /* The client's. */
    uint64_t from_ns, until_ns;
    uint64_t first_ns, last_ns; /* of the pieces counted; the first one's bytes were before */
    uint64_t pieces;
};

static uint8_t *next_piece(struct end *end)
{
    uint8_t *piece = end->memory + end->slot * end->options->bytes;
    end->slot = end->slot + 1 == end->slots ? 0 : end->slot + 1;
    return piece;
}

/* A piece has arrived. False when it was the last that is wanted. */
static bool arrived(struct end *end)
{
    if (!end->counts) {
        return true;
    }
    const uint64_t now_ns = sl_bench_now_ns();
    if (now_ns >= end->from_ns) {
        end->first_ns = end->first_ns == 0 ? now_ns : end->first_ns;
        end->pieces += now_ns > end->first_ns;
        end->last_ns = now_ns;
    }
    return now_ns < end->until_ns || end->pieces == 0;
}

/* Result of a socket call; false when the connection is over, which is how the server
 * learns that it is done, and an error of the client's. */
static bool goes_on(struct end *end, ssize_t result)
{
    if (result > 0 || (result < 0 && errno == EINTR)) {
        return true;
    }
    if (end->counts) {
        sl_log_error("baseline: bulk: %s",
                     result == 0 ? "the other end closed the connection" : strerror(errno));
        end->err = SL_ERR_IO;
    }
    return false;
}

/* ---- Sending --------------------------------------------------------------------------------- */

static bool send_all(struct end *end, const uint8_t *at, uint64_t bytes)
{
    while (bytes > 0) {
        const ssize_t sent = send(end->fd, at, bytes, MSG_NOSIGNAL);
        if (!goes_on(end, sent)) {
            return false;
        }
        at += sent > 0 ? sent : 0;
        bytes -= sent > 0 ? (uint64_t)sent : 0;
    }
    return true;
}

static bool send_tokens(struct end *end, uint32_t count)
{
    static const uint8_t tokens[TOKEN_BYTES * DEPTH_MAX];
    return send_all(end, tokens, (uint64_t)count * TOKEN_BYTES);
}

static void send_pieces(struct end *end)
{
    uint8_t tokens[TOKEN_BYTES * DEPTH_MAX];
    uint64_t token_bytes = 0;
    uint32_t credit = end->options->to_server ? end->options->depth : 0;
    for (;;) {
        const ssize_t got = recv(end->fd, tokens, sizeof tokens, credit == 0 ? 0 : MSG_DONTWAIT);
        if (got > 0) {
            token_bytes += (uint64_t)got;
        } else if (!(got < 0 && errno == EAGAIN && credit > 0) && !goes_on(end, got)) {
            return;
        }
        for (; token_bytes >= TOKEN_BYTES; token_bytes -= TOKEN_BYTES) {
            credit++;
            if (!arrived(end)) {
                return;
            }
        }
        if (credit > 0) {
            if (!send_all(end, next_piece(end), end->options->bytes)) {
                return;
            }
            credit--;
        }
    }
}

/* ---- Receiving ------------------------------------------------------------------------------- */

static void receive_pieces(struct end *end)
{
    do {
        uint8_t *at = next_piece(end);
        uint64_t left = end->options->bytes;
        while (left > 0) {
            const ssize_t got = recv(end->fd, at, left, MSG_WAITALL);
            if (!goes_on(end, got)) {
                return;
            }
            at += got > 0 ? got : 0;
            left -= got > 0 ? (uint64_t)got : 0;
        }
    } while (send_tokens(end, 1) && arrived(end));
}

/* ---- Ends ------------------------------------------------------------------------------------ */

static int end_init(struct end *end, const struct sl_bench_bare_bulk *options, int fd, bool counts)
{
    const uint32_t slots = options->pieces == 0 ? options->depth : options->pieces;
    const size_t bytes = slots * options->bytes;
    const size_t huge = SL_ARENA_HUGE_PAGE_BYTES;
    *end = (struct end){.options = options, .fd = fd, .counts = counts, .slots = slots};
    end->memory_bytes = (bytes + huge - 1) / huge * huge;
    end->memory = sl_arena_pages_map(end->memory_bytes, true);
    if (end->memory == NULL) {
        sl_log_error("baseline: no memory");
        return SL_ERR_NO_MEMORY;
    }
    memset(end->memory, 1, end->memory_bytes);
    return 0;
}

static void transfer(struct end *end)
{
    const bool to_server = end->options->to_server;
    if (to_server == end->counts) {
        send_pieces(end);
    } else if (to_server || send_tokens(end, end->options->depth)) {
        receive_pieces(end);
    }
}

static int serve(const void *ctx, const int *fds, uint32_t count)
{
    struct end end;
    int err = end_init(&end, ctx, fds[0], false);
    if (err != 0) {
        return err;
    }
    transfer(&end);
    sl_arena_pages_unmap(end.memory, end.memory_bytes);
    return end.err;
}

static int measure(const struct sl_bench_bare_bulk *options, const struct sl_bench_common *common,
                   int fd, double *bytes_per_s)
{
    const struct timeval silence = {.tv_sec = SILENCE_S};
    struct end end;
    int err = end_init(&end, options, fd, true);
    if (err != 0) {
        return err;
    }
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof silence) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &silence, sizeof silence) != 0) {
        err = sl_bench_bare_fail("setsockopt");
    } else {
        end.from_ns = sl_bench_now_ns() + sl_bench_ns(common->warm_up);
        end.until_ns = end.from_ns + sl_bench_ns(common->seconds);
        transfer(&end);
        err = end.err;
    }
    sl_arena_pages_unmap(end.memory, end.memory_bytes);
    if (err == 0) {
        *bytes_per_s =
            (double)(end.pieces * options->bytes) * 1e9 / (double)(end.last_ns - end.first_ns);
    }
    return err;
}

int sl_bench_bare_bulk_run(const struct sl_bench_bare_bulk *options,
                           const struct sl_bench_common *common, double *bytes_per_s)
{
    sl_assert(options->bytes >= 1);
    sl_assert(options->bytes <= BYTES_MAX);
    sl_assert(options->depth >= 1);
    sl_assert(options->depth <= DEPTH_MAX);
    struct sl_bench_bare_peer peer;
    int err = sl_bench_bare_peer_start(&peer, 1, options->congestion, common, serve, options);
    if (err != 0) {
        return err;
    }
    err = measure(options, common, peer.fds[0], bytes_per_s);
    const int ended = sl_bench_bare_peer_end(&peer);
    return err != 0 ? err : ended;
}
