/* The value of an option of this program with its source, for readers of a running process. */
#ifndef SL_CORE_OPTION_VALUE_H
#define SL_CORE_OPTION_VALUE_H

#include <stdint.h>

struct sl_option_value {
    const char *name;   /* "memory-limit"; without a flag the variable */
    const char *value;  /* "64G"; "": not set; the items of a list are separated by line ends */
    const char *source; /* "default", "flag", "environment STARLING_LEASE", "file job.conf:12" */
};

struct sl_option_values {
    struct sl_option_value *items;
    uint32_t count;
};

#endif
