/* `starling-worker generate`: writes a click log in Criteo's format, whose labels come from a known
 * model (programs/train/synthetic.h), and the AUC of that model. */
#ifndef SL_PROGRAMS_TRAIN_GENERATE_H
#define SL_PROGRAMS_TRAIN_GENERATE_H

/* Parses the flags that follow argv[0], "generate". Returns the program's exit status: 0; 1 when a
 * file could not be written; 2 for wrong flags. */
int sl_generate_run(int argc, char **argv);

#endif
