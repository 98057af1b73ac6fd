#!/usr/bin/env python3
"""Trains DLRM (Naumov et al. 2019) on a click log in Criteo's format: 26 tables and two towers, in Starling's servers.

    starling-worker generate --out log       # rows of a known model; planted.json has its AUC
    starling-launch --ps 1 --workers 8 -- python3 dlrm_criteo.py --train log/train.tsv --test log/test.tsv \\
        --planted log/planted.json
"""

import json
import math
import time

import numpy
import torch
import torch.nn.functional as functional
from training import CONSISTENCY, auc, batches, parser, read, run

import starling
import starling.torch

COUNTS, WORDS = 13, 26  # columns of a line after its label
CLASSES = 64  # of a count, from 0; the last one is an empty column
EMPTY_WORD = 1 << 32  # no key of a word of eight digits


def parse(line):
    """Returns (label, classes, keys) of a line. A count x > 2 has the class floor(log(x + 1)^2), as in the winning
    solution of that data's contest, so that its layer learns a value for each class."""
    label, *columns = line.split("\t")
    if label not in ("0", "1") or len(columns) != COUNTS + WORDS:
        raise ValueError(f"label {label[:10]!r} and {len(columns)} columns; accepted: 0 or 1, {COUNTS} counts and "
                         f"{WORDS} hexadecimal words, separated by tabs")
    counts = [max(int(text), 0) if text else None for text in columns[:COUNTS]]
    classes = [CLASSES - 1 if x is None else x if x <= 2 else min(int(math.log(x + 1) ** 2), CLASSES - 2)
               for x in counts]
    return float(label), classes, [int(text, 16) if text else EMPTY_WORD for text in columns[COUNTS:]]


def tensors(rows):
    """The rows as tensors: labels (rows,), classes (rows, 13), keys (rows, 26)."""
    labels, classes, keys = zip(*rows)
    return (torch.tensor(labels), torch.from_numpy(numpy.array(classes, numpy.uint8)),
            torch.from_numpy(numpy.array(keys, numpy.int64)))


def features(keys):
    """What EmbeddingBagCollection looks up: for each table a bag of one key a row."""
    return {str(i): (keys[:, i:i + 1],) for i in range(WORDS)}


class DLRM(torch.nn.Module):
    """A tower for the counts; products of all pairs of its output and the 26 vectors; a tower above them."""

    def __init__(self, embeddings, dim):
        super().__init__()
        self.embeddings = embeddings
        self.dense = torch.nn.ModuleDict({
            "bottom": torch.nn.Sequential(torch.nn.EmbeddingBag(COUNTS * CLASSES, 32, mode="sum"), torch.nn.ReLU(),
                                          torch.nn.Linear(32, dim)),
            "top": torch.nn.Sequential(torch.nn.Linear(dim + WORDS * (WORDS + 1) // 2, 64), torch.nn.ReLU(),
                                       torch.nn.Linear(64, 1))})
        torch.nn.init.normal_(self.dense["bottom"][0].weight, std=0.1)
        rows, columns = torch.tril_indices(WORDS + 1, WORDS + 1, -1)
        self.pairs = rows * (WORDS + 1) + columns

    def forward(self, classes, keys):
        """classes: (rows, 13); keys: (rows, 26). Returns (rows,)."""
        bottom = self.dense["bottom"](classes + CLASSES * torch.arange(COUNTS))
        words = self.embeddings(features(keys))
        vectors = torch.stack([bottom, *words.values()], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1).index_select(1, self.pairs)
        return self.dense["top"](torch.cat([bottom, products], 1)).squeeze(1)


def build(args, client):
    """The model and its optimizer. Every worker opens the same tables; the servers create them once."""
    consistency, adagrad = CONSISTENCY[args.consistency], starling.Adagrad(args.lr)
    embeddings = starling.torch.EmbeddingBagCollection({
        str(i): starling.torch.EmbeddingBag(
            client.sparse(f"dlrm/{i}", args.dim, adagrad, starling.Normal(std=0.02, seed=args.seed + i), consistency),
            "sum")
        for i in range(WORDS)})
    model = DLRM(embeddings, args.dim)
    dense = starling.torch.DenseParameters(model.dense, client, "dlrm/dense", adagrad, consistency)
    return model, starling.torch.Optimizer([embeddings, dense])


def train(args, client, model, optimizer, data, count):
    begin, loss_sum, seconds = client.clock, 0.0, time.monotonic()
    if begin > 0:
        print(f"worker {client.task} continues with batch {begin} of {args.epochs * count}", flush=True)
    loader = batches(data, args, count, begin, client.task)
    pipeline = starling.torch.Pipeline(loader, lambda batch: {model.embeddings: features(batch[2])}, optimizer,
                                       args.ahead)
    for number, (labels, classes, keys) in enumerate(pipeline, begin + 1):
        optimizer.zero_grad()
        loss = functional.binary_cross_entropy_with_logits(model(classes, keys), labels, reduction="sum")
        loss.backward()
        optimizer.step()  # pushes all gradients, ends the iteration, pulls the towers and the next rows
        loss_sum += loss.item()
        client.progress(epoch=number / count, epochs=args.epochs, samples=(number - begin) * args.batch,
                        loss=loss.item() / args.batch)  # for the page of the job
        if number % count == 0 and client.task == 0:
            print(f"epoch {number // count}: loss {loss_sum / (count * args.batch):.4f}", flush=True)
            loss_sum = 0.0
            if args.checkpoint:
                client.checkpoint()
    rate = (args.epochs * count - begin) * args.batch / (time.monotonic() - seconds)
    print(f"worker {client.task}: {rate:.0f} rows/s", flush=True)


@torch.no_grad()
def evaluate(args, model):
    labels, classes, keys = tensors(read(args.test, parse)[0])
    model.eval()
    scores = torch.cat([model(*part) for part in zip(classes.split(4096), keys.split(4096))])
    print(f"test AUC {auc(labels.numpy(), scores.numpy()):.4f}")
    if args.planted:
        with open(args.planted, encoding="utf-8") as file:
            print(f"AUC of the generating model {json.load(file)['auc']:.4f}")


def main():
    options = parser(__doc__.partition("\n")[0], epochs=1, batch=256, dim=16, lr=0.02)
    options.add_argument("--planted", metavar="FILE", help="planted.json of the log: prints the AUC to compare with")
    args = options.parse_args()
    run(args, parse, build, tensors, train, evaluate)


if __name__ == "__main__":
    main()
