#!/usr/bin/env python3
"""Trains DeepFM (Guo et al. 2017) on rows in libsvm format, such as UCI Adult. Embeddings and dense layers live in
Starling's servers.

    starling-launch --ps 1 --workers 8 -- python3 deepfm_adult.py --train adult.train.libsvm --test adult.test.libsvm

With --embeddings torch the same model trains in one process without servers, for comparison.
"""

import contextlib
import re
import sys
import time

import torch
import torch.nn.functional as functional
from training import CONSISTENCY, auc, batches, count_batches, parser, read

import starling
import starling.torch

KEYS_MAX = 1 << 20  # of torch's embeddings, which need a size


def features(keys):
    """What the embeddings look up: the sum of the weights of a row, and the vector of each key."""
    return {"weight": (keys,), "vector": (keys.reshape(-1, 1),)}


class DeepFM(torch.nn.Module):
    """logit = sum of weights + products of all pairs of vectors + tower(vectors)"""

    def __init__(self, embeddings, fields, dim):
        super().__init__()
        self.embeddings = embeddings  # "weight": (keys, 1), "vector": (keys, dim)
        self.shape = (-1, fields, dim)
        self.tower = torch.nn.Sequential(torch.nn.Linear(fields * dim, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32),
                                         torch.nn.ReLU(), torch.nn.Linear(32, 1))

    def forward(self, keys):
        """keys: (rows, fields). Returns (rows,)."""
        found = self.embeddings(features(keys))
        vectors = found["vector"].view(self.shape)
        pairs = (vectors.sum(1).square() - vectors.square().sum(1)).sum(1) / 2
        return (found["weight"] + self.tower(vectors.flatten(1))).squeeze(1) + pairs


def on_servers(args, client, fields):
    """The model and its optimizer. Every worker opens the same tables; the servers create them once."""
    consistency, adagrad = CONSISTENCY[args.consistency], starling.Adagrad(args.lr)

    def bag(name, dim):
        init = starling.Normal(std=0.01, seed=args.seed)
        return starling.torch.EmbeddingBag(client.sparse(f"deepfm/{name}", dim, adagrad, init, consistency), "sum")

    embeddings = starling.torch.EmbeddingBagCollection({"weight": bag("weight", 1), "vector": bag("vector", args.dim)})
    model = DeepFM(embeddings, fields, args.dim)
    tower = starling.torch.DenseParameters(model.tower, client, "deepfm/tower", adagrad, consistency)
    return model, starling.torch.Optimizer([embeddings, tower])


class TorchEmbeddings(torch.nn.ModuleDict):
    """torch's own bags, with the forward pass of EmbeddingBagCollection."""

    def forward(self, features):
        return {name: self[name](*arguments) for name, arguments in features.items()}


def in_this_process(args, fields):
    bags = {name: torch.nn.EmbeddingBag(KEYS_MAX, dim, mode="sum", sparse=True)
            for name, dim in (("weight", 1), ("vector", args.dim))}
    for bag in bags.values():
        torch.nn.init.normal_(bag.weight, std=0.01)
    model = DeepFM(TorchEmbeddings(bags), fields, args.dim)
    return model, torch.optim.Adagrad(model.parameters(), lr=args.lr, initial_accumulator_value=0.1)


def parse(line):
    """Returns (label, keys) of "LABEL KEY:1 KEY:1 ..."."""
    if not re.fullmatch(r"[-+]?[01](\s+\d+:1)+\s*", line):
        raise ValueError(f"{line[:60]!r}; accepted: a label 0, 1 or -1, then features such as 17:1")
    label, *features = line.split()
    return float(label in ("1", "+1")), [int(feature[:-2]) for feature in features]


def tensors(path, rows, fields):
    """The rows as tensors: labels (rows,), keys (rows, fields)."""
    for _, keys in rows:
        if len(keys) != fields:
            sys.exit(f"{path}: rows of {fields} and of {len(keys)} features; accepted: the same number in every row")
    return torch.tensor([label for label, _ in rows]), torch.tensor([keys for _, keys in rows])


def train(args, client, model, optimizer, data, count):
    begin, task = (client.clock, client.task) if client else (0, 0)
    if begin > 0:
        print(f"worker {task} continues with batch {begin} of {args.epochs * count}", flush=True)
    loss_sum, seconds = 0.0, time.monotonic()
    loader = batches(data, args, count, begin, task)
    if client:  # the next batch's rows arrive with the answer to this batch's gradients
        loader = starling.torch.Pipeline(loader, lambda batch: {model.embeddings: features(batch[1])}, optimizer,
                                         args.ahead)
    for number, (labels, keys) in enumerate(loader, begin + 1):
        optimizer.zero_grad()
        loss = functional.binary_cross_entropy_with_logits(model(keys), labels, reduction="sum")
        loss.backward()
        optimizer.step()  # pushes all gradients, ends the iteration, pulls the tower
        loss_sum += loss.item()
        if number % count == 0 and task == 0:
            print(f"epoch {number // count}: loss {loss_sum / (count * args.batch):.4f}", flush=True)
            loss_sum = 0.0
            if args.checkpoint:
                client.checkpoint()
    print(f"worker {task}: {time.monotonic() - seconds:.1f} s", flush=True)


@torch.no_grad()
def evaluate(args, model, fields):
    labels, keys = tensors(args.test, read(args.test, parse)[0], fields)
    model.eval()
    print(f"test AUC {auc(labels.numpy(), torch.cat([model(part) for part in keys.split(4096)]).numpy()):.4f}")


def main():
    options = parser(__doc__.partition("\n")[0], epochs=3, batch=64, dim=8, lr=0.04)
    options.add_argument("--embeddings", choices=("starling", "torch"), default="starling",
                         help="torch: one process without servers, for comparison")
    args = options.parse_args()
    if args.checkpoint and args.embeddings == "torch":
        options.error("--checkpoint: servers write checkpoints; accepted: without --embeddings torch")
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # a core for each worker
    with starling.connect() if args.embeddings == "starling" else contextlib.nullcontext() as client:
        task, workers = (client.task, client.worker_count) if client else (0, 1)
        rows, total = read(args.train, parse, task, workers)
        count = count_batches(args, total, workers)
        fields = len(rows[0][1])
        model, optimizer = on_servers(args, client, fields) if client else in_this_process(args, fields)
        train(args, client, model, optimizer, tensors(args.train, rows, fields), count)
        if client:
            client.barrier("trained")
        if task == 0:
            evaluate(args, model, fields)


if __name__ == "__main__":
    main()
