/* The C functions of Mooncake's Transfer Engine, on libstarling_transfer: programs that were
 * written for them run unmodified with libtransfer_engine.so. docs/mooncake.md has the differences.
 *
 * Results: functions that return int return 0, or a negative number; the reason is a line on
 * standard error. Any thread may call any function. Strings are copied. Engine, batch and segment
 * numbers that are not valid are errors. No call and no transfer lasts longer than its deadline: 5
 * s for opening a segment, for a notice and for unregistering; MC_TRANSFER_TIMEOUT seconds (default
 * 30) and one more for each GB for the requests of a submission. */
#ifndef TRANSFER_ENGINE_C
#define TRANSFER_ENGINE_C

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

#define segment_handle_t int32_t
#define segment_id_t     int32_t
#define batch_id_t       uint64_t

#define LOCAL_SEGMENT    (0) /* the engine's own */
#define INVALID_BATCH    UINT64_MAX

#define OPCODE_READ      (0)
#define OPCODE_WRITE     (1)

struct transfer_request {
    int opcode;
    void *source;           /* local memory, of a READ too: within registered memory */
    segment_id_t target_id; /* of openSegment */
    uint64_t target_offset; /* address in the peer */
    uint64_t length;        /* bytes, > 0 */
};
typedef struct transfer_request transfer_request_t;

struct notify_msg {
    char *name; /* 1 to 63 printable ASCII characters */
    char *msg;  /* up to 4096 bytes */
};
typedef struct notify_msg notify_msg_t;

/* getTransferStatus gives PENDING, COMPLETED or FAILED. */
#define STATUS_WAITING   (0)
#define STATUS_PENDING   (1)
#define STATUS_INVALID   (2)
#define STATUS_CANCELED  (3)
#define STATUS_COMPLETED (4)
#define STATUS_TIMEOUT   (5)
#define STATUS_FAILED    (6)

struct transfer_status {
    int status;
    uint64_t transferred_bytes;
};
typedef struct transfer_status transfer_status_t;

/* Of no function here. */
struct segment_desc {
    int type;
    union {
        struct {
            void *addr;
            uint64_t size;
            const char *location;
        } rdma;
        struct {
            const char *file_path;
            const char *subsystem_name;
            const char *proto;
            const char *ip;
            uint64_t port;
        } nvmeof;
    } desc_;
};
typedef struct segment_desc segment_desc_t;

struct buffer_entry {
    void *addr;
    size_t length; /* bytes, > 0 */
};
typedef struct buffer_entry buffer_entry_t;

struct nic_load_stat {
    char device_name[64];
    uint64_t inflight_bytes;
    double ewma_bandwidth_bps;
};
typedef struct nic_load_stat nic_load_stat_t;

typedef void *transfer_engine_t;
typedef void *transport_t;

/* Engine */

/* Starts an engine: it listens at once, and uses shared memory, TCP, and RDMA where there is a
 * device. metadata_conn_string: "P2PHANDSHAKE", "etcd://h:p", "h:p" (etcd), "http://h:p/path".
 * local_server_name: its segment's name, "host:port" or "host": with P2PHANDSHAKE the port that the
 * engine listens on if it is free, else any free one; see getLocalIpAndPort.
 * ip_or_host_name, rpc_port, auto_discover: not used. NULL: it could not start. */
transfer_engine_t createTransferEngine(const char *metadata_conn_string,
                                       const char *local_server_name, const char *ip_or_host_name,
                                       uint64_t rpc_port, int auto_discover);

/* Ends what runs, within 50 ms; afterwards no peer reaches the memory. */
void destroyTransferEngine(transfer_engine_t engine);

/* Nothing to do: devices are discovered at the start. */
int discoverTopology(transfer_engine_t engine);

/* Writes the name that peers open, "10.0.0.2:12345", cut to buf_len bytes with NUL. */
int getLocalIpAndPort(transfer_engine_t engine, char *buf_out, size_t buf_len);

/* "tcp", "shm" or "rdma", which needs a device; args[0]: a NIC priority matrix, JSON, or NULL.
 * "rdma" and a matrix start the engine anew at its address: before memory is registered or a
 * segment open. NULL: it cannot be used. */
transport_t installTransport(transfer_engine_t engine, const char *proto, void **args);

/* Checks the name only: transports stay until the engine ends. */
int uninstallTransport(transfer_engine_t engine, const char *proto);

/* Memory. Ranges may overlap, and may be registered several times: memory is registered until each
 * registration has ended. Requests that cross a place where a range was added or removed while they
 * run may fail. Ranges that overlap have the same remote_accessible. */

/* location: "cpu:N" (NUMA node), or "*" or NULL: that of the first page. Memory of a device is
 * refused. remote_accessible: 0: peers neither read nor write it. */
int registerLocalMemory(transfer_engine_t engine, void *addr, size_t length, const char *location,
                        int remote_accessible);

/* Ends the last registration that began at addr. Waits for peers that use the memory. */
int unregisterLocalMemory(transfer_engine_t engine, void *addr);

/* All or none. */
int registerLocalMemoryBatch(transfer_engine_t engine, buffer_entry_t *buffer_list,
                             size_t buffer_len, const char *location);

/* All of them, also if one fails. */
int unregisterLocalMemoryBatch(transfer_engine_t engine, void **addr_list, size_t addr_len);

/* Segments: the registered memory of a peer */

/* Connects to the peer; the same name has the same number. Again if the peer has been restarted. */
segment_id_t openSegment(transfer_engine_t engine, const char *segment_name);
segment_id_t openSegmentNoCache(transfer_engine_t engine, const char *segment_name);

/* One call for each openSegment: the last one closes the connection, when no batch uses it any
 * more. */
int closeSegment(transfer_engine_t engine, segment_id_t segment_id);

/* Closes the segments whose peer has ended: open them again. Changes of memory need no call. */
int syncSegmentCache(transfer_engine_t engine);

/* Checks that the name is the engine's own: its record is removed when the engine ends. */
int removeLocalSegment(transfer_engine_t engine, const char *segment_name);

/* Nothing to do. */
int warmupEfaSegment(transfer_engine_t engine, const char *segment_name);

/* Batches */

/* A batch for up to batch_size requests, of any number of submissions. Up to 4096 submissions exist
 * at a time. INVALID_BATCH: it failed. */
batch_id_t allocateBatchID(transfer_engine_t engine, size_t batch_size);

/* Starts the requests: up to 65536. They are tasks of the batch, numbered from the last one on. If
 * a request names memory that the peer seems not to have registered, waits up to 1 s for it. */
int submitTransfer(transfer_engine_t engine, batch_id_t batch_id, struct transfer_request *entries,
                   size_t count);

/* The same, for one segment, which gets the message once all these requests have completed. */
int submitTransferWithNotify(transfer_engine_t engine, batch_id_t batch_id,
                             struct transfer_request *entries, size_t count,
                             notify_msg_t notify_msg);

/* PENDING until all requests of the task's submission are over. FAILED for any failure; its reason,
 * and that the deadline has passed, is a line on standard error. */
int getTransferStatus(transfer_engine_t engine, batch_id_t batch_id, size_t task_id,
                      struct transfer_status *status);

/* Refused while a request runs. */
int freeBatchID(transfer_engine_t engine, batch_id_t batch_id);

/* Messages */

/* Waits until the peer has queued the message. */
int genNotifyInEngine(transfer_engine_t engine, uint64_t target_id, notify_msg_t notify_msg);

/* Takes all messages that have come, *size of them; NULL: none. Give them to freeNotifsMsgBuf. */
notify_msg_t *getNotifsFromEngine(transfer_engine_t engine, int *size);
int freeNotifsMsgBuf(notify_msg_t *msg, int size);

/* Not supported: they fail, or do nothing. */

int getNicLoadStats(transfer_engine_t engine, nic_load_stat_t *stats, size_t *count);
void enableGracefulShutdown(transfer_engine_t engine);
int showLinks(transfer_engine_t engine, char *buf_out, size_t buf_len, int json);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
