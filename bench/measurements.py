"""What the scripts of bench/ that measure in rounds have in common: arguments, samples, and the report at the end."""

import argparse
import os
import sys

import processes  # bench/processes.py
import report


class Figures:
    """Samples and ratios of all rounds."""

    def __init__(self):
        self.figures, self.ratios = {}, {}

    def add(self, name, quantity, unit, value, transport=""):
        self.figures.setdefault((name, quantity, unit, transport), []).append(value)
        return value

    def ratio(self, name, value, least=0, most=0, transport=""):
        self.ratios.setdefault((name, least, most, transport), []).append(value)

    def finish(self, benchmark, setting, options, build="starling", seconds=0, warm_up=0):
        report.finish({"benchmark": benchmark, "setting": setting, "build": build, "rounds": options.rounds,
                       "rounds_left_out": 0, "rounds_disturbed": 0, "seconds": seconds, "warm_up": warm_up,
                       "server_core": options.server_core, "client_core": options.client_core,
                       "figures": [{"name": name, "quantity": quantity, "unit": unit, "transport": transport, "samples": samples}
                                   for (name, quantity, unit, transport), samples in self.figures.items()],
                       "ratios": [{"name": name, "transport": transport, "least": least, "most": most, "samples": samples}
                                  for (name, least, most, transport), samples in self.ratios.items()],
                       "distributions": []}, options)


def parser(program, description, parts, rounds):
    """The arguments that all of them accept."""
    cores = sorted(os.sched_getaffinity(0))
    made = argparse.ArgumentParser(prog=program, description=description)
    made.add_argument("--bin", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build/release/bin"))
    made.add_argument("--part", choices=("all", *parts), default="all", help="what is measured")
    made.add_argument("--rounds", type=int, default=rounds)
    for flag in ("--json", "--compare", "--plot"):
        made.add_argument(flag, help="of the report")
    made.add_argument("--server-core", type=int, default=cores[0])
    made.add_argument("--client-core", type=int, default=cores[-1])
    return made


def run(benchmark, options, work):
    """Runs work(options, folder) in a folder that is removed; returns the exit status. options.bin must be absolute."""
    try:
        report.check(benchmark, options)
        processes.run_in_folder(f"starling-bench-{benchmark}-", lambda folder: work(options, folder))
    except (report.Failure, ImportError, OSError) as failure:
        print(f"{benchmark}.py: {failure}", file=sys.stderr)
        return 1
    return 0
