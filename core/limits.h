/* Every maximum of Starling, in one place. A limit that a user meets is named in the error. */
#ifndef SL_CORE_LIMITS_H
#define SL_CORE_LIMITS_H

#define SL_LIMIT_REACTORS              256   /* reactors in one process */
#define SL_LIMIT_PS                    1024  /* ps processes in one cluster */
#define SL_LIMIT_SHARDS                4096  /* reactors of all ps processes together */
#define SL_LIMIT_WORKERS               16384 /* worker processes in one cluster */
#define SL_LIMIT_TABLES                1024  /* tables of one cluster: table ids are below this */
#define SL_LIMIT_DIM                   4096  /* columns of a sparse row */
#define SL_LIMIT_DENSE_ELEMENTS        (1ULL << 36)
#define SL_LIMIT_CONNECTIONS           32768 /* connections of one reactor */
#define SL_LIMIT_LANES                 1024  /* SPSC rings into one mailbox */
#define SL_LIMIT_LANE_MAILS            1024  /* entries of one such ring; a power of two */

/* One message. A step that needs more is cut into several messages by the client. */
#define SL_LIMIT_FRAME_PAYLOAD_BYTES   (4U << 20)
#define SL_LIMIT_CONTROL_PAYLOAD_BYTES (1U << 20)
#define SL_LIMIT_REQUEST_SECTIONS      4096
#define SL_LIMIT_ENDPOINT_BYTES        256 /* an endpoint as text, with its NUL */

/* Checkpoints are numbered from 1 to this: the greatest number that a folder's name can spell, and
 * one that readers of JSON keep exact. */
#define SL_LIMIT_CHECKPOINT_NUMBER     999999999999ULL

/* Up to here a frame's payload is received through the transport's own buffers; a longer one is
 * received straight into memory that the receiver names. */
#define SL_LIMIT_INLINE_PAYLOAD_BYTES  (16U << 10)

/* Credits that a ps reactor grants to one connection in its welcome. */
#define SL_LIMIT_CREDIT_REQUESTS       256
#define SL_LIMIT_CREDIT_BYTES          (16U << 20)

/* Answers of one connection that wait to be sent. Replies are bounded by the credits; a peer whose
 * control messages bring more than this is not reading, or floods: it is closed. */
#define SL_LIMIT_UNSENT_ANSWERS        (SL_LIMIT_CREDIT_REQUESTS + 256)

/* Data that one reactor turn may take from its sources, so that no one starves. */
#define SL_LIMIT_TURN_EVENTS           256
#define SL_LIMIT_TURN_COST             8192 /* keys a shard visits before it lets the loop go round */

/* A turn longer than this is a stall: counted, logged. */
#define SL_LIMIT_TURN_STALL_NS         1000000ULL

#endif
