/* The conformance suite's shared memory targets: one program each. */
#ifndef TESTS_CONFORMANCE_SHM_H
#define TESTS_CONFORMANCE_SHM_H

#include "conformance.h"

/* Runs the suite; the result is the program's exit status. */
int shm_run(const char *name, bool polling);

#endif
