#!/usr/bin/env python3
"""What a request costs, and where: system calls and where the time goes (perf), instructions (callgrind), and bytes
copied (dhat), each under a load of starling-bench. Of pulls and pushes of rows it measures the server; of dense pulls
and pushes (16 MB a step, four in flight, per MB) and of READs and WRITEs of transfer engines (blocks of 64 KB of two
threads that do not touch, per block) both sides. docs/performance.md says how to read it.

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
import subprocess
import sys
import time

import processes  # bench/processes.py
from processes import Failure

HERE = os.path.dirname(os.path.abspath(__file__))
START_S = 30
RUN_S = 90  # that a tool's answer may take
LOAD_S = 60  # of a load that runs longer than it is looked at
WINDOWS, WINDOW_S = 3, 0.7  # of callgrind
DHAT_S = 3
TURN = "sl_reactor_turn"  # called once for every turn of a reactor
# (file, how the name of a function in it ends): called once for every frame that comes, in this build and in older ones
# that ab.py compares it with.
RECEIVED = re.compile(r"/ps/(server\.c|server/\w+\.c)$"), "on_received"
BY_CLIENT = re.compile(r"/worker/(client/)?\w+\.c$"), "sl_shard_conn_received"
NET_RMA = re.compile(r"/net/rma/\w+\.c$")
BLOCK_BYTES = 65536


# ---- Loads -----------------------------------------------------------------------------------------------------


# Each has: unit, what costs are counted by; sides: {side: what it calls once for every frame}; frames, and bytes that are
# delivered, of a unit; title(); and start(bench, tools): a context with a Running, tools: {side: a command before its own}.


def valgrind_polls(tools):
    """valgrind lets no thread sleep in the ring."""
    return any("valgrind" in tool for tool in tools.values())


def client(bench, tools, name, *flags):
    return processes.Load(bench.options.bin, name, f"--client-core={bench.options.client_core}", *flags,
                          core=bench.options.client_core, tool=tools.get("client", ()))


class Rows:
    """Pulls or pushes of rows."""

    def __init__(self, operation, keys, connections, depth, dim):
        self.operation, self.keys, self.connections, self.depth, self.dim = operation, keys, connections, depth, dim
        self.unit, self.sides, self.frames, self.bytes = "request", {"server": RECEIVED}, 1, keys * dim * 4

    def title(self):
        return f"{self.operation} of {self.keys} row{'s' * (self.keys > 1)}, dim {self.dim}, {self.connections} x {self.depth}"

    @contextlib.contextmanager
    def start(self, bench, tools):
        rows = 10000 if tools else bench.options.rows
        with bench.ps(tools.get("server", ()), polling=valgrind_polls(tools)) as ps:
            load = client(bench, {}, "rows", f"--coordinator={ps.address}", f"--operation={self.operation}",
                          f"--keys={self.keys}", f"--connections={self.connections}", f"--depth={self.depth}",
                          f"--dim={self.dim}", f"--rows={rows}", f"--congestion={bench.options.congestion}")
            with contextlib.closing(Running({"server": ps.child}, load, (), lambda found: found.value("requests"))) as running:
                yield running


class Dense:
    """Pulls or pushes of 16 MB. The frames of a step are requests of 1 MB each, or pushes of 512 KiB."""

    step_mb = 16

    def __init__(self, way):
        self.way, self.unit, self.bytes = way, "MB", 2**20
        self.sides, self.frames = {"server": RECEIVED, "client": BY_CLIENT}, {"pull": 1, "push": 2}[way]

    def title(self):
        return f"dense {self.way}s of {self.step_mb} MB over TCP"

    @contextlib.contextmanager
    def start(self, bench, tools):
        polls = valgrind_polls(tools)
        with bench.ps(tools.get("server", ()), polling=polls) as ps:
            load = client(bench, tools, "bulk", f"--coordinator={ps.address}", f"--congestion={bench.options.congestion}",
                          *(["--polling"] if polls else []))
            with contextlib.closing(Running({"server": ps.child, "client": load.child}, load,
                                            (self.way, self.step_mb << 20),
                                            lambda found: found.value("bytes") / 2**20)) as running:
                yield running


class Blocks:
    """READs or WRITEs of a transfer engine. What is counted is never inlined: it is called through a pointer, or from
    another file."""

    def __init__(self, op):
        self.op, self.unit, self.bytes, self.frames = op, "block", BLOCK_BYTES, 1
        names = {"READ": ("reply_sent", "sl_rma_initiator_sink"), "WRITE": ("sl_rma_target_sink", "data_sent")}[op]
        self.sides = {side: (NET_RMA, name) for side, name in zip(("target", "client"), names)}

    def title(self):
        return f"{self.op}s of {BLOCK_BYTES >> 10} KB, 2 threads x 32"

    @contextlib.contextmanager
    def start(self, bench, tools):
        flags = ["--protocol=" + bench.options.protocol, f"--congestion={bench.options.congestion}",
                 f"--buffer-size={128 << 20}", *(["--polling"] if valgrind_polls(tools) else [])]
        target = subprocess.Popen([*tools.get("target", ()), processes.program(bench.options.bin, "starling-bench"),
                                   "transfer", "--mode=target", *flags], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, text=True,
                                  preexec_fn=processes.child_setup(bench.options.server_core))
        try:
            name = target.stdout.readline().partition(" serves ")[0]
            if not name:
                raise Failure("the target does not start")
            load = client(bench, tools, "transfer", f"--segment-id={name}", *flags)
            with contextlib.closing(Running({"target": target, "client": load.child}, load, (self.op, BLOCK_BYTES, 32, 2),
                                            lambda found: found.value("bytes") / BLOCK_BYTES)) as running:
                yield running
        finally:
            processes.end(target)


LOADS = {
    "pull-1": Rows("pull", 1, 16, 32, 16),
    "pull-100": Rows("pull", 100, 4, 8, 16),
    "push-1": Rows("push", 1, 16, 32, 16),
    "push-100": Rows("push", 100, 4, 8, 16),
    "dense-pull": Dense("pull"),
    "dense-push": Dense("push"),
    "read": Blocks("READ"),
    "write": Blocks("WRITE"),
}
DEFAULT_LOADS = ["pull-1", "pull-100", "push-1", "push-100"]


class Running:
    """A load beside its server. rate(found): units a second of one of its turns."""

    def __init__(self, sides, load, words, rate):
        self.sides, self.load, self.words, self.rate = sides, load, words, rate

    def begin(self, seconds):
        """The load runs for so long."""
        self.load.begin(0, seconds, *self.words)

    def end(self):
        """Units a second of it."""
        return self.rate(self.load.wait())

    def others(self, side):
        """The processes that make the side work."""
        return {self.load.child.pid, *(process.pid for name, process in self.sides.items())} - {self.sides[side].pid}

    def close(self):
        self.load.stop()

    def wait_traffic(self):
        """Until the first side has been at work for a while."""
        process = next(iter(self.sides.values()))

        def used():
            ran_ns = 0
            for path in glob.glob(f"/proc/{process.pid}/task/*/schedstat"):
                with open(path, encoding="ascii") as file:
                    ran_ns += int(file.read().split()[0])
            return ran_ns / 1e9
        end, target = time.monotonic() + START_S, used() + 0.3
        while used() < target:
            if time.monotonic() > end:
                raise Failure("the load does not reach the other side")
            time.sleep(0.05)


def run_tool(args):
    """Runs a tool to its end; returns what it printed."""
    done = subprocess.run(args, capture_output=True, text=True, errors="replace", timeout=RUN_S, check=False)
    if done.returncode != 0:
        raise Failure(f"{args[0]}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout + done.stderr


class Bench:
    """Where programs and files are, and servers, alone or under a tool."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder

    @contextlib.contextmanager
    def ps(self, tool=(), polling=False, workers=1):
        ps = processes.Ps(self.options, self.folder, polling=polling, workers=workers, tool=tool)
        try:
            yield ps
        finally:
            ps.stop()


# ---- System calls ----------------------------------------------------------------------------------------------


def perf_counts(process, events):
    """{event: count} of one second; those that this machine counts."""
    text = run_tool(["perf", "stat", "-x,", "-e", ",".join(events), "-p", str(process.pid), "--", "sleep", "1"])
    fields = [line.split(",") for line in text.splitlines() if line.count(",") > 3]
    return {field[2]: int(field[0]) for field in fields if field[0].isdigit()}


def measure_system_calls(bench, load):
    """Counts of a second of each side, by the units a second of all of it: {side: {what: count}}."""
    events = {"system calls": "raw_syscalls:sys_enter", "io_uring_enter": "syscalls:sys_enter_io_uring_enter",
              "sleeps and other switches": "context-switches"}
    with load.start(bench, {}) as running:
        running.begin(4)
        running.wait_traffic()
        counts = {side: perf_counts(process, events.values()) for side, process in running.sides.items()}
        units = running.end()
    if not all(events["system calls"] in of for of in counts.values()):
        raise Failure("perf counts no system calls here")
    return {side: {what: of[event] / units for what, event in events.items() if event in of} for side, of in counts.items()}


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


def measure_flames(bench, load, name):
    """Draws where each side's time goes. {side: (path, the functions in which most of it was spent, with their
    shares)}"""
    found, data = {}, os.path.join(bench.folder, "perf.data")
    with load.start(bench, {}) as running:
        running.begin(4 * len(load.sides))
        running.wait_traffic()
        for side, process in running.sides.items():
            run_tool(["perf", "record", "-q", "-e", "cpu-clock", "-F", "499", "--call-graph", "dwarf,8192", "-o", data, "-p",
                      str(process.pid), "--", "sleep", "1.5"])
            stacks = fold(run_tool(["perf", "script", "-i", data, "--no-inline", "-F", "ip,sym"]))
            if not stacks:
                raise Failure("perf took no samples")
            path = os.path.join(bench.options.out, f"{name}{'' if len(load.sides) == 1 else '-' + side}.svg")
            draw_flames(stacks, f"{load.title()}, the {side}", path)
            own = collections.Counter()
            for stack, count in stacks.items():
                own[stack[-1]] += count
            found[side] = path, [(function, count / own.total()) for function, count in own.most_common(8)]
    return found


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


def run_callgrind(process, dump, seconds, received=RECEIVED):
    """In so many seconds: instructions of each function itself, turns of the reactor, and calls of `received`: the
    frames that came."""
    run_tool(["callgrind_control", "-i", "on", str(process.pid)])
    time.sleep(seconds)
    run_tool(["callgrind_control", "-d", str(process.pid)])
    run_tool(["callgrind_control", "-i", "off", str(process.pid)])
    own, calls = read_callgrind(dump)
    turns = sum(count for (_, name), count in calls.items() if name == TURN)
    frames = sum(count for (file, name), count in calls.items() if received[0].search(file) and name.endswith(received[1]))
    return own, turns, frames


def idle_cost(running, side, dump):
    """Instructions of a turn of the side's reactor while the other processes are stopped."""
    others = running.others(side)
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(0.5)
    own, turns, _ = run_callgrind(running.sides[side], f"{dump}.1", 1)
    for pid in others:
        os.kill(pid, signal.SIGCONT)
    if turns == 0:
        raise Failure("callgrind saw no turn")
    return sum(own.values()) / turns


def cost_of(running, side, load, dump):
    """(instructions of a unit, those of an idle turn, the functions with the most). How many turns find nothing to do
    depends on what else the machine runs, so every turn is subtracted as if it were idle."""
    idle_turn = idle_cost(running, side, dump)
    time.sleep(0.5)
    windows = [run_callgrind(running.sides[side], f"{dump}.{number}", WINDOW_S, load.sides[side])
               for number in range(2, 2 + WINDOWS)]
    windows = [window for window in windows if window[2]]
    if not windows:
        raise Failure(f"callgrind saw no frame at the {side}")
    costs = [(sum(own.values()) - turns * idle_turn) / frames for own, turns, frames in windows]
    own, _, frames = windows[costs.index(min(costs))]  # in some of them rows may have been created
    top = [(f"{name} ({os.path.basename(file)})", count / frames * load.frames) for (file, name), count in own.most_common(8)]
    return min(costs) * load.frames, idle_turn, top


def count_instructions(bench, load):
    """By the processor's counter, for machines without valgrind: turns and interrupts add some per cent."""
    with load.start(bench, {}) as running:
        running.begin(4)
        running.wait_traffic()
        counts = {side: perf_counts(process, ["instructions:u"]) for side, process in running.sides.items()}
        units = running.end()
    if not all(counts.values()):
        raise Failure("perf counts no instructions here")
    return {side: (sum(of.values()) / units, None, []) for side, of in counts.items()}


def measure_instructions(bench, load):
    """In user space, of each side: {side: as cost_of has it}. Both poll: callgrind does not let a thread sleep in the
    ring."""
    if shutil.which("valgrind") is None:
        return count_instructions(bench, load)
    out = os.path.join(bench.folder, "callgrind")
    tool = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out}.%p", "--instr-atstart=no"]
    with load.start(bench, dict.fromkeys(load.sides, tool)) as running:
        running.begin(LOAD_S)
        running.wait_traffic()
        return {side: cost_of(running, side, load, f"{out}.{process.pid}") for side, process in running.sides.items()}


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
    """Bytes that each side hands to memcpy and its kin, by byte delivered: {side: (all, by function)}."""
    out = {side: os.path.join(bench.folder, f"dhat-{side}") for side in load.sides}
    with load.start(bench, {side: dhat_copies(path) for side, path in out.items()}) as running:
        running.begin(DHAT_S)
        delivered = running.end() * DHAT_S * load.bytes
    found = {}
    for side, path in out.items():
        copied = read_dhat(path)
        found[side] = copied.total() / delivered, [(name, count / delivered) for name, count in copied.most_common(4)]
    return found


# ---- The whole -------------------------------------------------------------------------------------------------


INSTRUCTION_TOOLS = ["valgrind", "callgrind_control"] if shutil.which("valgrind") else ["perf"]
PARTS = {"calls": ["perf"], "flames": ["perf"], "instructions": INSTRUCTION_TOOLS, "copies": ["valgrind"]}


def print_top(side, what, text, top, form):
    print(f"  {side:7} {what:30} {text}")
    for function, value in top:
        print(f"    {value:{form}}  {function}")


def profile(bench, name, part):
    load = LOADS[name]
    if part == "calls":
        for side, counts in measure_system_calls(bench, load).items():
            print(f"  {side:7} per {load.unit:26} " + ", ".join(f"{count:.4f} {what}" for what, count in counts.items()))
    elif part == "flames":
        for side, (path, top) in measure_flames(bench, load, name).items():
            print_top(side, "flame graph", path, top, "6.1%")
    elif part == "instructions":
        for side, (total, idle_turn, top) in measure_instructions(bench, load).items():
            a_key = f", {total / load.keys:.1f} a key" if isinstance(load, Rows) else ""
            idle = f"; of an idle turn {idle_turn:.0f}" if idle_turn else ""
            print_top(side, f"instructions per {load.unit}", f"{total:.0f}{a_key}{idle}", top, "8.1f")
    else:
        for side, (total, top) in measure_copies(bench, load).items():
            print_top(side, "bytes copied per byte", f"{total:.3f}, but for the kernel's copies and loops of our own", top,
                      "6.3f")
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
    parser.add_argument("--loads", type=names_of(LOADS), default=DEFAULT_LOADS, help=",".join(LOADS))
    parser.add_argument("--parts", type=names_of(PARTS), default=list(PARTS), help=",".join(PARTS))
    parser.add_argument("--rows", type=int, default=100000, help="of the table, but under valgrind")
    parser.add_argument("--congestion", default="cubic")
    parser.add_argument("--protocol", default="tcp", help="of transfers")
    parser.add_argument("--server-core", type=int, choices=cores, default=cores[0])
    parser.add_argument("--client-core", type=int, choices=cores, default=cores[1] if len(cores) > 1 else cores[0])
    return parser.parse_args(argv)


def measure_all(options, folder):
    """Whether all parts were measured, but for those whose tools are missing."""
    is_complete = True
    bench = Bench(options, folder)
    for name in options.loads:
        print(f"{name}: {LOADS[name].title()}")
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
