"""Rows and messages in f16, bf16 and int8 beside f32: gather and update of one shard's table in the load's own memory; pulls of
rows, dense pushes and push_pulls of KV arrays at a real server over TCP."""

from driver import Contestant, number
from exchange import served_rows

STORED = {"f32": ("adagrad", "f32", "f32"), "bf16": ("adagrad", "bf16", "bf16"), "int8": ("adagrad", "int8", "bf16"),
          "rowwise int8": ("rowwise-adagrad", "int8", "f32")}
SERVED_ROWS = 1000000  # at most
SMALL_DIM = 16  # of the rows whose memory is compared
BYTES_A_ROW = {"bf16": 94, "rowwise int8": 62}
PHASES = {"gather": {"bf16": 1.0, "int8": 0.7}, "update": {"bf16": 0.8, "int8": 0.5}}
MB = 1 << 20


def add_arguments(parser):
    parser.set_defaults(seconds=0.5, warm_up=0.1)
    add = parser.add_argument
    add("--rows", type=number("rows", 1, 10**9), default=1000000, help="of each table")
    add("--dim", type=number("dim", 1, 4096), default=64, help="columns of a row")
    add("--keys", type=number("keys", 1, 8192), default=100, help="of a pull")


def table(bench, name, dim):
    optimizer, values, slots = STORED[name]
    options = bench.options
    load = bench.load("table", f"--rows={options.rows}", f"--dim={dim}", f"--optimizer={optimizer}",
                      f"--values={values}", f"--slots={slots}")
    grown = load.turn(0, 1, "grow")
    bench.add(f"memory, {name}, dim {dim}", "all, per row", *grown["all, per row"])
    return load


def stored(bench):
    """What rows take, and what reading and updating them costs."""
    for name in STORED:
        table(bench, name, SMALL_DIM).stop()
    for name, most in BYTES_A_ROW.items():
        figure = bench.figure(f"memory, {name}, dim {SMALL_DIM}", "all, per row")
        bench.ratio(f"bytes a row of dim {SMALL_DIM}, {name} / f32", figure,
                    bench.figure(f"memory, f32, dim {SMALL_DIM}", "all, per row"), most=most / 157)
    names = [name for name in STORED if name in ("f32", *PHASES["gather"])]
    loads = {name: table(bench, name, bench.options.dim) for name in names}
    bench.measure([Contestant(f"{phase}, {name}", lambda *times, load=loads[name], phase=phase: load.turn(*times, phase, "uniform"))
                   for phase in PHASES for name in names])
    for phase, targets in PHASES.items():
        for name, least in targets.items():
            bench.ratio(f"rows/s of {phase}, {name} / f32", bench.figure(f"{phase}, f32", "per key"),
                        bench.figure(f"{phase}, {name}", "per key"), least)
    for load in loads.values():
        load.stop()


def sent(bench):
    options, ps = bench.options, bench.ps(workers=1)
    pulls = {name: served_rows(bench, ps, f"--keys={options.keys}", f"--dim={options.dim}", f"--rows={min(options.rows, SERVED_ROWS)}",
                               "--depth=8", "--connections=4", f"--returned={name}") for name in ("f32", "f16", "int8")}

    def bulk(name, way, size):
        return bench.served(ps, "bulk", "--over=tcp", "--depth=2", f"--encoding={name}", words=(way, size),
                            cpu=lambda found, _: found.pop("seconds"))

    shapes = [("push", 16 * MB, "f16", 0.6), ("kv", 4 * MB, "bf16", 0.65), ("kv", 16 * MB, "bf16", 0.65)]
    bench.measure([Contestant(f"pull of {options.keys} rows, {name}", turn, "TCP") for name, turn in pulls.items()])
    bench.measure([Contestant(f"{way} of {size // MB} MB, {name}", bulk(name, way, size), "TCP")
                   for way, size, narrow, _ in shapes for name in ("f32", narrow)])
    f32 = bench.figure(f"pull of {options.keys} rows, f32", "keys")
    for name, least in (("f16", 1.2), ("int8", 0)):
        bench.ratio(f"keys/s of pulls, {name} / f32", bench.figure(f"pull of {options.keys} rows, {name}", "keys"), f32, least)
    for way, size, narrow, most in shapes:
        name = f"{way} of {size // MB} MB"
        bench.ratio(f"time of {name}, {narrow} / f32", bench.figure(f"{name}, f32", "bytes"),
                    bench.figure(f"{name}, {narrow}", "bytes"), most=most)


def run(bench):
    stored(bench)
    sent(bench)
    options = bench.options
    return (f"tables of {options.rows} rows of dim {options.dim}, adagrad, slots of bf16 beside bf16 and int8; pulls of {options.keys} "
            "rows over 4 connections, 8 under way on each; dense pushes and KV push_pulls, 2 under way")
