#!/usr/bin/env python3
"""Asks a model of starling-worker, served by starling-serve, for the predictions of a file in Criteo's format, over
HTTP, and prints their AUC, and which versions answered. Needs nothing but Python.

    examples/predict.py URL MODEL FILE [--version N] [--rows N] [--batch N] [--json]
"""

import argparse
import http.client
import json
import math
import struct
import sys
import time
import urllib.parse

INTEGER_FIELDS, CATEGORY_FIELDS = 13, 26
FIELDS = INTEGER_FIELDS + CATEGORY_FIELDS
MASK = (1 << 64) - 1


def mix(key):
    """The bijection of u64 by which starling-worker hashes keys."""
    key = (key ^ key >> 30) * 0xBF58476D1CE4E5B9 & MASK
    key = (key ^ key >> 27) * 0x94D049BB133111EB & MASK
    return key ^ key >> 31


def feature_key(field, text):
    """The key of a field's text, as starling-worker --format criteo makes it."""
    value = 0
    if text and field >= INTEGER_FIELDS:
        value = int(text, 16)
    elif text:
        value = int(text)
        value = value & MASK if value <= 2 else math.floor(math.log(value + 1) * math.log(value + 1))
    return mix(mix((field << 1 | (not text)) + 1) ^ mix(value))


def read(path, rows):
    """Labels, and for each row its keys."""
    labels, keys, known = [], [], {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            label, *texts = line.rstrip("\n").split("\t")
            for feature in enumerate(texts):
                if feature not in known:
                    known[feature] = feature_key(*feature)
            labels.append(int(label))
            keys.append([known[feature] for feature in enumerate(texts)])
            if len(labels) == rows:
                break
    return labels, keys


def ask(connection, method, path, body=None, headers=None):
    connection.request(method, path, body, headers or {})
    response = connection.getresponse()
    body = response.read()
    if response.status != 200:
        raise SystemExit(f"predict.py: {path}: {response.status} {response.reason}: {body.decode()}")
    return json.loads(body)


def predict(connection, path, keys):
    """Probabilities of the rows, and the version that computed them: binary tensors of the Open Inference Protocol."""
    count = len(keys) * FIELDS
    inputs = [struct.pack(f"<{count}Q", *(key for row in keys for key in row)), struct.pack(f"<{count}f", *[1.0] * count)]
    head = {"inputs": [{"name": name, "datatype": datatype, "shape": [len(keys), FIELDS],
                        "parameters": {"binary_data_size": len(data)}}
                       for name, datatype, data in zip(("keys", "values"), ("UINT64", "FP32"), inputs)]}
    text = json.dumps(head).encode()
    answer = ask(connection, "POST", f"{path}/infer", text + b"".join(inputs),
                 {"Inference-Header-Content-Length": str(len(text)), "Content-Type": "application/octet-stream",
                  "Starling-Timeout-Ms": "10000"})
    return answer["outputs"][0]["data"], int(answer["model_version"])


def area_under_curve(labels, scores):
    """By ranks; equal scores share theirs."""
    order = sorted(range(len(scores)), key=scores.__getitem__)
    positives, rank_sum, first = sum(labels), 0.0, 0
    while first < len(order):
        last = first
        while last + 1 < len(order) and scores[order[last + 1]] == scores[order[first]]:
            last += 1
        rank_sum += sum(labels[i] for i in order[first:last + 1]) * ((first + last) / 2 + 1)
        first = last + 1
    return (rank_sum - positives * (positives + 1) / 2) / (positives * (len(labels) - positives))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", metavar="URL", help="of the gateway, such as http://127.0.0.1:8080")
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--version", type=int, default=0, help="of the model; 0: the newest")
    parser.add_argument("--rows", type=int, default=0, help="of the file; 0: all")
    parser.add_argument("--batch", type=int, default=32, help="rows of a request")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(options.url).netloc)
    path = f"/v2/models/{urllib.parse.quote(options.model, safe='')}"
    path += f"/versions/{options.version}" if options.version else ""
    labels, keys = read(options.file, options.rows)
    scores, versions, begun = [], [], time.monotonic()
    for first in range(0, len(keys), options.batch):
        answers, version = predict(connection, path, keys[first:first + options.batch])
        scores += answers
        versions.append(version)
    seconds = time.monotonic() - begun
    result = {"rows": len(keys), "seconds": seconds, "auc": area_under_curve(labels, scores), "first_version": versions[0],
              "last_version": versions[-1],
              "newest_version": max(int(version) for version in ask(connection, "GET", path)["versions"])}
    if options.json:
        print(json.dumps(result))
    else:
        print(f"{result['rows']} rows in {seconds:.1f} s by versions {versions[0]} to {versions[-1]}, newest "
              f"{result['newest_version']}: AUC {result['auc']:.4f}")


if __name__ == "__main__":
    sys.exit(main())
