/* Strangers beside the switch of a simulated network: they have an address and no process, and send
 * what anybody on the Ethernet can send. They ask for connections, show the cookies that they are
 * given, and then hold memory, contradict themselves, or say nothing; the others' connections must
 * go on meanwhile. Decided by a seed of their own. One thread. */
#ifndef SL_TESTS_SIM_STRANGERS_H
#define SL_TESTS_SIM_STRANGERS_H

#include "net/dpdk/wire.h"

#define SL_SIM_STRANGERS 4U

struct sl_sim_device;
struct sl_sim_ether;

struct sl_sim_stranger {
    uint8_t mac[6];
    struct sl_dpdk_address here;
    struct sl_dpdk_hello hello; /* of the connection that it asks for */
    uint64_t id_there;
    struct sl_dpdk_address there;
    uint32_t sequence, acknowledged;
};

struct sl_sim_strangers {
    struct sl_sim_ether *ether;
    uint64_t random;
    uint32_t permille;   /* of the packets that others send; 0: there are none */
    uint32_t left_count; /* connections that may still be asked for */
    uint64_t begin_ns;   /* when what is said next arrives */
    /* All of them do the same to one reactor, the first that they see. */
    bool besieges;
    uint32_t how;
    struct sl_sim_device *target; /* NULL: not chosen yet */
    struct sl_dpdk_address target_address;
    struct sl_sim_stranger strangers[SL_SIM_STRANGERS];
};

void sl_sim_strangers_init(struct sl_sim_strangers *strangers, struct sl_sim_ether *ether);

/* A packet of somebody else's goes to that device: some stranger may send something there, too. */
void sl_sim_strangers_see(struct sl_sim_strangers *strangers, struct sl_sim_device *to,
                          const uint8_t *bytes, uint32_t length);

/* A packet for an address that is no device's: the stranger whose it is goes on. */
void sl_sim_strangers_hear(struct sl_sim_strangers *strangers, struct sl_sim_device *from,
                           const uint8_t *bytes, uint32_t length);

#endif
