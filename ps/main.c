/* starling-ps: a server, or the scheduler of a job; `starling-ps doctor` checks this host;
 * `starling-ps agent` shares objects with the processes of this host. */
#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "programs/doctor/command.h"
#include "ps/publish/ps_objects.h"
#include "ps/run.h"

#define EXIT_USAGE   2
#define EXIT_NO_EXEC 127

/* Becomes `starling-objects serve --agent` of the same installation, else of the PATH. argv[0] is
 * "agent". */
static int become_agent(int argc, char **argv)
{
    char self[4096], path[sizeof self + 32];
    const ssize_t bytes = readlink("/proc/self/exe", self, sizeof self - 1);
    char **words = calloc((size_t)argc + 3, sizeof *words);
    if (words == NULL) {
        return EXIT_NO_EXEC;
    }
    self[bytes > 0 ? bytes : 0] = '\0';
    (void)snprintf(path, sizeof path, "%s/starling-objects", dirname(self));
    words[0] = (char *)"starling-objects";
    words[1] = (char *)"serve";
    words[2] = (char *)"--agent";
    memcpy(words + 3, argv + 1, ((size_t)argc - 1) * sizeof *words);
    (void)execv(path, words);
    (void)execvp(words[0], words);
    (void)fprintf(stderr, "starling-ps agent: cannot run %s: %s\n", path, strerror(errno));
    free(words);
    return EXIT_NO_EXEC;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "doctor") == 0) {
        return sl_doctor_command(argc - 1, argv + 1);
    }
    if (argc > 1 && strcmp(argv[1], "agent") == 0) {
        return become_agent(argc - 1, argv + 1);
    }
    if (argc > 1 && argv[1][0] != '-') {
        (void)fprintf(stderr,
                      "starling-ps: unknown command \"%.80s\": accepts doctor, agent, or flags "
                      "(see --help)\n",
                      argv[1]);
        return EXIT_USAGE;
    }
    return sl_ps_run(
        &(struct sl_ps_run_options){.argc = argc, .argv = argv, .extend = sl_ps_objects_extend});
}
