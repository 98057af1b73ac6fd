"""Real worker processes of one job, each with the client library, which pull rows, push gradients to them and tick, one call at
a time. Each turn has a server of its own."""

from driver import Contestant, congestion, number, numbers, plural


def add_arguments(parser):
    add = parser.add_argument
    add("--workers", type=numbers("workers", 1, 2000), default="1,8,64,200", help="worker processes of one job")
    add("--worker-cores", type=number("worker-cores", 1, 1024), default=1, help="that the workers share, from the client's upwards")
    add("--think-us", type=number("think-us", 0, 10**9), default=0,
        help="that a worker sleeps between a pull and a push, as it does while an accelerator computes")
    add("--fused", choices=("no", "yes", "both"), default="no",
        help="whether push, tick and the pull of the next iteration are one call; both: in turns")
    add("--shards", type=number("shards", 0, 4096), default=0, help="of the server; 0: one for each reactor")
    add("--reactors", type=number("reactors", 1, 256), default=1, help="of the server, on the cores from its own upwards")
    add("--rows", type=number("rows", 1, 10**8), default=200000, help="of the table")
    add("--dim", type=number("dim", 1, 4096), default=16, help="columns of a row, in f32")
    add("--keys", type=number("keys", 1, 8192), default=100, help="of a call")
    add("--congestion", type=congestion, help="TCP's congestion control; without it the system's")


def turn(bench, workers, fused, warm_up, seconds):
    options = bench.options
    ps = bench.ps(parked=False, reactors=options.reactors, workers=workers,
                  flags=[f"--shards={options.shards}"] if options.shards else ())
    with ps.running():
        load = bench.load("workers", f"--coordinator={ps.address}", f"--workers={workers}",
                          f"--worker-cores={options.worker_cores}", f"--think-us={options.think_us}", f"--rows={options.rows}",
                          f"--dim={options.dim}", f"--keys={options.keys}", *(["--fused"] if fused else []),
                          *([f"--congestion={options.congestion}"] if options.congestion else []))
        before = ps.cpu_seconds()
        found = load.turn(warm_up, seconds)
        used = ps.cpu_seconds() - before
        found["server cpu"] = "us/call", used * 1e6 / (found.value("calls") * (warm_up + seconds))
        found["server cpu of a step"] = "us", found.value("server cpu") * (1 if fused else 2)
        found["server memory"] = "MB", ps.memory()[0] / 1e6
        load.stop()
    ps.kill()
    return found


def run(bench):
    options = bench.options
    ways = {"no": [False], "yes": [True], "both": [False, True]}[options.fused]
    bench.measure([Contestant(f"{count} worker{plural(count)}{', fused' if fused else ''}",
                              lambda *times, count=count, fused=fused: turn(bench, count, fused, *times), "TCP")
                   for count in options.workers for fused in ways])
    for count in options.workers:
        bench.compare("server cpu of a step", f"{count} worker{plural(count)}, fused", f"{count} worker{plural(count)}")
    return f"{options.keys} keys of {options.rows} rows of dim {options.dim}, adagrad"
