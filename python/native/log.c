#include "python/native/log.h"

#include <stdio.h>
#include <unistd.h>

#define RECORD_BYTES 1100 /* holds the longest line; below PIPE_BUF, so that a write is whole */

static bool send(int pipe, enum sl_log_level level, const char *line)
{
    char record[RECORD_BYTES];
    const int bytes = snprintf(record, sizeof record, "%d%s\n", (int)level, line);
    return write(pipe, record, (size_t)bytes) == bytes;
}

/* A library calls back for one line at a time, but there may be two libraries. */
static void on_line(void *ctx, enum sl_log_level level, const char *line)
{
    static _Thread_local unsigned dropped;
    const int pipe = (int)(intptr_t)ctx;
    char note[64];
    (void)snprintf(note, sizeof note, "%u log lines were dropped: Python was busy", dropped);
    if (dropped > 0 && send(pipe, SL_LOG_WARN, note)) {
        dropped = 0;
    }
    if (dropped > 0 || !send(pipe, level, line)) {
        dropped++;
    }
}

PyObject *sl_native_log_to(PyObject *module, PyObject *args)
{
    int pipe, level;
    if (!PyArg_ParseTuple(args, "ii", &pipe, &level)) {
        return NULL;
    }
    sl_log_set((enum sl_log_level)level, pipe < 0 ? NULL : on_line, (void *)(intptr_t)pipe);
    Py_RETURN_NONE;
}

sl_log_fn *sl_native_log_line(void)
{
    return on_line;
}
