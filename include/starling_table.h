/* What a table is: the specification with which a client opens it. Include starling.h, which
 * includes this. A program zeroes what it does not set. */
#ifndef STARLING_TABLE_H
#define STARLING_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SL_API __attribute__((visibility("default")))
#else
#define SL_API
#endif

/* A struct of zeros with its size: an initializer of C, an expression of C++11 and later. */
#ifdef __cplusplus
#define SL_STRUCT_INIT(type)                                                                       \
    ([] {                                                                                          \
        type init = {};                                                                            \
        init.struct_size = sizeof init;                                                            \
        return init;                                                                               \
    }())
#else
#define SL_STRUCT_INIT(type)                                                                       \
    {                                                                                              \
        .struct_size = sizeof(type)                                                                \
    }
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum sl_optimizer_kind {
    SL_OPTIMIZER_SUM = 0, /* w += g, like the servers of ps-lite */
    SL_OPTIMIZER_SGD = 1,
    SL_OPTIMIZER_MOMENTUM = 2,
    SL_OPTIMIZER_ADAGRAD = 3,
    SL_OPTIMIZER_ADAGRAD_DECAY = 4,
    SL_OPTIMIZER_RMSPROP = 5,
    SL_OPTIMIZER_ADAM = 6,
    SL_OPTIMIZER_ADAMW = 7,
    SL_OPTIMIZER_ADAM_ASYNC = 8,
    SL_OPTIMIZER_FTRL = 9,             /* per coordinate */
    SL_OPTIMIZER_FTRL_GROUP = 10,      /* per row (group) */
    SL_OPTIMIZER_ROWWISE_ADAGRAD = 11, /* one accumulator a row */
    SL_OPTIMIZER_ROWWISE_ADAM = 12,    /* one second moment a row */
    SL_OPTIMIZER_ADADELTA = 13,
    SL_OPTIMIZER_LION = 14,
    SL_OPTIMIZER_LAMB = 15, /* one trust ratio a row */
};
#define SL_OPTIMIZER_KIND_COUNT 16

/* Hyper-parameters. Each optimizer reads the fields that its file ps/optimizer/opt_*.c names and
 * ignores the others. All must be finite. */
struct sl_optimizer_spec {
    enum sl_optimizer_kind kind;
    float lr;           /* learning rate, > 0 */
    float momentum;     /* [0, 1): momentum, RMSProp */
    float rho;          /* [0, 1]: decay of RMSProp and Adadelta; rho of AdagradDecay */
    float beta1, beta2; /* [0, 1): the Adam family, LAMB, Lion */
    float epsilon; /* > 0: the Adam family, LAMB, RMSProp, Adadelta; >= 0: the Adagrad family, where
                    * epsilon and initial_accumulator must not both be 0 */
    float weight_decay;        /* >= 0: AdamW and LAMB, decoupled; others: struct sl_update_spec */
    float initial_accumulator; /* >= 0: the Adagrad family; n of FTRL */
    float l1, l2;              /* >= 0: FTRL */
    float lr_power;            /* <= 0: -q of FTRL; -0.5 is the square root */
    uint32_t decay_steps;      /* > 0: T of AdagradDecay */
    float decay_baseline;      /* > 0: lower bound of AdagradDecay's accumulator */
};

/* Returns the documented defaults of an optimizer. Any thread. */
SL_API struct sl_optimizer_spec sl_optimizer_defaults(enum sl_optimizer_kind kind);

enum sl_decay_kind {
    SL_DECAY_NONE = 0,
    SL_DECAY_L2 = 1,        /* g += weight_decay * w */
    SL_DECAY_DECOUPLED = 2, /* w *= 1 - lr * weight_decay, before the optimizer */
};
#define SL_DECAY_KIND_COUNT 3

/* What an update of a row does beside the optimizer's formula. In a dense table the row is a block
 * of 1024 elements, or the part of it that a push names. Zeros: nothing. A push first adds the
 * gradients of equal keys; then come clip_norm, decay, the optimizer and value_bound, in this
 * order. */
struct sl_update_spec {
    enum sl_decay_kind decay; /* NONE for SUM, and for FTRL, AdamW and LAMB, which have their own */
    float clip_norm;          /* > 0: a longer gradient is scaled to this Euclidean norm */
    float value_bound;        /* > 0: values are held in [-value_bound, value_bound]; NaN stays */
};

enum sl_initializer_kind {
    SL_INITIALIZER_ZEROS = 0,
    SL_INITIALIZER_CONSTANT = 1,         /* value */
    SL_INITIALIZER_UNIFORM = 2,          /* [low, high), low < high */
    SL_INITIALIZER_NORMAL = 3,           /* stddev >= 0; |mean| + 9 stddev is finite */
    SL_INITIALIZER_TRUNCATED_NORMAL = 4, /* the same, redrawn beyond two standard deviations */
};
#define SL_INITIALIZER_KIND_COUNT 5

/* Initial values of a row: a pure function of (seed, key, column). They do not depend on the number
 * of shards or on the order of requests. */
struct sl_initializer_spec {
    enum sl_initializer_kind kind;
    union {
        float value; /* constant */
        float low;   /* uniform */
        float mean;  /* normal, truncated normal */
    };
    union {
        float high;   /* uniform */
        float stddev; /* normal, truncated normal */
    };
    uint64_t seed;
};

enum sl_consistency_mode {
    SL_CONSISTENCY_ASP = 0, /* pulls never wait */
    SL_CONSISTENCY_BSP = 1, /* pulls of iteration c see exactly the pushes of earlier iterations */
    SL_CONSISTENCY_SSP = 2, /* pulls of iteration c wait until all workers ticked c - staleness */
};
#define SL_CONSISTENCY_MODE_COUNT 3

struct sl_consistency_spec {
    enum sl_consistency_mode mode;
    uint32_t staleness;    /* iterations; SSP only, else 0 */
    uint32_t worker_count; /* workers whose clocks count: tasks 0 to worker_count - 1; 0 for ASP */
};

enum sl_policy_order {
    SL_POLICY_NONE = 0, /* no row goes to make room: beyond the limits, new rows get NO_MEMORY */
    SL_POLICY_LRU = 1,  /* first the row whose last push is longest ago */
    SL_POLICY_LFU = 2,  /* first the row with the fewest pushes; see half_life_steps */
    SL_POLICY_L2 = 3,   /* first the row with the least Euclidean norm */
};
#define SL_POLICY_ORDER_COUNT 4

/* Which keys of pushes get a row. The gradient of another key is dropped and counted
 * (struct sl_table_stats), and a pull reads its initial row. */
enum sl_admission_kind {
    SL_ADMISSION_COUNT = 0,       /* from its push number admit_count on; 0 and 1: at once */
    SL_ADMISSION_PROBABILITY = 1, /* each push with the chance admit_probability */
    SL_ADMISSION_BLOOM = 2,       /* as COUNT, by counters that keys share */
};
#define SL_ADMISSION_KIND_COUNT 3

#define SL_POLICY_SLOTS_MAX     256

/* Thresholds of keys of one slot; 0: as for the other keys. */
struct sl_policy_slot {
    uint32_t ttl_steps, admit_count;
};

/* Which rows of a sparse table its servers forget, while they serve, and which keys get a row.
 * Zeros: none, and all. A row that is
 * forgotten reads as its initial row; its next push creates it again. A step is a push or an assign
 * of the table at a shard (struct sl_table_stats); the age of a row is the number of steps since
 * its last one. Rows are judged one after the other: each at the latest a quarter of ttl_steps, or
 * of protect_steps, after it was due. The order is approximate: rows go that come before three
 * quarters of a sample. */
struct sl_policy_spec {
    uint32_t ttl_steps;     /* rows of at least this age go; 0: at no age */
    uint32_t protect_steps; /* rows of a lower age stay, whatever the rest says */
    uint32_t count_below;   /* rows with fewer pushes go; 0: none. Needs protect_steps. */
    float l2_below;         /* rows with a lower Euclidean norm go; 0: none. Needs protect_steps. */
    /* Most rows of the table, in equal parts for its shards. Rows beyond it go soon after the push
     * that created them, in this order. 0: no limit. Needs an order. */
    uint64_t rows_max;
    /* With an order, rows also go when a shard's tables have 92 % of its part of the servers'
     * memory limit, so that new rows always find room. */
    enum sl_policy_order order;
    uint32_t half_life_steps; /* LFU: pushes count half for each such age of the row; 0: always */
    /* A key waits until it was pushed so often: each time that it occurs in a push counts. Waiting
     * keys take some 32 bytes each, and go before rows where memory is short. An assign creates its
     * rows at once. Not with BSP. BLOOM counts up to 15 in a counting Bloom filter, which keeps no
     * keys: 4.8 bytes for each of keys_expected, with 0.01, allocated when the table is opened. */
    enum sl_admission_kind admission;
    uint32_t admit_count;
    /* COUNT: waiting keys not pushed for so many steps count anew. BLOOM: all counts are halved
     * each time that so many steps are over. 0: never. */
    uint32_t admit_age_steps;
    float admit_probability; /* PROBABILITY: above 0, up to 1; else 0. Decided by the key, the
                              * table's step and the initializer's seed */
    /* Rows go so many seconds after their last push, or up to a third and some seconds later; 0:
     * never. Not with BSP. A restored table, and a backup that took over, count from then on. */
    uint32_t ttl_seconds;
    /* Own thresholds for features that share the table: slot_bits bits of a key from bit slot_shift
     * on, 1 to 8 bits, are its slot; slots from slot_count on have none. 0, 0, 0: no slots. */
    uint32_t slot_shift, slot_bits, slot_count;
    struct sl_policy_slot slots[SL_POLICY_SLOTS_MAX];
    /* BLOOM; else 0: how many keys of all shards are counted, 1 to 2^33, and which share of other
     * keys is then counted too high, 0.000001 to 0.5; 0: 0.01. No key is counted too low. */
    uint64_t keys_expected;
    float false_positives;
};

enum sl_table_kind {
    SL_TABLE_SPARSE = 0, /* u64 key -> row of dim f32 */
    SL_TABLE_DENSE = 1,  /* one array of length f32, sharded by contiguous blocks */
    SL_TABLE_KV = 2,     /* u64 key -> array of values, sharded by key ranges, as in ps-lite */
};
#define SL_TABLE_KIND_COUNT 3

/* How values are stored in a table, or sent. */
enum sl_precision {
    SL_PRECISION_F32 = 0,
    SL_PRECISION_F16 = 1,  /* IEEE 754 binary16: 11 bits of precision, 6.1e-5 to 65504 */
    SL_PRECISION_BF16 = 2, /* the upper half of an f32: 8 bits of precision, the range of f32 */
    SL_PRECISION_INT8 = 3, /* a byte for each value, and a scale for the row: 7 bits of
                            * precision for its largest value */
};
#define SL_PRECISION_COUNT  4

#define SL_TABLE_NAME_BYTES 64 /* includes the terminating NUL */

struct sl_table_spec {
    size_t struct_size;             /* SL_TABLE_SPEC_INIT sets it */
    char name[SL_TABLE_NAME_BYTES]; /* 1 to 63 bytes of printable ASCII without spaces */
    enum sl_table_kind kind;
    uint32_t dim; /* sparse: columns of a row, 1 to 4096; dense: 0; KV: bytes of a value: 4 (f32) or
                   * 2 (F16, BF16), to which pushes are added, or 1 (byte, pushes overwrite) */
    uint64_t length; /* dense: elements, 1 to 2^36; else 0 */
    struct sl_optimizer_spec optimizer;
    struct sl_initializer_spec initializer; /* dense: the key is the element index; KV: zeros */
    struct sl_consistency_spec consistency; /* KV: ASP, and optimizer SUM */
    /* A step with a push or an assign of NaN or infinite values to the table fails with INVALID,
     * names the first such key or element, and changes nothing. KV: false. */
    bool reject_nonfinite;
    struct sl_policy_spec policy; /* sparse, with ASP or SSP; else zeros */
    struct sl_update_spec update; /* KV: zeros */
    /* How the servers store a sparse table: its values, and its optimizer's slots (not INT8; slots
     * of which there is one a row, as that of ROWWISE_ADAGRAD, are f32 always). Each update widens
     * the row to f32 and rounds the result randomly, up or down so that the expected value is
     * exact, by a hash of key, column and count of visits. Calls and messages have f32 all the
     * same, unless an encoding is set. Dense: F32, F32. KV: F32; F16 and BF16 with dim 2, which add
     * up as such. */
    enum sl_precision values, slots;
};
#define SL_TABLE_SPEC_INIT SL_STRUCT_INIT(struct sl_table_spec)

/* Statistics of a table: sums over its shards, but for `steps`. All members of a shard are of one
 * moment. A restored table, and a shard at a backup that took over, begin anew to count what the
 * policy and the admission did; there, rows evicted before count as erased. */
struct sl_table_info {
    size_t struct_size;                                    /* SL_TABLE_INFO_INIT sets it */
    uint64_t rows, bytes, pulled_rows, pushed_rows, steps; /* as in struct sl_table_stats */
    /* Rows that the policy has let go: for their age, their count, their norm, and to make room. */
    uint64_t evicted_ttl, evicted_count, evicted_l2, evicted_room;
    /* Rows that came, also from a checkpoint, and rows that were erased: rows_created is rows,
     * rows_erased and what the policy has let go together. */
    uint64_t rows_created, rows_erased;
    /* Admission: keys that got their row later than with their first push, pushes of keys that got
     * none, and keys that wait. */
    uint64_t admitted, refused, waiting;
    /* Parts of `bytes`: records of rows, also unused ones; the index; what admission remembers. */
    uint64_t bytes_rows, bytes_index, bytes_admission;
};
#define SL_TABLE_INFO_INIT SL_STRUCT_INIT(struct sl_table_info)

struct sl_client;
struct sl_table;

/* Asks all shards for a table's statistics. *out needs its struct_size. A BSP push counts when it
 * is applied. A server of an earlier release leaves newer counts at 0. Errors: INVALID
 * (struct_size), DEADLINE and CLOSED (a shard does not answer), NO_MEMORY. Any thread; blocks. */
SL_API int sl_client_table_info(struct sl_client *client, struct sl_table *table,
                                uint32_t timeout_ms, struct sl_table_info *out);

/* Calls `each` for each table of the job, in the order in which they were opened first, on this
 * thread, with ctx. *spec is valid during the call. Errors: VERSION (an older coordinator),
 * DEADLINE, CLOSED. Any thread; blocks. */
typedef void sl_table_visit_fn(void *ctx, const struct sl_table_spec *spec);
SL_API int sl_client_tables(struct sl_client *client, uint32_t timeout_ms, sl_table_visit_fn *each,
                            void *ctx);

/* Opens an existing table with the specification that it has. Errors: NOT_FOUND, and those of
 * sl_client_table_open. Any thread; blocks. */
SL_API int sl_client_table_open_by_name(struct sl_client *client, const char *name,
                                        uint32_t timeout_ms, struct sl_table **out);

/* Copies the specification of an open table to *out, which needs its struct_size. Errors: INVALID.
 * Any thread. */
SL_API int sl_table_spec_get(const struct sl_table *table, struct sl_table_spec *out);

/* For a tool, before it changes tables by hand: leaves the event `operation` at the coordinator,
 * with the name of the client and the text. Errors: REFUSED (the servers have an operator's secret,
 * and the client another one: SL_CLIENT_OPERATOR), VERSION, DEADLINE, CLOSED. Any
 * thread; blocks. */
SL_API int sl_client_operate(struct sl_client *client, const char *what, uint32_t timeout_ms);

/* Returns HOST:PORT of the coordinator's HTTP server as of the client's start; "": it has none.
 * Valid until destroy. Any thread. */
SL_API const char *sl_client_coordinator_http(const struct sl_client *client);

#ifdef __cplusplus
}
#endif

#endif
