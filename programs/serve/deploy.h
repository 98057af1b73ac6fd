/* Publishes ONNX models as objects that workers serve. The image of a model is the tensor ".graph",
 * the model without its weights, then the weights in the order in which nodes read them, a group a
 * node. All models are checked, by the engine that will run them, before the first is published.
 * Main thread. */
#ifndef SL_PROGRAMS_SERVE_DEPLOY_H
#define SL_PROGRAMS_SERVE_DEPLOY_H

/* starling-serve deploy; argv[0] is the role. Returns the exit status. */
int sl_serve_deploy_run(int argc, char **argv);

/* starling-serve rollback: removes the newest versions of a model. */
int sl_serve_rollback_run(int argc, char **argv);

#endif
