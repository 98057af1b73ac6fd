#include "kv/serve_parts.h"

#include <stdio.h>
#include <string.h>

#include "config/security.h"
#include "config/store_choice.h"
#include "net/transport.h"
#include "ps/process.h"
#include "ps/store/etcd.h"

_Static_assert(SL_STORE_CHOICE_SERVERS == SL_ETCD_SERVERS_MAX, "servers of a store");

int sl_serve_parts_check_data(const struct sl_process_options *options, char *reason,
                              size_t reason_bytes)
{
    const char *missing =
        options->kind == SL_PROCESS_SCHEDULER ? NULL : sl_transport_missing(options->data.scheme);
    if (missing == NULL) {
        return 0;
    }
    char text[SL_LIMIT_ENDPOINT_BYTES];
    sl_endpoint_format(&options->data, text, sizeof text);
    const bool is_rdma = options->data.scheme == SL_ENDPOINT_RDMA;
    const enum sl_endpoint_scheme other = is_rdma ? SL_ENDPOINT_DPDK : SL_ENDPOINT_RDMA;
    const char *also = sl_transport_missing(other) != NULL ? "" : is_rdma ? ", dpdk" : ", rdma";
    (void)snprintf(reason, reason_bytes,
                   "data endpoint %s: %s; accepts tcp, shm%s here (`starling-ps doctor "
                   "--transport %.*s` says more)",
                   text, missing, also, (int)strcspn(text, ":"), text);
    return SL_ERR_UNSUPPORTED;
}

void sl_serve_parts_store(const struct sl_store_choice *choice, const struct sl_security *security,
                          struct sl_etcd_options *out)
{
    *out = (struct sl_etcd_options){
        .server_count = choice->server_count,
        .tls = choice->tls,
        .authority = security->tls ? security->authority : NULL,
        .certificate = security->tls ? security->certificate : NULL,
        .key = security->tls ? security->key : NULL,
    };
    memcpy(out->servers, choice->servers, sizeof out->servers);
    memcpy(out->user, choice->user, sizeof out->user);
    memcpy(out->password, choice->password, sizeof out->password);
}
