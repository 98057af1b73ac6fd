/* The example of Mooncake's P2P store, with its flags and output: a trainer publishes one object
 * from its memory, inferencers get it and serve it to each other. Before threads start. */
#ifndef SL_PROGRAMS_OBJECTS_EXAMPLE_H
#define SL_PROGRAMS_OBJECTS_EXAMPLE_H

/* argv[0]: the name for messages. Returns the exit status. */
int sl_example_run(int argc, char **argv);

#endif
