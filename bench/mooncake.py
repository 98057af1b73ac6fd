#!/usr/bin/env python3
"""The Python package mooncake beside the C engine: batch_transfer_sync_write and _read to the same target, in turns."""

import os
import subprocess
import sys

import driver
import processes
import transfer
from driver import Contestant
from processes import Found

OF_ENGINE = 0.9  # target: of its rate at least
SHAPES = {"1 MB x 16": (1 << 20, 16), "64 KB x 128": (65536, 128)}
# The initiator: each line is an operation, bytes of a block, blocks of a batch, and seconds of warm-up and measurement; it is
# answered with bytes a second.
INITIATOR = """
import sys, time, numpy
from mooncake.engine import TransferEngine
engine, name, size = TransferEngine(), sys.argv[1], int(sys.argv[2])
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
memory = numpy.zeros(size, numpy.uint8)
assert engine.register_memory(memory.ctypes.data, size) == 0
remote, at = engine.get_first_buffer_address(name), 0
print("ready", flush=True)
for line in sys.stdin:
    op, block, batch, *durations = line.split()
    move = getattr(engine, f"batch_transfer_sync_{op.lower()}")
    block, batch = int(block), int(batch)
    for duration in map(float, durations):
        begun = now = time.perf_counter()
        moved = 0
        while now - begun < duration or moved == 0:
            offsets = [(at + i * block) % size for i in range(batch)]
            at += batch * block
            assert move(name, [memory.ctypes.data + o for o in offsets], [remote + o for o in offsets], [block] * batch) == 0
            moved += batch * block
            now = time.perf_counter()
    print(moved / (now - begun), flush=True)
"""


def add_arguments(parser):
    transfer.add_arguments(parser)
    parser.set_defaults(duration=2)


check, normalized = transfer.check, transfer.normalized


class Mooncake:
    """The initiator, which waits between turns, at the target of the C engine's load."""

    def __init__(self, bench, transfers):
        root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
        folders = os.path.join(bench.options.bin, "..", "python"), os.path.join(root, "compat", "mooncake", "python")
        self.bench, self.transfers, self.child = bench, transfers, None
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}

    def start(self):
        self.child = subprocess.Popen([sys.executable, "-c", INITIATOR, self.transfers.name, str(transfer.BUFFER_BYTES)],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.environment,
                                      preexec_fn=processes.child_setup(self.bench.options.client_core))
        self.bench.stack.callback(processes.end, self.child)
        if self.child.stdout.readline() != "ready\n":
            raise processes.Failure("the initiator did not start: it needs NumPy (Debian: python3-numpy)")

    def turn(self, op, block, batch):
        def measure(warm_up, seconds):
            with self.transfers.running():
                if self.child is None:
                    self.start()
                self.child.stdin.write(f"{op} {block} {batch} {warm_up} {seconds}\n")
                self.child.stdin.flush()
                return Found(bytes=("1/s", float(self.child.stdout.readline())))
        return measure


def run(bench):
    transfers = transfer.Transfers(bench)
    mooncake = Mooncake(bench, transfers)
    contestants = []
    for name, (block, batch) in SHAPES.items():
        for op in transfer.OPS:
            contestants += [Contestant(f"mooncake, {op}, {name}", mooncake.turn(op, block, batch), "TCP"),
                            transfers.contestant(f"C, {name}", op, block, batch, 1, quantities=("bytes",))]
    bench.measure(contestants)
    for name in SHAPES:
        for op in transfer.OPS:
            bench.compare("bytes", f"mooncake, {op}, {name}", f"{op}, C, {name}", least=OF_ENGINE)
    return "the package mooncake, with lists of addresses made for each call; one thread"


def main(argv):
    return driver.main(["mooncake", *argv])


if __name__ == "__main__":
    driver.run_program(main)
