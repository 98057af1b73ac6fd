/* Fields that control.proto and message.h have under the same name, with the same meaning:
 * SL_MESSAGE_COPY_HELLO and so on copy them from `from` to `to`, when a message is encoded and when
 * it is decoded. Other fields are copied by hand. Private to net/session. */
#ifndef SL_NET_SESSION_MESSAGE_COPY_H
#define SL_NET_SESSION_MESSAGE_COPY_H

#define COPY(field) to->field = from->field;

/* clang-format off */
#define SL_MESSAGE_COPY_HELLO                                                                      \
    COPY(protocol_version) COPY(task_index) COPY(client_id) COPY(shard) COPY(checksum)             \
    COPY(join_running) COPY(any_task) COPY(epoch) COPY(state) COPY(incarnation) COPY(lane)         \
    COPY(lane_epoch)

#define SL_MESSAGE_COPY_WELCOME                                                                    \
    COPY(protocol_version) COPY(credit_bytes) COPY(credit_requests) COPY(shard) COPY(shard_count)  \
    COPY(payload_bytes_max) COPY(incarnation) COPY(resumed) COPY(restored) COPY(clock)             \
    COPY(counts) COPY(lease_ms) COPY(task_index) COPY(position) COPY(wants_reports)

#define SL_MESSAGE_COPY_REGISTER                                                                   \
    COPY(shard_count) COPY(ps_count) COPY(worker_count) COPY(restore) COPY(checkpoint_newest)      \
    COPY(serving) COPY(has_tables) COPY(replicas) COPY(job) COPY(unclaimed)

#define SL_MESSAGE_COPY_CLUSTER                                                                    \
    COPY(worker_count) COPY(restore) COPY(abandoned_above) COPY(abandoned_to) COPY(values_lost)    \
    COPY(kept_to) COPY(job)

#define SL_MESSAGE_COPY_OPTIMIZER                                                                  \
    COPY(lr) COPY(momentum) COPY(rho) COPY(beta1) COPY(beta2) COPY(epsilon) COPY(weight_decay)     \
    COPY(initial_accumulator) COPY(l1) COPY(l2) COPY(lr_power) COPY(decay_steps)                   \
    COPY(decay_baseline)

#define SL_MESSAGE_COPY_STATS                                                                      \
    COPY(requests) COPY(bytes_in) COPY(bytes_out) COPY(stalls) COPY(degraded_writes)               \
    COPY(degraded_ms) COPY(degraded_shards)

#define SL_MESSAGE_COPY_TABLE_STATS                                                                \
    COPY(rows) COPY(bytes) COPY(pulled_rows) COPY(pushed_rows) COPY(steps)

#define SL_MESSAGE_COPY_FILE COPY(shard) COPY(bytes) COPY(hash) COPY(rows)

#define SL_MESSAGE_COPY_BUFFER COPY(key) COPY(address) COPY(bytes) COPY(access)
/* clang-format on */

#endif
