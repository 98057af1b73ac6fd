/* A client that stands in for the library's where it is linked before it: keeps the milestones,
 * answers every pull with one value, records every step and barrier, and fails where it is told to.
 * One test at a time. */
#ifndef SL_TESTS_UNIT_PROGRAMS_TRAIN_STAND_IN_H
#define SL_TESTS_UNIT_PROGRAMS_TRAIN_STAND_IN_H

#include <signal.h>
#include <starling.h>

#include "programs/models/model.h"

enum { STEPS_MAX = 64, OPERATIONS_MAX = 8, BARRIERS_MAX = 16 };

struct seen_step {
    uint32_t clock;
    bool pushes, pulls, ticks, finishes, waited;
    float rate; /* 0: not set */
};

struct train_stand_in {
    struct seen_step steps[STEPS_MAX];
    uint32_t step_count;
    uint32_t fail_at; /* the step whose wait fails; STEPS_MAX: none */
    uint32_t stop_at; /* the step whose submission raises *stop; STEPS_MAX: none */
    float pulled;     /* the value of every parameter that is pulled */
    uint32_t outstanding, outstanding_most;
    uint32_t begin;                     /* sl_client_clock */
    const char *barriers[BARRIERS_MAX]; /* names, in order */
    uint32_t barrier_count;
    int32_t values_lost;    /* the task of a ps; -1: none */
    uint32_t signal_at;     /* the barrier during which a signal comes; BARRIERS_MAX: none */
    uint32_t late_at;       /* the barrier to which not all come; BARRIERS_MAX: none */
    uint32_t reached_at[4]; /* barriers after which another reaches the milestone */
    float milestones[16];
    struct sl_table_spec specs[SL_MODEL_TABLES + 1];
    struct sl_encoding_options encodings[SL_MODEL_TABLES + 1]; /* zeros: not set */
    uint32_t table_count;
    enum sl_precision values, slots, encoding; /* of the trainer's options */
    float lr;         /* that the tables of the models have; 0: the one that is asked for */
    bool is_lr_given; /* of the trainer's options */
    bool is_restored;
    /* Of the trainer's options: */
    double test_every;
    uint32_t patience;
    bool saves;
    const char *save_path; /* of the report; NULL: none */
    int save_result;       /* of the function that saves */
    uint32_t save_count;
    /* Of a scan of any table: rows of keys 5 and 2^63, in two batches. */
    uint32_t scans_that_fail; /* the first ones, behind their first batch, with CLOSED */
    uint32_t scan_count;
};

extern struct train_stand_in fake;

/* Of the trainer under test. */
extern volatile sig_atomic_t stop;
extern volatile sig_atomic_t waiting;

struct sl_client {
    int unused;
};

/* Without steps, barriers and faults. */
void train_stand_in_reset(void);

#endif
