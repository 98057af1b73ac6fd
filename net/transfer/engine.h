/* The engine object of the public API, for the files of the room. engine.c starts and ends one. */
#ifndef SL_NET_TRANSFER_ENGINE_H
#define SL_NET_TRANSFER_ENGINE_H

#include "net/transfer/io.h"
#include "net/transfer/settings.h"
#include "net/transfer/setup.h"
#include "reactor/port.h"

struct sl_transfer_directory;
struct sl_transfer_own_segment_info;

struct sl_transfer {
    struct sl_transfer_setup setup;
    struct sl_transfer_settings settings;
    char name[SL_TRANSFER_NAME_BYTES]; /* of the segment: "host:port" */
    uint64_t incarnation;              /* random */
    struct sl_reactor **reactors;      /* [settings.reactors.count] */
    struct sl_transfer_io *ios;        /* likewise */
    struct sl_transfer_own_segment_info *own_info;
    struct sl_port_set *ports;
    struct sl_transfer_directory *directory; /* NULL: P2PHANDSHAKE */

    /* Under the lock of the ports. */
    struct sl_transfer_table *registered; /* memory.c: regions of the first reactor */
    struct sl_list segments;
    uint32_t segment_count;
    struct sl_list batches;
    uint32_t batch_count;
    uint32_t batch_next; /* reactors take turns */
};

#endif
