#!/usr/bin/env python3
"""Good callers of model serving beside connections that do their worst: latency and errors, with and without these."""

import argparse
import collections
import contextlib
import itertools
import multiprocessing
import os
import random
import socket
import sys
import threading
import time

import processes  # bench/processes.py
import report
import serve
import serve_failures

MIB = 1 << 20


def head(path, length, more=""):
    return f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n{more}\r\n".encode()


def binary(count, sent):
    """An inference that announces `count` bytes of a tensor, and sends so many."""
    body = (b'{"inputs":[{"name":"x","shape":[%d],"datatype":"UINT8","parameters":{"binary_data_size":%d}}]}'
            % (count, count))
    more = f"Inference-Header-Content-Length: {len(body)}\r\n"
    return head("/v2/models/m0/infer", len(body) + count, more) + body + bytes(sent)


def infer(body):
    return head("/v2/models/m0/infer", len(body)) + body


# The bytes that a connection sends first; then it sends one byte a second.
ATTACKS = (
    lambda: b"GET /v2 HTTP/1.1\r\nX: ",
    lambda: binary(64 * MIB - 256, 1000),
    lambda: binary(MIB, MIB // 2 + 1),
    lambda: infer(b'{"inputs":[],' + b" " * MIB + b'"id":"x"}'),
    lambda: infer(b'{"inputs":[{"name":"x\\u0001","shape":[1,2],"datatype":"FP32","data":[1,2]}]}'),
    lambda: infer(b'{"inputs":[{"name":"x","shape":[1,512],"datatype":"FP32","data":[' + b"[" * 50000),
    lambda: head("/v2/repository/index", 60 * MIB) + b"[" + b"{}," * 100000,
    lambda: head("/v2/repository/models/m0/load", 5) + b"hello",
    lambda: b"POST /v2 HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 9\r\n\r\nGET /v2 HTTP/1.1\r\n\r\n",
    lambda: os.urandom(2000) + b"\r\n\r\n",
)


def attack(port, count, ends):
    """Keeps `count` connections that send; one that is closed is replaced by the next attack."""
    connections, attacks = {}, itertools.cycle(ATTACKS)
    while not ends.is_set():
        for _ in range(min(20, count - len(connections))):
            with contextlib.suppress(OSError):
                connection = socket.create_connection(("127.0.0.1", port), 1)
                connection.setblocking(False)
                connections[connection] = memoryview(next(attacks)())
        for connection, text in list(connections.items()):
            try:
                sent = connection.send(text if text else b"a")
                connections[connection] = text[sent:] if text else text
                while connection.recv(65536):
                    pass
                raise ConnectionError
            except BlockingIOError:
                pass
            except OSError:
                connection.close()
                del connections[connection]
        time.sleep(0.05 if any(connections.values()) else 1)


def measure(port, names, seconds):
    """Sorted latencies in ms of four callers, and statuses."""
    answers, ends = collections.deque(), threading.Event()
    callers = [threading.Thread(target=serve_failures.call, args=(f"127.0.0.1:{port}", names, answers, ends, 0.01))
               for _ in range(serve_failures.CALLERS)]
    for caller in callers:
        caller.start()
    time.sleep(seconds)
    ends.set()
    for caller in callers:
        caller.join()
    return (sorted((end - begun) * 1000 for begun, end, _ in answers),
            collections.Counter(status for _, _, status in answers))


def run(options, folder):
    models = serve.Models(options, folder)
    models.names = [f"m{i}" for i in range(4)]
    models.deploy("small", models.names)
    with contextlib.ExitStack() as stack:
        cluster = serve_failures.Cluster(options, models)
        stack.callback(cluster.end)
        port = cluster.ports["http"]
        measure(port, models.names, 3)
        ends, p99 = multiprocessing.Event(), []
        attacker = multiprocessing.Process(target=attack, args=(port, options.connections, ends))
        stack.callback(lambda: attacker.is_alive() and attacker.kill())
        for name in ("alone", f"beside {options.connections} bad connections"):
            if p99:
                attacker.start()
                time.sleep(2)
            times, statuses = measure(port, models.names, options.seconds)
            p99.append(report.quantile(times, 0.99))
            print(f"{name}: {len(times)} answers, statuses {dict(statuses)}, p50 {report.quantile(times, 0.5):.2f} ms, "
                  f"p99 {p99[-1]:.2f} ms", flush=True)
            if set(statuses) != {200}:
                raise report.Failure("a good caller had an error")
        ends.set()
        attacker.join()
        print(f"p99 beside / alone: {p99[1] / p99[0]:.2f}")
        with open(f"/proc/{cluster.running['gateway'].child.pid}/status", encoding="ascii") as status:
            print("gateway:", " ".join(next(line for line in status if line.startswith("VmHWM")).split()))


def main(argv):
    parser = argparse.ArgumentParser(prog="serve_hostile.py", description=__doc__)
    parser.add_argument("--bin", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build/release/bin"))
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=30, help="of each of the two measurements")
    parser.add_argument("--pixels", type=int, default=224)
    options = parser.parse_args(argv)
    options.bin = os.path.abspath(options.bin)
    random.seed(1)
    try:
        processes.run_in_folder("starling-bench-serve-", lambda folder: run(options, folder))
    except (report.Failure, ImportError, OSError) as failure:
        print(f"serve_hostile.py: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
