/* starling-ps: a server, or the scheduler of a job; `starling-ps doctor` checks this host. */
#include <stdio.h>
#include <string.h>

#include "ps/run.h"
#include "tools/doctor/command.h"

#define EXIT_USAGE 2

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "doctor") == 0) {
        return sl_doctor_command(argc - 1, argv + 1);
    }
    if (argc > 1 && argv[1][0] != '-') {
        (void)fprintf(stderr,
                      "starling-ps: unknown command \"%.80s\": accepts doctor, or flags (see "
                      "--help)\n",
                      argv[1]);
        return EXIT_USAGE;
    }
    return sl_ps_run(argc, argv, NULL);
}
