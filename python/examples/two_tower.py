#!/usr/bin/env python3
"""Trains a two-tower model on a log of users, items and what users chose before: tables of users and items, in
Starling's servers, and two towers whose outputs are close if the user chooses the item.

    python3 two_tower.py generate log       # rows of a known model: log/train.tsv, log/test.tsv
    starling-launch --ps 1 --workers 2 -- python3 two_tower.py --train log/train.tsv --test log/test.tsv
"""

import os
import sys

import numpy
import torch
import torch.nn.functional as functional
from training import CONSISTENCY, auc, batches, parser, read, run

import starling
import starling.torch

USERS, ITEMS, HISTORY, PADDING = 300, 100, 10, -1


def generate(folder, rows=(40000, 5000), dim=3, seed=1):
    """Writes `label user item item,item,...`: the user chooses items whose vectors are close to the own one."""
    random = numpy.random.default_rng(seed)
    users, items = random.normal(0, 1, (USERS, dim)), random.normal(0, 1, (ITEMS, dim))
    likes = numpy.argsort(-users @ items.T)[:, :20]
    os.makedirs(folder, exist_ok=True)
    for name, count in zip(("train", "test"), rows):
        with open(os.path.join(folder, f"{name}.tsv"), "w", encoding="utf-8") as file:
            for user, item in zip(random.integers(0, USERS, count), random.integers(0, ITEMS, count)):
                label = int(random.random() < 1 / (1 + numpy.exp(-2 * users[user] @ items[item])))
                history = random.choice(likes[user], random.integers(0, HISTORY + 1))
                print(label, user, item, ",".join(map(str, history)), sep="\t", file=file)


def parse(line):
    """Returns (label, user, item, history) of a line; the history is filled up with PADDING."""
    label, user, item, history = line.split("\t")
    chosen = [int(each) for each in history.split(",") if each]
    return float(label), [int(user)], [int(item)], (chosen + [PADDING] * HISTORY)[:HISTORY]


def tensors(rows):
    """The rows as tensors: labels (rows,), user (rows, 1), item (rows, 1), history (rows, 10)."""
    return [torch.tensor(column) for column in zip(*rows)]


class TwoTower(torch.nn.Module):
    """score = user tower(user, history) . item tower(item)"""

    def __init__(self, embeddings, dim):
        super().__init__()
        self.embeddings = embeddings  # "user", "item", "history"
        self.towers = torch.nn.ModuleDict({
            "user": torch.nn.Sequential(torch.nn.Linear(2 * dim, 32), torch.nn.ReLU(), torch.nn.Linear(32, dim)),
            "item": torch.nn.Sequential(torch.nn.Linear(dim, 32), torch.nn.ReLU(), torch.nn.Linear(32, dim))})

    def forward(self, user, item, history):
        """user, item: (rows, 1); history: (rows, length). Returns (rows,)."""
        found = self.embeddings({"user": user, "item": item, "history": history})
        query = self.towers["user"](torch.cat([found["user"], found["history"]], 1))
        return (query * self.towers["item"](found["item"])).sum(1)


def build(args, client):
    """The model and its optimizer. Item and history share the table of items."""
    consistency, adagrad = CONSISTENCY[args.consistency], starling.Adagrad(args.lr)
    users, items = (client.sparse(f"two_tower/{name}", args.dim, adagrad, starling.Normal(std=0.1, seed=args.seed + i),
                                  consistency) for i, name in enumerate(("users", "items")))
    bag = starling.torch.EmbeddingBag
    embeddings = starling.torch.EmbeddingBagCollection({
        "user": bag(users, "sum"), "item": bag(items, "sum"), "history": bag(items, "mean", padding_idx=PADDING)})
    model = TwoTower(embeddings, args.dim)
    dense = starling.torch.DenseParameters(model.towers, client, "two_tower/dense", adagrad, consistency)
    return model, starling.torch.Optimizer([embeddings, dense])


def train(args, client, model, optimizer, data, count):
    loss_sum = 0.0
    for number, (labels, *inputs) in enumerate(batches(data, args, count, client.clock, client.task), client.clock + 1):
        optimizer.zero_grad()
        loss = functional.binary_cross_entropy_with_logits(model(*inputs), labels, reduction="sum")
        loss.backward()
        optimizer.step()
        loss_sum += loss.item() / (count * args.batch)
        if number % count == 0 and client.task == 0:
            print(f"epoch {number // count}: loss {loss_sum:.4f}", flush=True)
            loss_sum = 0.0


@torch.no_grad()
def evaluate(args, model):
    labels, *inputs = tensors(read(args.test, parse)[0])
    model.eval()
    print(f"test AUC {auc(labels.numpy(), model(*inputs).numpy()):.4f}", flush=True)


def main():
    if sys.argv[1:2] == ["generate"]:
        if len(sys.argv) > 3 or sys.argv[2:3] and sys.argv[2].startswith("-"):
            sys.exit("usage: two_tower.py generate [FOLDER]")
        generate(*sys.argv[2:] or ["log"])
        return
    args = parser(__doc__.partition("\n")[0], epochs=3, batch=128, dim=8, lr=0.05).parse_args()
    run(args, parse, build, tensors, train, evaluate)


if __name__ == "__main__":
    main()
