/* Screen shows the panels of a job in a terminal, with ncurses, until the user quits. One thread.
 */
#ifndef SL_TOP_SCREEN_H
#define SL_TOP_SCREEN_H

#include <stdint.h>

struct json_t;
struct sl_source;

/* source NULL: the state is a saved one. state: the first one; the screen frees it. Returns after
 * q.
 */
void sl_screen_run(struct sl_source *source, struct json_t *state, uint64_t interval_ns);

#endif
