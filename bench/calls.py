"""Whole calls of the client library, one at a time: pulls, pushes and assigns of many rows, and short pulls."""

from driver import Contestant, number

ASSIGN_OF_PUSH = 0.9


def add_arguments(parser):
    add = parser.add_argument
    add("--coordinator", metavar="HOST:PORT", help="measure a cluster that runs already, instead of starting a server")
    add("--rows", type=number("rows", 1, 10**8), default=100000, help="of the table")
    add("--dim", type=number("dim", 1, 4096), default=16, help="columns of a row, in f32")
    add("--keys", type=number("keys", 1, 100000), default=10000, help="of a long call")
    add("--short-keys", type=number("short-keys", 1, 8192), default=64, help="of a short pull")


def run(bench):
    options = bench.options
    address = options.coordinator or bench.ps(parked=False).address
    load = bench.load("calls", f"--coordinator={address}", f"--rows={options.rows}", f"--dim={options.dim}",
                      f"--keys-max={max(options.keys, options.short_keys)}")
    calls = [("pull", options.keys), ("push", options.keys), ("assign", options.keys), ("pull", options.short_keys)]
    bench.measure([Contestant(f"{operation}, {keys} keys", lambda *times, words=(operation, keys): load.turn(*times, *words),
                              "shared memory") for operation, keys in calls])
    bench.compare("rows", f"assign, {options.keys} keys", f"push, {options.keys} keys", ASSIGN_OF_PUSH)
    return f"one call at a time; {options.rows} rows of dim {options.dim}, SGD"
