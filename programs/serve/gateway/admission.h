/* Admission decides which requests a gateway accepts, keeps those that wait for a worker in the
 * order of their arrival, and knows when each has to be answered. A request whose expected finish
 * is after its deadline is refused at once.
 *
 * Pure, with the time as an argument, in ns. One owner thread. No allocation. */
#ifndef SL_SERVE_ADMISSION_H
#define SL_SERVE_ADMISSION_H

#include "programs/serve/base/request.h"

#define SL_SERVE_WAITING_MAX 1024
/* A worker answers DEADLINE itself, and says where the time went; so the gateway waits a little. */
#define SL_SERVE_GRACE_NS    25000000

struct sl_serve_admission {
    struct sl_list waiting; /* in the order of arrival */
    uint32_t waiting_count, running_count;
    uint64_t waiting_ns; /* sum of their cost_ns */
    struct sl_list due;  /* all accepted requests, by due_ns */
};

void sl_serve_admission_init(struct sl_serve_admission *admission);

/* Accepts the request, which then waits, or refuses it: sets err, text and retry_ms of `answer`.
 * Sets request->cost_ns before. expected_ns: time that workers need for it, if it were the first,
 * and for those that wait; worker_count 0: nothing is known of that. Returns the err: AGAIN, or
 * DEADLINE if that has passed already. */
int sl_serve_admission_offer(struct sl_serve_admission *admission, struct sl_serve_request *request,
                             uint64_t expected_ns, uint32_t worker_count, uint64_t now_ns);

/* The request that has waited longest. NULL: none. */
struct sl_serve_request *sl_serve_admission_first(const struct sl_serve_admission *admission);

/* A waiting request is sent to a worker; one that was sent has to wait again, before others. */
void sl_serve_admission_run(struct sl_serve_admission *admission, struct sl_serve_request *request);
void sl_serve_admission_wait_again(struct sl_serve_admission *admission,
                                   struct sl_serve_request *request);

/* An accepted request ends, whatever its state. */
void sl_serve_admission_end(struct sl_serve_admission *admission, struct sl_serve_request *request);

/* An accepted request that has to be answered now; NULL: none. */
struct sl_serve_request *sl_serve_admission_due(const struct sl_serve_admission *admission,
                                                uint64_t now_ns);

/* When the next one has to be. SL_CLOCK_NEVER: there is none. */
uint64_t sl_serve_admission_next_ns(const struct sl_serve_admission *admission);

#endif
