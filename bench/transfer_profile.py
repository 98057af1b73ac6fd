#!/usr/bin/env python3
"""What a block of a READ and of a WRITE costs each side of the transfer engine: system calls (perf), instructions
(callgrind) and copies in user space (dhat). Two threads move blocks of 64 KB that do not touch, so that none are
merged. A part whose tool is missing is left out; docs/lab/transfer.md has results."""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import processes  # bench/processes.py
import profile  # bench/profile.py

BLOCK_BYTES = 65536
SHAPE = ["--buffer_size=33554432", f"--block_size={BLOCK_BYTES}", "--batch_size=32", "--threads=2"]
SIDES = ("initiator", "target")
# Called once for each block, and never inlined: through a pointer, or from another file.
CALLED = {("read", "initiator"): "sl_rma_initiator_sink", ("read", "target"): "reply_sent",
          ("write", "initiator"): "data_sent", ("write", "target"): "sl_rma_target_sink"}
START_S = 5  # of the initiator under valgrind, until it moves blocks
NET_RMA = re.compile(r"/net/rma/\w+\.c$")


class Pair:
    """A target and an initiator; the command of a tool may stand before each side's."""

    def __init__(self, options, folder, op, tools):
        self.options, self.folder, self.op, self.tools = options, folder, op, tools
        self.flags = [f"--protocol={options.protocol}", f"--congestion={options.congestion}", *SHAPE, *options.flags]
        if any("valgrind" in tool for tool in tools.values()):
            self.flags.append("--polling")  # valgrind lets no thread sleep in the ring
        self.target = self.start("target", "--mode=target")
        self.name = self.target.stdout.readline().partition(" serves ")[0]
        if not self.name:
            self.fail("the target does not start")

    def start(self, side, *args):
        cores = sorted(os.sched_getaffinity(0))
        command = [*self.tools.get(side, []), os.path.join(self.options.bin, "starling-bench"), "transfer"]
        with open(os.path.join(self.folder, "log"), "ab") as log:
            return subprocess.Popen([*command, *args, *self.flags], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=log, text=True,
                                    preexec_fn=processes.child_setup(cores[SIDES.index(side) % len(cores)]))

    def fail(self, what):
        with open(os.path.join(self.folder, "log"), encoding="utf-8") as log:
            raise profile.Failure(f"{what}: {log.read()[-500:]}")

    def initiate(self, seconds):
        self.initiator = self.start("initiator", f"--segment_id={self.name}", f"--operation={self.op}",
                                    f"--duration={seconds}")

    def end(self):
        """Returns how many blocks were moved."""
        output = self.initiator.communicate(timeout=profile.RUN_S)[0]
        if self.initiator.returncode != 0:
            self.fail("the initiator failed")
        self.target.send_signal(signal.SIGTERM)
        self.target.communicate(timeout=profile.RUN_S)
        return int(re.search(r"batch count (\d+)", output)[1]) * 32


def measure_calls(options, folder, op):
    """Of the whole run."""
    out = {side: os.path.join(folder, side) for side in SIDES}
    perf = ["perf", "stat", "-x,", "-e", "raw_syscalls:sys_enter", "-o"]
    pair = Pair(options, folder, op, {"initiator": [*perf, out["initiator"]]})
    counter = subprocess.Popen([*perf, out["target"], "-p", str(pair.target.pid)], preexec_fn=processes.child_setup())
    pair.initiate(options.seconds)
    blocks = pair.end()
    counter.wait(profile.RUN_S)
    for side in SIDES:
        with open(out[side], encoding="utf-8") as file:
            count = re.search(r"^(\d+),", file.read(), re.MULTILINE)
        if count is None:
            raise profile.Failure("perf counts no system calls here")
        print(f"  {op} {side:9} {int(count[1]) / blocks:12.2f} system calls")


def measure_instructions(options, folder, op):
    """Each turn of the reactor is subtracted as if it were idle, like the target's before the first request."""
    dump = os.path.join(folder, "callgrind")
    tool = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={dump}.%p", "--instr-atstart=no"]
    pair = Pair(options, folder, op, dict.fromkeys(SIDES, tool))
    own, turns, _ = profile.run_callgrind(pair.target, f"{dump}.{pair.target.pid}.1", 1)
    idle_turn = sum(own.values()) / turns
    pair.initiate(profile.START_S)
    time.sleep(START_S)
    for side, process, number in (("initiator", pair.initiator, 1), ("target", pair.target, 2)):
        end = time.monotonic() + profile.START_S
        seen = blocks = 0
        while (seen == 0 or blocks == 0) and time.monotonic() < end:  # a window behind the first with blocks
            seen = blocks
            own, turns, blocks = profile.run_callgrind(process, f"{dump}.{process.pid}.{number}", options.seconds,
                                                       (NET_RMA, CALLED[op, side]))
            number += 1
        if blocks == 0:
            raise profile.Failure("callgrind saw no block")
        print(f"  {op} {side:9} {(sum(own.values()) - turns * idle_turn) / blocks:12.0f} instructions")
    pair.end()


def measure_copies(options, folder, op):
    out = {side: os.path.join(folder, side) for side in SIDES}
    pair = Pair(options, folder, op, {side: profile.dhat_copies(out[side]) for side in SIDES})
    pair.initiate(options.seconds)
    blocks = pair.end()
    for side in SIDES:
        copied = profile.read_dhat(out[side])
        name, _ = copied.most_common(1)[0]
        print(f"  {op} {side:9} {sum(copied.values()) / blocks / BLOCK_BYTES:12.3f} copies of a byte, most in {name}")


PARTS = {"calls": (measure_calls, "perf"), "instructions": (measure_instructions, "valgrind"),
         "copies": (measure_copies, "valgrind")}


def measure_all(options, folder):
    is_complete = True
    for part in options.parts:
        measure, tool = PARTS[part]
        if shutil.which(tool) is None:
            print(f"  {part} left out: {tool} is not installed")
            continue
        for op in ("read", "write"):
            try:
                measure(options, folder, op)
            except (profile.Failure, subprocess.TimeoutExpired, OSError) as failure:
                is_complete = False
                print(f"transfer_profile: {part} of a {op}: {failure}", file=sys.stderr)
            finally:
                processes.end_children()
    return is_complete


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--bin", default=os.path.join(profile.HERE, "../build/release/bin"), help="where the programs are")
    parser.add_argument("--protocol", default="tcp")
    parser.add_argument("--congestion", default="cubic")
    parser.add_argument("--parts", type=profile.names_of(PARTS), default=list(PARTS), help=",".join(PARTS))
    parser.add_argument("--seconds", type=float, default=2, help="of each run")
    parser.add_argument("flags", nargs="*", help="more flags of starling-bench transfer, behind --")
    options = parser.parse_args()
    return 0 if processes.run_in_folder("starling-transfer-", lambda folder: measure_all(options, folder)) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
