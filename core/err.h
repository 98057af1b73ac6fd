/* Internal additions to the public error codes of starling.h. */
#ifndef SL_CORE_ERR_H
#define SL_CORE_ERR_H

#include <starling.h>

/* Maps a system errno value (positive) to an sl_err, for example ECONNREFUSED to SL_ERR_REFUSED;
 * SL_ERR_IO if there is no equivalent. Any thread. */
int sl_err_from_errno(int system_errno);

#endif
