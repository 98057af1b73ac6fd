/* What must be true of a cluster, whatever befalls it, and a book of all that its clients did, to
 * check it against. A push is booked as units, one for each shard that it touches: the unit's two
 * witness keys, which nobody else pushes, get 1, and keys shared by all get integers. So a later
 * pull tells which units were carried out, and the shared keys must be the sum of those.
 *
 * A breach is recorded once, as text; the run then ends. One thread. Allocates. */
#ifndef SL_TESTS_SIM_ORACLE_H
#define SL_TESTS_SIM_ORACLE_H

#include <stdbool.h>
#include <stdint.h>

#include <starling.h>

#include "tests/sim/world.h"

#define SL_SIM_NO_UNIT  UINT32_MAX
#define SL_SIM_ASSIGNED 9 /* in tables whose rows shrink: -9 */
#define SL_SIM_BAIT     2 /* of a unit's own keys, behind its witnesses */
#define SL_SIM_OWN_KEYS 3

struct sl_shard;
struct sl_sim_windows;

/* One client's life, from its start to its end. */
struct sl_sim_instance {
    uint32_t task;
    bool has_clock; /* a worker; else a client, whose task means nothing */
    uint64_t client_id;
    bool counts;          /* certain: from when it has started until it may be believed lost */
    bool tainted;         /* it may have been believed lost while it lived */
    bool replaces;        /* an earlier process of its task */
    bool forgotten;       /* a ps restored a checkpoint that may not know it */
    uint64_t started_ns;  /* all shards have its clock since then; SL_CLOCK_NEVER: not yet */
    uint32_t first_clock; /* it began with */
    uint32_t ticks;       /* iterations whose tick was submitted; of a start at 0 */
    uint32_t ticks_acked; /* and carried out on every shard */
    bool finish_acked;
    bool killed;           /* without a goodbye */
    bool is_gone;          /* so, or it is about to say goodbye */
    uint32_t disturbances; /* of its connections: a replay is possible after one */
};

/* What crashes of its ps have left of a unit. */
enum sl_sim_fate {
    SL_SIM_FATE_SURE, /* nothing befell it: it is there if it was acknowledged */
    SL_SIM_FATE_OPEN, /* it may be there or not */
    SL_SIM_FATE_GONE  /* what its shard began anew from cannot hold it */
};

struct sl_sim_unit {
    uint32_t table, shard, instance, clock;
    uint64_t witness[2];             /* keys, or elements of a dense table */
    uint64_t bait;                   /* sparse: another key of this push only, to be erased later */
    uint32_t eraser;                 /* the unit whose step erases it; SL_SIM_NO_UNIT: none */
    bool is_assigned;                /* instead, that step assigns SL_SIM_ASSIGNED to it */
    uint32_t part_first, part_count; /* what it adds to shared keys */
    uint64_t begun_ns;
    uint64_t ended_ns;  /* SL_CLOCK_NEVER: in flight */
    uint64_t ticked_ns; /* its iteration was, which was acknowledged */
    enum sl_sim_fate fate;
    uint64_t request_id; /* that it went in, of its client's to the shard; 0: not known */
    uint32_t section;    /* of that request */
    bool
        unanswered; /* when its ps crashed last, it was in flight, and nothing had been sent back */
    uint32_t epoch_begun, epoch_ended; /* of its shard */
    bool acked;
    int8_t seen; /* in the end: 0 or 1; -1: not looked at yet, or evicted */
    struct {
        uint64_t at_ns; /* 0: it was not */
        bool is_sure;   /* for good; else what came later may have undone it */
    } evicted[SL_SIM_OWN_KEYS];
};

struct sl_sim_part {
    uint32_t shared; /* which of the table's shared keys */
    int32_t gradient;
};

struct sl_sim_table {
    struct sl_table_spec spec;
    uint32_t id;      /* it was given */
    uint32_t sign;    /* 1: rows grow by what is pushed; 0: they shrink */
    uint64_t *shared; /* keys or elements */
    uint32_t *shared_shard;
    bool *shared_evicted; /* once at least */
    uint32_t shared_count;
    uint64_t ghost;        /* sparse: a key that nobody pushes */
    uint64_t witness_next; /* sparse: where to look for the next witness key */
    uint32_t *slots_used;  /* dense: of each range's witness elements */
};

/* A pull's view of a unit, judged at the end. */
struct sl_sim_sight {
    uint32_t unit;
    uint32_t look;
    bool seen[2];
};

struct sl_sim_look {
    uint32_t instance, table, clock;
    bool undisturbed; /* its connections were whole: no replay */
    uint64_t begun_ns;
};

/* One shard's part of a checkpoint. */
struct sl_sim_checkpoint {
    uint32_t shard;
    uint64_t number;
    uint64_t begun_ns; /* it holds what was acknowledged before */
    uint64_t cut_ns;   /* and nothing that began later; SL_CLOCK_NEVER: it has not all files */
};

/* What has become of a shard. */
struct sl_sim_oracle_shard {
    uint32_t epoch;       /* how often it has begun anew, after it was lost */
    uint32_t primaries;   /* bit k: ps/k has been its primary */
    uint64_t restored_ns; /* when it began last */
    uint64_t doubled_ns;  /* when two had it last */
    uint64_t moved_ns;    /* when it went to another ps last */
};

struct sl_sim_oracle {
    const struct sl_sim_plan *plan;
    uint64_t random;
    struct sl_sim_world *world;
    struct sl_sim_table tables[SL_SIM_TABLES_MAX];
    struct sl_sim_instance *instances;
    uint32_t instance_count, instance_capacity;
    struct sl_sim_unit *units;
    uint32_t unit_count, unit_capacity;
    struct sl_sim_part *parts;
    uint32_t part_count, part_capacity;
    struct sl_sim_look *looks;
    uint32_t look_count, look_capacity;
    struct sl_sim_sight *sights;
    uint32_t sight_count, sight_capacity;
    struct sl_sim_checkpoint *checkpoints;
    uint32_t checkpoint_count, checkpoint_capacity;
    bool is_elsewhere; /* what is on the disks is booked by another one */
    bool was_damaged;  /* a file on some disk */
    bool forgot;       /* the coordinator began anew: it does not know which workers are gone */
    bool has_crashed;  /* a ps without backups */
    uint64_t complete; /* the greatest number of one that every ps has; 0: none yet */
    uint32_t complete_count;
    struct sl_sim_oracle_shard *shards; /* [shard_count] */
    uint64_t *replied_ns;               /* [ps_count][hosts] when a reply was sent there last */
    uint32_t *task_instance;            /* [tasks_max] the newest instance of each */
    void (*acknowledged)(struct sl_sim_oracle *oracle,
                         const struct sl_sim_unit *unit); /* may be NULL */
    struct sl_sim_breach breach;                          /* of "exactly-once", "staleness", … */
};

void sl_sim_oracle_init(struct sl_sim_oracle *oracle, const struct sl_sim_plan *plan,
                        struct sl_sim_world *world);
void sl_sim_oracle_fini(struct sl_sim_oracle *oracle);

uint32_t sl_sim_oracle_instance(struct sl_sim_oracle *oracle, uint32_t task, bool has_clock);
void sl_sim_oracle_started(struct sl_sim_oracle *oracle, uint32_t instance, uint32_t clock);
void sl_sim_oracle_gone(struct sl_sim_oracle *oracle, uint32_t instance);

/* The coordinator takes the worker for lost. Over a shared link it has no reason to. */
void sl_sim_oracle_lost(struct sl_sim_oracle *oracle, uint32_t task);
void sl_sim_oracle_taint(struct sl_sim_oracle *oracle, uint32_t instance);

/* A push to one shard is about to be submitted: books it, and gives its witnesses. NO_UNIT: the
 * table has no witnesses left. */
uint32_t sl_sim_oracle_push(struct sl_sim_oracle *oracle, uint32_t table, uint32_t shard,
                            uint32_t instance, uint32_t clock);

/* A key of that shard that no one else pushes. */
uint64_t sl_sim_oracle_key(struct sl_sim_oracle *oracle, uint32_t table, uint32_t shard);

/* Chooses an acknowledged unit like this one whose bait the same step erases. NO_UNIT: none. */
uint32_t sl_sim_oracle_erases(struct sl_sim_oracle *oracle, uint32_t unit);

/* True: the bait of a unit must be gone, since an erase was acknowledged before that time. */
bool sl_sim_oracle_is_erased(const struct sl_sim_oracle *oracle, const struct sl_sim_unit *unit,
                             uint64_t before_ns);

/* It adds `gradient` to that shared key of the table. */
void sl_sim_oracle_adds(struct sl_sim_oracle *oracle, uint32_t unit, uint32_t shared,
                        int32_t gradient);

void sl_sim_oracle_pushed(struct sl_sim_oracle *oracle, uint32_t unit, bool acked);

/* A pull of that clock has ended well: was it admitted in order? */
void sl_sim_oracle_pulled(struct sl_sim_oracle *oracle, uint32_t instance, uint32_t table,
                          uint32_t clock);

/* And what it saw of units. begun_ns: when it was submitted. */
uint32_t sl_sim_oracle_look(struct sl_sim_oracle *oracle, uint32_t instance, uint32_t table,
                            uint32_t clock, bool undisturbed, uint64_t begun_ns);
void sl_sim_oracle_saw(struct sl_sim_oracle *oracle, uint32_t look, uint32_t unit, float first,
                       float second);

/* The iteration's tick was acknowledged. */
void sl_sim_oracle_ticked(struct sl_sim_oracle *oracle, uint32_t instance, uint32_t clock);

/* A reply leaves the ps for that host. */
void sl_sim_oracle_replies(struct sl_sim_oracle *oracle, uint32_t ps, uint32_t host);

/* The shard is about to be cut; all have their files; all ps have the manifest too. */
void sl_sim_oracle_checkpoint_begins(struct sl_sim_oracle *oracle, uint32_t shard, uint64_t number);
void sl_sim_oracle_checkpoint_written(struct sl_sim_oracle *oracle, uint32_t shard,
                                      uint64_t number);
void sl_sim_oracle_complete(struct sl_sim_oracle *oracle, uint64_t number);

/* A ps has looked at its disk, on which somebody may have damaged a file: that is the newest. */
void sl_sim_oracle_finds(struct sl_sim_oracle *oracle, uint32_t ps, uint64_t number, bool damaged);

/* The job began from an older one than those above and up to `to`. */
void sl_sim_oracle_abandons(struct sl_sim_oracle *oracle, uint64_t above, uint64_t to);

/* A ps has joined as the primary of the shard, which begins with nothing but this checkpoint; 0:
 * with nothing. If it has begun before, those who had it are gone. */
void sl_sim_oracle_begins(struct sl_sim_oracle *oracle, uint32_t shard, uint32_t ps,
                          uint64_t number);

/* A new one, zero. */
struct sl_sim_checkpoint *sl_sim_oracle_add_checkpoint(struct sl_sim_oracle *oracle);

/* Somebody's shards, as they were restored: with what they have of one push they have all of it,
 * and rows, slots and visits are those pushes' sums. What was acknowledged before that time is
 * there, and nothing that a crash has taken. Of each push the windows, which are of the same
 * moment, know whether it is there; NULL: there are none. */
void sl_sim_oracle_rows(struct sl_sim_oracle *oracle, const char *who,
                        struct sl_shard *const *shards, uint32_t shard_count, uint64_t before_ns,
                        const struct sl_sim_windows *windows);

/* The checkpoint; NULL: it is not known. */
struct sl_sim_checkpoint *sl_sim_oracle_find_checkpoint(struct sl_sim_oracle *oracle,
                                                        uint32_t shard, uint64_t number);

/* oracle_evictions.c. A row of the table has gone; sure: no other process has taken over before. */
void sl_sim_oracle_evicted(struct sl_sim_oracle *oracle, uint32_t table, uint32_t shard,
                           uint64_t key, bool is_sure);

/* The shard goes on from a state that may lack the last evictions. */
void sl_sim_oracle_undoes_evictions(struct sl_sim_oracle *oracle, uint32_t shard);

/* Rows of the table may go. */
bool sl_sim_oracle_forgets_rows(const struct sl_sim_oracle *oracle, uint32_t table);

/* That key of the unit was evicted: it may not be there; it is not there since before that time. */
bool sl_sim_oracle_may_lack(const struct sl_sim_unit *unit, uint32_t which);
bool sl_sim_oracle_must_lack(const struct sl_sim_unit *unit, uint32_t which, uint64_t before_ns);

/* A breach if the value is not 0, although the key was evicted before that time. */
void sl_sim_oracle_check_evicted(struct sl_sim_oracle *oracle, const struct sl_sim_unit *unit,
                                 uint32_t which, float value, uint64_t before_ns, const char *who);

/* Everything has ended and was healed; the unit's witnesses are these. */
void sl_sim_oracle_final(struct sl_sim_oracle *oracle, uint32_t unit, float first, float second);

/* And its bait is this. */
void sl_sim_oracle_final_bait(struct sl_sim_oracle *oracle, uint32_t unit, float value);

/* The shared key is this. Once all units are final. found: of a find; NULL: of a pull. */
void sl_sim_oracle_sum(struct sl_sim_oracle *oracle, uint32_t table, uint32_t shared, float value,
                       const uint8_t *found);

/* Judges the rest: groups, and what pulls saw. */
void sl_sim_oracle_judge(struct sl_sim_oracle *oracle);

#endif
