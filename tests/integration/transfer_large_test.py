#!/usr/bin/env python3
"""One transfer of 4 GiB and a byte, written and read back: no length on its way has 32 bits."""

import harness

BYTES = (1 << 32) + 1
NEEDED_KB = 18 << 20  # the target's buffer, and two of the initiator's


def available_kb():
    with open("/proc/meminfo", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("MemAvailable:"))


class Large(harness.StarlingTest):
    def test_more_than_32_bits(self):
        if available_kb() < NEEDED_KB:
            self.skipTest(f"less than {NEEDED_KB >> 20} GiB of memory are free")
        flags = ["--protocol=tcp", f"--buffer_size={BYTES}", f"--block_size={BYTES}", "--batch_size=1", "--threads=1",
                 "--timeout=600s"]
        target = self.start("starling-bench", "transfer", "--mode=target", *flags)
        name = target.wait_line("serves").split(" ")[0]
        initiator = self.start("starling-bench", "transfer", f"--segment_id={name}", *flags, "--verify", "--duration=1")
        self.assertEqual(initiator.wait(5 * harness.DEADLINE_S), 0, initiator.output)
        self.assertIn(f"Verified: {BYTES} bytes, 0 wrong", initiator.output)


if __name__ == "__main__":
    harness.main()
