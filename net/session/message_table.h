/* The tables of control.proto for the codec (core/protobuf.h). Private to net/session. */
#ifndef SL_NET_SESSION_MESSAGE_TABLE_H
#define SL_NET_SESSION_MESSAGE_TABLE_H

#include "core/protobuf.h"

extern const struct sl_protobuf_type sl_message_table; /* struct sl_message: a Control */
extern const struct sl_protobuf_type *const sl_message_table_spec;   /* struct sl_table_spec */
extern const struct sl_protobuf_type *const sl_message_table_report; /* report.c */

/* Returns why the text is no endpoint with a port; NULL: it is one, and the port is not 0. */
const char *sl_message_table_endpoint_misfit(const char *text);

#endif
