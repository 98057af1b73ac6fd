#!/usr/bin/env python3
"""What a request costs a starling-ps: system calls and where the time goes (perf), instructions (callgrind), and
bytes copied (dhat), each under a load of starling-bench on a real ps. docs/performance.md says how to read it.

Standard library only. A tool that is missing is named, and its part left out; exit status 1 when a part that
could be measured failed."""

import argparse
import collections
import contextlib
import glob
import html
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import processes  # bench/processes.py

HERE = os.path.dirname(os.path.abspath(__file__))
START_S = 30
RUN_S = 90  # that a load, or a tool's answer, may take
# Called once for every frame that comes, in this build and in older ones that ab.py compares it with.
RECEIVED = re.compile(r"/ps/(server\.c|server/\w+\.c)$"), "on_received"
TURN = "sl_reactor_turn"  # likewise, for every turn of a reactor
Load = collections.namedtuple("Load", "benchmark keys connections depth dim")
LOADS = {
    "pull-1": Load("pull", 1, 16, 32, 16),
    "pull-100": Load("pull", 100, 4, 8, 16),
    "push-1": Load("push", 1, 16, 32, 16),
    "push-100": Load("push", 100, 4, 8, 16),
}


class Failure(Exception):
    """A part cannot be measured; what it says is for the user."""


def end_process(process):
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)


def run_tool(args):
    """Runs a tool to its end; returns what it printed."""
    done = subprocess.run(args, capture_output=True, text=True, errors="replace", timeout=RUN_S, check=False)
    if done.returncode != 0:
        raise Failure(f"{args[0]}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout + done.stderr


class Bench:
    """Starts a ps, alone or under a tool, and loads on it."""

    def __init__(self, options, folder):
        self.options = options
        self.folder = folder

    def program(self, name):
        path = os.path.join(self.options.bin, name)
        if not os.access(path, os.X_OK):
            raise Failure(f"{path} is not there: build it, or say where it is with --bin")
        return path

    @contextlib.contextmanager
    def ps(self, tool=(), polling=False, workers=1, more=()):
        with contextlib.closing(socket.socket()) as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PS_", "NETWORK_PS_", "STARLING_", "TF_CONFIG"))}
        env.update(NETWORK_PS_CORE_NUMBER="1", STARLING_TCP_CONGESTION=self.options.congestion,
                   PS_ENABLE_POLLING="true" if polling else "false")
        log_path = os.path.join(self.folder, "ps.log")
        with open(log_path, "wb") as log:
            process = subprocess.Popen([*tool, self.program("starling-ps"), "--ps-hosts", address, "--worker-hosts",
                                        ",".join(["w"] * workers),
                                        "--job-name", "ps", "--task-index", "0", "--lease", "3600", *more],
                                       env=env, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                       preexec_fn=processes.child_setup())
        try:
            os.sched_setaffinity(process.pid, {self.options.server_core})
            end = time.monotonic() + START_S
            while True:
                with open(log_path, encoding="utf-8", errors="replace") as log:
                    text = log.read()
                if " ready: " in text:
                    break
                if process.poll() is not None or time.monotonic() > end:
                    raise Failure(f"starling-ps does not start:\n{text[-1000:]}")
                time.sleep(0.05)
            yield process, address
        finally:
            end_process(process)

    @contextlib.contextmanager
    def load(self, address, load, rows, seconds):
        """A load in its full course; the block may wait for its requests a second."""
        path = os.path.join(self.folder, "load.json")
        process = subprocess.Popen(
            [self.program("starling-bench"), load.benchmark, "--coordinator", address, "--keys", str(load.keys),
             "--connections", str(load.connections), "--depth", str(load.depth), "--dim", str(load.dim),
             "--rows", str(rows), "--rounds", "1", "--warm-up", "0", "--seconds", str(seconds),
             "--client-core", str(self.options.client_core), "--congestion", self.options.congestion, "--json", path],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            preexec_fn=processes.child_setup())

        def rate():
            try:
                output = process.communicate(timeout=RUN_S)[0]
            except subprocess.TimeoutExpired:
                raise Failure(f"starling-bench {load.benchmark} does not end") from None
            if process.returncode != 0:
                raise Failure(f"starling-bench {load.benchmark}: {output.strip()[-500:]}")
            with open(path, encoding="utf-8") as file:
                return next(f["median"] for f in json.load(file)["figures"] if f["quantity"] == "requests")

        try:
            yield rate
        finally:
            end_process(process)


def wait_traffic(process, rate):
    """Until the ps has been at work for a while: its table is then filled, and the load in its course."""
    def used():
        ran_ns = 0
        for path in glob.glob(f"/proc/{process.pid}/task/*/schedstat"):
            with open(path, encoding="ascii") as file:
                ran_ns += int(file.read().split()[0])
        return ran_ns / 1e9

    end = time.monotonic() + START_S
    target = used() + 0.3
    while used() < target:
        if time.monotonic() > end:
            rate()  # says what is wrong with it
            raise Failure("the load does not reach the ps")
        time.sleep(0.05)


# ---- System calls ----------------------------------------------------------------------------------------------


def measure_system_calls(bench, load):
    """Calls a second in a second of the load, by the requests a second of all of it."""
    events = {"all": "raw_syscalls:sys_enter", "io_uring_enter": "syscalls:sys_enter_io_uring_enter"}
    with bench.ps() as (process, address), bench.load(address, load, bench.options.rows, 4) as rate:
        wait_traffic(process, rate)
        text = run_tool(["perf", "stat", "-x,", "-e", ",".join(events.values()), "-p", str(process.pid), "--", "sleep", "1"])
        counts = {line.split(",")[2]: line.split(",")[0] for line in text.splitlines() if line.count(",") > 3}
        requests = rate()
    if not counts.get(events["all"], "").isdigit():
        raise Failure(f"perf counts no system calls here: {text.strip()[-200:]}")
    return {name: int(counts[event]) / requests for name, event in events.items()}


# ---- Flame graphs ----------------------------------------------------------------------------------------------


def fold(script):
    """perf script's stacks, outermost frame first, each with how often it was met."""
    stacks = collections.Counter()
    for block in script.split("\n\n"):
        lines = block.strip("\n").split("\n")
        frames = [line.split(None, 1)[1] for line in lines if re.match(r"\s+[0-9a-f]+ \S", line)]
        frames = [re.sub(r"\+0x[0-9a-f]+$", "", frame).strip() for frame in frames]
        if frames:
            stacks[tuple(reversed(frames))] += 1
    return stacks


def tree_of(stacks):
    root = {"count": 0, "below": {}}
    for stack, count in stacks.items():
        node = root
        node["count"] += count
        for frame in stack:
            node = node["below"].setdefault(frame, {"count": 0, "below": {}})
            node["count"] += count
    return root


def draw_flames(stacks, title, path, least=0.5):
    """An SVG: a frame is as wide as its share of the samples and stands on its caller; hovering tells both. Frames
    narrower than `least` of 1200 are left out."""
    width, row, margin = 1200, 17, 40
    root = tree_of(stacks)
    boxes = []

    def place(node, x, depth):
        for name, below in sorted(node["below"].items()):
            share = below["count"] / root["count"]
            if share * width >= least:
                boxes.append((name, x, depth, share))
                place(below, x, depth + 1)
            x += share * width

    place(root, 0, 0)
    rows = 1 + max((depth for _, _, depth, _ in boxes), default=0)
    height = margin + rows * row + 10
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="monospace" '
                   f'font-size="11">\n<rect width="100%" height="100%" fill="white"/>\n'
                   f'<text x="10" y="20" font-size="14">{html.escape(title)}: {root["count"]} samples</text>\n')
        for name, x, depth, share in boxes:
            y = height - 10 - (depth + 1) * row
            hue = 20 + sum(name.encode()) % 40
            shown = name[:int(share * width / 6.8)] if share * width > 20 else ""
            file.write(f'<g><title>{html.escape(name)}: {share:.1%}</title><rect x="{x:.1f}" y="{y}" width="{share * width:.1f}" '
                       f'height="{row - 1}" fill="hsl({hue},75%,70%)"/><text x="{x + 2:.1f}" y="{y + 12}">'
                       f'{html.escape(shown)}</text></g>\n')
        file.write("</svg>\n")


def measure_flames(bench, load, path):
    """Draws where the ps's time goes; returns the functions in which most of it was spent, with their shares."""
    data = os.path.join(bench.folder, "perf.data")
    with bench.ps() as (process, address), bench.load(address, load, bench.options.rows, 4) as rate:
        wait_traffic(process, rate)
        run_tool(["perf", "record", "-q", "-e", "cpu-clock", "-F", "499", "--call-graph", "dwarf,8192", "-o", data, "-p",
                  str(process.pid), "--", "sleep", "1.5"])
    stacks = fold(run_tool(["perf", "script", "-i", data, "--no-inline", "-F", "ip,sym"]))
    if not stacks:
        raise Failure("perf took no samples")
    draw_flames(stacks, f"starling-ps, {describe(load)}", path)
    total = sum(stacks.values())
    own = collections.Counter()
    for stack, count in stacks.items():
        own[stack[-1]] += count
    return [(name, count / total) for name, count in own.most_common(8)]


# ---- Instructions ----------------------------------------------------------------------------------------------


def read_callgrind(path):
    """Instructions of each function itself, by (file, name), and how often each was called."""
    names = {}
    own, calls = collections.Counter(), collections.Counter()
    at = {"fl": "", "fn": "", "cfl": None, "cfn": ""}
    skip = False
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            found = re.match(r"(fl|fi|fe|fn|cfi|cfl|cfn)=\((\d+)\)(?: (.*))?$", line.rstrip("\n"))
            if found:
                kind, number, name = found.groups()
                space = "fn" if kind in ("fn", "cfn") else "fl"
                if name is not None:
                    names[space, number] = name
                text = names[space, number]
                if kind in ("fl", "fn"):
                    at[kind] = text
                elif kind in ("cfi", "cfl"):
                    at["cfl"] = text
                elif kind == "cfn":
                    at["cfn"] = text
            elif line.startswith("calls="):
                calls[at["cfl"] or at["fl"], at["cfn"]] += int(line[6:].split()[0])
                at["cfl"] = None
                skip = True  # the line below is what the callee cost
            elif line[:1] in "0123456789+-*":
                if not skip:
                    own[at["fl"], at["fn"]] += int(line.split()[1])
                skip = False
    return own, calls


def count_instructions(bench, load):
    """By the processor's counter, for machines without valgrind: turns and interrupts add some per cent."""
    with bench.ps(polling=True) as (process, address), bench.load(address, load, bench.options.rows, 4) as rate:
        wait_traffic(process, rate)
        text = run_tool(["perf", "stat", "-x,", "-e", "instructions:u", "-p", str(process.pid), "--", "sleep", "1"])
        requests = rate()
    count = next((line.split(",")[0] for line in text.splitlines() if "instructions" in line), "")
    if not count.isdigit():
        raise Failure(f"perf counts no instructions here: {text.strip()[-200:]}")
    return int(count) / requests, None, []


def run_callgrind(process, dump, seconds, received=RECEIVED):
    """In so many seconds: instructions of each function itself, turns of the reactor, and calls of `received`: the
    frames that came."""
    run_tool(["callgrind_control", "-i", "on", str(process.pid)])
    time.sleep(seconds)
    run_tool(["callgrind_control", "-d", str(process.pid)])
    run_tool(["callgrind_control", "-i", "off", str(process.pid)])
    own, calls = read_callgrind(dump)
    turns = sum(count for (_, name), count in calls.items() if name == TURN)
    frames = sum(count for (file, name), count in calls.items() if received[0].search(file) and name == received[1])
    return own, turns, frames


def measure_instructions(bench, load):
    """User-space instructions of the whole ps for each frame that came, without those of turns; of an idle turn; and
    the functions with the most. The ps polls: callgrind does not let a thread sleep in the ring. How many turns find
    nothing to do depends on what else the machine runs, so every turn is subtracted as if it were idle."""
    if shutil.which("valgrind") is None:
        return count_instructions(bench, load)
    out = os.path.join(bench.folder, "callgrind.out")
    tool = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--instr-atstart=no"]
    with bench.ps(tool, polling=True) as (process, address):
        own, turns, _ = run_callgrind(process, out + ".1", 1)
        if turns == 0:
            raise Failure("callgrind saw no turn")
        idle_turn = sum(own.values()) / turns
        with bench.load(address, load, 10000, 6) as rate:
            wait_traffic(process, rate)
            found = [run_callgrind(process, f"{out}.{number}", 0.7) for number in (2, 3, 4)]
            rate()
    if not all(frames for _, _, frames in found):
        raise Failure("callgrind saw no request")
    totals = [(sum(own.values()) - turns * idle_turn) / frames for own, turns, frames in found]
    total = min(totals)  # some windows may have seen rows being created
    own, _, frames = found[totals.index(total)]
    top = [(f"{name} ({os.path.basename(file)})", count / frames) for (file, name), count in own.most_common(8)]
    return total, idle_turn, top


# ---- Bytes copied ----------------------------------------------------------------------------------------------


def caller_of(frames):
    """The first of ours in a stack of dhat: "0x1234: name (file.c:12)"."""
    for frame in frames:
        found = re.match(r"0x[0-9A-F]+: (\S+) \((\S+\.c):\d+\)", frame)
        if found and not found.group(1).startswith(("mem", "__mem")):
            return f"{found.group(1)} ({found.group(2)})"
    return "others"


def dhat_copies(path):
    """The command before a program's, which counts the bytes that it copies."""
    return ["valgrind", "-q", "--tool=dhat", "--mode=copy", f"--dhat-out-file={path}"]


def read_dhat(path):
    """Bytes copied, by the function of ours."""
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    copied = collections.Counter()
    for place in report["pps"]:
        copied[caller_of([report["ftbl"][i] for i in place["fs"]])] += place["tb"]
    return copied


def measure_copies(bench, load):
    """Bytes that the ps hands to memcpy and its kin, by byte of rows or gradients delivered."""
    out = os.path.join(bench.folder, "dhat.out")
    tool = dhat_copies(out)
    seconds = 3
    with bench.ps(tool, polling=True) as (_, address), bench.load(address, load, 10000, seconds) as rate:
        delivered = rate() * seconds * load.keys * load.dim * 4
    copied = read_dhat(out)
    return sum(copied.values()) / delivered, [(name, count / delivered) for name, count in copied.most_common(4)]


# ---- The whole -------------------------------------------------------------------------------------------------


def describe(load):
    return f"{load.benchmark} of {load.keys} row{'s' * (load.keys > 1)}, dim {load.dim}, {load.connections} x {load.depth}"


INSTRUCTION_TOOLS = ["valgrind", "callgrind_control"] if shutil.which("valgrind") else ["perf"]
PARTS = {"calls": ["perf"], "flames": ["perf"], "instructions": INSTRUCTION_TOOLS, "copies": ["valgrind"]}


def profile(bench, name, part):
    load = LOADS[name]
    if part == "calls":
        found = measure_system_calls(bench, load)
        print(f"  system calls per request       {found['all']:.4f}, of which io_uring_enter {found['io_uring_enter']:.4f}")
    elif part == "flames":
        path = os.path.join(bench.options.out, f"{name}.svg")
        top = measure_flames(bench, load, path)
        print(f"  flame graph                    {path}")
        for function, share in top:
            print(f"    {share:6.1%}  {function}")
    elif part == "instructions":
        total, idle_turn, top = measure_instructions(bench, load)
        print(f"  instructions per request       {total:.0f}, {total / load.keys:.1f} a key" +
              (f"; of an idle turn {idle_turn:.0f}" if idle_turn else ""))
        for function, count in top:
            print(f"    {count:8.1f}  {function}")
    else:
        total, top = measure_copies(bench, load)
        print(f"  bytes copied per byte          {total:.3f}, but for the kernel's copies and loops of our own")
        for function, share in top:
            print(f"    {share:6.3f}  {function}")
    sys.stdout.flush()


def names_of(known):
    def parse(text):
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r}: accepts some of {','.join(known)}")
        return names
    return parse


def parse_arguments(argv=None):
    cores = sorted(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--bin", default=os.path.join(HERE, "../build/release/bin"), help="where the programs are")
    parser.add_argument("--out", default="profile", help="folder of the flame graphs")
    parser.add_argument("--loads", type=names_of(LOADS), default=list(LOADS), help=",".join(LOADS))
    parser.add_argument("--parts", type=names_of(PARTS), default=list(PARTS), help=",".join(PARTS))
    parser.add_argument("--rows", type=int, default=100000, help="of the table, but under valgrind")
    parser.add_argument("--congestion", default="cubic")
    parser.add_argument("--server-core", type=int, choices=cores, default=cores[0])
    parser.add_argument("--client-core", type=int, choices=cores, default=cores[1] if len(cores) > 1 else cores[0])
    return parser.parse_args(argv)


def measure_all(options, folder):
    """Whether all parts were measured, but for those whose tools are missing."""
    is_complete = True
    bench = Bench(options, folder)
    for name in options.loads:
        print(f"{name}: {describe(LOADS[name])}")
        for part in options.parts:
            missing = [tool for tool in PARTS[part] if shutil.which(tool) is None]
            if missing:
                print(f"  {part} left out: {' and '.join(missing)} not installed (packages/bench.txt)")
                continue
            try:
                profile(bench, name, part)
            except (Failure, subprocess.TimeoutExpired, OSError) as failure:
                is_complete = False
                print(f"profile: {part} of {name}: {failure}", file=sys.stderr)
    return is_complete


def main():
    options = parse_arguments()
    options.bin = os.path.abspath(options.bin)
    os.makedirs(options.out, exist_ok=True)
    return 0 if processes.run_in_folder("starling-profile-", lambda folder: measure_all(options, folder)) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
