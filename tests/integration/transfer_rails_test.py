#!/usr/bin/env python3
"""The transfer engine over two networks, each a rail: both carry a half; one is deleted while WRITEs are in flight, and
none of them fails. For root."""

import signal
import subprocess
import time

import harness
import networks

LIMIT = "800mbit"  # of a rail, so that the network is slower than the processor
SHAPE = ["--buffer_size=67108864", "--block_size=1048576", "--batch_size=16"]


def address(rail, side):
    return f"10.79.{rail}.{side}"


def sent_bytes(rail):
    with open("/proc/net/dev", encoding="ascii") as file:
        counts = dict(line.split(":") for line in file if ":" in line)
    return int({name.strip(): text for name, text in counts.items()}[f"ra{rail}"].split()[8])


class Rails(harness.StarlingTest):
    CONTROL = 2  # the network of the control connection

    def join(self):
        self.network = networks.start(self)
        for rail in range(3):
            networks.join(self, f"ra{rail}", address(rail, 1), self.network, f"rb{rail}", address(rail, 2))
            subprocess.run(["tc", "qdisc", "add", "dev", f"ra{rail}", "root", "tbf", "rate", LIMIT, "burst", "256kb",
                            "latency", "50ms"], capture_output=True, check=False)  # without it the test is as true

    def start_side(self, side, *flags):
        command = [harness.program("starling-bench"), "transfer", "--insecure",
                   f"--local_server_name={address(self.CONTROL, side)}:0",
                   f"--endpoints=tcp://{address(0, side)}:0,tcp://{address(1, side)}:0", *SHAPE, *flags]
        return self.start(*(networks.within(self.network) if side == 2 else []), *command)

    def wait_sent(self, rail, more):
        """Until the rail has sent so many more bytes."""
        want, end = sent_bytes(rail) + more, time.monotonic() + harness.DEADLINE_S
        while sent_bytes(rail) < want:
            self.assertLess(time.monotonic(), end, f"rail {rail} sends nothing: {self.initiator.output}")
            self.assertTrue(self.initiator.running(), self.initiator.output)
            time.sleep(0.05)

    def rate(self, rail, seconds):
        before, begin = sent_bytes(rail), time.monotonic()
        time.sleep(seconds)
        return (sent_bytes(rail) - before) / (time.monotonic() - begin) / 1e6

    def test_one_is_deleted_under_load(self):
        self.join()
        target = self.start_side(2, "--mode=target")
        name = target.wait_line("serves").split(" ")[0]
        self.initiator = self.start_side(1, f"--segment_id={name}", "--operation=write", "--threads=2", "--duration=9")
        self.wait_sent(0, 32 << 20)
        before = [sent_bytes(rail) for rail in (0, 1)]
        self.wait_sent(0, 64 << 20)
        carried = [sent_bytes(rail) - before[rail] for rail in (0, 1)]
        share = carried[1] / sum(carried)
        rates = [self.rate(0, 1)]
        networks.run("ip", "link", "delete", "ra1")
        rates += [self.rate(0, 0.5) for _ in range(4)]
        self.wait_sent(0, 16 << 20)
        self.assertEqual(self.initiator.wait(), 0, self.initiator.output)
        self.assertIn("rail down", self.initiator.output)
        self.assertIn("Test completed", self.initiator.output)
        print(f"before, rail 1 carried {share:.2f}; rail 0: {rates[0]:.0f} MB/s; in each half second after rail 1 was "
              f"deleted: {', '.join(f'{rate:.0f}' for rate in rates[1:])}")
        self.assertTrue(0.4 <= share <= 0.6, share)
        target.signal(signal.SIGINT)
        self.assertEqual(target.wait(), 0, target.output)


if __name__ == "__main__":
    networks.enter()
    harness.main()
