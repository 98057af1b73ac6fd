#!/usr/bin/env python3
"""Jobs over the kernel's network devices, by AF_PACKET: pairs of virtual ones, of which each worker has
one in a network of its own, as if it were on another machine. The kernel goes by the same devices, with
other addresses, for what is over TCP. For root."""

import os
import subprocess
import sys

import dpdk_jobs
import harness

INSIDE = "STARLING_TEST_NETWORK"  # this process is in a network of its own already


def run(*words):
    subprocess.run(words, check=True, capture_output=True, timeout=harness.DEADLINE_S)


class Veth(dpdk_jobs.Links):
    """ta0, ta1 ... of the ps, which lead to tb0, tb1 ...; all end with the test's network."""

    control = "10.78.255.1"

    def __init__(self, test, count):
        self._networks = [test.start("/usr/bin/unshare", "--net", "sh", "-c", "echo made; exec sleep inf")
                          for _ in range(count)]
        for index, network in enumerate(self._networks):
            network.wait_line("made")
            near, far = f"ta{index}", f"tb{index}"
            run("ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", str(network.pid))
            test.addCleanup(run, "ip", "link", "delete", near)
            run("ip", "address", "add", f"10.78.{index}.1/24", "dev", near)
            run("ip", "link", "set", near, "up")
            for words in (("address", "add", f"10.78.{index}.2/24", "dev", far), ("link", "set", far, "up"),
                          ("route", "add", self.control, "via", f"10.78.{index}.1")):
                run(*self.enter(index), "ip", *words)

    def of_ps(self, index):
        return f"net_af_packet{index},iface=ta{index}?addr={dpdk_jobs.SERVER}"

    def of_worker(self, index):
        return f"net_af_packet0,iface=tb{index}?addr={dpdk_jobs.worker_address(index)}"

    def enter(self, index):
        return ["/usr/bin/nsenter", f"--net=/proc/{self._networks[index].pid}/ns/net"]


class Jobs(dpdk_jobs.Jobs, dpdk_jobs.DpdkTest):
    def make_links(self, count):
        return Veth(self, count)


def enter_network():
    """Into one that ends with this process; skipped where that cannot be."""
    try:
        run("unshare", "--net", "ip", "link", "add", "ta0", "type", "veth", "peer", "name", "tb0")
    except (OSError, subprocess.SubprocessError) as error:
        print("skipped: no network of one's own with a pair of devices (for root, with iproute2 and "
              f"util-linux): {error}")
        sys.exit(harness.SKIPPED)
    os.execvpe("unshare", ["unshare", "--net", sys.executable, *sys.argv], {**os.environ, INSIDE: "1"})


if __name__ == "__main__":
    if INSIDE not in os.environ:
        enter_network()
    run("ip", "link", "set", "lo", "up")
    run("ip", "address", "add", Veth.control, "dev", "lo")
    dpdk_jobs.main()
