/* The transport over RDMA verbs: reliable connected queue pairs made by rdma_cm, on InfiniBand
 * and RoCE.
 *
 * Short frames go by SEND, several to a packet, into buffers that all connections of a reactor and
 * device share. Long ones are moved by the device alone: the answer to a frame that came with a
 * landing is written there, everything else is read by its receiver from where its sender has it
 * into where `sink` says. Credits keep a sender from more packets than the receiver has buffers
 * for.
 *
 * The libraries are opened when they are needed first (library.h): a program built with this
 * transport runs without them. Owner reactor, which must have a ring. docs/rdma.md has the wire. */
#ifndef SL_NET_RDMA_RDMA_H
#define SL_NET_RDMA_RDMA_H

#include "net/transport.h"

/* NULL: the program was built without, or the libraries cannot be opened: *why (a string that
 * lasts) says so then. Options: `medium` is a struct sl_rdma_library to use instead of the
 * system's, or NULL. Any thread. */
const struct sl_transport_ops *sl_rdma_find(const char **why);

#endif
