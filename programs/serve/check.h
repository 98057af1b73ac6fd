/* Tells what starling-serve would serve of an ONNX model, and how far its outputs are from those of
 * the program that has exported it. Main thread. */
#ifndef SL_PROGRAMS_SERVE_CHECK_H
#define SL_PROGRAMS_SERVE_CHECK_H

/* starling-serve check; argv[0] is the role. Returns the exit status. */
int sl_serve_check_run(int argc, char **argv);

#endif
