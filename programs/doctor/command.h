/* The command line `starling-ps doctor`. */
#ifndef SL_PROGRAMS_DOCTOR_COMMAND_H
#define SL_PROGRAMS_DOCTOR_COMMAND_H

/* Checks this host and prints the findings. argv[0]: "doctor". Returns the exit status: 0 if the
 * transports that must work do, 1 if not, 2 for an invalid flag or variable. Main thread. */
int sl_doctor_command(int argc, char **argv);

#endif
