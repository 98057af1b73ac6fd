/* The command line of starling-worker. Part of the program, not of a library. Called once, before
 * start. */
#ifndef SL_PROGRAMS_TRAIN_FLAGS_H
#define SL_PROGRAMS_TRAIN_FLAGS_H

#include "config/settings.h"
#include "core/reason.h"
#include "programs/train/reader.h"
#include "programs/train/trainer.h"

/* Strings point into argv or static storage. */
struct sl_flags {
    struct sl_settings settings;   /* resolved */
    struct sl_cli_list data, test; /* may be empty */
    const struct sl_reader_format *format;
    /* Of flags only: model, shape (`fields` 0: not given), optimizer, consistency, epochs, batch
     * rows, timeouts, quiet. */
    struct sl_trainer_options training;
    const char *optimizer_name, *protocol_name;
    enum sl_protocol protocol;
    const char *report;  /* or NULL */
    const char *save;    /* path of the model; or NULL */
    const char *publish; /* name of an object; or NULL */
    uint64_t publish_every_ns;
};

/* Reads flags and environment. Returns as sl_cli_parse. *out needs fini after an error too. */
int sl_flags_parse(int argc, char **argv, struct sl_flags *out, struct sl_reason *reason);
void sl_flags_fini(struct sl_flags *flags);

#endif
