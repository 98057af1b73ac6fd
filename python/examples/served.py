#!/usr/bin/env python3
"""Asks starling-serve for the scores of a file that an example's model was tested on, and prints their AUC. Needs no server
of the job.

    python3 served.py http://127.0.0.1:8080 two_tower two_tower log/test.tsv     # URL, model, example, file
"""

import importlib
import inspect
import json
import sys
import urllib.request

import numpy
import torch
from training import auc, read

EXAMPLES = {"dlrm_criteo": "DLRM", "two_tower": "TwoTower"}
ROWS = 32  # of a request; starling-serve worker --batch-max takes more


def ask(url, model, arguments):
    """The scores of rows. arguments: tensors by the names of the arguments of forward."""
    inputs = [{"name": name, "datatype": "INT64", "shape": list(tensor.shape), "data": tensor.flatten().tolist()}
              for name, tensor in arguments.items()]
    body = json.dumps({"inputs": inputs, "outputs": [{"name": "output"}]}).encode()
    request = urllib.request.Request(f"{url}/v2/models/{model}/infer", body, {"Starling-Timeout-Ms": "10000"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["outputs"][0]["data"]


def main():
    if len(sys.argv) != 5 or sys.argv[3] not in EXAMPLES:
        sys.exit(f"accepted: URL MODEL {'|'.join(EXAMPLES)} FILE")
    url, model, example, path = sys.argv[1:]
    script = importlib.import_module(example)
    labels, *tensors = script.tensors(read(path, script.parse)[0])
    names = list(inspect.signature(getattr(script, EXAMPLES[example]).forward).parameters)[1:]
    parts = zip(*(tensor.split(ROWS) for tensor in tensors))
    scores = [score for part in parts for score in ask(url, model, dict(zip(names, part)))]
    print(f"served AUC {auc(labels.numpy(), torch.tensor(scores).numpy().astype(numpy.float32)):.4f}")


if __name__ == "__main__":
    main()
