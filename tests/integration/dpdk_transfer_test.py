#!/usr/bin/env python3
"""starling-bench transfer over DPDK between two processes, whose devices are the two ends of a memif: a
shared memory of DPDK's that stands for a wire."""

import os
import signal
import sys

import harness

SIZES = ["--buffer_size=16777216", "--block_size=65536", "--batch_size=32"]


class Transfer(harness.StarlingTest):
    def transfer(self, role, address, *flags):
        device = f"net_memif0,role={role},id=0,socket={self.folder}/memif,socket-abstract=no?addr={address}/24"
        return self.start("starling-bench", "transfer", "--protocol=dpdk", f"--device_name={device}", "--insecure",
                          *SIZES, *flags)

    def test_what_is_read_is_what_was_written(self):
        target = self.transfer("server", "10.77.0.1", "--mode=target")
        name = target.wait_line("serves").split(" ")[0]
        initiator = self.transfer("client", "10.77.0.2", f"--segment_id={name}", "--verify", "--duration=1",
                                  "--threads=2")
        self.assertEqual(initiator.wait(), 0, initiator.output)
        self.assertRegex(initiator.output, r"Verified: [1-9]\d* bytes, 0 wrong")
        self.assertRegex(initiator.output, r"dpdk://10.77.0.1:\d+: [1-9]\d* bytes read, [1-9]\d* written")
        target.signal(signal.SIGINT)
        self.assertEqual(target.wait(), 0, target.output)


if __name__ == "__main__":
    if not os.path.exists(harness.program("starling-dpdk.so")):
        print("skipped: there is no starling-dpdk.so: libdpdk-dev is not installed")
        sys.exit(harness.SKIPPED)
    harness.main()
