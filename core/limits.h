/* All limits of Starling. An error that a user can hit names its limit. */
#ifndef SL_CORE_LIMITS_H
#define SL_CORE_LIMITS_H

#define SL_LIMIT_REACTORS              256   /* per process */
#define SL_LIMIT_PS                    1024  /* servers of a cluster */
#define SL_LIMIT_SHARDS                4096  /* reactors of all servers together */
#define SL_LIMIT_WORKERS               16384 /* worker processes of a cluster */
#define SL_LIMIT_TABLES                1024  /* per cluster; table ids are smaller */
#define SL_LIMIT_DIM                   4096  /* columns of a sparse row */
#define SL_LIMIT_DENSE_ELEMENTS        (1ULL << 36)
#define SL_LIMIT_CONNECTIONS           32768 /* per reactor */
#define SL_LIMIT_LANES                 1024  /* SPSC rings into one mailbox */
#define SL_LIMIT_LANE_MAILS            1024  /* entries of such a ring; a power of two */

/* One message. The client splits a larger step into several messages. */
#define SL_LIMIT_FRAME_PAYLOAD_BYTES   (4U << 20)
#define SL_LIMIT_CONTROL_PAYLOAD_BYTES (1U << 20)
#define SL_LIMIT_REQUEST_SECTIONS      4096
#define SL_LIMIT_ENDPOINT_BYTES        256 /* an endpoint as text, including NUL */

/* Checkpoints are numbered from 1 to this: the largest number that fits a directory name, and that
 * JSON readers keep exact. */
#define SL_LIMIT_CHECKPOINT_NUMBER     999999999999ULL

/* Longest payload that is received through the transport's own buffers; a longer payload is
 * received directly into memory that the receiver provides. */
#define SL_LIMIT_INLINE_PAYLOAD_BYTES  (16U << 10)

/* Credits that a server's reactor grants to a connection in its welcome. */
#define SL_LIMIT_CREDIT_REQUESTS       256
#define SL_LIMIT_CREDIT_BYTES          (16U << 20)

/* The transfer engine. */
#define SL_LIMIT_TRANSFER_SEGMENTS     4096 /* open at one time */
#define SL_LIMIT_TRANSFER_BUFFERS      4096 /* registered at one time */
#define SL_LIMIT_TRANSFER_BATCHES      4096
#define SL_LIMIT_TRANSFER_REQUESTS     65536 /* of one batch */
#define SL_LIMIT_TRANSFER_NOTICES      1024  /* that wait to be taken */
/* Credits of a lane: slices, which are also the most in one REQUEST, and bytes. */
#define SL_LIMIT_TRANSFER_SLICES       256
#define SL_LIMIT_TRANSFER_CREDIT_BYTES (16U << 20)

/* Objects: of one image. */
#define SL_LIMIT_OBJECTS_IMAGE_BYTES   (256ULL << 30)
#define SL_LIMIT_OBJECTS_TENSORS       65536
#define SL_LIMIT_OBJECTS_GROUPS        16384
#define SL_LIMIT_OBJECTS_SENDS         16384 /* messages of a node that wait to be sent */
/* Of a catalogue. A version of one part takes some 260 bytes, and each copy of it 160. */
#define SL_LIMIT_OBJECTS_NAMES         65536
#define SL_LIMIT_OBJECTS_VERSIONS      256        /* of a name */
#define SL_LIMIT_OBJECTS_PARTS         (1U << 24) /* of all versions */
#define SL_LIMIT_OBJECTS_NODES         16384
#define SL_LIMIT_OBJECTS_FOLLOWS       1024       /* names that a node follows */
#define SL_LIMIT_OBJECTS_READERS       1024       /* sessions of other processes at an agent */
#define SL_LIMIT_OBJECTS_COPIES        (1U << 25) /* of all parts, on all nodes */

/* Unsent answers of one connection. Credits bound the replies. A peer whose control messages cause
 * more than this does not read, or floods: its connection is closed. */
#define SL_LIMIT_UNSENT_ANSWERS        (SL_LIMIT_CREDIT_REQUESTS + 256)

/* Events and mails that a reactor takes from each source per turn, so that no source starves. */
#define SL_LIMIT_TURN_EVENTS           256
#define SL_LIMIT_TURN_COST             8192 /* keys that a shard visits before the loop continues */

/* A longer turn is a stall: counted and logged. */
#define SL_LIMIT_TURN_STALL_NS         1000000ULL

#endif
