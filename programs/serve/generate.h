/* Makes many models of few: for each name of a list the template whose name the model's name begins
 * with, the longest one, with other weights. So did generate_file.py of PipePS and DistMind. Main
 * thread. */
#ifndef SL_PROGRAMS_SERVE_GENERATE_H
#define SL_PROGRAMS_SERVE_GENERATE_H

/* starling-serve generate; argv[0] is the role. Returns the exit status. */
int sl_serve_generate_run(int argc, char **argv);

#endif
