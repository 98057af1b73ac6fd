/* What the coordinator's files share; nobody else includes it. Owner reactor. */
#ifndef SL_PS_COORDINATOR_INTERNAL_H
#define SL_PS_COORDINATOR_INTERNAL_H

#include "ps/coordinator.h"

struct sl_coordinator_member {
    struct sl_message_hello hello;
    struct sl_message_register reg; /* ps: once registered */
    sl_coordinator_peer peer;
    char name[SL_MESSAGE_NAME_BYTES]; /* "ps/1", "worker/3", "client" */
    bool registered;
    bool said_goodbye;
    bool waits_for_cluster;
    uint64_t cluster_request; /* whose answer it waits for */
    uint64_t remind_ns;       /* when to send it the next Waiting */
};

/* One who waits at a barrier. */
struct sl_coordinator_arrival {
    struct sl_coordinator_member *member;
    uint64_t request;
    uint64_t remind_ns;
};

struct sl_coordinator_barrier {
    char name[SL_MESSAGE_NAME_BYTES];
    uint32_t count;
    uint32_t arrived;
    struct sl_coordinator_arrival *arrivals; /* [arrivals_max] */
    uint32_t arrivals_max;
    struct sl_coordinator_barrier *next;
};

struct sl_coordinator {
    struct sl_coordinator_options options;
    /* Side by side, so that a search by peer reads little memory; in no order. */
    sl_coordinator_peer *peers;
    struct sl_coordinator_member **members;
    uint32_t member_count, member_max;
    uint32_t worker_count;                         /* of the job; 0: nobody has said */
    char worker_count_from[SL_MESSAGE_NAME_BYTES]; /* who said it first */
    uint32_t known_shards[SL_LIMIT_PS]; /* of each ps, since it first registered; else 0 */
    struct sl_table_spec *tables;       /* by id */
    uint32_t table_count, table_max;
    struct sl_coordinator_barrier *barriers;
    uint32_t barrier_count;
};

void sl_coordinator_send(struct sl_coordinator *coordinator,
                         const struct sl_coordinator_member *member, struct sl_message *message);

/* Answers request `id` with an Error. */
void sl_coordinator_refuse(struct sl_coordinator *coordinator,
                           const struct sl_coordinator_member *member, uint64_t id, int err,
                           const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The member of that role and task, or NULL. */
struct sl_coordinator_member *sl_coordinator_find(const struct sl_coordinator *coordinator,
                                                  enum sl_message_role role, uint32_t task_index);

/* Appends a name; the last place of a full list says how many more there are. */
void sl_coordinator_miss(struct sl_message_waiting *waiting, uint32_t *missing_total,
                         const char *role, uint32_t task_index);

void sl_coordinator_barrier_come(struct sl_coordinator *coordinator,
                                 struct sl_coordinator_member *member,
                                 const struct sl_message *message, uint64_t now_ns);
void sl_coordinator_barrier_leave(struct sl_coordinator *coordinator,
                                  const struct sl_coordinator_member *member);
void sl_coordinator_barrier_remind(struct sl_coordinator *coordinator, uint64_t now_ns);
void sl_coordinator_barrier_fini(struct sl_coordinator *coordinator);

#endif
