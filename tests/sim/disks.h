/* The disk of a ps host: it outlives the process, and has what the plan says of faults: operations
 * that fail, a disk that is full for a while, a machine that stops between two operations, bits
 * that are another the next time. One thread. */
#ifndef SL_TESTS_SIM_DISKS_H
#define SL_TESTS_SIM_DISKS_H

#include "core/clock.h"
#include "tests/support/memory_disk.h"

#define SL_SIM_DISK_FOLDER           "/c"
#define SL_SIM_CHECKPOINT_TIMEOUT_NS (5 * SL_CLOCK_NS_PER_S)

struct sl_sim_disk_plan {
    bool is_there;
    uint64_t every_ns; /* from one checkpoint to the next */
    uint32_t adds, keep, level;
    uint32_t cut_keys;       /* of a turn that continues a snapshot; 0: as in the product */
    bool falls_back;         /* a ps does at once; else when it has failed once */
    uint32_t slow_us_max;    /* a job waits so long, at most */
    uint32_t fail_every;     /* operations between two that fail, at most; 0: none does */
    uint32_t stop_every;     /* likewise, of crashes */
    uint32_t full_permille;  /* of turns after which it is full, or is not any more; 0: never is */
    uint32_t flip_permille;  /* of starts, before which a bit is another */
    uint32_t crash_permille; /* of ends of a process with which the machine goes down too */
};

struct sl_sim_disk {
    struct sl_sim_disk_plan plan;
    struct memory_disk memory;
    uint64_t random;
    bool is_calm;      /* no more faults */
    uint32_t failures; /* starts in a row that have failed */
    bool was_damaged;
    bool is_shared; /* by all ps; it has no part in what befalls them */
};

void sl_sim_disk_init(struct sl_sim_disk *disk, const struct sl_sim_disk_plan *plan, uint64_t seed);
void sl_sim_disk_fini(struct sl_sim_disk *disk);

/* After each turn of its process. True: the process has crashed, between two operations. */
bool sl_sim_disk_look(struct sl_sim_disk *disk);

/* Its process has ended; the machine with it, or not. */
void sl_sim_disk_crashed(struct sl_sim_disk *disk, bool machine);

/* A process is about to start. */
void sl_sim_disk_start(struct sl_sim_disk *disk);

/* The process could not begin. What trying again may help is not counted. */
void sl_sim_disk_failed(struct sl_sim_disk *disk, int err);

/* What who starts it asks for: to go round damage, and to begin with nothing, where nothing else
 * helps. */
bool sl_sim_disk_falls_back(const struct sl_sim_disk *disk);
bool sl_sim_disk_restores(const struct sl_sim_disk *disk);

/* It is damaged, and its process cannot even begin with nothing. */
bool sl_sim_disk_is_hopeless(const struct sl_sim_disk *disk);

/* The next process is to begin with nothing, whatever is there. */
void sl_sim_disk_give_up(struct sl_sim_disk *disk);

/* Somebody looks at it who is none of its processes: no operation of his fails or counts. */
struct sl_sim_disk_troubles {
    uint64_t operations, fail_at, stop_at;
};
void sl_sim_disk_spare(struct sl_sim_disk *disk, struct sl_sim_disk_troubles *out);
void sl_sim_disk_go_on(struct sl_sim_disk *disk, const struct sl_sim_disk_troubles *troubles);

/* No more faults from now on; what is damaged stays so. */
void sl_sim_disk_calm(struct sl_sim_disk *disk);

/* A damaged file of that checkpoint; NULL: there is none. */
const char *sl_sim_disk_damage(struct sl_sim_disk *disk, uint64_t number);

#endif
