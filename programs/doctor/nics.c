#include "programs/doctor/nics.h"

#include "net/transfer/matrix.h"

/* The first anomaly decides on the advice. */
static void advise(struct sl_doctor_finding *finding, const struct sl_device *device, bool is_near)
{
    const char *netdev = device->is_rdma ? device->netdev : device->name;
    if (!device->is_up && netdev[0] != '\0') {
        sl_doctor_advise(finding, "ip link set %s up; look at the cable and the switch", netdev);
    } else if (!device->is_up) {
        sl_doctor_advise(finding, "look at the cable, the switch, and the subnet manager (opensm)");
    } else if (!sl_devices_is_reachable(device)) {
        sl_doctor_advise(finding,
                         "ip address add ADDRESS dev %s; peers need one that is neither "
                         "loopback nor link-local",
                         netdev[0] == '\0' ? "its network interface" : netdev);
    } else if (!is_near) {
        sl_doctor_advise(finding,
                         "let the process use cores of node %d (taskset, numactl, cpuset "
                         "of the control group), or use a nearer device",
                         device->node);
    }
}

static void check_device(struct sl_doctor *doctor, const struct sl_devices *devices,
                         const struct sl_device *device)
{
    char node[64] = "NUMA node unknown";
    const bool is_reachable = sl_devices_is_reachable(device);
    const bool is_near = sl_devices_is_near(devices, device);
    if (device->node >= 0) {
        (void)snprintf(node, sizeof node, "NUMA node %d%s", device->node,
                       is_near ? "" : ", far from every core of this process");
    }
    const char *address = device->address_count > 0 ? device->addresses[0]
                          : is_reachable            ? "InfiniBand"
                                                    : "no address that peers can use";
    const bool is_well = device->is_up && is_reachable && is_near;
    advise(sl_doctor_find(doctor, is_well ? SL_DOCTOR_OK : SL_DOCTOR_WARNING, 0, "nic",
                          "%s: %s, %s, %s", device->name, device->is_up ? "up" : "down", node,
                          address),
           device, is_near);
}

void sl_doctor_nics_check(struct sl_doctor *doctor)
{
    static struct sl_devices devices;
    static struct sl_matrix matrix;
    doctor->system->read_devices(&devices);
    for (uint32_t i = 0; i < devices.count; i++) {
        check_device(doctor, &devices, &devices.list[i]);
    }
    sl_matrix_discover(&devices, &matrix);
    if (sl_matrix_write(&matrix, &doctor->nic_priority_matrix) != 0) {
        doctor->nic_priority_matrix = NULL;
    }
}
