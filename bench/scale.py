#!/usr/bin/env python3
"""Predicts how throughput and latency grow with workers and servers, by the simulation, and checks it.

scale.py costs FILE    measures what requests cost on this machine and writes tests/sim/costs.txt: two minutes, as root
scale.py check         real workers on this machine beside the prediction, with the errors: three minutes, as root
scale.py memory        the server's memory with 1 to 2,000 connections
scale.py curves DIR    the curves of docs/scale.md, as SVG: some minutes

Options: --bin DIR (build/release/bin), --costs FILE (tests/sim/costs.txt).
"""

import argparse
import json
import os
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HEADER = 32
REQUEST = 72  # header, prefix and section: docs/protocol.md
TICK = 32
# Workers that share a core, and how long each sleeps between a pull and a push, in us.
CHECKED = [(8, 2000), (64, 20000), (200, 60000), (8, 100), (64, 500), (200, 1000), (8, 0), (64, 0), (200, 0)]
# Connections that pull without a pause: what many workers with a core each do to one server.
CONNECTIONS = [8, 64, 200, 1000]


def bench(options, *arguments, fifo=False):
    """Figures of a benchmark: {contestant: {quantity: median}}, and of p99 the lowest and highest round. fifo: its
    processes share cores in the order in which they became ready, and go before all other programs."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "report.json")
        command = [os.path.join(options.bin, "starling-bench"), *arguments, "--rounds", "5", "--congestion", "cubic",
                   "--json", path]
        subprocess.run([*(["chrt", "--fifo", "1"] if fifo else []), *command], check=True, stdout=subprocess.DEVNULL)
        with open(path, encoding="utf-8") as file:
            figures = json.load(file)["figures"]
    found = {}
    for figure in figures:
        samples = figure["samples"]
        found.setdefault(figure["name"], {})[figure["quantity"]] = figure["median"]
        if figure["quantity"] == "p99":
            found[figure["name"]]["p99 from"], found[figure["name"]]["p99 to"] = min(samples), max(samples)
    return found


def simulate(options, **parameters):
    words = [f"{name}={value}" for name, value in parameters.items()]
    done = subprocess.run([os.path.join(options.bin, "starling-sim"), "--scale", f"costs={options.costs}", *words],
                          check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


# ---- Costs -----------------------------------------------------------------------------------------------------


def solve(rows, known):
    """Least squares of relative errors, without negative costs. rows: ({cost: coefficient}, what they add up to)."""
    names = sorted({name for row, _ in rows for name in row} - set(known))
    costs = dict.fromkeys(names, 0.0) | known
    for _ in range(20000):
        for name in names:
            above = below = 0.0
            for row, total in rows:
                each = row.get(name, 0) / total
                rest = 1 - sum(costs[other] * row[other] for other in row if other != name) / total
                above += each * rest
                below += each * each
            costs[name] = max(0.0, above / below) if below else 0.0
    for row, total in rows:
        print(f"{total / 1000:9.2f} us, fitted {sum(costs[name] * row[name] for name in row) / 1000:9.2f}: {row}")
    return costs


def request(pushes, keys, dim):
    """(bytes of a request, of its reply)"""
    values = keys * dim * 4
    return REQUEST + keys * 8 + (values if pushes else 0), HEADER + (0 if pushes else values)


def server_row(pushes, keys, dim, depth):
    asked, answered = request(pushes, keys, dim)
    return {"call": 2 / depth, "frame": 2, "server.pushed" if pushes else "server.pulled": keys,
            "server.in_byte": asked, "server.out_byte": answered}


def measure_server(options):
    rows = []
    for operation in ("pull", "push"):
        for dim, shapes in ((16, [("200", "1"), ("16", "32")]), (64, [("200", "1")])):
            for connections, depth in shapes:
                found = bench(options, operation, "--dim", str(dim), "--keys", "1,100,1000", "--depth", depth,
                              "--connections", connections, "--rows", "200000", "--seconds", "0.3", "--warm-up", "0.1")
                for keys, name in ((1, "1 key"), (100, "100 keys"), (1000, "1000 keys")):
                    cpu = found[f"{operation} {name}, {connections} x {depth}"]["server cpu"] * 1000
                    rows.append((server_row(operation == "push", keys, dim, int(depth)), cpu))
    return rows


def workers(options, count, keys=100, dim=16, think=0):
    found = bench(options, "workers", "--workers", str(count), "--keys", str(keys), "--dim", str(dim), "--think-us",
                  str(think), "--seconds", "0.5", "--warm-up", "0.3", fifo=True)
    return found[f"{count} workers"]


def worker_row(keys, dim):
    """A pull and a push of a worker, which sleeps until each is answered."""
    moved = sum(request(False, keys, dim) + request(True, keys, dim)) + TICK
    return {"call": 4, "frame": 4, "swap": 2, "client.row": 2 * keys, "client.byte": moved}


def measure_client(options, server):
    """Workers that have a core in turns. A call of the kernel costs them as much as the server."""
    shapes = ((1, 16), (100, 16), (1000, 16), (100, 64))
    costs = solve([(worker_row(keys, dim), 2000 * workers(options, 16, keys, dim)["worker cpu"])
                   for keys, dim in shapes], server)
    for cost, names in (("client.row", ("client.pulled", "client.pushed")),
                        ("client.byte", ("client.in_byte", "client.out_byte"))):
        costs.update(dict.fromkeys(names, costs[cost]))
    return costs


def measure_idle(options, costs):
    """What each wake-up of an idle core takes of it, besides a swap: a step of a worker that sleeps has three."""
    own = sum(costs[name] * value for name, value in worker_row(100, 16).items()) + costs["swap"]
    return max(0, 2000 * workers(options, 16, think=8000)["worker cpu"] - own) / 3


def measure_wake(options):
    """A request each 2 ms, which finds the server asleep, and requests one after the other."""
    shape = ("--keys", "100", "--depth", "1", "--connections", "1", "--seconds", "0.5")
    rested, busy = (bench(options, "pull", *shape, *more)["pull 100 keys, 1 x 1"] for more in (("--rate", "500"), ()))
    return 1000 * (rested["p50"] - busy["p50"])


def write_costs(options):
    costs = measure_client(options, solve(measure_server(options), {}))
    idle = measure_idle(options, costs)
    costs.update({"idle": idle, "wake": max(0, measure_wake(options) - idle), "latency": 0, "bandwidth": 100})
    for name in ("client.row", "client.byte"):
        del costs[name]
    with open(options.costs_file, "w", encoding="utf-8") as file:
        file.write("# ns, and bytes per ns. Written by bench/scale.py costs; meanings: tests/sim/costs.h.\n")
        file.writelines(f"{name} {costs[name]:.4g}\n" for name in sorted(costs))


# ---- Check -----------------------------------------------------------------------------------------------------


def compare(what, real, calls, sim):
    print(f"{what:34} {real[calls]:10.0f} {sim['calls_per_s']:10.0f} {sim['calls_per_s'] / real[calls]:6.2f} | "
          f"{real['p50']:8.0f} {sim['p50_us']:8.0f} | {real['p99']:8.0f} {sim['p99_us']:8.0f} "
          f"{sim['p99_us'] / real['p99']:6.2f} | {real['p99 from']:8.0f} {real['p99 to']:8.0f}", flush=True)


def check(options):
    print(f"{'':34} {'calls/s':>10}  predicted  ratio |   p50 us predicted |   p99 us predicted  ratio | of rounds: p99 from, to")
    for count in CONNECTIONS:
        found = bench(options, "pull", "--keys", "200", "--dim", "32", "--depth", "1", "--connections", str(count),
                      "--rows", "200000", "--seconds", "0.5", "--warm-up", "0.2")
        real = found[f"pull 200 keys, {count} x 1"]
        sim = simulate(options, workers=count, keys=200, dim=32, push=0, polling=1, warm_up=0.2, seconds=0.5)
        compare(f"{count} connections", real, "requests", sim)
    for count, think in CHECKED:
        real = workers(options, count, think=think)
        sim = simulate(options, workers=count, think_us=think, worker_cores=1, warm_up=0.3, seconds=0.5)
        compare(f"{count} workers on a core, sleep {think / 1000:g} ms", real, "calls", sim)


# ---- Memory ----------------------------------------------------------------------------------------------------


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


def resident(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


def memory(options):
    """What a server has in memory with so many connections, each with a request under way all the time."""
    for count in (1, 500, 1000, 2000):
        command = [os.path.join(options.bin, "starling-bench"), "pull", "--keys", "100", "--depth", "1",
                   "--connections", str(count), "--rows", "10000", "--rounds", "1", "--seconds", "2"]
        most = 0
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as running:
            while running.poll() is None:
                time.sleep(0.05)
                try:
                    most = max([most, *(resident(child) for child in children(running.pid))])
                except (OSError, StopIteration):
                    pass  # it has just ended
        print(f"{count:5} connections: {most} KB", flush=True)


# ---- Curves ----------------------------------------------------------------------------------------------------

NETWORK = {"latency_us": 10, "gbit": 25}


def plot(path, title, x_label, y_label, curves, more=""):
    """curves: {name: [(x, y)]}"""
    script = [f"set terminal svg size 720,400 font 'sans,12' background 'white'; set output '{path}'",
              f"set title '{title}'",
              f"set xlabel '{x_label}'; set ylabel '{y_label}'; set key outside; set grid; set yrange [0:*]; {more}",
              "plot " + ", ".join(f"'-' with linespoints title '{name}'" for name in curves)]
    for points in curves.values():
        script += [*(f"{x} {y}" for x, y in points), "e"]
    subprocess.run(["gnuplot", "-"], input="\n".join(script) + "\n", text=True, check=True)


def steps_per_s(options, **parameters):
    return simulate(options, **NETWORK, **parameters)["calls_per_s"] / 2


def draw_one(options):
    counts = [1, 2, 4, 8, 16, 32, 64, 125, 250, 500, 1000]
    curves = {}
    for think in (0, 10, 100):
        name = f"{think} ms between pull and push"
        curves[name] = [(count, steps_per_s(options, workers=count, think_us=1000 * think, warm_up=0.3, seconds=0.4))
                        for count in counts]
    plot(f"{options.folder}/scale-one.svg", "Workers on one server, 100 rows of 16 columns", "workers", "steps/s",
         curves, "set logscale xy; set yrange [1:*]")
    return curves


def draw_many(options):
    curves = {}
    for keys in (100, 1000):
        points = [(8 * servers, steps_per_s(options, workers=8 * servers, servers=servers, keys=keys, think_us=10000,
                                            warm_up=0.02, seconds=max(0.02, min(0.3, 3 / servers))) / (8 * servers))
                  for servers in (1, 2, 4, 8, 16, 32, 64, 125)]
        curves[f"{keys} rows in a step"] = points
    plot(f"{options.folder}/scale-many.svg", "8 workers to a server, 10 ms between pull and push", "workers",
         "steps/s of each worker", curves, "set logscale x")
    return curves


def draw_hot(options):
    curves = {"busiest server": [], "mean of the servers": []}
    for zipf in (0, 0.8, 0.9, 1.0, 1.1, 1.2):
        found = simulate(options, **NETWORK, workers=64, servers=8, keys=1000, zipf=zipf, think_us=10000, warm_up=0.1,
                         seconds=0.2)
        curves["busiest server"].append((zipf, found["busiest"]))
        curves["mean of the servers"].append((zipf, found["server_busy"]))
    plot(f"{options.folder}/scale-hot.svg", "64 workers, 8 servers, keys by Zipf", "exponent (0: uniform)",
         "busy share of a processor", curves)
    return curves


def slots(options, seconds, **parameters):
    found = simulate(options, **NETWORK, seconds=seconds, **parameters)["slots"]
    each = seconds / len(found)
    return [((i + 1) * each, calls / 2 / each) for i, calls in enumerate(found)]


def draw_slow(options):
    modes = {"asp": {"mode": 0}, "ssp, staleness 4": {"mode": 2, "staleness": 4}, "bsp": {"mode": 1}}
    curves = {name: slots(options, 1, workers=32, servers=4, think_us=5000, slow=10, warm_up=0.02, **mode)
              for name, mode in modes.items()}
    plot(f"{options.folder}/scale-slow.svg", "32 workers, 5 ms a step; one takes 50 ms", "seconds", "steps/s of all",
         curves)
    return curves


def draw_rack(options):
    curves = {name: slots(options, 30, workers=64, servers=8, replicas=1, racks=8, fail_s=6, think_us=50000,
                          warm_up=0.2, mode=mode) for name, mode in (("asp", 0), ("bsp", 1))}
    plot(f"{options.folder}/scale-rack.svg", "A rack with 1 of 8 servers and 8 of 64 workers fails after 6 s",
         "seconds", "steps/s of all", curves)
    return curves


def draw(options):
    for curve in (draw_one, draw_hot, draw_slow, draw_rack, draw_many):
        for name, points in curve(options).items():
            print(f"{curve.__name__}, {name}: " + ", ".join(f"{x:g}: {y:.3g}" for x, y in points), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/bin"))
    parser.add_argument("--costs", default=os.path.join(ROOT, "tests/sim/costs.txt"))
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("costs").add_argument("costs_file", metavar="FILE")
    commands.add_parser("check")
    commands.add_parser("memory")
    commands.add_parser("curves").add_argument("folder", metavar="DIR")
    options = parser.parse_args()
    {"costs": write_costs, "check": check, "memory": memory, "curves": draw}[options.command](options)


if __name__ == "__main__":
    main()
