"""Networks of a test's own, as if there were several machines: one for the test, which it enters, and more that are
joined to it by pairs of virtual devices. All end with the test. For root."""

import os
import subprocess
import sys

import harness

INSIDE = "STARLING_TEST_NETWORK"  # this process is in a network of its own already


def run(*words):
    subprocess.run(words, check=True, capture_output=True, timeout=harness.DEADLINE_S)


def enter():
    """Into a network that ends with this process: starts it again, there. Skipped where that cannot be."""
    if INSIDE in os.environ:
        run("ip", "link", "set", "lo", "up")
        return
    try:
        run("unshare", "--net", "ip", "link", "add", "ta0", "type", "veth", "peer", "name", "tb0")
    except (OSError, subprocess.SubprocessError) as error:
        print("skipped: no network of one's own with a pair of devices (for root, with iproute2 and "
              f"util-linux): {error}")
        sys.exit(harness.SKIPPED)
    os.execvpe("unshare", ["unshare", "--net", sys.executable, *sys.argv], {**os.environ, INSIDE: "1"})


def start(test):
    """One more network: a process that stands for it."""
    network = test.start("/usr/bin/unshare", "--net", "sh", "-c", "echo made; exec sleep inf")
    network.wait_line("made")
    return network


def within(network):
    """The beginning of a command that is to run there."""
    return ["/usr/bin/nsenter", f"--net=/proc/{network.pid}/ns/net"]


def join(test, near, near_address, network, far, far_address):
    """A pair of devices with these names: near, in this network, and far, in the other."""
    run("ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", str(network.pid))
    test.addCleanup(subprocess.run, ["ip", "link", "delete", near], capture_output=True, check=False)
    for enter_it, device, address in (([], near, near_address), (within(network), far, far_address)):
        run(*enter_it, "ip", "address", "add", f"{address}/24", "dev", device)
        run(*enter_it, "ip", "link", "set", device, "up")
