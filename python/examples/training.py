"""What the examples share: arguments, the rows and batches of a worker, and the area under the ROC curve."""

import argparse
import sys

import numpy
import torch

import starling
import starling.torch

CONSISTENCY = {"asp": starling.ASP, "bsp": starling.BSP}


def positive(text):
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text}; accepted: an integer above 0")
    return int(text)


def parser(description, **defaults):
    """The arguments that both examples have; `defaults` has a value for each."""
    result = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    result.add_argument("--train", required=True, metavar="FILE", help="rows to train on; workers share them")
    result.add_argument("--test", required=True, metavar="FILE", help="rows that worker 0 evaluates at the end")
    result.add_argument("--epochs", type=positive, help="passes over the rows")
    result.add_argument("--batch", type=positive, help="rows of a batch of one worker")
    result.add_argument("--dim", type=positive, help="columns of an embedding")
    result.add_argument("--lr", type=float, help="learning rate of Adagrad")
    result.add_argument("--seed", type=int, default=0, help="of first values and of the order of the rows")
    result.add_argument("--consistency", choices=CONSISTENCY, default="asp", help="whether workers wait for each other")
    result.add_argument("--ahead", type=int, default=0, help="in asp: batches by which the pulls of rows run ahead")
    result.add_argument("--checkpoint", action="store_true",
                        help="write a checkpoint after each epoch; servers need --checkpoint-dir")
    result.add_argument("--publish", metavar="NAME", help="at the end, publish the model for starling-serve; servers need "
                        "--objects")
    result.set_defaults(**defaults)
    return result


def read(path, parse, task=0, workers=1):
    """Returns what `parse` makes of every line of this worker, and the number of lines of the file."""
    found, number = [], 0
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if number % workers == task:
                    found.append(parse(line.rstrip("\n")))
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}")
    except ValueError as error:
        sys.exit(f"{path}:{number}: {error}")
    return found, number


def count_batches(args, rows, workers):
    """Returns the batches of an epoch, of which every worker has the same number: in BSP they wait for each other."""
    count = rows // workers // args.batch
    if count == 0:
        sys.exit(f"{args.train}: {rows} rows; accepted: at least {workers * args.batch}, "
                 f"a batch of {args.batch} for each of {workers} workers")
    return count


def batches(tensors, args, count, begin, task):
    """Yields the batches from number `begin` on, counted through all epochs of `count` batches. A worker that was
    restarted gets those that the lost one had not pushed, because the order depends on seed, task and epoch alone."""
    for number in range(begin, args.epochs * count):
        epoch, index = divmod(number, count)
        if number == begin or index == 0:
            order = torch.from_numpy(numpy.random.default_rng((args.seed, task, epoch)).permutation(len(tensors[0])))
        rows = order[index * args.batch:(index + 1) * args.batch]
        yield [tensor[rows] for tensor in tensors]


def publish(args, model, inputs):
    """Publishes the model if --publish was given. inputs: two rows of the arguments of its forward pass."""
    if args.publish:
        version = starling.torch.publish(model, args.publish, inputs)
        print(f"published {args.publish}@{version}", flush=True)


def run(args, parse, build, tensors, train, evaluate):
    """A worker of the job, with the functions of the example: trains on its rows; worker 0 evaluates and publishes."""
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # a core for each worker
    with starling.connect() as client:
        rows, total = read(args.train, parse, client.task, client.worker_count)
        count = count_batches(args, total, client.worker_count)
        model, optimizer = build(args, client)
        data = tensors(rows)
        train(args, client, model, optimizer, data, count)
        client.barrier("trained")
        if client.task == 0:
            evaluate(args, model)
            publish(args, model, tuple(each[:2] for each in data[1:]))


def auc(labels, scores):
    """Area under the ROC curve; equal scores count one half."""
    _, inverse, counts = numpy.unique(scores, return_inverse=True, return_counts=True)
    ranks = (numpy.cumsum(counts) - (counts - 1) / 2)[inverse]  # from 1; the mean rank of equal scores
    positives = int(numpy.sum(labels == 1))
    pairs = positives * (len(labels) - positives)
    if pairs == 0:
        sys.exit(f"AUC: all {len(labels)} labels are equal; accepted: both 0 and 1")
    return (ranks[labels == 1].sum() - positives * (positives + 1) / 2) / pairs
