"""An ONNX model in a loop, without requests; and the grouping of 200 layers."""

from driver import Contestant, number


def add_arguments(parser):
    parser.add_argument("--model", metavar="FILE", required=True, help="an ONNX model")
    parser.add_argument("--rows", type=number("rows", 1, 65536), default=1, help="rows that are computed together")


def run(bench):
    load = bench.load("engine", f"--model={bench.options.model}", f"--rows={bench.options.rows}")
    bench.measure([Contestant(name, lambda *times, word=word: load.turn(*times, word))
                   for name, word in (("engine", "model"), ("grouping of 200 layers", "grouping"))])
    return f"{bench.options.model}, {bench.options.rows} rows"
