/* Addresses of RDMA devices: one GID table per port. */
#include "programs/doctor/gid.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "programs/doctor/files.h"

#define GIDS_MAX      1024 /* entries read per table */
#define GIDS_SAID_MAX 64   /* printed for all devices, besides the chosen one */
#define ENDPOINTS_MAX 16   /* printed for all devices */

static const uint32_t rdma = SL_DOCTOR_OF(SL_ENDPOINT_RDMA);

struct gid {
    char address[INET6_ADDRSTRLEN]; /* as in an endpoint */
    char type[32];                  /* "RoCE v2" */
    char netdev[32];                /* "": none */
};

/* False: end of the table. An unused entry has the address "". */
static bool read_gid(const struct sl_doctor *doctor, const struct sl_doctor_port *port,
                     uint32_t index, struct gid *out)
{
    char directory[160], text[64];
    struct in6_addr address;
    (void)snprintf(directory, sizeof directory, "/sys/class/infiniband/%s/ports/%u", port->device,
                   port->number);
    *out = (struct gid){0};
    if (!sl_doctor_files_line(doctor, text, sizeof text, "%s/gids/%u", directory, index)) {
        return false;
    }
    if (inet_pton(AF_INET6, text, &address) != 1 || IN6_IS_ADDR_UNSPECIFIED(&address) ||
        strcmp(text, "fe80:0000:0000:0000:0000:0000:0000:0000") == 0) {
        return true;
    }
    (void)sl_doctor_files_line(doctor, out->type, sizeof out->type, "%s/gid_attrs/types/%u",
                               directory, index);
    (void)sl_doctor_files_line(doctor, out->netdev, sizeof out->netdev, "%s/gid_attrs/ndevs/%u",
                               directory, index);
    const bool is_v4 = IN6_IS_ADDR_V4MAPPED(&address);
    (void)inet_ntop(is_v4 ? AF_INET : AF_INET6, is_v4 ? &address.s6_addr[12] : address.s6_addr,
                    out->address, sizeof out->address);
    return true;
}

/* RoCE v2 is the only RoCE type with IP addresses, and routable. */
static bool gid_is_usable(const struct sl_doctor_port *port, const struct gid *gid)
{
    return gid->address[0] != '\0' && (!port->is_ethernet || strcmp(gid->type, "RoCE v2") == 0);
}

static void match_endpoints(struct sl_doctor *doctor, const struct sl_doctor_port *port,
                            uint32_t index, const struct gid *gid)
{
    for (uint32_t i = 0; i < doctor->options->endpoint_count; i++) {
        const struct sl_endpoint *endpoint = &doctor->options->endpoints[i];
        if (strcasecmp(endpoint->host, gid->address) == 0 &&
            doctor->endpoints_here < ENDPOINTS_MAX) {
            char text[SL_LIMIT_ENDPOINT_BYTES];
            sl_endpoint_format(endpoint, text, sizeof text);
            (void)sl_doctor_find(doctor, SL_DOCTOR_OK, 0, "rdma endpoint", "%s: %s/%u, GID %u",
                                 text, port->device, port->number, index);
            doctor->endpoints_here++;
        }
    }
}

static void say_gid(struct sl_doctor *doctor, const struct sl_doctor_port *port, uint32_t index,
                    const struct gid *gid, bool is_chosen)
{
    if (doctor->gids_said++ >= GIDS_SAID_MAX && !is_chosen) {
        return;
    }
    const bool is_bad_choice = is_chosen && !gid_is_usable(port, gid);
    struct sl_doctor_finding *finding = sl_doctor_find(
        doctor, is_bad_choice ? SL_DOCTOR_WARNING : SL_DOCTOR_OK, 0, "rdma gid",
        "%s/%u %3u: %-10s %s%s%s%s", port->device, port->number, index, gid->type, gid->address,
        gid->netdev[0] == '\0' ? "" : ", ", gid->netdev, is_chosen ? " (chosen)" : "");
    if (is_bad_choice) {
        sl_doctor_advise(finding, "choose an index of type RoCE v2: routers do not pass this type "
                                  "on, and peers must have the same");
    }
}

void sl_doctor_gid_check(struct sl_doctor *doctor, const struct sl_doctor_port *port)
{
    const bool is_named = port->is_first && doctor->options->rdma.has_gid_index;
    const uint32_t chosen = is_named ? doctor->options->rdma.gid_index : UINT32_MAX;
    uint32_t usable = 0;
    bool has_chosen = false;
    struct gid gid;
    for (uint32_t i = 0; i < GIDS_MAX && read_gid(doctor, port, i, &gid); i++) {
        if (gid.address[0] == '\0') {
            continue;
        }
        has_chosen = has_chosen || i == chosen;
        say_gid(doctor, port, i, &gid, i == chosen);
        if (gid_is_usable(port, &gid)) {
            usable++;
            match_endpoints(doctor, port, i, &gid);
        }
    }
    if (is_named && !has_chosen) {
        sl_doctor_advise(sl_doctor_find(doctor, SL_DOCTOR_MISSING, rdma, "rdma gid",
                                        "%s/%u has none of index %u", port->device, port->number,
                                        chosen),
                         "choose one of those above, or none: then the endpoint's address decides");
    }
    if (usable == 0) {
        sl_doctor_advise(sl_doctor_find(doctor, SL_DOCTOR_WARNING, 0, "rdma gid", "%s/%u has no %s",
                                        port->device, port->number,
                                        port->is_ethernet ? "address of type RoCE v2" : "address"),
                         port->is_ethernet
                             ? "give its network interface an IP address, and set it up (ip addr "
                               "add, ip link set up)"
                             : "look at its subnet manager (opensm)");
    }
}

void sl_doctor_gid_check_endpoints(struct sl_doctor *doctor)
{
    const struct sl_doctor_options *options = doctor->options;
    if (options->endpoint_count == 0 || doctor->endpoints_here != 0) {
        return;
    }
    char text[SL_LIMIT_ENDPOINT_BYTES];
    sl_endpoint_format(&options->endpoints[0], text, sizeof text);
    sl_doctor_advise(sl_doctor_find(doctor, SL_DOCTOR_WARNING, 0, "rdma endpoint",
                                    "none of the %u that are named, such as %s, is of a device "
                                    "here",
                                    options->endpoint_count, text),
                     "look where that server is to run; its host is to be the IP address of the "
                     "device's network interface");
}
