"""Trains lr, fm and deepfm end to end, with one server and several workers, from the reading of the data to the last push, and
reports where the time goes. --seconds and --warm-up do not count here."""

import argparse
import json
import os
import re
import subprocess

import processes
from driver import OVER, Contestant, congestion, number
from processes import Failure, Found

OWN_OF_STEP = 0.6  # the target, of lr: the workers' own arithmetic / time
MODELS = ("lr", "fm", "deepfm")


def consistency_of(text):
    if not re.fullmatch(r"asp|bsp|ssp(:\d+)?", text):
        raise argparse.ArgumentTypeError(f"--consistency={text}: accepts asp, bsp, ssp or ssp:N")
    return text


def add_arguments(parser):
    add = parser.add_argument
    add("--rows", type=number("rows", 1, 10**9), default=200000, help="rows that are generated to train on")
    add("--data", metavar="FILE", help="train on this file of Criteo's format")
    add("--workers", type=number("workers", 1, 64), default=8, help="worker processes")
    add("--epochs", type=int, default=1)
    add("--batch-size", type=int, default=64, help="rows of a step")
    add("--consistency", type=consistency_of, default="asp", metavar="asp|bsp|ssp[:N]")
    add("--protocol", choices=("batched", "per-table"), default="batched")
    add("--over", choices=tuple(OVER), default="tcp", help="what is between server and workers")
    add("--congestion", type=congestion, help="TCP's congestion control; without it the system's")
    add("--timeout", type=float, default=300, help="seconds that a job may take")


class Train:
    def __init__(self, bench):
        self.options, self.folder = bench.options, bench.folder
        self.program = processes.program(bench.options.bin, "starling-worker")
        self.data = self.options.data or os.path.join(self.folder, "train.tsv")
        if self.options.data is None:
            done = subprocess.run([self.program, "generate", f"--out={self.folder}", f"--rows={self.options.rows}",
                                   "--test-rows=1000"], timeout=self.options.timeout, check=False,
                                  preexec_fn=processes.child_setup())
            if done.returncode != 0:
                raise Failure("starling-worker generate failed")

    def start_worker(self, model, address, index):
        options = self.options
        env = {**os.environ, "NETWORK_WORKER_CORE_NUMBER": "0", "WORKER_ENABLE_POLLING": "0",
               "WORKER_DISABLE_PIN_CORES": "1", "STARLING_LOG": "error", "STARLING_SHM": str(int(options.over == "shm")),
               "STARLING_TCP_CONGESTION": options.congestion or ""}
        return subprocess.Popen(
            [self.program, f"--ps-hosts={address}", f"--worker-hosts={','.join(['w'] * options.workers)}",
             "--job-name=worker", f"--task-index={index}", f"--data={self.data}", "--format=criteo", f"--model={model}",
             f"--epochs={options.epochs}", f"--batch-size={options.batch_size}", f"--consistency={options.consistency}",
             f"--protocol={options.protocol}", f"--report={self.folder}/report.json", "--quiet"],
            env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            preexec_fn=processes.child_setup(options.client_core))

    def run(self, model):
        """A whole job with a server of its own, since a second job would find the clocks of the first."""
        ps = processes.Ps(self.options, self.folder, workers=self.options.workers)
        try:
            workers = [self.start_worker(model, ps.address, i) for i in range(self.options.workers)]
            try:
                failed = [worker for worker in workers if worker.wait(self.options.timeout) != 0]
            finally:
                for worker in workers:
                    worker.kill()
            if failed:
                raise Failure(f"{model}: {len(failed)} workers failed")
            return self.found(self.reports(), ps.cpu_seconds())
        finally:
            ps.stop()

    def reports(self):
        reports = []
        for i in range(self.options.workers):
            path = os.path.join(self.folder, "report.json" + (f".{i}" if i else ""))
            with open(path, encoding="utf-8") as file:
                reports.append(json.load(file))
            os.remove(path)
        return reports

    @staticmethod
    def found(reports, server_s):
        used = {name: sum(one["processor_seconds"][name] for one in reports) for name in ("all", "reading", "computing")}
        step = max(one["seconds"]["training"] for one in reports)
        own = used["reading"] + used["computing"]
        return Found({"samples": ("1/s", sum(one["samples"] for one in reports) / step), "time": ("s", step),
                      "own arithmetic": ("s", own), "  reading rows": ("s", used["reading"]),
                      "  the model": ("s", used["computing"]), "client and network": ("s", used["all"] - own),
                      "client's core idle": ("s", max(step - used["all"], 0)), "ps": ("s", server_s)})


def run(bench):
    train, options = Train(bench), bench.options
    bench.measure([Contestant(model, lambda *_, model=model: train.run(model), OVER[options.over]) for model in MODELS])
    for model in MODELS:
        bench.ratio(f"{model}, own arithmetic / time", bench.figure(model, "own arithmetic"), bench.figure(model, "time"),
                    OWN_OF_STEP if model == "lr" else 0)
    return (f"{options.workers} workers on one core, one ps; {options.data or f'{options.rows} generated rows'}, "
            f"{options.epochs} epochs, batches of {options.batch_size}, {options.consistency}, {options.protocol}, over "
            f"{OVER[options.over]}; processor time of all workers")
