/* `starling-worker predict`: scores data with a model file, without a cluster. */
#ifndef SL_PROGRAMS_TRAIN_PREDICT_H
#define SL_PROGRAMS_TRAIN_PREDICT_H

/* argv[0] is "predict". Returns the exit status. */
int sl_predict_run(int argc, char **argv);

#endif
