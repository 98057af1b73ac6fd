/* Use of an engine by what runs on its first reactor, such as a node of objects. No function here
 * waits. Checks, limits and deadlines are those of the functions that wait (starling_transfer.h).
 *
 * Owner: the engine's first reactor. A function that returns an error has no callback; the reason
 * is in sl_transfer_last_error. After 0 the callback runs once, after the function has returned.
 */
#ifndef SL_NET_TRANSFER_ASYNC_H
#define SL_NET_TRANSFER_ASYNC_H

#include <starling_transfer.h>

struct sl_metastore_address;
struct sl_reactor;
struct sl_transfer_asked;
struct sl_transfer_async;
struct sl_transfer_sending;

/* The call has ended: err 0 or an error with its reason, which is valid during the callback. */
typedef void sl_transfer_done_fn(void *ctx, int err, const char *reason);

/* A notice with the name has arrived; in the order of arrival. Those do not enter the application's
 * inbox, from create to destroy. SL_LIMIT_TRANSFER_NOTICES of them may wait for the end of the
 * turn; beyond that their senders get AGAIN. `noticed` is valid during the callback. asked: not
 * NULL: its sender waits for the answer. */
typedef void sl_transfer_arrived_fn(void *ctx, const struct sl_transfer_noticed *noticed,
                                    struct sl_transfer_asked *asked);

/* Returns the attachment of the notice, valid during `arrived`; NULL: it has none. */
const uint8_t *sl_transfer_async_attached(const struct sl_transfer_async *async, uint32_t *bytes);

/* Answers a notice with up to SL_TRANSFER_NOTICE_BYTES bytes, once, in any turn, but before
 * destroy. bytes NULL: there is no answer, and the sender gets CLOSED. */
void sl_transfer_async_answer(struct sl_transfer_asked *asked, const void *bytes, uint32_t count);

/* The call of sl_transfer_async_ask has ended; err 0: with count bytes, valid during the callback.
 */
typedef void sl_transfer_answered_fn(void *ctx, int err, const char *reason, const void *bytes,
                                     uint32_t count);

/* The engine's metadata store. It lives as long as the engine. Any thread. */
const struct sl_metastore_address *sl_transfer_async_metadata(const struct sl_transfer *transfer);

/* The engine's first reactor. Any thread. */
struct sl_reactor *sl_transfer_async_reactor(const struct sl_transfer *transfer);

/* name: of the notices that it takes: what they are about, and a version, as in "objects/2"; static
 * storage. Senders of another version get VERSION. The engine outlives *out. Errors: EXISTS (there
 * is one for what they are about), NO_MEMORY. */
int sl_transfer_async_create(struct sl_transfer *transfer, const char *name,
                             sl_transfer_arrived_fn *arrived, void *ctx,
                             struct sl_transfer_async **out);

/* From now on no notice arrives, and no function but close may be called. Segments that are being
 * opened are abandoned (CANCELLED), unless their record is being looked up. Other calls in progress
 * end as they would otherwise: cancel batches before. Then ended(ctx) runs, when nothing is left.
 * Nulls *async. */
void sl_transfer_async_destroy(struct sl_transfer_async **async, void (*ended)(void *ctx),
                               void *ctx);

/* As sl_transfer_segment_open, but with REFUSED soon if no process listens there. *out is
 * written before done(ctx, 0, ...). */
int sl_transfer_async_open(struct sl_transfer_async *async, const char *name, uint32_t timeout_ms,
                           struct sl_transfer_segment **out, sl_transfer_done_fn *done, void *ctx);

/* Segments that are opened from now on are also closed for good as soon as their connection is lost
 * and no process listens at the address any more. */
void sl_transfer_async_end_with_process(struct sl_transfer_async *async);

/* A random number of an engine: of this one, and of the one that has the open segment. Another
 * process of the same name has another one. */
uint64_t sl_transfer_async_own_incarnation(const struct sl_transfer *transfer);
uint64_t sl_transfer_async_incarnation(const struct sl_transfer_segment *segment);

/* done(ctx, ...) runs once, when the segment is closed for good, before notices to it fail: CLOSED,
 * with the reason: its peer has ended, or was unreachable for 5 s; CANCELLED: by the function
 * below. ends_with_connection: a lost connection closes the segment, so that its user chooses when
 * to connect again. Once per segment. */
void sl_transfer_async_watch(struct sl_transfer_async *async, struct sl_transfer_segment *segment,
                             bool ends_with_connection, sl_transfer_done_fn *done, void *ctx);

/* As sl_transfer_segment_close, in the background. No batch or notice to the segment may be in
 * progress. done(ctx, 0, ...) runs when it is closed; NULL: not wanted. Nulls *segment. */
void sl_transfer_async_close(struct sl_transfer_async *async, struct sl_transfer_segment **segment,
                             sl_transfer_done_fn *done, void *ctx);

/* Memory for SL_MESSAGE_ATTACHED_BYTES; NULL: none. It is put, or attached. */
uint8_t *sl_transfer_async_memory_get(struct sl_transfer_async *async);
void sl_transfer_async_memory_put(struct sl_transfer_async *async, uint8_t *memory);

/* The next notice carries the first `count` bytes, and takes over the memory, also if it fails. An
 * older peer, and one that has much to do, gets the notice without. */
void sl_transfer_async_attach(struct sl_transfer_async *async, uint8_t *bytes, uint32_t count);

/* As sl_transfer_notice_send. */
int sl_transfer_async_send(struct sl_transfer_async *async, struct sl_transfer_segment *segment,
                           const struct sl_transfer_notice *notice, uint32_t timeout_ms,
                           sl_transfer_done_fn *done, void *ctx);

/* The same for a notice that the receiver answers: in two frames, and once, also if the connection
 * was lost meanwhile. Errors of the end: CLOSED: there is no answer, or it is not kept any more;
 * AGAIN: the receiver has too much to do, or does not answer yet; VERSION: another version.
 * *out: for the function below, until `answered`. */
int sl_transfer_async_ask(struct sl_transfer_async *async, struct sl_transfer_segment *segment,
                          const struct sl_transfer_notice *notice, uint32_t timeout_ms,
                          sl_transfer_answered_fn *answered, void *ctx,
                          struct sl_transfer_sending **out);

/* `answered` runs soon, with CANCELLED, unless the answer is there. */
void sl_transfer_async_forget(struct sl_transfer_async *async, struct sl_transfer_sending *asking);

/* As sl_transfer_batch_submit; notice: NULL: none. `done` gets the error of the first request that
 * failed, else that of the notice. From then on, and before the first submission,
 * sl_transfer_batch_status, _error and _free do not wait; in between none of them may be called. */
int sl_transfer_async_submit(struct sl_transfer_async *async, struct sl_transfer_batch *batch,
                             const struct sl_transfer_request *requests, uint32_t count,
                             uint32_t timeout_ms, const struct sl_transfer_notice *notice,
                             sl_transfer_done_fn *done, void *ctx);

/* The batch ends soon, at the latest 50 ms later. No effect on one that is over. */
void sl_transfer_async_cancel(struct sl_transfer_async *async, struct sl_transfer_batch *batch);

#endif
