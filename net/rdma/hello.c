#include "net/rdma/hello.h"

#define RETRY_COUNT  7 /* of the device, for both kinds of retries: the maximum */
#define READS_MAX(n) ((n) < SL_RDMA_READS ? (n) : SL_RDMA_READS)

struct rdma_conn_param sl_rdma_hello_param(const struct sl_rdma_conn *conn,
                                           struct sl_rdma_hello *hello)
{
    uint8_t reads = (uint8_t)READS_MAX(conn->nic->caps.reads_max);
    *hello = (struct sl_rdma_hello){.magic = SL_RDMA_MAGIC,
                                    .version = SL_RDMA_VERSION,
                                    .limit = conn->credit.limit_told,
                                    .reads = reads,
                                    .target = conn->connect.target};
    uint8_t depth = reads;
    if (conn->phase == SL_RDMA_ACCEPTING && conn->reads_peer < depth) {
        depth = (uint8_t)conn->reads_peer;
    }
    return (struct rdma_conn_param){.private_data = hello,
                                    .private_data_len = sizeof *hello,
                                    .responder_resources = reads,
                                    .initiator_depth = depth,
                                    .retry_count = RETRY_COUNT,
                                    .rnr_retry_count = RETRY_COUNT};
}

void sl_rdma_hello_take(struct sl_rdma_conn *conn, const struct sl_rdma_hello *hello)
{
    conn->credit.limit_theirs = hello->limit;
    uint32_t ours = READS_MAX(conn->nic->caps.reads_max);
    conn->reads_peer = hello->reads < ours ? hello->reads : ours;
}
