/* Errors: the codes are the public ones of starling.h; this adds what only the inside needs. */
#ifndef SL_CORE_ERR_H
#define SL_CORE_ERR_H

#include <starling.h>

/* The sl_err that stands for a system errno value (positive), ECONNREFUSED -> SL_ERR_REFUSED; one
 * that has no equal becomes SL_ERR_IO. Any thread. */
int sl_err_from_errno(int system_errno);

#endif
