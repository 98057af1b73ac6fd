/* The engine sl_engine_ctr computes click-through models that starling-worker --publish has
 * published: lr, fm, deepfm (programs/models/model.h). It gives the probabilities that --test uses:
 * a key that the version does not have counts with its initial row, as in training.
 *
 *     keys         u64 [rows, fields]   of the features of an example, in the order of its fields
 *     values       f32 [rows, fields]   finite; 0: the example has no such feature
 *     probability  f32 [rows]
 *
 * fields is that of the note; if the training data leave it open (lr or fm on libsvm files), it is
 * SL_CTR_FIELDS. How a line of training data becomes keys and values:
 *
 * libsvm, libffm   INDEX:VALUE is key INDEX with value VALUE
 * criteo           39 fields with value 1. Field f, from 0, has the key
 *                  h(h(2 f + 1 + empty) ^ h(x)), where empty is 1 for an empty field and else 0; x
 *                  is the class of an integer (sl_reader_criteo_class), the number of 16
 *                  hexadecimal digits, or 0 for an empty field; and h is sl_hash_key */
#ifndef SL_PROGRAMS_SERVE_ENGINE_CTR_H
#define SL_PROGRAMS_SERVE_ENGINE_CTR_H

#include "programs/serve/engine/engine.h"

#define SL_CTR_FIELDS      128
#define SL_CTR_SCRATCH_MAX (1ULL << 30)

#endif
