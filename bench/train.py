#!/usr/bin/env python3
"""starling-bench train: trains lr, fm and deepfm end to end, with one server and several workers, from the reading of
the data to the last push, and reports where the time goes. --seconds and --warm-up do not count here."""

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time

import processes  # bench/processes.py
import profile  # bench/profile.py
import report

OWN_OF_STEP = 0.6  # the target, of lr: the workers' own arithmetic / time
MODELS = ("lr", "fm", "deepfm")
QUANTITIES = (("samples", "1/s"), ("time", "s"), ("own arithmetic", "s"), ("  reading rows", "s"), ("  the model", "s"),
              ("client and network", "s"), ("client's core idle", "s"), ("ps", "s"))
OVER = {"tcp": "TCP", "shm": "shared memory"}


def others_seconds():
    """Processor time of other programs since the machine started: all of it without this process and those below it."""
    ticks = os.sysconf("SC_CLK_TCK")
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, *_, steal, _, _ = map(int, file.readline().split()[1:])
    processes = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
            processes[int(pid)] = int(fields[1]), sum(map(int, fields[11:15]))
    ours = {os.getpid()}
    while True:
        more = {pid for pid, (parent, _) in processes.items() if parent in ours} - ours
        if not more:
            break
        ours |= more
    return (user + nice + system + steal - sum(processes[pid][1] for pid in ours if pid in processes)) / ticks


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Train:
    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        self.bench = profile.Bench(argparse.Namespace(bin=options.bin, server_core=options.server_core,
                                                      congestion=options.congestion or ""), folder)
        self.data = options.data or os.path.join(folder, "train.tsv")

    def generate(self):
        done = subprocess.run([self.bench.program("starling-worker"), "generate", f"--out={self.folder}",
                               f"--rows={self.options.rows}", "--test-rows=1000"],
                              timeout=self.options.timeout, check=False, preexec_fn=processes.child_setup())
        if done.returncode != 0:
            raise report.Failure("starling-worker generate failed")

    def start_worker(self, model, address, index):
        options = self.options
        env = {**os.environ, "NETWORK_WORKER_CORE_NUMBER": "0", "WORKER_ENABLE_POLLING": "0",
               "WORKER_DISABLE_PIN_CORES": "1", "STARLING_LOG": "error", "STARLING_SHM": str(int(options.over == "shm")),
               "STARLING_TCP_CONGESTION": options.congestion or ""}
        return subprocess.Popen(
            [self.bench.program("starling-worker"), f"--ps-hosts={address}",
             f"--worker-hosts={','.join(['w'] * options.workers)}", "--job-name=worker", f"--task-index={index}",
             f"--data={self.data}", "--format=criteo", f"--model={model}", f"--epochs={options.epochs}",
             f"--batch-size={options.batch_size}", f"--consistency={options.consistency}",
             f"--protocol={options.protocol}", f"--report={self.folder}/report.json", "--quiet"],
            env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            preexec_fn=processes.child_setup(options.client_core))

    def run(self, model):
        """A whole job with a server of its own, since a second job would find the clocks of the first. Its values."""
        options = self.options
        with self.bench.ps(workers=options.workers) as (server, address):
            workers = [self.start_worker(model, address, i) for i in range(options.workers)]
            try:
                failed = [worker for worker in workers if worker.wait(options.timeout) != 0]
            finally:
                for worker in workers:
                    worker.kill()
            if failed:
                raise report.Failure(f"{model}: {len(failed)} workers failed")
            server_s = processor_seconds(server.pid)
        reports = []
        for i in range(options.workers):
            path = os.path.join(self.folder, "report.json" + (f".{i}" if i else ""))
            with open(path, encoding="utf-8") as file:
                reports.append(json.load(file))
            os.remove(path)
        used = {name: sum(one["processor_seconds"][name] for one in reports) for name in ("all", "reading", "computing")}
        step = max(one["seconds"]["training"] for one in reports)
        own = used["reading"] + used["computing"]
        return (sum(one["samples"] for one in reports) / step, step, own, used["reading"], used["computing"],
                used["all"] - own, max(step - used["all"], 0), server_s)

    def measure(self):
        """{model: [the values of each round]} of the quiet rounds, or of all if none was quiet; and how many were not."""
        rounds = []
        for number in range(self.options.rounds):
            values, others, begun = {}, others_seconds(), time.monotonic()
            for turn in range(len(MODELS)):
                model = MODELS[(turn + number) % len(MODELS)]
                values[model] = self.run(model)
            took = time.monotonic() - begun
            rounds.append((values, others_seconds() - others > report.QUIET_PERCENT / 100 * took))
        quiet = [values for values, is_disturbed in rounds if not is_disturbed]
        chosen = quiet or [values for values, _ in rounds]
        return {model: [values[model] for values in chosen] for model in MODELS}, len(quiet)

    def report(self):
        options = self.options
        found, quiet = self.measure()
        figures, ratios = [], []
        for model, rounds in found.items():
            figures += [{"name": model, "quantity": name, "unit": unit, "transport": OVER[options.over],
                         "samples": [values[i] for values in rounds]} for i, (name, unit) in enumerate(QUANTITIES)]
            ratios.append({"name": f"{model}, own arithmetic / time", "transport": OVER[options.over], "most": 0,
                           "least": OWN_OF_STEP if model == "lr" else 0,
                           "samples": [values[2] / values[1] for values in rounds]})
        disturbed = options.rounds - quiet
        setting = (f"{options.workers} workers on one core, one ps; {options.data or f'{options.rows} generated rows'}, "
                   f"{options.epochs} epochs, batches of {options.batch_size}, {options.consistency}, "
                   f"{options.protocol}, over {OVER[options.over]}; processor time of all workers")
        return {"benchmark": "train", "setting": setting, "build": options.build, "rounds": options.rounds,
                "rounds_left_out": disturbed if quiet else 0, "rounds_disturbed": 0 if quiet else disturbed,
                "seconds": options.seconds, "warm_up": options.warm_up, "server_core": options.server_core,
                "client_core": options.client_core, "figures": figures, "ratios": ratios, "distributions": []}


def consistency_of(text):
    if not re.fullmatch(r"asp|bsp|ssp(:\d+)?", text):
        raise argparse.ArgumentTypeError(f"--consistency={text}: accepts asp, bsp, ssp or ssp:N")
    return text


def parse_arguments(argv):
    cores = sorted(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(prog="starling-bench train", description=__doc__)
    parser.add_argument("--rows", type=int, default=200000, help="rows that are generated to train on")
    parser.add_argument("--data", metavar="FILE", help="train on this file of Criteo's format")
    parser.add_argument("--workers", type=int, default=8, choices=range(1, 65), metavar="N", help="worker processes")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=64, help="rows of a step")
    parser.add_argument("--consistency", type=consistency_of, default="asp", metavar="asp|bsp|ssp[:N]")
    parser.add_argument("--protocol", choices=("batched", "per-table"), default="batched")
    parser.add_argument("--over", choices=tuple(OVER), default="tcp", help="what is between server and workers")
    parser.add_argument("--congestion", help="TCP's congestion control; without it the system's")
    parser.add_argument("--timeout", type=float, default=300, help="seconds that a job may take")
    parser.add_argument("--rounds", type=int, default=5, choices=range(1, 65), metavar="N")
    for flag, default in (("--seconds", 1), ("--warm-up", 0.3)):
        parser.add_argument(flag, type=float, default=default, help=argparse.SUPPRESS)
    for flag in ("--json", "--compare", "--plot"):
        parser.add_argument(flag, help="of the report")
    parser.add_argument("--server-core", type=int, default=cores[0])
    parser.add_argument("--client-core", type=int, default=cores[min(1, len(cores) - 1)])
    for flag in ("--bin", "--build"):
        parser.add_argument(flag, help=argparse.SUPPRESS)  # set by starling-bench
    return parser.parse_args(argv)


def main(argv):
    options = parse_arguments(argv)

    def run(folder):
        train = Train(options, folder)
        if options.data is None:
            train.generate()
        report.finish(train.report(), options)
    try:
        report.check("train", options)
        processes.run_in_folder("starling-bench-train-", run)
    except (report.Failure, profile.Failure, subprocess.TimeoutExpired, OSError) as failure:
        print(f"starling-bench train: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # so that the shell sees why this ended
        os.kill(os.getpid(), signal.SIGINT)
