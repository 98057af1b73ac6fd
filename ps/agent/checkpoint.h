/* The agent's part in checkpoints. Owner reactor. */
#ifndef SL_PS_AGENT_CHECKPOINT_H
#define SL_PS_AGENT_CHECKPOINT_H

#include "ps/agent/state.h"

void sl_agent_checkpoint_notified(struct sl_agent *agent,
                                  const struct sl_message_checkpoint *begun);
void sl_agent_checkpoint_publish_notified(struct sl_agent *agent,
                                          const struct sl_message_checkpoint_publish *complete);

/* Sends an unsent answer. */
void sl_agent_checkpoint_beat(struct sl_agent *agent);

/* Returns the greatest checkpoint number that this process knows, for Register. */
uint64_t sl_agent_checkpoint_newest(const struct sl_agent *agent);

/* Returns the newest checkpoint of the job that this process knows, for Register; 0: none. */
uint64_t sl_agent_checkpoint_latest(const struct sl_agent *agent);

void sl_agent_checkpoint_fini(struct sl_agent *agent);

#endif
