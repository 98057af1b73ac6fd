/* Checkpoints: handles the coordinator's messages, and sends this process's answers. */
#include "ps/agent/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"

static bool has_answer(const struct sl_agent_checkpoint *checkpoint)
{
    return checkpoint->answer.kind == SL_MESSAGE_CHECKPOINT_PART ||
           checkpoint->answer.kind == SL_MESSAGE_CHECKPOINT_DONE;
}

static void forget_answer(struct sl_agent_checkpoint *checkpoint)
{
    if (has_answer(checkpoint)) {
        sl_message_fini(&checkpoint->answer);
    }
    memset(&checkpoint->answer, 0, sizeof checkpoint->answer);
    checkpoint->is_unsent = false;
}

static void agent_checkpoint_send_answer(struct sl_agent *agent)
{
    struct sl_agent_checkpoint *checkpoint = &agent->checkpoint;
    if (has_answer(checkpoint) && agent->session != NULL && !agent->failed) {
        checkpoint->is_unsent = sl_session_notify(agent->session, &checkpoint->answer) != 0;
    }
}

static struct sl_message agent_checkpoint_failure_of(uint64_t number, int err, const char *why)
{
    struct sl_message message = {
        .kind = SL_MESSAGE_CHECKPOINT_PART,
        .checkpoint_part = {.number = number, .err = err},
    };
    (void)snprintf(message.checkpoint_part.text, sizeof message.checkpoint_part.text, "%s", why);
    return message;
}

/* Answers a message that does not fit the checkpoints known here. */
static void contradict(struct sl_agent *agent, uint64_t number, int err, const char *why)
{
    struct sl_message message = agent_checkpoint_failure_of(number, err, why);
    (void)sl_session_notify(agent->session, &message); /* if it fails, the coordinator times out */
}

void sl_agent_checkpoint_notified(struct sl_agent *agent, const struct sl_message_checkpoint *begun)
{
    struct sl_agent_checkpoint *checkpoint = &agent->checkpoint;
    if (begun->number == checkpoint->number) {
        agent_checkpoint_send_answer(
            agent); /* if it is not ready, it follows when the files are written */
        return;
    }
    if (!agent->joined) {
        contradict(agent, begun->number, SL_ERR_AGAIN, "it has not joined the cluster yet");
        return;
    }
    if (begun->number < checkpoint->number) {
        contradict(agent, begun->number, SL_ERR_EXISTS, "a later one has begun already");
        return;
    }
    forget_answer(checkpoint);
    if (begun->complete > checkpoint->latest) {
        checkpoint->latest = begun->complete;
    }
    checkpoint->number = begun->number;
    checkpoint->is_publishing = false;
    if (agent->options.events.checkpoint == NULL) {
        sl_agent_checkpoint_fail(agent, begun->number, SL_ERR_UNSUPPORTED,
                                 "it was started without a directory for checkpoints");
        return;
    }
    agent->options.events.checkpoint(agent->options.ctx, begun);
}

void sl_agent_checkpoint_publish_notified(struct sl_agent *agent,
                                          const struct sl_message_checkpoint_publish *complete)
{
    struct sl_agent_checkpoint *checkpoint = &agent->checkpoint;
    bool is_known = complete->number == checkpoint->number;
    if (!is_known || !(checkpoint->is_publishing || has_answer(checkpoint))) {
        contradict(agent, complete->number, SL_ERR_NOT_FOUND, "it has no files of that checkpoint");
        return;
    }
    if (checkpoint->is_publishing || checkpoint->answer.checkpoint_part.err != 0) {
        agent_checkpoint_send_answer(
            agent); /* if it is not ready, it follows when the manifest is written */
        return;
    }
    forget_answer(checkpoint);
    checkpoint->is_publishing = true;
    agent->options.events.checkpoint_publish(agent->options.ctx, complete);
}

void sl_agent_checkpoint_beat(struct sl_agent *agent)
{
    if (agent->checkpoint.is_unsent) {
        agent_checkpoint_send_answer(agent);
    }
}

uint64_t sl_agent_checkpoint_newest(const struct sl_agent *agent)
{
    uint64_t newest = agent->options.checkpoints.newest;
    return newest > agent->checkpoint.number ? newest : agent->checkpoint.number;
}

/* Counts the last manifest written here, although other servers may not have written theirs. */
uint64_t sl_agent_checkpoint_latest(const struct sl_agent *agent)
{
    const uint64_t latest = agent->checkpoint.latest;
    return latest > agent->restore ? latest : agent->restore;
}

void sl_agent_checkpoint_fini(struct sl_agent *agent)
{
    forget_answer(&agent->checkpoint);
}

/* Calls of the owner */

/* Takes ownership of the message's memory. Drops answers for earlier checkpoints: the coordinator
 * has aborted them. */
static void agent_checkpoint_answer(struct sl_agent *agent, uint64_t number,
                                    struct sl_message *message)
{
    sl_reactor_assert_owner(agent->options.reactor);
    if (number != agent->checkpoint.number) {
        sl_message_fini(message);
        return;
    }
    forget_answer(&agent->checkpoint);
    agent->checkpoint.answer = *message;
    agent_checkpoint_send_answer(agent);
}

void sl_agent_checkpoint_part(struct sl_agent *agent, uint64_t number,
                              const struct sl_message_checkpoint_file *files, uint32_t file_count,
                              bool has_worker)
{
    sl_assert(file_count > 0);
    sl_assert(file_count <= SL_LIMIT_SHARDS);
    struct sl_message_checkpoint_file *copy = malloc(file_count * sizeof *copy);
    if (copy == NULL) {
        sl_agent_checkpoint_fail(agent, number, SL_ERR_NO_MEMORY, "no memory to name its files");
        return;
    }
    memcpy(copy, files, file_count * sizeof *copy);
    struct sl_message message = {
        .kind = SL_MESSAGE_CHECKPOINT_PART,
        .checkpoint_part = {.number = number,
                            .files = copy,
                            .file_count = file_count,
                            .has_worker = has_worker},
    };
    agent_checkpoint_answer(agent, number, &message);
}

void sl_agent_checkpoint_fail(struct sl_agent *agent, uint64_t number, int err, const char *why)
{
    sl_assert(err < 0);
    struct sl_message message = agent_checkpoint_failure_of(number, err, why);
    agent_checkpoint_answer(agent, number, &message);
}

void sl_agent_checkpoint_done(struct sl_agent *agent, uint64_t number)
{
    struct sl_message message = {.kind = SL_MESSAGE_CHECKPOINT_DONE, .checkpoint_number = number};
    if (number == agent->checkpoint.number) {
        agent->checkpoint.latest = number;
    }
    agent_checkpoint_answer(agent, number, &message);
}

void sl_agent_checkpoint_ask(struct sl_agent *agent, uint64_t timeout_ns,
                             sl_session_answer_fn *answered, void *ctx)
{
    sl_reactor_assert_owner(agent->options.reactor);
    sl_assert(agent->session != NULL);
    uint64_t timeout_ms = timeout_ns / SL_CLOCK_NS_PER_MS;
    struct sl_message message = {
        .kind = SL_MESSAGE_CHECKPOINT_ASK,
        .timeout_ms = timeout_ms < UINT32_MAX ? (uint32_t)timeout_ms : UINT32_MAX,
    };
    sl_session_request(agent->session, &message, timeout_ns, answered, ctx);
}

uint32_t sl_agent_expirations(const struct sl_agent *agent)
{
    return agent->expirations;
}

void sl_agent_table_keep(struct sl_agent *agent, uint32_t table_id,
                         const struct sl_table_spec *spec, uint64_t timeout_ns,
                         sl_session_answer_fn *answered, void *ctx)
{
    sl_reactor_assert_owner(agent->options.reactor);
    sl_assert(agent->session != NULL);
    struct sl_message message = {
        .kind = SL_MESSAGE_TABLE_OPEN,
        .table_open = {.spec = *spec, .table_id = table_id, .keep_id = true, .is_restored = true},
    };
    sl_session_request(agent->session, &message, timeout_ns, answered, ctx);
}
