/* Starling's transfer engine: batches of one-sided READs and WRITEs between registered memory of
 * any processes. The initiator submits requests. The target owns the remote memory; its application
 * makes no call.
 *
 * Functions return 0 or a negative enum sl_err (starling.h). Outputs are written only on success.
 * Strings and structs that are passed in are copied. Any thread may call any function, but a batch
 * belongs to one thread at a time. Nothing here waits without a deadline: an argument timeout_ms is
 * from 1 to SL_TRANSFER_TIMEOUT_MS_MAX, another value is INVALID; in options 0 is the default.
 *
 * Promises:
 * - A batch is over at most 50 ms after its deadline, whatever its peers do.
 * - A completed WRITE is visible to every thread of the target; a completed READ to the initiator.
 * - Requests of a batch may take effect in any order. A batch submitted after another has ended
 *   sees that batch's COMPLETED writes.
 * - When a batch is over, no thread and no device touches its local memory, and none of its WRITEs
 *   lands after a later WRITE through the same struct sl_transfer_segment. Two segments opened
 *   on the same peer are not ordered against each other.
 *
 * After TIMEOUT, CANCELLED or FAILED the content of a request's memory is undefined; the request
 * can be repeated. A READ may have overwritten a part of its local memory. A WRITE may have changed
 * a part of the remote memory, and may change it later, but not over a later WRITE of that segment.
 *
 * A request lies in one registered range on either side. Its local memory stays registered until
 * the batch is over. */
#ifndef STARLING_TRANSFER_H
#define STARLING_TRANSFER_H

#include <starling.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SL_TRANSFER_TIMEOUT_MS_MAX    3600000
#define SL_TRANSFER_NAME_BYTES        256  /* of a segment, with NUL */
#define SL_TRANSFER_LOCATION_BYTES    32   /* with NUL */
#define SL_TRANSFER_REASON_BYTES      512  /* with NUL */
#define SL_TRANSFER_NOTICE_NAME_BYTES 64   /* with NUL */
#define SL_TRANSFER_NOTICE_BYTES      4096 /* of text */

/* Of one engine, at one time. */
#define SL_TRANSFER_BUFFERS_MAX       4096 /* registered ranges */
#define SL_TRANSFER_SEGMENTS_MAX      4096
#define SL_TRANSFER_BATCHES_MAX       4096
#define SL_TRANSFER_REQUESTS_MAX      65536 /* of one batch */
#define SL_TRANSFER_NOTICES_MAX       1024  /* that wait to be taken */

/* Engine */

struct sl_transfer;

struct sl_transfer_options {
    /* Name of the segment: "host:port", the control endpoint that the engine listens on and
     * that peers use. NULL: the host's address and a free port; see sl_transfer_name. */
    const char *name;
    /* Where engines write their records, by which others find them: "P2PHANDSHAKE" (the name is the
     * address), "etcd://h:p,h:p", "etcds://", "h:p" (etcd), "http://h:p/path", "https://". NULL:
     * "P2PHANDSHAKE". */
    const char *metadata;
    /* Up to 16 transports, comma-separated: tcp://address:port for each address of this host to
     * use (if several, connections come from them too), shm://, rdma://address:port (0.0.0.0: all
     * devices), one dpdk://; no RDMA and DPDK with TLS. Without tcp://, TCP at the name's host is
     * added. NULL: shm, RDMA unless the name is on loopback, DPDK if dpdk_device. */
    const char *endpoints;
    const char *nic_priority_matrix; /* JSON text; NULL: discovered */
    const char *rdma_device;         /* names, with commas: 0.0.0.0 means these; NULL: all */
    bool has_rdma_gid_index;
    uint32_t rdma_gid_index; /* whose address connections over RDMA come from */
    const char *dpdk_device; /* as --dpdk-device of starling-ps, with ";" between devices */
    uint32_t reactor_count;  /* I/O threads; 0: 1 */
    bool polling;            /* I/O threads spin instead of sleeping when idle */
    bool pin_cores;          /* pin I/O threads to cores, from the last core downwards */
    bool checksum;           /* CRC-32C on every frame */
    const char *congestion_control;
    const void *secret; /* 16 to 1024 bytes, the same for all engines; NULL: none */
    size_t secret_bytes;
    const char *tls_certificate, *tls_key, *tls_authority; /* all three or none: PEM files */
    const char *tls_peer_name;
    bool insecure; /* allows an engine that listens beyond loopback without a secret */
    /* Data connections of each reactor over a rail: a local device and one of the peer. 0: 2. */
    uint32_t lanes;
    uint32_t slice_bytes;      /* a request is moved in slices of at most this; 0: 1 MiB */
    uint32_t stall_ms;         /* a lane without an answer for this long is broken; 0: 2000 */
    uint32_t start_timeout_ms; /* of sl_transfer_create; 0: 15000 */
    /* Limit of the bytes sent by this process: WRITEs, and READs that it serves itself, shared by
     * the reactors. One that sends a slice for over stall_ms looks stalled to peers. 0: none. */
    uint64_t bytes_per_s_max;
};

/* Starts the reactors, listens, and writes the engine's record (name, address and incarnation: a
 * random number of this engine) to the metadata store, if there is one. The caller owns *out.
 * Errors: INVALID (an option; the log names it), REFUSED (no secret, neither loopback nor
 * insecure), EXISTS (the name is alive elsewhere), IN_USE, DEADLINE, IO (the metadata store cannot
 * be reached), TOO_LARGE (the matrix), UNSUPPORTED, NO_MEMORY. */
SL_API int sl_transfer_create(const struct sl_transfer_options *options, struct sl_transfer **out);

/* Cancels batches (up to 50 ms), removes the record (2 s, if the metadata store does not answer),
 * closes the segments that peers have of this engine (0.2 s) and all connections, and frees the
 * engine's own memory. Batches and segments must not be used any more by other threads; those not
 * freed are freed. Nulls *transfer. */
SL_API void sl_transfer_destroy(struct sl_transfer **transfer);

/* The name that peers open: "10.0.0.2:12345". Valid until destroy. */
SL_API const char *sl_transfer_name(const struct sl_transfer *transfer);

/* Text of the calling thread's last failed sl_transfer_* call: it names the peer, the request or
 * the option. Read it right after the failure: later calls may clear it. */
SL_API const char *sl_transfer_last_error(void);

/* sl_log_set (starling.h) for the log of this library, which libstarling_objects shares. */
SL_API void sl_transfer_log_set(enum sl_log_level level, sl_log_fn *callback, void *ctx);

/* Memory */

enum sl_transfer_access { /* bits */
                          SL_TRANSFER_LOCAL = 0,
                          SL_TRANSFER_PEERS_READ = 1,
                          SL_TRANSFER_PEERS_WRITE = 2
};

struct sl_transfer_memory {
    void *base;
    size_t bytes;
    const char *location; /* "cpu:N" (NUMA node); "*" or NULL: the node of the first page */
    unsigned access;      /* sl_transfer_access, of peers */
};

/* Registers `count` ranges, all or none. The memory stays the caller's and must stay mapped: use of
 * unmapped memory fails the request or, where the processor copies, ends this process (SIGSEGV).
 * Peers learn of it a moment later. Errors: EXISTS (overlaps registered memory), INVALID,
 * UNSUPPORTED ("cuda:N"), TOO_LARGE (SL_TRANSFER_BUFFERS_MAX), NO_MEMORY. */
SL_API int sl_transfer_register(struct sl_transfer *transfer,
                                const struct sl_transfer_memory *memory, uint32_t count);

/* Afterwards no peer reaches the memory. Refuses new requests of peers, and waits for those that
 * use it; after half of the timeout closes the connections that still do. Batches of this engine
 * that use the memory must be over. Errors: NOT_FOUND (names the base), DEADLINE (peers get no new
 * access, but the range stays registered: do not free it, call again), INVALID. */
SL_API int sl_transfer_unregister(struct sl_transfer *transfer, void *const *bases, uint32_t count,
                                  uint32_t timeout_ms);

/* Allocates registered memory that peers on this host map, if they have SL_TRANSFER_PEERS_READ:
 * they copy to and from it themselves. Whole pages, zeroed. numa_node: -1: any. Errors: as
 * sl_transfer_register. */
SL_API int sl_transfer_memory_create(struct sl_transfer *transfer, size_t bytes, int numa_node,
                                     unsigned access, void **out);

/* Unregisters and frees memory of sl_transfer_memory_create; the only way to do so. Nulls *memory.
 * Errors: as sl_transfer_unregister. */
SL_API int sl_transfer_memory_free(struct sl_transfer *transfer, void **memory,
                                   uint32_t timeout_ms);

/* Segments: the registered memory of a peer */

struct sl_transfer_segment;

/* Finds the engine with this name and connects to it. The segment stays that of this incarnation:
 * once it is CLOSED, all its requests fail; close it and open it again. Opening one's own name is
 * allowed. Errors: NOT_FOUND (no record), REFUSED (another secret; or the record is that of a
 * process that has ended: the reason has its address and age), DEADLINE (the reason says whether a
 * process listens at the address), CLOSED (it is ending), IO (the metadata store cannot be
 * reached), PROTOCOL (record or list invalid), INVALID, TOO_LARGE (SL_TRANSFER_SEGMENTS_MAX). */
SL_API int sl_transfer_segment_open(struct sl_transfer *transfer, const char *name,
                                    uint32_t timeout_ms, struct sl_transfer_segment **out);

/* No batch with requests to the segment may be outstanding. Waits at most 2 s for late WRITEs of
 * batches that did not complete; the log says if they may land still later. Nulls *segment. */
SL_API void sl_transfer_segment_close(struct sl_transfer_segment **segment);

struct sl_transfer_buffer {
    uint64_t address; /* in the target's address space: `remote` of a request */
    uint64_t bytes;
    char location[SL_TRANSFER_LOCATION_BYTES];
    unsigned access; /* sl_transfer_access */
};

/* Lists ranges registered with peer access, by ascending address, up to `room` of them; changes
 * arrive asynchronously; *count may exceed room. */
SL_API int sl_transfer_segment_buffers(struct sl_transfer_segment *segment,
                                       struct sl_transfer_buffer *buffers, uint32_t room,
                                       uint32_t *count);

enum sl_transfer_segment_state {
    SL_TRANSFER_SEGMENT_OPEN,
    SL_TRANSFER_SEGMENT_FENCING, /* waits until WRITEs of a broken lane cannot land any more */
    /* The peer has ended, has another incarnation, or was unreachable for 5 s: the control
     * connection was lost. */
    SL_TRANSFER_SEGMENT_CLOSED
};

enum sl_transfer_rail_state {
    SL_TRANSFER_RAIL_UP,
    SL_TRANSFER_RAIL_PAUSED, /* failed; tried again later */
    SL_TRANSFER_RAIL_GONE    /* its device or endpoint does not exist any more */
};

struct sl_transfer_rail {
    char local[SL_TRANSFER_NAME_BYTES];  /* device or address */
    char remote[SL_TRANSFER_NAME_BYTES]; /* endpoint of the target */
    enum sl_transfer_rail_state state;
    uint64_t bytes_read, bytes_written, failures;
};

#define SL_TRANSFER_RAILS_MAX 32

struct sl_transfer_info {
    char name[SL_TRANSFER_NAME_BYTES];
    enum sl_transfer_segment_state state;
    uint32_t rail_count;
    struct sl_transfer_rail rails[SL_TRANSFER_RAILS_MAX];
};

SL_API int sl_transfer_segment_info(struct sl_transfer_segment *segment,
                                    struct sl_transfer_info *out);

/* Batches */

enum sl_transfer_op { SL_TRANSFER_READ = 0, SL_TRANSFER_WRITE = 1 };

struct sl_transfer_request {
    enum sl_transfer_op op;
    void *local;
    struct sl_transfer_segment *segment;
    uint64_t remote; /* address at the target, as in sl_transfer_buffer */
    uint64_t bytes;  /* > 0 */
};

/* Numbers of Mooncake's TransferStatusEnum. */
enum sl_transfer_state {
    SL_TRANSFER_WAITING = 0, /* not submitted */
    SL_TRANSFER_PENDING = 1,
    SL_TRANSFER_INVALID = 2, /* refused before anything was sent */
    SL_TRANSFER_CANCELLED = 3,
    SL_TRANSFER_COMPLETED = 4,
    SL_TRANSFER_TIMEOUT = 5,
    SL_TRANSFER_FAILED = 6
};

struct sl_transfer_status {
    enum sl_transfer_state state;
    int err;        /* 0, or a negative sl_err */
    uint64_t bytes; /* moved and applied */
};

/* A short message to a peer. A batch can have one: it is sent to the target once all requests have
 * completed; if one has failed, it is not. */
struct sl_transfer_notice {
    const char *name; /* up to SL_TRANSFER_NOTICE_NAME_BYTES - 1 printable ASCII characters */
    const void *text;
    uint32_t bytes; /* up to SL_TRANSFER_NOTICE_BYTES */
};

struct sl_transfer_batch;

/* A batch with room for request_max requests, up to SL_TRANSFER_REQUESTS_MAX; it can be submitted
 * again when it is over. Errors: TOO_LARGE (also: SL_TRANSFER_BATCHES_MAX exist), INVALID,
 * NO_MEMORY. */
SL_API int sl_transfer_batch_create(struct sl_transfer *transfer, uint32_t request_max,
                                    struct sl_transfer_batch **out);

/* Submits 1 to request_max requests; never waits. A request outside registered memory, or without
 * access to it, fails by itself (INVALID); the others are carried out. notice: NULL: none; with
 * one, all requests must name the same segment. Errors: AGAIN (the batch still runs, and
 * continues; or too many batches of this thread wait to be started), TOO_LARGE (more than
 * request_max; the notice), INVALID (count, timeout, notice, or a request without a segment of this
 * engine, a known op, or bytes), NO_MEMORY. Then nothing was submitted. Unless the batch still
 * runs, its earlier results are gone, and sl_transfer_batch_wait returns the same error. */
SL_API int sl_transfer_batch_submit(struct sl_transfer_batch *batch,
                                    const struct sl_transfer_request *requests, uint32_t count,
                                    uint32_t timeout_ms, const struct sl_transfer_notice *notice);

/* Whether the batch is over (or was never submitted). */
SL_API bool sl_transfer_batch_done(struct sl_transfer_batch *batch);

/* Waits until the batch is over. Returns the error of its first failed request, else that of its
 * notice, or that of a refused submission. 0: all completed, or never submitted. */
SL_API int sl_transfer_batch_wait(struct sl_transfer_batch *batch);

/* The state of one request: PENDING until the batch is over. Errors: INVALID (no such request). */
SL_API int sl_transfer_batch_status(struct sl_transfer_batch *batch, uint32_t request,
                                    struct sl_transfer_status *out);

/* Why the request failed: names request, peer, endpoint, and the missing answer. "" if it did not,
 * or while the batch runs. A batch keeps 8 causes: with more, some texts name another request's.
 * Valid until the next call with this batch. */
SL_API const char *sl_transfer_batch_error(struct sl_transfer_batch *batch, uint32_t request);

/* Ends the batch early, within 50 ms; requests that have not completed are CANCELLED. */
SL_API void sl_transfer_batch_cancel(struct sl_transfer_batch *batch);

/* Cancels, waits for the end, and frees. Nulls *batch. */
SL_API void sl_transfer_batch_free(struct sl_transfer_batch **batch);

/* Notices: short messages from engine to engine */

/* Sends a notice and waits until the peer has queued it. 0: queued exactly once. Errors: DEADLINE,
 * CLOSED (queued once or not at all), AGAIN (the peer's queue of SL_TRANSFER_NOTICES_MAX is full),
 * TOO_LARGE, INVALID. */
SL_API int sl_transfer_notice_send(struct sl_transfer_segment *segment,
                                   const struct sl_transfer_notice *notice, uint32_t timeout_ms);

struct sl_transfer_noticed {
    char sender[SL_TRANSFER_NAME_BYTES];
    char name[SL_TRANSFER_NOTICE_NAME_BYTES];
    uint32_t bytes;
    uint8_t text[SL_TRANSFER_NOTICE_BYTES + 1]; /* a NUL follows */
};

/* Takes the oldest notice; waits for one. Errors: DEADLINE: none came. */
SL_API int sl_transfer_notice_take(struct sl_transfer *transfer, uint32_t timeout_ms,
                                   struct sl_transfer_noticed *out);

#ifdef __cplusplus
}
#endif
#endif
