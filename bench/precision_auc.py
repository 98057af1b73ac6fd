#!/usr/bin/env python3
"""Trains lr, fm and deepfm with narrow rows and narrow messages, and prints their test AUC beside that of f32 as a table. One
worker, so that runs of a seed differ in precision alone; the models are those of the Adult data and of a generated log."""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
F32 = "f32"
# Flags, and how far the mean AUC may lie below that of f32.
VARIANTS = {F32: ([], 0), "bf16 rows": (["--values", "bf16", "--slots", "bf16"], 0.001), "int8 rows": (["--values", "int8"], 0.003),
            "bf16 both ways": (["--encoding", "bf16"], 0.001), "int8 both ways": (["--encoding", "int8"], 0.002)}
MODELS = ("lr", "fm", "deepfm")


def train(options, data, model, flags, seed):
    command = [os.path.join(options.bin, "starling-launch"), "--ps", "1", "--workers", "1", "--", *data, "--model", model,
               "--seed", str(seed), *flags]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    found = re.search(r"test AUC +(\d\.\d+)", done.stdout)
    if done.returncode != 0 or not found:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}")
    return float(found[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--adult", required=True, metavar="DIR", help="with adult.train.libsvm and adult.test.libsvm")
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "release", "bin"), help="programs of the build")
    parser.add_argument("--seeds", type=int, default=3, help="seeds, from 1")
    parser.add_argument("--rows", type=int, default=200000, help="rows of the generated log")
    options = parser.parse_args()
    missed = False
    with tempfile.TemporaryDirectory() as log, ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        subprocess.run([os.path.join(options.bin, "starling-worker"), "generate", "--out", log, "--rows", str(options.rows),
                        "--test-rows", str(options.rows // 5)], check=True, stdout=subprocess.DEVNULL)
        sets = {"Adult": ["--data", os.path.join(options.adult, "adult.train.libsvm"), "--test",
                          os.path.join(options.adult, "adult.test.libsvm"), "--epochs", "3"],
                "generated": ["--data", os.path.join(log, "train.tsv"), "--test", os.path.join(log, "test.tsv"), "--format",
                              "criteo"]}
        print("| data | model | precision | test AUC by seed | mean - f32 | bound |")
        print("| --- | --- | --- | --- | --- | --- |", flush=True)
        for name, data in sets.items():
            for model in MODELS:
                aucs = {variant: [pool.submit(train, options, data, model, flags, seed) for seed in range(1, options.seeds + 1)]
                        for variant, (flags, _) in VARIANTS.items()}
                means = {variant: statistics.mean(auc.result() for auc in runs) for variant, runs in aucs.items()}
                for variant, (_, most) in VARIANTS.items():
                    less = means[variant] - means[F32]
                    missed |= -less > most
                    print(f"| {name} | {model} | {variant} | {' '.join(f'{auc.result():.4f}' for auc in aucs[variant])} | "
                          f"{less:+.4f} | {f'-{most}' if most else ''}{' MISSED' if -less > most else ''} |", flush=True)
    sys.exit(missed)


if __name__ == "__main__":
    main()
