#!/usr/bin/env python3
"""The driver of the benchmarks: driver.py NAME [OPTION...], or starling-bench NAME [OPTION...].

A module of the benchmark's name says what takes part and what is compared. This one runs it: in every round each
contestant once, in an order that shifts by one from round to round. Ratios are taken within a round. Rounds in which
other programs took processor time are left out of the figures of all, unless there is no other.
"""

import argparse
import contextlib
import functools
import importlib
import os
import signal
import socket
import subprocess
import sys
import time

import processes
import report
from processes import Failure

# The module of each benchmark.
NAMES = {name: name for name in (
    "bulk", "calls", "checkpoint", "cold", "dpdk", "elastic", "engine", "forget", "ipc", "mooncake", "narrow", "objects", "observe", "python", "rdma", "replicas", "rows", "serve",
    "serving", "table", "train", "transfer", "weights", "workers")}
NAMES.update(pull="exchange", push="exchange", pushpull="exchange", scale="exchange", tables="tables_publish")
ROUNDS_MAX = 64
DECIMAL = {"k": 10**3, "M": 10**6, "G": 10**9}
BINARY = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
OVER = {"tcp": "TCP", "shm": "shared memory"}


# ---- Contestants -----------------------------------------------------------------------------------------------


class Contestant:
    """Something that is measured in turns. turn(warm_up, seconds) returns what it found (processes.Found); before and
    after that the contestant takes no processor time. x: (name, value) of the point of a curve. spread: whether the times
    of its requests are reported."""

    def __init__(self, name, turn, transport="", x=None, spread=False):
        self.name, self.turn, self.transport, self.x, self.spread = name, turn, transport, x, spread
        self.figures, self.times = {}, []

    def keep(self, found):
        """One round more."""
        for quantity, (unit, value) in found.items():
            figure = self.figures.setdefault(quantity, {"name": self.name, "quantity": quantity, "unit": unit,
                                                        "transport": self.transport, "samples": []})
            figure["samples"].append(value)
            if self.x:
                figure["x_name"], figure["x"] = self.x
        if self.spread:
            self.times.append(found.times)

    def distribution(self):
        buckets = {}
        for times in self.times:
            for upper, count in times["buckets"]:
                buckets[upper] = buckets.get(upper, 0) + count
        return {"name": self.name, "count": sum(buckets.values()), "max": max(times["max"] for times in self.times),
                "buckets": sorted(map(list, buckets.items()))}


class Bench:
    """One run of a benchmark: its processes, figures and ratios."""

    def __init__(self, name, options, folder, stack):
        self.name, self.options, self.folder, self.stack = name, options, folder, stack
        self.figures, self.ratios, self.distributions = [], [], []
        self.left_out = self.disturbed = 0

    # -- Processes

    def ps(self, parked=True, **more):
        """A server, which ends with the benchmark."""
        ps = processes.Ps(self.options, self.folder, **more)
        self.stack.callback(ps.kill)
        if parked:
            ps.park()
        return ps

    def load(self, name, *flags, **more):
        load = processes.Load(self.options.bin, name, *self.of_cores(), *flags, **more)
        self.stack.callback(load.stop)
        return load

    def of_cores(self):
        return f"--server-core={self.options.server_core}", f"--client-core={self.options.client_core}"

    def start_once(self, name, *flags, **more):
        """A function that returns the load, which starts at the first call: a server must run then."""
        return functools.cache(lambda: self.load(name, *flags, **more))

    def served(self, ps, name, *flags, words=(), cpu=None):
        """The turns of a load on a server that is stopped between them. cpu(found, seconds): adds to what was found, of
        the server's processor time."""
        load = self.start_once(name, f"--coordinator={ps.address}", *flags)

        def turn(warm_up, seconds):
            with ps.running():
                ready, before = load(), ps.cpu_seconds()
                found = ready.turn(warm_up, seconds, *words)
                if cpu:
                    cpu(found, ps.cpu_seconds() - before)
            return found
        return turn

    def alone(self, name, *flags, words=(), **more):
        """The turns of a load without a server."""
        load = self.start_once(name, *flags, **more)
        return lambda warm_up, seconds: load().turn(warm_up, seconds, *words)

    def peer(self, kind, **more):
        """Another system, or None if it is not installed."""
        if not all(map(processes.find_program, kind.programs)):
            print(f"{kind.title} is left out: install Debian's {kind.packages} to compare", file=sys.stderr)
            return None
        return kind(self.options, **more)

    # -- Rounds

    def measure(self, contestants):
        """Runs all rounds of these contestants, and adds what they found."""
        rounds = []
        for number in range(self.options.rounds):
            found, is_disturbed = [None] * len(contestants), False
            for turn in range(len(contestants)):
                index = (turn + number) % len(contestants)
                found[index], was_disturbed = self.run_turn(contestants[index], number)
                is_disturbed |= was_disturbed
            rounds.append((found, is_disturbed))
        quiet = [found for found, is_disturbed in rounds if not is_disturbed]
        self.left_out += len(rounds) - len(quiet) if quiet else 0
        self.disturbed += 0 if quiet else len(rounds)
        for found in quiet or [found for found, _ in rounds]:
            for contestant, one in zip(contestants, found):
                contestant.keep(one)
        for contestant in contestants:
            self.figures += contestant.figures.values()
            self.distributions += [contestant.distribution()] if contestant.spread else []

    def run_turn(self, contestant, number):
        """What it found, and whether other programs ran meanwhile."""
        show_progress(f"round {number + 1} of {self.options.rounds}: {contestant.name} ")
        others, begun = processes.others_seconds(), time.monotonic()
        try:
            found = contestant.turn(self.options.warm_up, self.options.seconds)
        except Failure as failure:
            raise Failure(f"{contestant.name} failed in round {number + 1}: {failure}") from None
        took = time.monotonic() - begun
        show_progress("")
        return found, processes.others_seconds() - others > report.QUIET_PERCENT / 100 * took

    # -- Results

    def figure(self, name, quantity, x=None):
        """None: the contestant did not take part."""
        return next((figure for figure in self.figures if (figure["name"], figure["quantity"]) == (name, quantity)
                     and figure.get("x") == x), None)

    def add(self, name, quantity, unit, *samples, transport=""):
        """A figure that no contestant has measured."""
        figure = {"name": name, "quantity": quantity, "unit": unit, "transport": transport, "samples": list(samples)}
        self.figures.append(figure)
        return figure

    def sample(self, name, quantity, unit, value, transport=""):
        """One more sample of a figure, for a benchmark that measures its rounds itself. Returns the value."""
        figure = self.figure(name, quantity) or self.add(name, quantity, unit, transport=transport)
        figure["samples"].append(value)
        return value

    def sample_ratio(self, name, value, least=0, most=0):
        """The same of a ratio."""
        ratio = next((ratio for ratio in self.ratios if ratio["name"] == name), None)
        if ratio is None:
            ratio = {"name": name, "transport": "", "least": least, "most": most, "samples": []}
            self.ratios.append(ratio)
        ratio["samples"].append(value)

    def ratio(self, name, a, b, least=0, most=0, mixed=False):
        """a / b of two figures, round by round, if both were measured; held against `least` or `most` if they are not 0.
        Both have the same transport, or one has none, unless `mixed`: then the name tells both."""
        if a is None or b is None:
            return
        transports = {figure["transport"] for figure in (a, b)} - {""}
        if len(transports) > 1 and not mixed:
            raise ValueError(f"{name}: compares {' with '.join(transports)}")
        samples = [None if None in pair or pair[1] == 0 else pair[0] / pair[1] for pair in zip(a["samples"], b["samples"])]
        self.ratios.append({"name": name, "transport": "" if mixed else "".join(transports), "least": least, "most": most,
                            "samples": samples})

    def compare(self, quantity, name, other, least=0, most=0):
        """The ratio of two contestants."""
        self.ratio(f"{name} / {other}", self.figure(name, quantity), self.figure(other, quantity), least, most)

    def raw(self, setting):
        """For report.finish."""
        options = self.options
        return {"benchmark": self.name, "setting": setting, "build": build_of(options.bin), "rounds": options.rounds,
                "rounds_left_out": self.left_out, "rounds_disturbed": self.disturbed, "seconds": options.seconds,
                "warm_up": options.warm_up, "server_core": options.server_core, "client_core": options.client_core,
                "figures": self.figures, "ratios": self.ratios, "distributions": self.distributions}


def show_progress(text):
    """On one line that the next replaces, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def build_of(folder):
    """starling 0.1.0, gcc 12.2.0, RelWithDebInfo"""
    return subprocess.run([processes.program(folder, "starling-bench"), "--build"], check=True, text=True,
                          stdout=subprocess.PIPE).stdout.strip()


# ---- Options ---------------------------------------------------------------------------------------------------


def scaled(text, suffixes):
    """A number with one of the suffixes, "20M"; ValueError: it is none."""
    factor = suffixes.get(text[-1:], 1)
    digits = text if factor == 1 else text[:-1]
    if not digits.isascii() or not digits.isdigit():
        raise ValueError
    return int(digits) * factor


def number(flag, least, most, kind=int):
    """The type of an argument within limits."""
    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not least <= value <= most:
            raise argparse.ArgumentTypeError(f"--{flag}={text}: accepts a number from {least:g} to {most:g}")
        return value
    return parse


def real(flag, least, most):
    return number(flag, least, most, float)


class Numbers(list):
    """With the text that they were read from."""

    text = ""


def numbers(flag, least, most, count=16, suffixes=DECIMAL, multiple=1, what="numbers"):
    """The type of an argument with commas between its numbers."""
    def parse(text):
        values = Numbers()
        values.text = text
        try:
            values += [scaled(word, suffixes) for word in text.split(",")]
        except ValueError:
            values.clear()
        if not 0 < len(values) <= count or not all(least <= value <= most and value % multiple == 0 for value in values):
            of = f", multiples of {multiple}" if multiple > 1 else ""
            raise argparse.ArgumentTypeError(f"--{flag}={text}: accepts 1 to {count} {what} from {least} to {most}{of}, with "
                                             "commas between them")
        return values
    return parse


def sizes(flag, most, multiple, count=8):
    """The type of an argument of sizes in bytes, 64K,1M."""
    return numbers(flag, multiple, most, count, BINARY, multiple, "sizes such as 64K or 16M")


def size_text(size):
    """64 KB, 16 MB, 3 B"""
    shift, unit = (20, "MB") if size % (1 << 20) == 0 else (10, "KB") if size % (1 << 10) == 0 else (0, "B")
    return f"{size >> shift} {unit}"


def plural(count):
    return "" if count == 1 else "s"


def congestion(text):
    """The type of an argument that names one of TCP's congestion controls."""
    with socket.socket() as probe:
        try:
            probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, text.encode())
        except OSError:
            known = report.read_line("/proc/sys/net/ipv4/tcp_available_congestion_control")
            raise argparse.ArgumentTypeError(f"--congestion={text}: the kernel has no such congestion control; accepts "
                                             f"{known}") from None
    return text


def core(flag):
    def parse(text):
        usable = sorted(os.sched_getaffinity(0))
        if text != "-1" and text not in map(str, usable):
            raise argparse.ArgumentTypeError(f"--{flag}={text}: this process may not run there; accepts "
                                             f"{' '.join(map(str, usable))}")
        return int(text)
    return parse


def add_common(parser):
    """The arguments of every benchmark."""
    group = parser.add_argument_group("of every benchmark")
    group.add_argument("--rounds", type=number("rounds", 1, ROUNDS_MAX), default=5, metavar="N",
                       help="how often everything is measured, in turns; medians are reported")
    group.add_argument("--seconds", type=real("seconds", 0.001, 600), default=1, metavar="X",
                       help="how long one measurement takes")
    group.add_argument("--warm-up", type=real("warm-up", 0, 600), default=0.3, metavar="X",
                       help="how long it runs before that, uncounted")
    group.add_argument("--json", metavar="FILE", help="write the report there as JSON too")
    group.add_argument("--compare", metavar="FILE", help="an older report as JSON, to print the ratios to")
    group.add_argument("--plot", metavar="DIR", help="draw charts there, as SVG by gnuplot (Debian package gnuplot-nox)")
    group.add_argument("--server-core", type=core("server-core"), default=-1, metavar="CORE",
                       help="the core of the server; -1: the first that may be used")
    group.add_argument("--client-core", type=core("client-core"), default=-1, metavar="CORE",
                       help="the core of the client; -1: the next one that is no hyper-thread of it")
    group.add_argument("--bin", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build/release/bin"),
                       metavar="DIR", help="where the programs are")


def other_core(taken):
    """The first core that shares no physical core with this one, or the next one, or the same where there is no more."""
    others = [one for one in sorted(os.sched_getaffinity(0)) if one != taken]
    apart = [one for one in others if one not in report.siblings(taken)]
    return (apart or others or [taken])[0]


def settle(options):
    """Fills what was left open."""
    options.bin = os.path.abspath(options.bin)
    if options.server_core < 0:
        options.server_core = (other_core(options.client_core) if options.client_core >= 0
                               else min(os.sched_getaffinity(0)))
    if options.client_core < 0:
        options.client_core = other_core(options.server_core)


# ---- The whole -------------------------------------------------------------------------------------------------


def run(name, module, options):
    """Measures, and reports."""
    def work(folder):
        with contextlib.ExitStack() as stack:
            bench = Bench(name, options, folder, stack)
            setting = module.run(bench)
        report.finish(bench.raw(setting), options)
    report.check(name, options)
    processes.run_in_folder(f"starling-bench-{name}-", work, getattr(options, "dir", None))


def main(argv):
    name, *rest = argv or [""]
    if name not in NAMES:
        print(f"there is no benchmark \"{name}\"; there are {' '.join(NAMES)}", file=sys.stderr)
        return 2
    module = importlib.import_module(NAMES[name])
    parser = argparse.ArgumentParser(prog=f"starling-bench {name}", description=module.__doc__, allow_abbrev=False)
    add_common(parser)
    module.add_arguments(parser)
    if hasattr(module, "normalized"):
        options, options.more = parser.parse_known_args(module.normalized(rest))
    else:
        options = parser.parse_args(rest)
    settle(options)
    if hasattr(module, "check"):
        module.check(parser, options)
    try:
        run(name, module, options)
    except (Failure, ImportError, subprocess.TimeoutExpired, OSError) as failure:
        print(f"starling-bench {name}: {failure}", file=sys.stderr)
        return 1
    return 0


def run_program(work):
    """Exits with what work(argv) returns; after SIGINT so that the shell sees why."""
    try:
        sys.exit(work(sys.argv[1:]))
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    run_program(main)
