#!/usr/bin/env python3
"""The Python package against what it replaces, in turns: its calls against those of C (starling-bench calls) on the same
server; DLRM with its tables against torch.nn.EmbeddingBag in one process, and with the exact Pipeline against without."""

import itertools
import os
import sys
import time

import driver
from driver import Contestant, real
from processes import Found

PARTS = ("calls", "dlrm")
TRANSPORT = "shared memory"  # of clients of this machine
ROWS, DIM, LONG, SHORT = 100000, 16, 10000, 64  # as starling-bench calls has them
BATCHES = 64  # of keys, drawn beforehand
# The model of Naumov et al. 2019 for Criteo's Kaggle data.
COUNTS, WORDS, BATCH = 13, 26, 4096
BOTTOM, TOP = (COUNTS, 512, 256, 64, DIM), (DIM + WORDS * (WORDS + 1) // 2, 512, 256, 1)
LEARNING_RATE = 0.01
SAMPLES = 32 * BATCH


def repeat(function, warm_up, seconds):
    """Calls a second."""
    for duration in (warm_up, seconds):
        begun = now = time.perf_counter()
        calls = 0
        while now - begun < duration or calls == 0:
            function()
            calls += 1
            now = time.perf_counter()
    return calls / (now - begun)


# ---- Calls -----------------------------------------------------------------------------------------------------


class Calls:
    """Figures are of calls a second, by starling-bench's names: all of C, and the same of Python."""

    def __init__(self, bench, client, coordinator):
        random = numpy.random.default_rng(1)
        population = random.integers(0, 2**63, ROWS)
        table = client.sparse("python", DIM, starling.SGD(LEARNING_RATE), starling.Uniform(-0.1, 0.1))
        for keys in numpy.split(population, range(LONG, ROWS, LONG)):
            table.push(keys, numpy.zeros((len(keys), DIM), numpy.float32))
        values = numpy.zeros((LONG, DIM), numpy.float32)
        batches = itertools.cycle(random.choice(population, (BATCHES, LONG)))
        short_batches = itertools.cycle(random.choice(population, (BATCHES, SHORT)))
        python = {f"pull, {LONG} keys": lambda: table.pull(next(batches), values),
                  f"push, {LONG} keys": lambda: table.push(next(batches), values),
                  f"pull, {SHORT} keys": lambda: table.pull(next(short_batches))}
        self.ratios = [(f"Python / C, {name}", f"Python, {name}", f"C, {name}", least)
                       for name, least in zip(python, (0.95, 0.95, 0.8))]
        self.ratios.append(("C, assign / push", f"C, assign, {LONG} keys", f"C, push, {LONG} keys", 0.9))
        core = bench.options.client_core
        load = bench.load("calls", f"--server-core={core}", f"--client-core={core}", f"--coordinator={coordinator}",
                          f"--rows={ROWS}", f"--dim={DIM}", f"--keys-max={LONG}")
        self.contestants = [Contestant(f"Python, {name}", lambda *times, function=function: Found(
            calls=("1/s", repeat(function, *times))), TRANSPORT) for name, function in python.items()]
        self.contestants += [Contestant(f"C, {operation}, {keys} keys", lambda *times, words=(operation, keys): load.turn(
            *times, *words).only("calls"), TRANSPORT)
                             for operation, keys in (("pull", LONG), ("push", LONG), ("assign", LONG), ("pull", SHORT))]


# ---- DLRM ------------------------------------------------------------------------------------------------------


def tower(sizes):
    layers = [(torch.nn.Linear(*pair), torch.nn.ReLU()) for pair in zip(sizes, sizes[1:])]
    return torch.nn.Sequential(*itertools.chain(*layers))[:-1]


def log():
    """Labels, counts, and keys by Zipf's law of exponent 1."""
    random = numpy.random.default_rng(1)
    keys = (ROWS ** random.random((SAMPLES, WORDS))).astype(numpy.int64) - 1
    return [torch.from_numpy(array) for array in (random.integers(0, 2, SAMPLES).astype(numpy.float32),
                                                  random.random((SAMPLES, COUNTS), numpy.float32), keys)]


class Batches:
    """Batches of the log in random order."""

    def __init__(self, tensors):
        self.tensors = tensors

    def __iter__(self):
        for rows in torch.randperm(SAMPLES).split(BATCH):
            yield [tensor[rows] for tensor in self.tensors]


def features(batch):
    return {str(i): (keys,) for i, keys in enumerate(batch[2].unsqueeze(2).unbind(1))}


class Model:
    """Training, batch by batch. embed(features): {name: vectors}."""

    def __init__(self, embed, batches):
        self.embed = embed
        self.towers = torch.nn.ModuleList([tower(BOTTOM), tower(TOP)])
        rows, columns = torch.tril_indices(WORDS + 1, WORDS + 1, -1)
        self.pairs = rows * (WORDS + 1) + columns
        self.optimizer = None
        self.batches = itertools.chain.from_iterable(itertools.repeat(batches))

    def forward(self, batch):
        bottom = self.towers[0](batch[1])
        vectors = torch.stack([bottom, *self.embed(features(batch)).values()], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1).index_select(1, self.pairs)
        return self.towers[1](torch.cat([bottom, products], 1)).squeeze(1)

    def train(self):
        batch = next(self.batches)
        self.optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(self.forward(batch), batch[0]).backward()
        self.optimizer.step()


def in_process(batches):
    bags = torch.nn.ModuleDict({str(i): torch.nn.EmbeddingBag(ROWS, DIM, mode="sum", sparse=True)
                                for i in range(WORDS)})
    model = Model(lambda given: {name: bags[name](*arguments) for name, arguments in given.items()}, batches)
    model.optimizer = torch.optim.SGD([*model.towers.parameters(), *bags.parameters()], lr=LEARNING_RATE)
    return model


def on_servers(client, name, batches, has_pipeline):
    sgd = starling.SGD(LEARNING_RATE)
    bags = starling.torch.EmbeddingBagCollection({
        str(i): starling.torch.EmbeddingBag(client.sparse(f"{name}/{i}", DIM, sgd, starling.Normal(seed=i)), "sum")
        for i in range(WORDS)})
    model = Model(bags, batches)
    model.optimizer = starling.torch.Optimizer(
        [bags, starling.torch.DenseParameters(model.towers, client, f"{name}/towers", sgd)])
    if has_pipeline:
        pipeline = starling.torch.Pipeline(batches, lambda batch: {bags: features(batch)}, model.optimizer)
        model.batches = itertools.chain.from_iterable(itertools.repeat(pipeline))
    return model


class Dlrm:
    def __init__(self, client, options):
        batches = Batches(log())
        models = {"torch.nn.EmbeddingBag": in_process(batches),
                  "starling.torch": on_servers(client, "plain", batches, False),
                  "starling.torch, Pipeline": on_servers(client, "ahead", batches, True)}
        self.contestants = [
            Contestant(f"DLRM, {name}", lambda warm_up, _, train=model.train: Found(
                samples=("1/s", BATCH * repeat(train, warm_up, options.dlrm_seconds))), "" if "torch.nn" in name else TRANSPORT)
            for name, model in models.items()]
        ours = "DLRM, starling.torch"
        self.ratios = [("DLRM, starling.torch / torch.nn.EmbeddingBag", ours, "DLRM, torch.nn.EmbeddingBag", 0.8),
                       ("DLRM, starling.torch, Pipeline / torch.nn.EmbeddingBag", f"{ours}, Pipeline",
                        "DLRM, torch.nn.EmbeddingBag", 0.8),
                       ("DLRM, Pipeline / none", f"{ours}, Pipeline", ours, 1.1)]


# ---- The whole -------------------------------------------------------------------------------------------------


def add_arguments(parser):
    parser.set_defaults(rounds=7, seconds=0.5, warm_up=0.2)
    parser.add_argument("--part", choices=("all", *PARTS), default="all", help="what is measured")
    parser.add_argument("--dlrm-seconds", type=real("dlrm-seconds", 0.01, 600), default=5)


def load_packages(options):
    global numpy, starling, torch
    sys.path.insert(0, os.path.join(options.bin, "..", "python"))
    os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
    import numpy
    import starling
    if options.part in ("all", "dlrm"):
        import starling.torch
        import torch
        torch.set_num_threads(1)


def run(bench):
    """The server has its core; everything else has the others."""
    options = bench.options
    load_packages(options)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {options.server_core})
    with starling.local_cluster() as cluster:
        os.sched_setaffinity(0, cores - {options.server_core} or cores)
        with cluster.connect() as client:
            parts = []
            if options.part in ("all", "calls"):
                parts.append(Calls(bench, client, cluster.coordinator))
            if options.part in ("all", "dlrm"):
                parts.append(Dlrm(client, options))
            bench.measure([contestant for part in parts for contestant in part.contestants])
    for part in parts:
        for name, of, other, least in part.ratios:
            quantity = "samples" if name.startswith("DLRM") else "calls"
            bench.ratio(name, bench.figure(of, quantity), bench.figure(other, quantity), least)
    return (f"one server; calls one at a time, {ROWS} rows of dim {DIM}, SGD; DLRM: batch {BATCH}, {WORDS} tables, torch on one "
            "thread")


def main(argv):
    return driver.main(["python", *argv])


if __name__ == "__main__":
    driver.run_program(main)
