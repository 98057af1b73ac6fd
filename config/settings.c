#include "config/settings.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "config/cli_option.h"
#include "config/hosts.h"
#include "config/number.h"
#include "config/settings_parse.h"
#include "config/tf_config.h"
#include "core/assert.h"
#include "core/clock.h"
#include "core/limits.h"

#define REACTORS_DEFAULT_MAX 16
#define TIMEOUT_LEAST        0.1 /* seconds */
#define LEASE_LEAST          0.1
#define HOUR                 3600
#define DAY                  86400

/* LOCAL is no program: it marks a variable of one process, such as its DPDK device, or of another
 * way to start a job. An RDMA device serves several processes, so its name is passed on. */
enum {
    P = SL_PROGRAM_PS,
    W = SL_PROGRAM_WORKER,
    L = SL_PROGRAM_LAUNCH,
    D = SL_PROGRAM_DOCTOR,
    O = SL_PROGRAM_OBJECTS,
    C = SL_PROGRAM_CLIENT,
    G = SL_PROGRAM_GATEWAY,
    S = SL_PROGRAM_SERVE_WORKER,
    Y = SL_PROGRAM_DEPLOY,
    T = SL_PROGRAM_CTL,
    R = SL_PROGRAM_ROLLBACK,
    CATALOGUE = O | G | Y | R, /* programs with the catalogue of objects */
    ENGINE = CATALOGUE | S,    /* programs with an engine */
    SECURED = P | W | L | ENGINE | T,
    LOCAL = 16,
    OWN = 128 /* of starling-worker, not of every client */
};

/* A program's option, and where its value is in struct sl_settings. */
struct row {
    uint32_t programs;
    size_t offset;
    struct sl_cli_option option;
};

#define ROW(who, member, type, ...)                                                                \
    {                                                                                              \
        (who), offsetof(struct sl_settings, member),                                               \
        {                                                                                          \
            .kind = SL_CLI_##type, __VA_ARGS__                                                     \
        }                                                                                          \
    }

/* A heading; its programs are those of the rows below it. */
#define SECTION(title)                                                                             \
    {                                                                                              \
        P | W | L | D | ENGINE | T, 0,                                                             \
        {                                                                                          \
            .kind = SL_CLI_SECTION, .name = (title)                                                \
        }                                                                                          \
    }

static const struct row rows[] = {
    SECTION("Client"),
    ROW(C | T | LOCAL, flags.cluster.coordinator, PARSED, .name = "coordinator",
        .parse = sl_settings_parse_places, .accepts = "HOST:PORT, or several, separated by commas",
        .metavar = "HOST:PORT,...", .help = "Server 0, a scheduler, or all that may host it."),
    ROW(C | LOCAL, client.task, PARSED, .name = "task-index", .parse = sl_settings_parse_task,
        .accepts = "an index from 0 to 16383, any or none"),
    ROW(C | LOCAL, flags.cluster.rank, I64, .variable = "RANK", .least = 0,
        .most = SL_LIMIT_WORKERS - 1),
    ROW(C | LOCAL, flags.cluster.world_size, U32, .variable = "WORLD_SIZE", .least = 1,
        .most = SL_LIMIT_WORKERS),
    ROW(C | LOCAL, flags.cluster.slurm_task, I64, .variable = "SLURM_PROCID", .least = 0,
        .most = SL_LIMIT_WORKERS - 1),
    ROW(C | LOCAL, flags.cluster.slurm_tasks, U32, .variable = "SLURM_NTASKS", .least = 1,
        .most = SL_LIMIT_WORKERS),
    ROW(C, client.server_count, U32, .name = "num-servers", .least = 1, .most = SL_LIMIT_PS),
    ROW(C, client.protocol, CHOICE, .name = "protocol", .choices = "batched|per-table"),
    ROW(C, times.start_timeout_ns, DURATION, .name = "start-timeout", .preset = "60s",
        .least = TIMEOUT_LEAST, .most = UINT32_MAX / 1000),
    ROW(C, client.heartbeat_ns, DURATION, .name = "heartbeat", .preset = "0", .least = 0,
        .most = HOUR),

    SECTION("Cluster (or TF_CONFIG, or ps-lite's variables, or an endpoint map)"),
    ROW(P | W, flags.cluster.ps_hosts, STRING, .name = "ps-hosts", .metavar = "HOST:PORT,...",
        .help = "Control endpoints of all servers, by task index, comma-separated. Default of "
                "starling-ps, if no other source names a server: 127.0.0.1:3333."),
    ROW(P | W, flags.cluster.worker_hosts, STRING, .name = "worker-hosts", .metavar = "HOST,...",
        .help = "Worker hosts, comma-separated. Only the count is used; prefer --num-workers."),
    ROW(P | W, flags.cluster.worker_count, U32, .name = "num-workers", .least = 1,
        .most = SL_LIMIT_WORKERS, .help = "Worker processes of the job."),
    ROW(P, flags.cluster.job_name, STRING, .name = "job-name", .metavar = "ps|scheduler",
        .help = "Role of this process. A scheduler is the coordinator only; ps-lite's variables "
                "(DMLC_PS_ROOT_URI and others) then describe the cluster."),
    ROW(W | OWN, flags.cluster.job_name, STRING, .name = "job-name", .metavar = "worker|chief",
        .help = "Role of this process. A chief is worker 0."),
    ROW(P, flags.cluster.task_index, I64, .name = "task-index", .preset = "-1", .least = -1,
        .most = SL_LIMIT_PS - 1,
        .help = "Index of this process among the servers. -1: from another source, or 0 if there "
                "is one server."),
    ROW(W | OWN, flags.cluster.task_index, I64, .name = "task-index", .preset = "-1", .least = -1,
        .most = SL_LIMIT_WORKERS - 1,
        .help = "Index of this worker, from 0. -1: from another source, or 0 if there is one "
                "worker."),
    ROW(P | W | D, flags.cluster.endpoint_map, STRING, .name = "endpoint-map", .metavar = "FILE",
        .help = "Data endpoints of the servers, lines control_host:port=data_uri. Default: "
                ".endpoint_map, if it exists."),
    ROW(P | W, flags.cluster.joins, BOOL, .name = "join",
        .help = "Join a running job, with a task index beyond its own. A server gets shards of the "
                "others. A worker continues at the job's iteration, with the data of its index "
                "modulo the worker count."),
    ROW(P | W | LOCAL, flags.tf_config, STRING, .variable = "TF_CONFIG", .metavar = "JSON",
        .help = "Cluster and task of TensorFlow. The chief is worker 0."),
    ROW(P | W | L, flags.cluster_store, STRING, .name = "cluster-store", .refuses_empty = true,
        .metavar = "etcd://HOST:PORT,.../PREFIX",
        .help = "URL of an etcd for leader election: if the process that hosts the coordinator "
                "dies, another one takes over. The same URL for all processes of the job; one "
                "PREFIX per job; etcds:// for TLS. Without it the coordinator is on server 0, or "
                "in the scheduler."),
    ROW(P | W | L, flags.cluster_store_user_file, STRING, .name = "cluster-store-user-file",
        .refuses_empty = true, .metavar = "FILE",
        .help = "File with user:password of etcd in its first line, mode 0600."),

    SECTION("Configuration"),
    ROW(P | W | L | D | ENGINE | T, flags.config, STRING, .name = "config", .no_key = true,
        .metavar = "FILE",
        .help = "File with options as keys, in the section [all] and the program's own. Flags and "
                "variables have precedence over it."),
    ROW(P | W | L | D | ENGINE | T | OWN, flags.shows_config, BOOL, .name = "show-config",
        .no_key = true,
        .help = "Print every option with its source, as a configuration file, and exit."),

    SECTION("This process"),
    ROW(P | D, reactors.count, U32, .name = "reactors",
        .aliases = "STARLING_PS_REACTORS NETWORK_PS_CORE_NUMBER", .refuses_empty = true, .least = 1,
        .most = SL_LIMIT_REACTORS,
        .help = "Reactor threads, which share the shards. Default: available cores, at most 16."),
    ROW(P, reactors.shards, U32, .name = "shards", .least = 1, .most = SL_LIMIT_SHARDS,
        .help = "Shards of the job; every server has as many. Default: one for each reactor."),
    ROW(W, reactors.count, U32, .name = "reactors",
        .aliases = "STARLING_WORKER_REACTORS NETWORK_WORKER_CORE_NUMBER", .refuses_empty = true,
        .least = 0, .most = SL_LIMIT_REACTORS,
        .help = "Reactor threads, which share the connections to the servers. 0: the training "
                "thread does network I/O inside API calls. Default: 1."),
    ROW(P | D, reactors.polling, BOOL, .name = "polling",
        .aliases = "STARLING_PS_POLLING PS_ENABLE_POLLING", .refuses_empty = true,
        .help = "Idle reactors spin instead of sleeping. Never use more reactors than cores then."),
    ROW(W, reactors.polling, BOOL, .name = "polling",
        .aliases = "STARLING_WORKER_POLLING WORKER_ENABLE_POLLING", .refuses_empty = true,
        .help = "Idle reactors spin instead of sleeping. Never use more reactors than cores then."),
    ROW(P | D, reactors.pin_cores, BOOL, .name = "pin-cores",
        .aliases = "STARLING_PS_PIN_CORES !PS_DISABLE_PIN_CORES", .refuses_empty = true,
        .help = "Pin each reactor to a core, from the first core on."),
    ROW(W, reactors.pin_cores, BOOL, .name = "pin-cores",
        .aliases = "STARLING_WORKER_PIN_CORES !WORKER_DISABLE_PIN_CORES", .refuses_empty = true,
        .help = "Pin each reactor to a core, from the last core downwards."),
    ROW(P, memory_bytes_max, PARSED, .name = "memory-limit", .preset = "0",
        .parse = sl_settings_parse_size, .accepts = "a number of bytes, such as 0, 500M or 64G",
        .metavar = "BYTES",
        .help = "Limit of the memory of this process, in bytes or with K, M, G or T; 0: none. Rows "
                "beyond it are refused. A limit below the minimum is an error."),
    ROW(P | L, times.lease_ns, DURATION, .name = "lease", .preset = "10s", .least = LEASE_LEAST,
        .most = HOUR,
        .help = "How long a process may send no heartbeat before it expires and the job continues "
                "without it. The coordinator's value applies. PS_HEARTBEAT_TIMEOUT, in seconds, "
                "must agree."),
    ROW(P, times.start_timeout_ns, DURATION, .name = "start-timeout", .preset = "60s",
        .least = TIMEOUT_LEAST, .most = DAY,
        .help = "Longest wait for the coordinator and the other servers; of a scheduler: for all "
                "processes."),
    ROW(P, times.drain_timeout_ns, DURATION, .name = "drain-timeout", .preset = "10s",
        .least = TIMEOUT_LEAST, .most = HOUR,
        .help = "Longest wait for accepted requests after SIGTERM or SIGINT."),
    ROW(P, times.slow_request_ns, DURATION, .name = "slow-request", .preset = "10ms", .least = 0,
        .most = HOUR,
        .help = "Requests that take as long are kept, with the time of each phase, and shown at "
                "/api/slow; 0: none."),
    ROW(P | L, replicas, U32, .name = "replicas", .preset = "0", .least = 0, .most = 1,
        .help = "Backups of each shard, 0 or 1; the same for all servers. With 1, each shard has a "
                "backup on the next server: a push is acknowledged when both have it, and the "
                "backup is promoted when the server expires."),
    ROW(P | W, checksum, BOOL, .name = "checksum",
        .help = "Add a CRC-32C to every frame that this process sends."),
    ROW(P | W | S, log_level, LOG, .name = "log", .refuses_empty = true, .preset = "info",
        .help = "Least level of the log lines: debug, info, warn, error or off."),
    ROW(CATALOGUE | T, log_level, LOG, .name = "log", .refuses_empty = true, .preset = "warn",
        .help = "Least level of the log lines: debug, info, warn, error or off."),
    ROW(P | W | ENGINE | T, log_format, CHOICE, .name = "log-format", .preset = "text",
        .choices = "text|json",
        .help = "Form of the log lines: text, or json with one object a line."),

    SECTION("Transports"),
    ROW(P | W | D, congestion_control, PARSED, .name = "tcp-congestion", .refuses_empty = true,
        .parse = sl_settings_parse_congestion_control,
        .accepts = "a name of net.ipv4.tcp_available_congestion_control, such as cubic",
        .metavar = "NAME", .help = "TCP congestion control, such as cubic. Default: the system's."),
    ROW(P | W, transports.uses_shm, BOOL, .name = "shm", .refuses_empty = true, .preset = "1",
        .help = "Shared memory between a server and workers of the same host and user."),
    ROW(P | L, transports.offers_rdma, BOOL, .name = "serve-rdma", .aliases = "rdma",
        .help = "Serve over RDMA beside TCP, on the same host and a free port. An endpoint map can "
                "name the port, or omit TCP. `starling-ps doctor` reports what is missing."),
    ROW(P | D, transports.uses_rdma, BOOL, .name = "use-rdma", .aliases = "STARLING_RDMA",
        .refuses_empty = true, .preset = "1",
        .help = "RDMA beside TCP, if it is configured. 0: TCP only."),
    ROW(W, transports.uses_rdma, BOOL, .name = "use-rdma", .aliases = "rdma STARLING_RDMA",
        .refuses_empty = true, .preset = "1",
        .help = "RDMA beside TCP, if servers offer it. 0: TCP only."),
    ROW(P | W | D, flags.rdma.device, PARSED, .name = "rdma-device",
        .parse = sl_rdma_settings_parse_device,
        .accepts = "names of RDMA devices, comma-separated, such as mlx5_0 or mlx5_0,mlx5_1",
        .metavar = "NAME,...",
        .help = "RDMA devices to use, such as mlx5_0. Default: the device of the address to listen "
                "on or to connect to."),
    ROW(P | W | D, flags.rdma.gid_index, PARSED, .name = "rdma-gid-index",
        .parse = sl_rdma_settings_parse_gid, .accepts = SL_RDMA_SETTINGS_GID_ACCEPTS,
        .metavar = "N",
        .help = "Index in the device's GID table, from 0. Default: the GID of the endpoint's "
                "address. Without the flag, MC_GID_INDEX and NCCL_IB_GID_INDEX must agree with "
                "the variable."),
    ROW(P | W | D, flags.rdma.mc_gid_index, STRING, .variable = "MC_GID_INDEX", .metavar = "N",
        .help = "GID index of Mooncake's scripts."),
    ROW(P | W | D, flags.rdma.nccl_gid_index, STRING, .variable = "NCCL_IB_GID_INDEX",
        .metavar = "N", .help = "GID index of NCCL's scripts; -1 counts as unset."),
    ROW(P | W | D | LOCAL, flags.dpdk_devices, STRINGS, .name = "dpdk-device",
        .metavar = "DEVICE?addr=A[/PREFIX]...",
        .help = "DPDK device that this process polls, and its address: "
                "0000:3b:00.0?addr=10.0.0.1/24, or, for a virtual device, "
                "net_memif0,role=client,socket=/run/m.sock,socket-abstract=no?addr=10.0.0.2. "
                "After the address: &gateway=G, &mtu=N, &queues=N. May be repeated; several are "
                "separated by ;."),
    ROW(P | W | D | OWN, flags.dpdk_eal_args, STRING, .name = "dpdk-eal-args", .metavar = "WORDS",
        .help = "Arguments of DPDK's EAL, separated by blanks, such as -m 512."),
    ROW(P | W | D | OWN, flags.dpdk_module, STRING, .name = "dpdk-module", .metavar = "FILE",
        .help = "The plug-in starling-dpdk.so. Default: found beside the program or the library."),

    SECTION("HTTP for operators"),
    ROW(P | W | OWN, flags.http.address, PARSED, .name = "http", .parse = sl_http_settings_parse,
        .accepts = SL_HTTP_SETTINGS_ACCEPTS, .metavar = "HOST:PORT|off",
        .help = "Address of metrics, health and the live page, over HTTP. Port 0: any free one. "
                "Default: " SL_HTTP_SETTINGS_DEFAULT
                "; of a server that no source describes, " SL_HTTP_SETTINGS_ALONE "."),
    ROW(P | W | T | OWN, flags.http.token_file, PARSED, .name = "http-token-file",
        .parse = sl_settings_parse_path, .accepts = "the path of a file", .metavar = "FILE",
        .help = "File with the token, 16 to 1024 printable characters, that callers of --http show "
                "(Authorization: Bearer), readable by its owner only. Needed beyond loopback; "
                "servers may have --insecure instead."),

    ROW(P | L, times.http_linger_ns, DURATION, .name = "http-linger", .preset = "0", .least = 0,
        .most = DAY,
        .help = "How long the page stays when the job has ended: the process of the coordinator "
                "ends so much later, or at a signal. Not after SIGINT; not with --cluster-store."),
    ROW(P | L, title, PARSED, .name = "title", .parse = sl_settings_parse_title,
        .accepts = "1 to 64 characters of printable ASCII", .metavar = "TEXT",
        .help = "Name of the job on the live page and in starling-top. The coordinator's value "
                "applies."),

    SECTION("Security"),
    ROW(SECURED, flags.security.secret_file, PARSED, .name = "secret-file", .refuses_empty = true,
        .parse = sl_settings_parse_path,
        .accepts = "the path of a file; unset it for a cluster without a secret", .metavar = "FILE",
        .help = "File with the cluster's secret, 16 to 1024 bytes, readable by its owner only; the "
                "same for all processes."),
    ROW(P | L | T, flags.security.operator_secret_file, STRING, .name = "operator-secret-file",
        .metavar = "FILE", .help = "Second secret, with which starling-ctl changes tables."),
    ROW(P | L | ENGINE, insecure, BOOL, .name = "insecure",
        .help = "Listen on a network without a secret: everyone who reaches the endpoints can read "
                "and change the parameters."),
    ROW(SECURED, flags.security.tls_cert, STRING, .name = "tls-cert", .metavar = "FILE",
        .help = "Encrypt every connection with TLS: this process's certificate in PEM, with its "
                "chain. Needs --tls-key and --tls-ca."),
    ROW(SECURED, flags.security.tls_key, STRING, .name = "tls-key", .metavar = "FILE",
        .help = "The certificate's private key in PEM."),
    ROW(SECURED, flags.security.tls_ca, STRING, .name = "tls-ca", .metavar = "FILE",
        .help = "Certificates in PEM of the authorities that signed the certificates of all "
                "processes."),
    ROW(SECURED, flags.security.tls_name, STRING, .name = "tls-name", .metavar = "NAME",
        .help = "Name that the certificate of every server must have. Default: the host that the "
                "process connects to."),

    SECTION("Checkpoints"),
    ROW(P | L, checkpoint.dir, PARSED, .name = "checkpoint-dir", .refuses_empty = true,
        .parse = sl_settings_parse_directory,
        .accepts = "the path of a directory, of 1 to 511 bytes", .metavar = "DIR",
        .help = "Directory of the checkpoints: shared by all servers, or one for each server. "
                "Created if missing. Default: no checkpoints."),
    ROW(P | L, checkpoint.every_ns, DURATION, .name = "checkpoint-every", .refuses_empty = true,
        .preset = "10m", .least = 0, .most = 31 * DAY,
        .help = "Time between checkpoints; 0: only on request and at an orderly end. The "
                "coordinator's value applies."),
    ROW(P | L, checkpoint.incrementals_max, U32, .name = "checkpoint-incrementals",
        .refuses_empty = true, .preset = "7", .least = 0, .most = 63,
        .help = "Incremental checkpoints after each full one; 0: every checkpoint is full. The "
                "coordinator's value applies."),
    ROW(P | L, checkpoint.keep, U32, .name = "checkpoint-keep", .refuses_empty = true,
        .preset = "2", .least = 1, .most = 1000,
        .help = "Complete checkpoints to keep, with those that they are based on."),
    ROW(P | L, checkpoint.compression_level, U32, .name = "checkpoint-compression",
        .refuses_empty = true, .preset = "1", .least = 0, .most = 19,
        .help = "Level of zstd compression, 1 (fast) to 19 (small); 0: none."),
    ROW(P | L, checkpoint, PARSED, .name = "restore", .refuses_empty = true,
        .parse = sl_checkpoint_settings_parse_restore,
        .accepts = SL_CHECKPOINT_SETTINGS_RESTORE_ACCEPTS, .metavar = "newest|N",
        .help = "Start from the newest complete checkpoint in the directory, or from the one with "
                "this number. With newest, a directory without one starts empty."),
    ROW(P | L, checkpoint.fresh, BOOL, .name = "fresh",
        .help = "Start empty, although the directory has checkpoints of an earlier job. They are "
                "kept: remove them by hand. Without this flag and --restore the start is refused."),
    ROW(P | L, checkpoint.fallback, BOOL, .name = "restore-fallback",
        .help = "If the checkpoint is damaged, restore the newest older one that is intact. Every "
                "byte is verified before. Without this flag, damage is an error."),
    ROW(P | L, checkpoint.policy, PARSED, .name = "restore-policy", .refuses_empty = true,
        .parse = sl_checkpoint_settings_parse_policy, .accepts = "keep or new",
        .metavar = "keep|new",
        .help = "If a client opens a restored table with another policy: keep that of the "
                "checkpoint, or take the new one, once. Without this flag, such an open is an "
                "error. The coordinator's value applies."),

    SECTION("Objects"),
    ROW(P, objects.name, STRING, .name = "objects", .metavar = "HOST:PORT",
        .help = "Store objects and serve them at this address; port 0: a free one. Without it, "
                "this process takes no part in objects."),
    ROW(P | W | L, objects.catalogue, PARSED, .name = "catalogue",
        .aliases = "STARLING_OBJECTS_CATALOGUE", .parse = sl_settings_parse_path,
        .accepts = "an address, HOST:PORT", .metavar = "HOST:PORT",
        .help = "Address of the catalogue of objects. Default: the --objects address of the "
                "process that hosts the coordinator, which other servers must name here."),
    ROW(CATALOGUE, objects.catalogue, PARSED, .name = "catalogue",
        .aliases = "STARLING_OBJECTS_CATALOGUE", .parse = sl_settings_parse_path,
        .accepts = "an address, HOST:PORT", .metavar = "HOST:PORT",
        .help = "Address of the catalogue, which starling-objects serve prints. Default: what the "
                "etcd of --metadata says."),
    ROW(CATALOGUE, objects.metadata, STRING, .name = "metadata", .aliases = "metadata_server",
        .metavar = "ADDRESS",
        .help = "Where processes find each other: P2PHANDSHAKE (the name is the address, the "
                "default), etcd://HOST:PORT,... or http://HOST:PORT/PATH."),
    ROW(W, objects.agent, STRING, .name = "objects-agent", .metavar = "NAME",
        .help = "Agent of this host that views of objects are in: its --agent-name."),
    ROW(P | L, objects.memory_bytes, PARSED, .name = "objects-memory", .preset = "1G",
        .parse = sl_settings_parse_size, .accepts = "a number of bytes, such as 500M or 4G",
        .metavar = "BYTES",
        .help = "Memory of a server for objects. It counts for --memory-limit."),
    ROW(P | L, objects.directory, PARSED, .name = "objects-dir",
        .parse = sl_settings_parse_directory,
        .accepts = "the path of a directory, of 1 to 511 bytes", .metavar = "DIR",
        .help = "Directory for stored objects: they outlive the process, and need not all fit into "
                "its memory. Server 1 uses DIR/ps-1. Default: memory only."),
    ROW(P | L, objects.rate_bytes, PARSED, .name = "objects-rate", .preset = "0",
        .parse = sl_settings_parse_size, .accepts = "a number of bytes, such as 0, 500M or 4G",
        .metavar = "BYTES",
        .help = "Limit of the bytes of objects that others read from this process per second; 0: "
                "none."),
    ROW(P | L, objects.keep_versions, U32, .name = "keep-versions", .preset = "3", .least = 1,
        .most = 256,
        .help = "Versions of each object that the catalogue keeps; that of its host applies."),

    SECTION("ps-lite's variables"),
    ROW(P | W | D | LOCAL, dmlc.role, PARSED, .variable = "DMLC_ROLE", .parse = sl_dmlc_parse_role,
        .accepts = "scheduler, server, worker or joint", .metavar = "ROLE",
        .help = "Role of this process."),
    ROW(P | W | D | LOCAL, dmlc.server_count, U32, .variable = "DMLC_NUM_SERVER", .least = 1,
        .most = SL_LIMIT_PS, .help = "Server processes of the job."),
    ROW(P | W | D | LOCAL, dmlc.worker_count, U32, .variable = "DMLC_NUM_WORKER", .least = 1,
        .most = SL_LIMIT_WORKERS, .help = "Worker processes of the job."),
    ROW(P | W | D | LOCAL, dmlc.root.host, PARSED, .variable = "DMLC_PS_ROOT_URI",
        .parse = sl_dmlc_parse_host, .accepts = SL_DMLC_HOST_ACCEPTS, .metavar = "HOST",
        .help = "Host of the scheduler."),
    ROW(P | W | D | LOCAL, dmlc.root_port, U32, .variable = "DMLC_PS_ROOT_PORT", .least = 1,
        .most = UINT16_MAX, .help = "Port of the scheduler."),
    ROW(P | W | D | LOCAL, dmlc.rank, I64, .variable = "DMLC_RANK", .least = 0,
        .most = SL_LIMIT_WORKERS - 1, .help = "Index of this process within its role."),
    ROW(P | W | D | LOCAL, dmlc.worker_id, I64, .variable = "DMLC_WORKER_ID", .least = 0,
        .most = SL_LIMIT_WORKERS - 1, .help = "The same for a worker."),
    ROW(P | W | D | LOCAL, dmlc.node_host, PARSED, .variable = "DMLC_NODE_HOST",
        .parse = sl_dmlc_parse_host, .accepts = SL_DMLC_HOST_ACCEPTS, .metavar = "HOST",
        .help = "Host where workers reach this server."),
    ROW(P | W | D | LOCAL, dmlc.interface, PARSED, .variable = "DMLC_INTERFACE",
        .parse = sl_dmlc_parse_interface,
        .accepts = "the name of a network interface, such as eth0", .metavar = "NAME",
        .help = "Network interface whose address this server uses; auto: the route to the "
                "scheduler."),
    ROW(P | W | D | LOCAL, dmlc.port, U32, .variable = "DMLC_PORT", .least = 0, .most = UINT16_MAX,
        .help = "Data port of this server; 0: any free port."),
    ROW(P | W | D | LOCAL, dmlc.group_size, U32, .variable = "DMLC_GROUP_SIZE", .least = 1,
        .most = SL_LIMIT_REACTORS, .help = "Shards of this server; must agree with --reactors."),
    ROW(P | W | D | LOCAL, dmlc.rdma, PARSED, .variable = "DMLC_ENABLE_RDMA",
        .aliases = "DMLC_PS_VAN_TYPE", .parse = sl_dmlc_parse_rdma, .metavar = "VAN",
        .accepts = SL_DMLC_RDMA_ACCEPTS, .help = "The same as --rdma."),
    ROW(P | W, dmlc.trace, U32, .variable = "PS_VERBOSE", .least = 0, .most = 2,
        .help = "1: log each connection; 2: also log each frame."),
    ROW(P | W, dmlc.heartbeat_timeout_s, U32, .variable = "PS_HEARTBEAT_TIMEOUT", .least = 0,
        .most = HOUR, .metavar = "SECONDS", .help = "The same as --lease; 0: unset."),
    ROW(P | W, dmlc.heartbeat_interval_s, U32, .variable = "PS_HEARTBEAT_INTERVAL", .least = 0,
        .most = HOUR, .metavar = "SECONDS",
        .help = "Time between heartbeats; 0: a quarter of the lease."),
};
#define ROWS (sizeof rows / sizeof rows[0])

static bool is_of(const struct row *row, enum sl_program program)
{
    return (row->programs & program) != 0 ||
           (program == SL_PROGRAM_CLIENT && (row->programs & (W | OWN)) == W);
}

/* A launcher acts by settings of its servers. */
static const char *const *sections_of(enum sl_program program)
{
    static const struct {
        uint32_t programs;
        const char *sections[4];
    } sections[] = {
        {P | D, {"server", "all"}}, {W | C, {"worker", "all"}}, {L, {"launch", "server", "all"}},
        {O, {"objects", "all"}},    {G, {"gateway", "all"}},    {S, {"serve-worker", "all"}},
        {Y, {"deploy", "all"}},     {R, {"rollback", "all"}},   {T, {"ctl", "all"}},
    };
    uint32_t i = 0;
    while ((sections[i].programs & program) == 0) {
        i++;
    }
    return sections[i].sections;
}

/* Flags of servers, workers and the launcher of a job are easily given to the wrong one. */
static bool settings_place_of(uint32_t programs, const char *name, char *text, size_t text_bytes)
{
    const uint32_t has = sl_settings_programs(name) & (P | W | L);
    const char *owner = (has & (P | L)) == (P | L) ? "starling-ps and starling-launch"
                        : (has & P) != 0           ? "starling-ps"
                        : (has & L) != 0           ? "starling-launch"
                                                   : "starling-worker";
    if ((programs & (P | W | L)) == 0 || has == 0) {
        return false;
    }
    if (programs == L && (has & P) != 0) {
        (void)snprintf(text, text_bytes, "is an option of %s: --ps-args \"--%s ...\"", owner, name);
    } else {
        (void)snprintf(text, text_bytes, "is an option of %s%s", owner,
                       programs == L ? ": after --" : "");
    }
    return true;
}

uint32_t sl_settings_options(enum sl_program program, uint32_t core_count,
                             struct sl_settings *settings,
                             struct sl_cli_option options[SL_SETTINGS_OPTIONS_MAX])
{
    sl_assert(core_count > 0);
    *settings = (struct sl_settings){
        .reactors.count = (program & (W | C)) != 0            ? 1
                          : core_count < REACTORS_DEFAULT_MAX ? core_count
                                                              : REACTORS_DEFAULT_MAX,
        .dmlc = {.rank = -1, .worker_id = -1},
        .client.task = SL_SETTINGS_NO_TASK,
        .flags.cluster = {.task_index = -1,
                          .rank = -1,
                          .slurm_task = -1,
                          .takes_first = program == SL_PROGRAM_CLIENT},
    };
    settings->cli_file = (struct sl_cli_file){
        .path = &settings->flags.config,
        .shows = &settings->flags.shows_config,
        .sections = sections_of(program),
        /* The doctor checks what a server would use. */
        .programs = (uint32_t)program | (program == SL_PROGRAM_DOCTOR ? P : 0) |
                    (program == SL_PROGRAM_CLIENT ? W : 0),
        .programs_of = sl_settings_programs,
        .place_of = settings_place_of,
        .file = &settings->file,
    };
    uint32_t count = 0;
    for (size_t i = 0; i < ROWS; i++) {
        if (!is_of(&rows[i], program)) {
            continue;
        }
        /* A heading replaces one without rows. */
        const bool is_heading = rows[i].option.kind == SL_CLI_SECTION;
        count -= is_heading && count > 0 && options[count - 1].kind == SL_CLI_SECTION;
        sl_assert(count < SL_SETTINGS_OPTIONS_MAX);
        options[count] = rows[i].option;
        options[count++].target = (char *)settings + rows[i].offset;
    }
    return count - (options[count - 1].kind == SL_CLI_SECTION);
}

const struct sl_cli_given *sl_settings_given(const struct sl_cli *cli, const void *target)
{
    uint32_t i = 0;
    while (cli->options[i].target != target) {
        i++;
        sl_assert(i < cli->option_count);
    }
    return &cli->given[i];
}

uint32_t sl_settings_programs(const char *name)
{
    uint32_t programs = 0;
    for (size_t i = 0; i < ROWS; i++) {
        programs |= sl_cli_option_is_named(&rows[i].option, name) ? rows[i].programs : 0;
    }
    return programs & ~(uint32_t)(LOCAL | OWN);
}

bool sl_settings_is_passed(const char *variable)
{
    char name[SL_CLI_NAME_BYTES];
    for (size_t i = 0; i < ROWS; i++) {
        bool inverts, is_this;
        sl_cli_option_variable(&rows[i].option, true, name);
        is_this = strcmp(name, variable) == 0;
        for (const char *at = rows[i].option.aliases; sl_cli_option_alias(&at, name, &inverts);) {
            is_this = is_this || strcmp(name, variable) == 0;
        }
        if (is_this) {
            return (rows[i].programs & LOCAL) == 0;
        }
    }
    return strncmp(variable, "STARLING_", 9) == 0;
}

/* DMLC_GROUP_SIZE: ps-lite counts servers in a process, which are shards here. */
static int agree_on_reactors(const struct sl_cli *cli, struct sl_settings *settings,
                             struct sl_reason *reason)
{
    const struct sl_dmlc *dmlc = &settings->dmlc;
    const struct sl_cli_given *given = sl_settings_given(cli, &settings->reactors.count);
    if (!dmlc->in_use || dmlc->group_size == 0) {
        return 0;
    }
    if (given->from > SL_CLI_FROM_FILE && settings->reactors.count != dmlc->group_size) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "%s is %u, but DMLC_GROUP_SIZE is %u: give both the same number",
                              given->source, settings->reactors.count, dmlc->group_size);
    }
    settings->reactors.count = dmlc->group_size;
    return 0;
}

/* PS_HEARTBEAT_TIMEOUT is another name of --lease. */
static int agree_on_lease(const struct sl_cli *cli, struct sl_settings *settings,
                          struct sl_reason *reason)
{
    const uint64_t timeout_ns = settings->dmlc.heartbeat_timeout_s * SL_CLOCK_NS_PER_S;
    const struct sl_cli_given *given = sl_settings_given(cli, &settings->times.lease_ns);
    if (timeout_ns == 0) {
        return 0;
    }
    if (given->from > SL_CLI_FROM_FILE && settings->times.lease_ns != timeout_ns) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "%s is %s, but PS_HEARTBEAT_TIMEOUT is %u; they must agree",
                              given->source, given->text, settings->dmlc.heartbeat_timeout_s);
    }
    settings->times.lease_ns = timeout_ns;
    return 0;
}

static bool is_of_checkpoint(const struct sl_cli_option *option)
{
    return option->kind != SL_CLI_SECTION && option->name != NULL &&
           (strncmp(option->name, "checkpoint-", 11) == 0 ||
            strncmp(option->name, "restore", 7) == 0 || strcmp(option->name, "fresh") == 0);
}

int sl_settings_check_checkpoint_flags(const struct sl_cli *cli, const struct sl_settings *settings,
                                       bool orders, struct sl_reason *reason)
{
    const struct sl_checkpoint_settings *checkpoint = &settings->checkpoint;
    for (uint32_t i = 0; checkpoint->dir == NULL && i < cli->option_count; i++) {
        const void *target = cli->options[i].target;
        const struct sl_cli_given *given = &cli->given[i];
        const bool is_order = target == &checkpoint->every_ns ||
                              target == &checkpoint->incrementals_max ||
                              target == &checkpoint->policy;
        const bool is_shared = given->from < SL_CLI_FROM_FLAG;
        if (given->from != SL_CLI_FROM_DEFAULT && is_of_checkpoint(&cli->options[i]) &&
            !(orders && (is_order || is_shared))) {
            return sl_reason_fail(
                reason, SL_ERR_INVALID,
                "%s=%.80s has no effect without --checkpoint-dir (or STARLING_CHECKPOINT_DIR)",
                given->source, given->text);
        }
    }
    if (checkpoint->fresh && checkpoint->restore != SL_CHECKPOINT_RESTORE_NONE) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "--fresh (or STARLING_FRESH) starts empty, and --restore (or "
                              "STARLING_RESTORE) from a checkpoint: give one of them");
    }
    if (checkpoint->fallback && checkpoint->restore == SL_CHECKPOINT_RESTORE_NONE) {
        return sl_reason_fail(
            reason, SL_ERR_INVALID,
            "--restore-fallback has no effect without --restore (or STARLING_RESTORE)");
    }
    if (checkpoint->policy != SL_CHECKPOINT_POLICY_REFUSE &&
        checkpoint->restore == SL_CHECKPOINT_RESTORE_NONE && !orders) {
        return sl_reason_fail(
            reason, SL_ERR_INVALID,
            "--restore-policy has no effect without --restore (or STARLING_RESTORE)");
    }
    return 0;
}

/* Flags and variables of Starling have everything of a client's cluster: later sources, which may
 * be of another program, are not read. */
static bool names_everything(const struct sl_cli *cli, const struct sl_settings *settings)
{
    const struct sl_cluster_flags *cluster = &settings->flags.cluster;
    return sl_settings_given(cli, &cluster->coordinator)->from > SL_CLI_FROM_FILE &&
           sl_settings_given(cli, &settings->client.task)->from > SL_CLI_FROM_FILE &&
           sl_settings_given(cli, &cluster->worker_count)->from > SL_CLI_FROM_FILE;
}

/* The environment has precedence over the file: where TF_CONFIG, ps-lite's variables or the rank of
 * another launcher describe the cluster, the file does not. */
static void drop_cluster_of_file(const struct sl_cli *cli, struct sl_settings *settings)
{
    struct sl_cluster_flags *cluster = &settings->flags.cluster;
    const bool is_described = settings->flags.tf_config != NULL || settings->dmlc.in_use;
    const bool is_counted = is_described || cluster->world_size != 0 || cluster->slurm_tasks != 0;
    const char **const texts[] = {&cluster->ps_hosts, &cluster->worker_hosts, &cluster->job_name,
                                  &cluster->coordinator};
    for (uint32_t i = 0; i < cli->option_count; i++) {
        const void *target = cli->options[i].target;
        if (cli->given[i].from != SL_CLI_FROM_FILE) {
            continue;
        }
        for (size_t t = 0; is_described && t < sizeof texts / sizeof texts[0]; t++) {
            *texts[t] = texts[t] == target ? NULL : *texts[t];
        }
        if (is_counted) {
            cluster->worker_count = target == &cluster->worker_count ? 0 : cluster->worker_count;
            cluster->task_index = target == &cluster->task_index ? -1 : cluster->task_index;
            settings->client.task =
                target == &settings->client.task ? SL_SETTINGS_NO_TASK : settings->client.task;
        }
    }
}

/* net/dpdk reads variables, also in programs that have no settings. */
static int set_variables_of_dpdk(const struct sl_settings_flags *flags)
{
    const bool is_set =
        (flags->dpdk_eal_args == NULL ||
         setenv("STARLING_DPDK_EAL_ARGS", flags->dpdk_eal_args, 1) == 0) &&
        (flags->dpdk_module == NULL || setenv("STARLING_DPDK_MODULE", flags->dpdk_module, 1) == 0);
    return is_set ? 0 : SL_ERR_NO_MEMORY;
}

static int resolve_server(const struct sl_cli *cli, struct sl_settings *settings,
                          struct sl_reason *reason)
{
    const bool orders = settings->cluster.role == SL_CLUSTER_SCHEDULER;
    int err = agree_on_reactors(cli, settings, reason);
    err = err != 0 ? err : agree_on_lease(cli, settings, reason);
    return err != 0 ? err : sl_settings_check_checkpoint_flags(cli, settings, orders, reason);
}

/* A server that nothing describes has a port of HTTP that its user knows, too. */
static int resolve_http(enum sl_program program, const struct sl_cli *cli,
                        struct sl_settings *settings, struct sl_reason *reason)
{
    const struct sl_cli_given *given = sl_settings_given(cli, &settings->flags.http.address);
    if (given->from == SL_CLI_FROM_DEFAULT) {
        settings->flags.http.address =
            settings->cluster.is_default ? SL_HTTP_SETTINGS_ALONE : SL_HTTP_SETTINGS_DEFAULT;
    }
    return sl_http_settings_resolve(&settings->flags.http, given,
                                    program == SL_PROGRAM_PS ? &settings->insecure : NULL,
                                    &settings->http, reason);
}

/* Of servers and workers. */
static int resolve_cluster(enum sl_program program, const struct sl_cli *cli,
                           struct sl_settings *settings, struct sl_reason *reason)
{
    const struct sl_settings_flags *flags = &settings->flags;
    const struct sl_cli_given *store = sl_settings_given(cli, &flags->cluster_store);
    int err = sl_cluster_resolve(program == SL_PROGRAM_PS ? SL_CLUSTER_PS : SL_CLUSTER_WORKER,
                                 &flags->cluster, flags->tf_config, &settings->dmlc,
                                 &settings->cluster, reason);
    if (err == 0 && program == SL_PROGRAM_PS) {
        err = resolve_server(cli, settings, reason);
    }
    if (err == 0) {
        err = sl_cluster_store_settings_read(store, flags->cluster_store_user_file,
                                             &settings->store, reason);
    }
    err = err != 0 ? err : sl_security_resolve(&flags->security, &settings->security, reason);
    if (err == 0 && program != SL_PROGRAM_CLIENT) {
        err = resolve_http(program, cli, settings, reason);
    }
    return err;
}

int sl_settings_resolve(enum sl_program program, const struct sl_cli *cli,
                        struct sl_settings *settings, struct sl_reason *reason)
{
    const struct sl_settings_flags *flags = &settings->flags;
    const bool is_whole = program == SL_PROGRAM_CLIENT && names_everything(cli, settings);
    if (is_whole || sl_tf_config_is_unset(flags->tf_config)) {
        settings->flags.tf_config = NULL;
    }
    int err = is_whole ? 0 : sl_dmlc_resolve(&settings->dmlc, cli->variables, reason);
    drop_cluster_of_file(cli, settings);
    if (settings->client.task != SL_SETTINGS_NO_TASK) {
        settings->flags.cluster.task_index = settings->client.task < 0 ? 0 : settings->client.task;
    }
    if (err == 0 &&
        (set_variables_of_dpdk(flags) != 0 || sl_cli_values_read(cli, &settings->values) != 0)) {
        err = sl_reason_fail(reason, SL_ERR_NO_MEMORY, "out of memory");
    }
    const struct sl_cli_given *dpdk = sl_settings_given(cli, &flags->dpdk_devices);
    if (err == 0) {
        err = sl_dpdk_settings_read(&flags->dpdk_devices, dpdk, &settings->dpdk, reason);
    }
    if (err == 0) {
        sl_rdma_settings_read(&flags->rdma, sl_settings_given(cli, &flags->rdma.gid_index),
                              &settings->rdma);
    }
    if (err == 0 && program != SL_PROGRAM_DOCTOR) {
        err = resolve_cluster(program, cli, settings, reason);
    }
    return err;
}

static const char *unless_empty(const char *text)
{
    return text[0] == '\0' ? NULL : text;
}

void sl_settings_client(const struct sl_settings *settings, struct sl_client_options *out)
{
    const struct sl_cluster *cluster = &settings->cluster;
    const struct sl_security *security = &settings->security;
    *out = (struct sl_client_options){
        .struct_size = sizeof *out,
        .task_index = settings->client.task != SL_SETTINGS_NO_TASK ? settings->client.task
                      : cluster->task == SL_CLUSTER_TASK_NONE      ? -1
                      : cluster->task == SL_CLUSTER_TASK_ANY       ? SL_CLIENT_ANY_TASK
                                                                   : (int32_t)cluster->task_index,
        .server_count =
            settings->client.server_count != 0 ? settings->client.server_count : cluster->ps_count,
        .worker_count = cluster->worker_count,
        .reactor_count = settings->reactors.count,
        .polling = settings->reactors.polling,
        .manual_progress = settings->reactors.count == 0,
        .pin_cores = settings->reactors.pin_cores,
        .checksum = settings->checksum,
        .congestion_control = unless_empty(settings->congestion_control),
        .join_running = settings->flags.cluster.joins,
        .secret = security->secret.byte_count == 0 ? NULL : security->secret.bytes,
        .secret_bytes = security->secret.byte_count,
        .tls_certificate = security->certificate,
        .tls_key = security->key,
        .tls_authority = security->authority,
        .tls_peer_name = security->peer_name,
        .disable_shm = !settings->transports.uses_shm,
        .heartbeat_ms = settings->client.heartbeat_ns != 0
                            ? (uint32_t)(settings->client.heartbeat_ns / SL_CLOCK_NS_PER_MS)
                            : settings->dmlc.heartbeat_interval_s * 1000,
        .disable_rdma = !settings->transports.uses_rdma || settings->rdma.flaw[0] != '\0',
        .rdma_device = unless_empty(settings->rdma.device),
        .has_rdma_gid_index = settings->rdma.has_gid_index,
        .rdma_gid_index = settings->rdma.gid_index,
        .dpdk_device = unless_empty(settings->dpdk.text),
        .protocol = (enum sl_protocol)settings->client.protocol,
        .start_timeout_ms = (uint32_t)(settings->times.start_timeout_ns / SL_CLOCK_NS_PER_MS),
    };
}

void sl_settings_log_setup(const struct sl_settings *settings, const char *name)
{
    sl_log_setup(settings->log_level, name);
    sl_log_set_json(settings->log_format == SL_SETTINGS_LOG_JSON);
}

void sl_settings_log(const struct sl_settings *settings)
{
    if (settings->cluster.map_path != NULL && settings->flags.cluster.endpoint_map == NULL) {
        sl_log_info("reads the servers' data endpoints from %s in the working directory",
                    settings->cluster.map_path);
    }
    if (settings->dmlc.unheeded[0] != '\0') {
        sl_log_warn("no effect: %s", settings->dmlc.unheeded);
    }
}

void sl_settings_fini(struct sl_settings *settings)
{
    sl_cluster_fini(&settings->cluster);
    sl_cli_list_fini(&settings->flags.dpdk_devices);
    sl_cli_values_fini(&settings->values);
    sl_config_file_fini(&settings->file);
    explicit_bzero(&settings->security, sizeof settings->security);
    explicit_bzero(&settings->http, sizeof settings->http);
    explicit_bzero(&settings->store, sizeof settings->store);
}
