/* Messages between engines. */
#ifndef SL_COMPAT_MOONCAKE_NOTICE_H
#define SL_COMPAT_MOONCAKE_NOTICE_H

#include "compat/mooncake/base.h"

/* The notice of a message; its strings are the message's. One that is too long stays so. */
struct sl_transfer_notice sl_mooncake_notice(notify_msg_t message);

#endif
