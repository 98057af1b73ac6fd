/* A man in the middle: passes bytes on between one client and a listener, and may change or cut
 * what he passes. */
#ifndef TESTS_CONFORMANCE_MIDDLE_H
#define TESTS_CONFORMANCE_MIDDLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/endpoint.h"

struct middle_plan {
    bool to_client;  /* which direction is meddled with; the other is passed on as it is */
    int64_t flip_at; /* byte of it of which one bit is turned over; -1: none */
    int64_t cut_at;  /* byte of it before which both sides are told that nothing follows; -1 */
};

struct middle {
    struct middle_plan plan;
    struct sl_endpoint endpoint; /* what the client connects to */
    struct sl_endpoint to;
    int listener;
    bool meddled; /* after middle_stop */
    pthread_t thread;
};

void middle_start(struct middle *middle, const struct sl_endpoint *to, struct middle_plan plan);

/* Both of its connections have ended, or do now. */
void middle_stop(struct middle *middle);

#endif
