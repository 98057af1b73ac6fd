#include "programs/serve/gateway/admission.h"

#include <stdio.h>

#include "core/assert.h"
#include "core/clock.h"

#define RETRY_MS_MAX 60000

static struct sl_serve_request *due_at(struct sl_list_link *link)
{
    return SL_CONTAINER_OF(link, struct sl_serve_request, due_link);
}

void sl_serve_admission_init(struct sl_serve_admission *admission)
{
    *admission = (struct sl_serve_admission){0};
    sl_list_init(&admission->waiting);
    sl_list_init(&admission->due);
}

/* Most timeouts are equal, so its place is near the end. */
static void set_due(struct sl_serve_admission *admission, struct sl_serve_request *request,
                    uint64_t due_ns)
{
    sl_list_remove(&request->due_link);
    struct sl_list_link *next = &admission->due.head;
    while (next->prev != &admission->due.head && due_at(next->prev)->due_ns > due_ns) {
        next = next->prev;
    }
    request->due_ns = due_ns;
    sl_list_insert(next, &request->due_link);
}

static void gateway_admission_join(struct sl_serve_admission *admission,
                                   struct sl_serve_request *request)
{
    request->is_waiting = true;
    admission->waiting_count++;
    admission->waiting_ns += request->cost_ns;
    set_due(admission, request, request->deadline_ns);
}

static void gateway_admission_leave(struct sl_serve_admission *admission,
                                    struct sl_serve_request *request)
{
    sl_list_remove(&request->link);
    request->is_waiting = false;
    admission->waiting_count--;
    admission->waiting_ns -= request->cost_ns;
}

static int refuse(struct sl_serve_request *request, uint64_t retry_ns, const char *why)
{
    const uint64_t retry_ms = retry_ns / SL_CLOCK_NS_PER_MS + 1;
    request->answer.retry_ms = (uint32_t)(retry_ms < RETRY_MS_MAX ? retry_ms : RETRY_MS_MAX);
    (void)snprintf(request->answer.text, sizeof request->answer.text, "%s", why);
    return request->answer.err = SL_ERR_AGAIN;
}

int sl_serve_admission_offer(struct sl_serve_admission *admission, struct sl_serve_request *request,
                             uint64_t expected_ns, uint32_t worker_count, uint64_t now_ns)
{
    char why[160];
    if (request->deadline_ns <= now_ns) {
        (void)snprintf(request->answer.text, sizeof request->answer.text,
                       "the deadline passed before the request was accepted");
        return request->answer.err = SL_ERR_DEADLINE;
    }
    const uint64_t left_ns = request->deadline_ns - now_ns;
    const uint64_t queue_ns = worker_count > 0 ? admission->waiting_ns / worker_count : 0;
    if (admission->waiting_count == SL_SERVE_WAITING_MAX) {
        return refuse(request, queue_ns, "too many requests wait: 1024");
    }
    if (worker_count > 0 && queue_ns + expected_ns > left_ns) {
        (void)snprintf(why, sizeof why,
                       "the answer is expected in %llu ms, and the deadline is in %llu"
                       " ms",
                       (queue_ns + expected_ns) / SL_CLOCK_NS_PER_MS, left_ns / SL_CLOCK_NS_PER_MS);
        return refuse(request, queue_ns + expected_ns - left_ns, why);
    }
    sl_list_append(&admission->waiting, &request->link);
    gateway_admission_join(admission, request);
    return 0;
}

struct sl_serve_request *sl_serve_admission_first(const struct sl_serve_admission *admission)
{
    return SL_LIST_FIRST(struct sl_serve_request, link, &admission->waiting);
}

void sl_serve_admission_run(struct sl_serve_admission *admission, struct sl_serve_request *request)
{
    sl_assert(request->is_waiting);
    gateway_admission_leave(admission, request);
    admission->running_count++;
    set_due(admission, request, request->deadline_ns + SL_SERVE_GRACE_NS);
}

void sl_serve_admission_wait_again(struct sl_serve_admission *admission,
                                   struct sl_serve_request *request)
{
    sl_assert(!request->is_waiting);
    admission->running_count--;
    sl_list_prepend(&admission->waiting, &request->link);
    gateway_admission_join(admission, request);
}

void sl_serve_admission_end(struct sl_serve_admission *admission, struct sl_serve_request *request)
{
    sl_assert(sl_list_linked(&request->due_link));
    sl_list_remove(&request->due_link);
    if (request->is_waiting) {
        gateway_admission_leave(admission, request);
    } else {
        admission->running_count--;
    }
}

struct sl_serve_request *sl_serve_admission_due(const struct sl_serve_admission *admission,
                                                uint64_t now_ns)
{
    struct sl_serve_request *due =
        SL_LIST_FIRST(struct sl_serve_request, due_link, &admission->due);
    return due != NULL && due->due_ns <= now_ns ? due : NULL;
}

uint64_t sl_serve_admission_next_ns(const struct sl_serve_admission *admission)
{
    const struct sl_serve_request *due =
        SL_LIST_FIRST(struct sl_serve_request, due_link, &admission->due);
    return due != NULL ? due->due_ns : SL_CLOCK_NEVER;
}
