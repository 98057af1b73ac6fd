#!/usr/bin/env python3
"""sysfs_tree.py [two-sockets]: prints a description of the parts of sysfs that reactor/devices.h reads, for
tests/support/sysfs_tree.h: of this host, or of a made-up host with two sockets and eight RDMA adapters.

Lines: `file PATH TEXT`, `link PATH TARGET`, `address DEVICE ADDRESS`. sysfs/*.txt are such descriptions."""

import os
import socket
import subprocess
import sys

NET = "/sys/class/net"
NODES = "/sys/devices/system/node"


def lines_of(path):
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read().split("\n")


def record_file(path):
    try:
        print("file", path, lines_of(path)[0])
    except OSError:
        pass


def record_netdev(name):
    path = os.path.realpath(f"{NET}/{name}")
    print("link", f"{NET}/{name}", os.path.relpath(path, NET))
    for file in ("type", "operstate"):
        record_file(f"{path}/{file}")
    device = f"{path}/device"
    if os.path.exists(device):
        print("link", device, os.readlink(device))
        while device != "/sys/devices" and device != "/":
            device = os.path.dirname(os.path.realpath(device) if device.endswith("/device") else device)
            record_file(f"{device}/numa_node")


def record():
    """Network devices only: add the files of /sys/class/infiniband by hand where there are any."""
    for line in lines_of("/proc/self/status"):
        if line.startswith("Cpus_allowed_list"):
            print("file", "/proc/self/status", line)
    for node in sorted(os.listdir(NODES)):
        if node[4:].isdigit():
            record_file(f"{NODES}/{node}/cpulist")
    for _, name in socket.if_nameindex():
        record_netdev(name)
    shown = subprocess.run(["ip", "-o", "address"], capture_output=True, text=True, check=True).stdout
    for line in shown.splitlines():
        words = line.split()
        print("address", words[1], words[3].split("/")[0])


def adapter(index):
    """A two-port card has one function here. Every second adapter of a socket shares a bridge."""
    node = index // 4
    bridge = 16 + 128 * node + index % 4 // 2
    function = f"/sys/devices/pci0000:{bridge:02x}/0000:{bridge:02x}:01.0/0000:{bridge + 2:02x}:00.{index % 2}"
    netdev, rdma = f"eth{index}", f"mlx5_{index}"
    print("file", f"{function}/numa_node", node)
    print("file", f"{function}/net/{netdev}/type", 1)
    print("file", f"{function}/net/{netdev}/operstate", "down" if index == 5 else "up")
    print("link", f"{function}/net/{netdev}/device", "../..")
    print("link", f"{NET}/{netdev}", f"../..{function[4:]}/net/{netdev}")
    print("file", f"{function}/infiniband/{rdma}/ports/1/state", "1: DOWN" if index == 5 else "4: ACTIVE")
    print("file", f"{function}/infiniband/{rdma}/ports/1/link_layer", "Ethernet")
    print("link", f"{function}/infiniband/{rdma}/device", "../..")
    print("link", f"/sys/class/infiniband/{rdma}", f"../..{function[4:]}/infiniband/{rdma}")
    if index != 6:
        print("address", netdev, f"10.0.{index}.2")
    print("address", netdev, f"fe80::{index + 1}")


def two_sockets():
    print("file", "/proc/self/status", "Cpus_allowed_list: 0-63")
    print("file", f"{NODES}/node0/cpulist", "0-15,32-47")
    print("file", f"{NODES}/node1/cpulist", "16-31,48-63")
    for index in range(8):
        adapter(index)
    print("file", "/sys/devices/virtual/net/docker0/type", 1)
    print("file", "/sys/devices/virtual/net/docker0/operstate", "up")
    print("file", "/sys/devices/virtual/net/docker0/bridge/bridge_id", "8000.0242ac110001")
    print("link", f"{NET}/docker0", "../../devices/virtual/net/docker0")
    print("address", "docker0", "172.17.0.1")
    print("file", "/sys/devices/virtual/net/lo/type", 772)
    print("link", f"{NET}/lo", "../../devices/virtual/net/lo")
    print("address", "lo", "127.0.0.1")


if __name__ == "__main__":
    if sys.argv[1:] == []:
        record()
    elif sys.argv[1:] == ["two-sockets"]:
        two_sockets()
    else:
        sys.exit(__doc__)
