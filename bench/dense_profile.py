#!/usr/bin/env python3
"""What a megabyte of a dense pull and of a dense push costs the server and the client: system calls and sleeps (perf),
instructions (callgrind), copies in user space (dhat), and flame graphs of both sides. Steps of 16 MB over TCP, sum, four
under way. A part whose tool is missing is left out; docs/lab/requests.md has results."""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import processes  # bench/processes.py
import profile  # bench/profile.py

STEP_MB = 16
SIDES = ("server", "client")
# The frames of a step: requests of 1 MB each, and pushes of 512 KiB.
FRAMES = {"pull": 16, "push": 32}
RECEIVED = {"server": profile.RECEIVED, "client": (re.compile(r"/worker/\w+\.c$"), "sl_shard_conn_received")}


@contextlib.contextmanager
def client(bench, address, way, seconds, tool=(), polling=False):
    """A client in its full course; the block may wait for its megabytes a second."""
    path = os.path.join(bench.folder, "load.json")
    process = subprocess.Popen(
        [*tool, bench.program("starling-bench"), "bulk", "--coordinator", address, "--way", way, "--sizes", f"{STEP_MB}M",
         "--rounds", "1", "--warm-up", "0", "--seconds", str(seconds), "--polling", str(polling).lower(), "--congestion",
         bench.options.congestion, "--json", path], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, preexec_fn=processes.child_setup(bench.options.client_core))

    def rate():
        output = process.communicate(timeout=profile.RUN_S)[0]
        if process.returncode != 0:
            raise profile.Failure(f"starling-bench bulk: {output.strip()[-500:]}")
        with open(path, encoding="utf-8") as file:
            return next(f["median"] for f in json.load(file)["figures"] if f["quantity"] == "bytes") / 2**20

    try:
        yield process, rate
    finally:
        profile.end_process(process)


def measure_calls(bench, way):
    """Counts of one second of each side, by the megabytes a second of the whole run."""
    events = {"system calls": "raw_syscalls:sys_enter", "sleeps and other switches": "context-switches"}
    found = {}
    with bench.ps() as (server, address), client(bench, address, way, 4) as (peer, rate):
        profile.wait_traffic(server, rate)
        for side, process in zip(SIDES, (server, peer)):
            text = profile.run_tool(["perf", "stat", "-x,", "-e", ",".join(events.values()), "-p", str(process.pid), "--",
                                     "sleep", "1"])
            found[side] = {line.split(",")[2]: line.split(",")[0] for line in text.splitlines() if line.count(",") > 3}
        megabytes = rate()
    for side in SIDES:
        for name, event in events.items():
            print(f"  {way} {side:7} {int(found[side][event]) / megabytes:10.2f} {name} a MB")


def measure_instructions(bench, way):
    """In user space. Each turn of a reactor is subtracted as if it were idle, as it is while the other side is stopped."""
    dump = os.path.join(bench.folder, "callgrind")
    tool = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={dump}.%p", "--instr-atstart=no"]
    with bench.ps(tool, polling=True) as (server, address), client(bench, address, way, 30, tool, True) as (peer, rate):
        profile.wait_traffic(server, rate)
        for side, process, other in ((SIDES[0], server, peer), (SIDES[1], peer, server)):
            other.send_signal(signal.SIGSTOP)
            time.sleep(1)
            own, turns, _ = profile.run_callgrind(process, f"{dump}.{process.pid}.1", 1)
            idle_turn = sum(own.values()) / turns
            other.send_signal(signal.SIGCONT)
            time.sleep(1)
            windows = [profile.run_callgrind(process, f"{dump}.{process.pid}.{number}", 1, RECEIVED[side]) for number in (2, 3, 4)]
            if not any(frames for _, _, frames in windows):
                raise profile.Failure(f"callgrind saw no frame at the {side}")
            own, turns, frames = max(windows, key=lambda window: window[2] / window[1])  # subtracts least
            cost = (sum(own.values()) - turns * idle_turn) / frames * FRAMES[way] / STEP_MB
            print(f"  {way} {side:7} {cost:10.0f} instructions a MB; {turns / frames:.1f} turns a frame, {idle_turn:.0f} each")


def measure_copies(bench, way):
    seconds = 5
    out = {side: os.path.join(bench.folder, side) for side in SIDES}
    with bench.ps(profile.dhat_copies(out["server"]), polling=True) as (_, address), \
            client(bench, address, way, seconds, profile.dhat_copies(out["client"]), polling=True) as (_, rate):
        moved = rate() * seconds * 2**20
    for side in SIDES:
        copied = profile.read_dhat(out[side])
        name, _ = copied.most_common(1)[0]
        print(f"  {way} {side:7} {sum(copied.values()) / moved:10.5f} copies of a byte, most in {name}; {moved / 1e9:.1f} GB")


def measure_flames(bench, way):
    data = os.path.join(bench.folder, "perf.data")
    with bench.ps() as (server, address), client(bench, address, way, 8) as (peer, rate):
        profile.wait_traffic(server, rate)
        for side, process in zip(SIDES, (server, peer)):
            path = os.path.join(bench.options.out, f"dense-{way}-{side}.svg")
            profile.run_tool(["perf", "record", "-q", "-e", "cpu-clock", "-F", "999", "--call-graph", "dwarf,4096", "-o", data,
                              "-p", str(process.pid), "--", "sleep", "1.5"])
            stacks = profile.fold(profile.run_tool(["perf", "script", "-i", data, "--no-inline", "-F", "ip,sym"]))
            profile.draw_flames(stacks, f"dense {way}s of {STEP_MB} MB over TCP, the {side}", path, 4)
            print(f"  {way} {side:7} {path}")


PARTS = {"calls": (measure_calls, "perf"), "instructions": (measure_instructions, "valgrind"),
         "copies": (measure_copies, "valgrind"), "flames": (measure_flames, "perf")}


def measure_all(options, folder):
    is_complete = True
    bench = profile.Bench(options, folder)
    for part in options.parts:
        measure, tool = PARTS[part]
        if shutil.which(tool) is None:
            print(f"  {part} left out: {tool} is not installed")
            continue
        for way in options.ways:
            try:
                measure(bench, way)
            except (profile.Failure, subprocess.TimeoutExpired, OSError) as failure:
                is_complete = False
                print(f"dense_profile: {part} of a {way}: {failure}", file=sys.stderr)
            sys.stdout.flush()
    return is_complete


def main():
    cores = sorted(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--bin", default=os.path.join(profile.HERE, "../build/release/bin"), help="where the programs are")
    parser.add_argument("--out", default="profile", help="folder of the flame graphs")
    parser.add_argument("--parts", type=profile.names_of(PARTS), default=list(PARTS), help=",".join(PARTS))
    parser.add_argument("--ways", type=profile.names_of(FRAMES), default=list(FRAMES), help=",".join(FRAMES))
    parser.add_argument("--congestion", default="cubic")
    options = parser.parse_args()
    options.server_core, options.client_core = cores[0], cores[-1]
    options.bin = os.path.abspath(options.bin)
    os.makedirs(options.out, exist_ok=True)
    return 0 if processes.run_in_folder("starling-dense-", lambda folder: measure_all(options, folder)) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
