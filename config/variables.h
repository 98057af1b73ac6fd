/* The table of all environment variables that the programs read, but for Slurm's. A launcher passes
 * the variables of the job on to every process, whatever way leads to its host; tests/tidy.py
 * checks that the source reads no variable that is missing here. Any thread. */
#ifndef SL_CONFIG_VARIABLES_H
#define SL_CONFIG_VARIABLES_H

#include <stdint.h>

enum sl_variable_scope {
    SL_VARIABLE_OF_JOB,     /* the same for all processes: passed on */
    SL_VARIABLE_OF_PROCESS, /* names one process, its devices, or another way to start a job */
};

struct sl_variable {
    const char *name;
    enum sl_variable_scope scope;
};

/* *count: how many there are. Static. */
const struct sl_variable *sl_variables_all(uint32_t *count);

#endif
