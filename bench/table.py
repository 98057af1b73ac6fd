"""One shard's sparse tables in the load's own memory: their growth, while rows that exist are read; their memory; lookups, reads
and updates of rows in turns."""

import argparse

from driver import Contestant, number, numbers, real
from exchange import OPTIMIZERS

PHASES = {"lookup": "lookup", "gather": "gather", "update": "update", "lookup and gather": "lookup-gather",
          "lookup and update": "lookup-update"}
MEMORY = ("record", "all, per row", "all / records")
GROWTH = ("rows created", "pauses over 1 ms", "those of our own making", "longest of our own", "late chunks")


def optimizers(text):
    names = OPTIMIZERS if text == "all" else text.replace("_", "-").split(",")
    for name in names:
        if name not in OPTIMIZERS:
            raise argparse.ArgumentTypeError(f"--optimizer: \"{name}\": accepts all, or of these with commas between them: "
                                             f"{' '.join(OPTIMIZERS)}")
    return names


def add_arguments(parser):
    parser.set_defaults(seconds=0.1, warm_up=0.02)
    add = parser.add_argument
    add("--rows", type=numbers("rows", 1, 4 * 10**9, 8), help="that the table holds, \"1M,20M\"; 1M unless given")
    add("--dim", type=numbers("dim", 1, 4096, 8), default="16,64,128", help="columns of a row")
    add("--optimizer", type=optimizers, metavar="LIST",
        help=f"all, or of these with commas between them: {' '.join(OPTIMIZERS)}; adagrad unless given")
    add("--all", action="store_true", help="what is not given as a list is 1M,20M rows and all optimizers; what does not fit "
        "into memory is left out; about 20 minutes")
    add("--keys", choices=("uniform", "zipf", "both"), default="both", help="how keys are drawn")
    add("--exponent", type=real("exponent", 0.01, 10), default=1.05, help="of Zipf's law")
    add("--operations", type=number("operations", 1, 10**9), default=2000000,
        help="keys drawn, which each measurement goes through again and again")
    add("--batch", type=number("batch", 1, 8192), default=256, help="keys of one call")
    add("--seed", type=int, default=1, help="of the keys drawn")


def check(_, options):
    options.rows = options.rows or numbers("rows", 1, 4 * 10**9)("1M,20M" if options.all else "1M")
    options.optimizer = options.optimizer or (OPTIMIZERS if options.all else ["adagrad"])
    options.rows_on_axis = len(options.rows) > 1 and len(options.dim) == 1


class Table:
    def __init__(self, bench, rows, optimizer, dim):
        options = bench.options
        self.bench, self.rows, self.optimizer, self.dim = bench, rows, optimizer, dim
        self.load = bench.load("table", f"--rows={rows}", f"--dim={dim}", f"--optimizer={optimizer}",
                               f"--exponent={options.exponent}", f"--operations={options.operations}",
                               f"--batch={options.batch}", f"--seed={options.seed}")

    def name(self, what, on_curve=False):
        """Of a curve without what stands on its axis."""
        on_axis = self.bench.options.rows_on_axis
        rows = "" if on_curve and on_axis else f", {self.rows} rows"
        dim = "" if on_curve and not on_axis else f", dim {self.dim}"
        return f"{what}, {self.optimizer.replace('-', '_')}{rows}{dim}"

    def measure(self):
        grown = self.load.turn(0, 1, "grow")
        if not grown:
            print(f"left out: {self.rows} rows of dim {self.dim} with {self.optimizer} do not fit into the memory that is free")
            return
        for what, quantities in (("memory", MEMORY), ("growth", GROWTH)):
            for quantity in quantities:
                unit, value = grown[quantity]
                self.bench.add(self.name(what), quantity, unit, value)
        for what, times in (("creation of a row", grown.times),
                            ("read of a batch between creations", self.load.turn(0, 1, "reads").times)):
            self.bench.distributions.append({"name": self.name(what), **times})
        self.bench.measure(list(self.contestants()))

    def contestants(self):
        options = self.bench.options
        x = ("rows", self.rows) if options.rows_on_axis else ("dim", self.dim)
        for keys in ("uniform", "zipf") if options.keys == "both" else (options.keys,):
            for phase, word in PHASES.items():
                yield Contestant(self.name(f"{phase}, {keys} keys", True),
                                 lambda *times, words=(word, keys): self.load.turn(*times, *words), x=x)


def run(bench):
    options = bench.options
    for rows in options.rows:
        for optimizer in options.optimizer:
            for dim in options.dim:
                table = Table(bench, rows, optimizer, dim)
                table.measure()
                table.load.stop()
    return f"one table in this process, batches of {options.batch}, Zipf's exponent {options.exponent:g}"
