/* Table of all environment variables that the programs read, except Slurm's. A launcher passes the
 * job's variables to every process, over ssh and Slurm alike. tests/tidy.py rejects variables that
 * are missing here. Any thread. */
#ifndef SL_CONFIG_VARIABLES_H
#define SL_CONFIG_VARIABLES_H

#include <stdint.h>

enum sl_variable_scope {
    SL_VARIABLE_OF_JOB, /* same for all processes: passed on */
    /* Specific to one process or its devices, or another way to start a job. */
    SL_VARIABLE_OF_PROCESS,
};

struct sl_variable {
    const char *name;
    enum sl_variable_scope scope;
};

/* Returns a static array of *count variables. */
const struct sl_variable *sl_variables_all(uint32_t *count);

#endif
