/* Sizes of strings in control messages, with NUL. */
#ifndef SL_NET_SESSION_MESSAGE_SIZES_H
#define SL_NET_SESSION_MESSAGE_SIZES_H

#define SL_MESSAGE_TEXT_BYTES 512
#define SL_MESSAGE_NAME_BYTES 64

#endif
