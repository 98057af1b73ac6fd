#!/usr/bin/env python3
"""Trains the examples of python/examples with 8 workers and prints their test AUC as a table: DeepFM beside torch's own
embeddings in one process, DLRM beside the model that generated its log."""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
EXAMPLES = os.path.join(ROOT, "python", "examples")
MODES = ("asp", "bsp")


def run(command, folder):
    """Runs a program of the build to its end; returns its output."""
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": os.path.join(folder, "python")}, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}")
    return done.stdout


def auc(output, name="test AUC"):
    return float(re.search(rf"{name} (\d\.\d+)", output)[1])


def row(name, consistency, values, reference, most):
    """values, reference: of each seed. The difference is that of the means."""
    difference = statistics.mean(values) - statistics.mean(reference)
    numbers = " ".join(f"{value:.4f}" for value in values)
    print(f"| {name} | {consistency} | {numbers} | {' '.join(f'{value:.4f}' for value in reference)} | "
          f"{difference:+.4f} | {'yes' if abs(difference) <= most else 'NO'} |", flush=True)


def deepfm(options, example, launch):
    adult = [os.path.join(options.adult, f"adult.{part}.libsvm") for part in ("train", "test")]
    seeds = range(options.seeds)
    alone = [auc(example([], "deepfm_adult.py", *adult, "--seed", seed, "--embeddings", "torch")) for seed in seeds]
    for mode in MODES:
        row("DeepFM", mode, [auc(example(launch, "deepfm_adult.py", *adult, "--seed", seed, "--consistency", mode))
                             for seed in seeds], alone, 0.003)


def dlrm(options, example, launch):
    with tempfile.TemporaryDirectory() as log:
        run([os.path.join(options.build, "bin", "starling-worker"), "generate", "--out", log,
             "--rows", str(options.rows)], options.build)
        train, test, planted = [os.path.join(log, name) for name in ("train.tsv", "test.tsv", "planted.json")]
        for mode in MODES:
            output = example(launch, "dlrm_criteo.py", train, test, "--planted", planted, "--consistency", mode)
            row("DLRM", mode, [auc(output)], [auc(output, "AUC of the generating model")], 0.005)


MODELS = {"deepfm": deepfm, "dlrm": dlrm}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--adult", required=True, metavar="DIR", help="with adult.train.libsvm and adult.test.libsvm")
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"), help="build folder")
    parser.add_argument("--python", default="/usr/bin/python3", help="interpreter with torch")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="what to train")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of DeepFM, from 0")
    parser.add_argument("--rows", type=int, default=1000000, help="rows of the generated log that DLRM trains on")
    options = parser.parse_args()

    def example(start, script, train, test, *arguments):
        return run([*start, options.python, os.path.join(EXAMPLES, script), "--train", train, "--test", test,
                    *map(str, arguments)], options.build)

    print("| model | consistency | test AUC | reference | difference | within the target |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    launch = [os.path.join(options.build, "bin", "starling-launch"), "--ps", "1", "--workers", "8", "--"]
    for model in options.models:
        MODELS[model](options, example, launch)


if __name__ == "__main__":
    main()
