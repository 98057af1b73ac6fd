#!/usr/bin/env python3
"""What it costs to be watched: pulls with scrapes and page polls beside pulls without, one scrape of a large server, an idle
server with the page open, reports of 1,000 workers, and how true hot keys and quantiles are. Needs nothing beyond Python.
With eight cores or more the server's reactor, its observer, the load and this script, which scrapes and polls, have a core
each."""

import collections
import contextlib
import glob
import json
import os
import re
import resource
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import driver
import processes
import report

PARTS = ("rate", "tail", "scrape", "idle", "reports", "hot", "quantiles")
START = 60  # seconds
CORES_APART = 8  # with fewer, processes share them
MEMBERS = 1000
PAGE = ("/api/cluster", "/api/history?of=job")  # what the page polls each second
TICKS = os.sysconf("SC_CLK_TCK")


def share_cores(options):
    """Sets which cores a loaded server, an idle one, the load and this script use: any, unless there are enough for all."""
    options.cores = os.sched_getaffinity(0)
    options.server_cores = options.idle_cores = options.load_cores = ()
    if len(options.cores) < CORES_APART:
        return
    apart, siblings = [], []
    busy = report.siblings(options.server_core) | report.siblings(options.client_core)
    for core in sorted(options.cores.difference((options.server_core, options.client_core))):
        (siblings if core in busy else apart).append(core)
        busy |= report.siblings(core)
    observer, own, *options.idle_cores = (apart + siblings)[:4]
    options.server_cores, options.load_cores = (options.server_core, observer), (options.client_core,)
    os.sched_setaffinity(0, {own})


class Server:
    """A starling-ps whose first reactor has the first of its cores; its observer runs where there is room, as in production.
    http: the address of its observer; None with --http off."""

    def __init__(self, options, *flags, cores=None, workers=1):
        with contextlib.closing(socket.socket()) as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        words = [os.path.join(options.bin, "starling-ps"), f"--ps-hosts={self.address}", f"--num-workers={workers}", "--reactors=1",
                 "--pin-cores", *flags]
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("STARLING_", "DMLC_", "TF_CONFIG"))}
        environment["STARLING_TCP_CONGESTION"] = "cubic"
        self.log = open(os.path.join(options.folder, "ps.log"), "ab")
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        env=environment, cwd=options.folder,
                                        preexec_fn=processes.child_setup(*(options.server_cores if cores is None else cores)))
        line = self.process.stdout.readline()
        if " ready: " not in line:
            raise report.Failure(f"{' '.join(words)} does not start: {line.strip()}")
        http = re.search(r"http ([\d.]+:\d+)", line)
        self.http = http.group(1) if http else None

    def get(self, path):
        with urllib.request.urlopen(f"http://{self.http}{path}", timeout=START) as answer:
            return answer.read()

    def cpu_seconds(self):
        """The processor time of each thread, by name."""
        used = collections.Counter()
        for path in glob.glob(f"/proc/{self.process.pid}/task/*/stat"):
            with open(path, encoding="ascii") as file:
                name, _, rest = file.read().partition(" (")[2].rpartition(") ")
            used[name] += sum(map(int, rest.split()[11:13])) / TICKS
        return used

    def close(self):
        self.process.terminate()
        self.process.wait(START)
        self.process.stdout.close()
        self.log.close()


class Watcher:
    """Asks for paths at an interval from a thread of its own, until it is closed."""

    def __init__(self, server, paths, interval):
        self.server, self.paths, self.interval = server, paths, interval
        self.seconds, self.ends = [], threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.ends.wait(self.interval):
            for path in self.paths:
                begun = time.perf_counter()
                self.server.get(path)
                self.seconds.append(time.perf_counter() - begun)

    def close(self):
        self.ends.set()
        self.thread.join()


def report_of(options, *words):
    """The report of a starling-bench."""
    path = os.path.join(options.folder, "load.json")
    done = subprocess.run([os.path.join(options.bin, "starling-bench"), *words, "--rounds=1", f"--client-core={options.client_core}",
                           "--json", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                          preexec_fn=processes.child_setup(*options.load_cores))
    if done.returncode != 0:
        raise report.Failure(f"starling-bench {' '.join(words)}: {done.stdout[-500:]}")
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def pulls(options, server, keys, connections, depth):
    return report_of(options, "pull", f"--coordinator={server.address}", f"--keys={keys}", f"--connections={connections}",
                 f"--depth={depth}", f"--seconds={options.seconds}", "--warm-up=0.5", "--congestion=cubic")


def in_turns(items, number):
    return list(items)[::-1 if number % 2 else 1]


# ---- Parts -----------------------------------------------------------------------------------------------------


def measure_rate(options, bench):
    """Single-row pulls, 16 connections x 32, with a scrape and a page poll a second: of the server under load, or of an
    idle one, while the server under load has --http off. The watcher takes its own time from the load in both."""
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(contextlib.closing(Server(options, flag, cores=cores)))
                   for name, flag, cores in (("off", "--http=off", None), ("watched", "--http=127.0.0.1:0", None),
                                             ("idle", "--http=127.0.0.1:0", options.idle_cores))}
        for number in range(options.rounds):
            rates = {}
            for name in in_turns(("off", "watched"), number):
                asked = servers["watched" if name == "watched" else "idle"]
                with contextlib.closing(Watcher(asked, ("/metrics", *PAGE), 1)):
                    found = pulls(options, servers[name], 1, 16, 32)
                rates[name] = bench.sample(f"pulls of 1 row, {name}", "requests", "1/s",
                                          next(f["median"] for f in found["figures"] if f["quantity"] == "requests"))
            bench.sample_ratio("pulls of 1 row: watched / off", rates["watched"] / rates["off"], least=0.99)


def measure_tail(options, bench):
    """100-row pulls with ten scrapes a second: of the server under load, or of an idle one."""
    with contextlib.closing(Server(options, "--http=127.0.0.1:0")) as loaded, \
            contextlib.closing(Server(options, "--http=127.0.0.1:0", cores=options.idle_cores)) as idle:
        pulls(options, loaded, 100, 4, 8)
        for number in range(options.rounds):
            tails = {}
            for name, asked in in_turns((("idle", idle), ("loaded", loaded)), number):
                with contextlib.closing(Watcher(asked, ("/metrics",), 0.1)):
                    found = pulls(options, loaded, 100, 4, 8)
                tails[name] = bench.sample(f"pulls of 100 rows, ten scrapes a second of the {name} server", "p99", "us",
                                          found["distributions"][0]["quantiles"]["p99"] / 1000)
            bench.sample_ratio("p99 of pulls of 100 rows: scrapes of this server / of another", tails["loaded"] / tails["idle"], most=1.05)


def metric(text, name, **labels):
    """The sum of the series of a family that have these labels."""
    total = 0.0
    for line in text.splitlines():
        found = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
        if found and found.group(1) == name and all(f'{k}="{v}"' in (found.group(2) or "") for k, v in labels.items()):
            total += float(found.group(3))
    return total


def measure_scrape(options, bench):
    """A server with 16 shards and 64 tables."""
    with contextlib.closing(Server(options, "--reactors=16", "--pin-cores=false", "--http=127.0.0.1:0", cores=options.cores)) as server:
        for dim in range(1, 65):  # each has a table of its own
            report_of(options, "pull", f"--coordinator={server.address}", f"--dim={dim}", "--rows=1000", "--seconds=0.01", "--warm-up=0")
        time.sleep(3)  # until the observer has seen the tables
        before = metric(server.get("/metrics").decode(), "starling_reactor_stalls_total")
        for _ in range(options.rounds):
            times = []
            for _ in range(20):
                begun = time.perf_counter()
                text = server.get("/metrics")
                times.append(time.perf_counter() - begun)
            bench.sample("16 shards, 64 tables", "scrape", "ms", 1000 * sorted(times)[len(times) // 2])
            bench.sample("16 shards, 64 tables", "size", "B", len(text))
            bench.sample("16 shards, 64 tables", "series", "", sum(not line.startswith("#") for line in text.decode().splitlines()))
            bench.sample_ratio("a scrape of 16 shards and 64 tables / 20 ms", 1000 * sorted(times)[len(times) // 2] / 20, most=1)
        stalls = metric(server.get("/metrics").decode(), "starling_reactor_stalls_total") - before
        bench.sample("16 shards, 64 tables", "iterations over 1 ms", "", stalls)


def measure_idle(options, bench):
    """A server without requests while the page is open."""
    with contextlib.closing(Server(options, "--http=127.0.0.1:0")) as server, \
            contextlib.closing(Watcher(server, PAGE + ("/api/slow", "/api/hot", "/api/events"), 1)):
        for _ in range(options.rounds):
            begun, used = time.monotonic(), server.cpu_seconds().total()
            time.sleep(10)
            share = (server.cpu_seconds().total() - used) / (time.monotonic() - begun)
            bench.sample("idle server with the page open", "processor", "%", 100 * share)
            bench.sample_ratio("idle server with the page open / 0.5 % of a core", share / 0.005, most=1)


def send_reports(members, seconds):
    """One of each member a second, evenly spread."""
    begun = time.monotonic()
    for count in range(seconds * len(members)):
        time.sleep(max(0, begun + count / len(members) - time.monotonic()))
        uptime = int(1000 * time.monotonic())
        members[count % len(members)].report({
            "uptime_ms": uptime, "http": "127.0.0.1:45678", "memory": 1 << 28,
            "client": {"clock": uptime // 100, "steps": uptime // 10, "requests": uptime, "step_p99_us": 4000}})


def measure_reports(options, bench):
    """The coordinator with 1,000 workers, each of which sends a report a second, or none."""
    sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/integration"))
    import protocol_client as protocol
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(contextlib.closing(Server(options, "--http=127.0.0.1:0", "--lease=10m", workers=MEMBERS)))
        members = [stack.enter_context(contextlib.closing(protocol.Connection(
            f"tcp://{server.address}", protocol.PURPOSE_CONTROL, role=protocol.ROLE_WORKER, task_index=task)))
                   for task in range(MEMBERS)]
        asked = [member.start_asking("register", worker_count=MEMBERS) for member in members]
        for member, number in zip(members, asked):
            member.answer(number, "cluster")
        send_reports(members, 2)  # memory for their history
        for number in range(options.rounds):
            shares = {}
            for name, work in in_turns((("none", time.sleep), ("reports", lambda seconds: send_reports(members, seconds))), number):
                begun, used = time.monotonic(), server.cpu_seconds()
                work(5)
                now = server.cpu_seconds()
                elapsed = time.monotonic() - begun
                for thread, seconds in now.items():
                    bench.sample(f"coordinator of {MEMBERS} workers, {name}", thread, "%", 100 * (seconds - used[thread]) / elapsed)
                shares[name] = (now.total() - used.total()) / elapsed
            bench.sample_ratio(f"reports of {MEMBERS} workers / 5 % of a core", (shares["reports"] - shares["none"]) / 0.05, most=1)
        time.sleep(2)  # until the observer has read the last ones
        text = server.get("/metrics").decode()
        received, dropped = metric(text, "starling_reports_total"), metric(text, "starling_reports_dropped_total")
        if received < MEMBERS * (2 + 5 * options.rounds) or dropped > 0:  # the server sends some, too
            raise report.Failure(f"the coordinator has received {received:g} reports and dropped {dropped:g}")


def measure_hot(options, bench):
    """Hot keys at Zipf 1.1 against the true top ten."""
    with contextlib.closing(Server(options, "--http=127.0.0.1:0")) as server:
        for _ in range(options.rounds):
            report_of(options, "pull", f"--coordinator={server.address}", "--keys=100", "--connections=4", "--depth=8",
                  "--distribution=zipf", "--zipf=1.1", f"--seconds={options.seconds}", "--warm-up=1", "--congestion=cubic")
            time.sleep(2)  # the observer's next view
            keys = json.loads(server.get("/api/hot"))["tables"][0]["keys"]
            shown = {int(key["key"]) for key in keys[:10]}
            true = bench.sample("Zipf 1.1", "of the true top ten", "", len(shown & {key_of(rank) for rank in range(10)}))
            bench.sample_ratio("hot keys: found of the true top ten / 9", true / 9, least=1)


def key_of(rank):
    """sl_bench_workload_key of workload.c: keys by popularity."""
    key = rank + 0x5EED
    key = (key ^ key >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    key = (key ^ key >> 27) * 0x94D049BB133111EB % 2**64
    return key ^ key >> 31


def measure_quantiles(options, bench):
    """p99 of the client library's histogram of step times against that of the same steps, as starling-bench has timed them.
    Both count until the thread that waits for a step has been woken up."""
    with contextlib.closing(Server(options, "--http=127.0.0.1:0")) as server:
        for _ in range(options.rounds):
            found = report_of(options, "calls", f"--coordinator={server.address}", f"--seconds={options.seconds}")["figures"]
            for name in sorted({figure["name"] for figure in found}):
                own, shown = (bench.sample(name, quantity, "us", next(figure["median"] for figure in found if (
                    figure["name"], figure["quantity"]) == (name, quantity)))
                              for quantity in ("p99 of a step", "p99 by the client's metrics"))
                bench.sample_ratio(f"{name}: p99 by the client's metrics / of a step", shown / own, least=0.87, most=1.13)


# ---- The whole -------------------------------------------------------------------------------------------------


def add_arguments(parser):
    parser.set_defaults(rounds=7, seconds=2, warm_up=0)
    parser.add_argument("--part", choices=("all", *PARTS), default="all", help="what is measured")


def run(bench):
    options = bench.options
    options.folder = bench.folder
    share_cores(options)
    for part in PARTS:
        if options.part in ("all", part):
            globals()[f"measure_{part}"](options, bench)
    os.sched_setaffinity(0, options.cores)
    if options.load_cores:
        return (f"cores: {options.server_cores} of the server's reactor and observer, {options.load_cores} of the load, the rest "
                "of the watchers")
    return "the server's reactor on the first core; load and watchers on the other, observers on both"


if __name__ == "__main__":
    driver.run_program(lambda argv: driver.main(["observe", *argv]))
