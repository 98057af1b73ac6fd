#!/usr/bin/env python3
"""Kills a worker, the agent, the storage or the gateway of model serving under load, starts it again, and counts what
callers got: statuses, how late the latest answer was after its deadline, and the time until requests succeed again."""

import argparse
import collections
import contextlib
import http.client
import json
import os
import random
import signal
import socket
import statistics
import sys
import threading
import time

import processes  # bench/processes.py
import report
import serve

TARGETS = ("worker", "agent", "storage", "gateway")
DEADLINE_MS = 1000
CALLERS = 4
MIB = 1 << 20


def free_port():
    """Below the system's own: a caller that tries to connect to one of those can get it as its own port, and so itself."""
    while True:
        port = random.randrange(10000, 30000)
        with contextlib.suppress(OSError), socket.socket() as server:
            server.bind(("127.0.0.1", port))
            return port


class Cluster:
    def __init__(self, options, models):
        self.options, self.models = options, models
        self.agent_name = f"failures-{os.getpid()}-{random.randrange(1 << 30)}"
        self.ports = {name: free_port() for name in ("storage", "listen", "http")}
        self.running = {}
        for name in ("storage", "agent", "gateway", "worker", "worker 2"):
            self.start(name)

    def words(self, name):
        storage = f"127.0.0.1:{self.ports['storage']}"
        return {
            "storage": ["starling-objects", "serve", f"--name={storage}", f"--dir={self.models.dir}"],
            "agent": ["starling-objects", "serve", "--agent", f"--agent-name={self.agent_name}", "--name=127.0.0.1:0",
                      f"--catalogue={storage}", f"--pool-memory={45 * MIB}"],
            "gateway": ["starling-serve", "gateway", f"--http=127.0.0.1:{self.ports['http']}",
                        f"--listen=127.0.0.1:{self.ports['listen']}", f"--catalogue={storage}"],
        }.get(name, ["starling-serve", "worker", f"--gateway=127.0.0.1:{self.ports['listen']}",
                     f"--agent-name={self.agent_name}"])

    def start(self, name):
        words = self.words(name)
        self.running[name] = serve.Process([os.path.join(self.options.bin, words[0]), *words[1:]],
                                           environment={"STARLING_LOG": "off"})

    def kill(self, name):
        child = self.running[name].child
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()

    def end(self):
        for process in reversed(self.running.values()):
            process.child.kill()
            process.child.wait()
            process.child.stdout.close()


def call(address, names, answers, ends, pause=0):
    """Asks for models in turns, until the event; answers gets (begin, end, status). Status 0: no answer. pause: in
    seconds, between an answer and the next request."""
    chooser = random.Random(threading.get_ident())
    body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 512], "data": [0] * 512}]})
    connection = None
    while not ends.is_set():
        begun, status = time.monotonic(), 0
        try:
            connection = connection or http.client.HTTPConnection(address, timeout=10)
            connection.request("POST", f"/v2/models/{chooser.choice(names)}/infer", body,
                               {"Starling-Timeout-Ms": str(DEADLINE_MS)})
            response = connection.getresponse()
            response.read()
            status = response.status
        except (OSError, http.client.HTTPException):
            connection.close()
            connection = None
            time.sleep(0.01)
        answers.append((begun, time.monotonic(), status))
        time.sleep(pause)


def run_once(options, models, target):
    """Statuses, the latest answer in ms after its deadline, and seconds until service resumes."""
    with contextlib.ExitStack() as stack:
        cluster = Cluster(options, models)
        stack.callback(cluster.end)
        answers, ends = collections.deque(), threading.Event()
        callers = [threading.Thread(target=call, args=(f"127.0.0.1:{cluster.ports['http']}", models.names, answers, ends))
                   for _ in range(CALLERS)]
        for caller in callers:
            caller.start()
        stack.callback(lambda: [caller.join() for caller in callers])
        stack.callback(ends.set)
        wait_for(lambda: sum(status == 200 for _, _, status in list(answers)) > 100, "no request succeeds")
        cluster.kill(target)
        killed = time.monotonic()
        time.sleep(options.pause)
        cluster.start(target)
        # Service has resumed when all of 50 answers in a row are good, of requests that began after the kill.
        wait_for(lambda: resumed(answers, killed) is not None, "service does not resume")
        since = resumed(answers, killed) - killed
        counted = collections.Counter(status for begun, end, status in list(answers) if end > killed)
        late = max((end - begun) * 1000 - DEADLINE_MS for begun, end, status in list(answers) if status != 0)
        return counted, late, since


def wait_for(happened, what):
    end = time.monotonic() + serve.WAIT
    while not happened():
        if time.monotonic() > end:
            raise report.Failure(what)
        time.sleep(0.02)


def resumed(answers, killed):
    """The end of the first of 50 good answers in a row."""
    good = []
    for begun, end, status in sorted(answers, key=lambda answer: answer[1]):
        if begun >= killed:
            good = good + [end] if status == 200 else []
            if len(good) == 50:
                return good[0]
    return None


def run(options, folder):
    models = serve.Models(options, folder)
    models.names = [f"m{i}" for i in range(20)]
    models.deploy("small", models.names)
    results = {}
    for target in TARGETS if options.target == "all" else (options.target,):
        counted, late, since = collections.Counter(), [], []
        for _ in range(options.runs):
            statuses, latest, seconds = run_once(options, models, target)
            counted += statuses
            late.append(latest)
            since.append(seconds)
        results[target] = {"statuses": {str(status): count for status, count in sorted(counted.items())},
                           "late_ms": late, "resumes_s": since}
        print(f"{target}: {options.runs} runs; after the kill "
              + ", ".join(f"{count} x {status or 'no answer'}" for status, count in sorted(counted.items()))
              + f"; latest answer {max(late):+.0f} ms from its deadline; service resumes after "
              f"{statistics.median(since):.2f} s (most {max(since):.2f} s)", flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(results, file)


def main(argv):
    parser = argparse.ArgumentParser(prog="serve_failures.py", description=__doc__)
    parser.add_argument("--bin", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build/release/bin"))
    parser.add_argument("--target", choices=("all", *TARGETS), default="all")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--pause", type=float, default=0.5, help="seconds from the kill to the start of the next process")
    parser.add_argument("--pixels", type=int, default=224)
    parser.add_argument("--json", help="write all results")
    options = parser.parse_args(argv)
    options.bin = os.path.abspath(options.bin)
    try:
        processes.run_in_folder("starling-bench-serve-", lambda folder: run(options, folder))
    except (report.Failure, ImportError, OSError) as failure:
        print(f"serve_failures.py: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
