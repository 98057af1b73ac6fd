#!/usr/bin/env python3
"""The files for Prometheus: promtool checks and tests the rules; a real Prometheus scrapes a job with them."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import time
import unittest
import urllib.parse
import urllib.request

import harness

SHARE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../share")


def need(name):
    path = shutil.which(name)
    if path is None:
        raise unittest.SkipTest(f"{name} is not installed: apt-get install prometheus")
    return path


class Rules(harness.StarlingTest):
    def promtool(self, *args):
        done = subprocess.run([need("promtool"), *args], cwd=os.path.join(SHARE, "prometheus"), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_files(self):
        self.promtool("check", "config", "scrape.yml")  # and the rules that it names

    def test_alerts(self):
        self.promtool("test", "rules", "alerts_test.yml")


class Scrape(harness.StarlingTest):
    """A real Prometheus, with the shipped files, finds all processes of a job through one address; every query of the
    dashboard and of the alerts returns data."""

    def get(self, port, path, **query):
        url = f"http://127.0.0.1:{port}{path}"
        if query:
            url += "?" + urllib.parse.urlencode(query)
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=10) as reply:
            return json.load(reply)
        return None

    def wait_for(self, what, get):
        end, found = time.monotonic() + harness.DEADLINE_S, None
        while not (found := get()):
            self.assertLess(time.monotonic(), end, f"no {what}")
            time.sleep(0.2)
        return found

    def start_job(self):
        """Two servers with two shards each, backups and checkpoints, and two workers that go on; returns the address of
        the first server's HTTP."""
        data = os.path.join(self.folder, "data")
        self.run_to_end("starling-worker", "generate", "--out", data, "--rows", 20000, "--test-rows", 100)
        checkpoints = os.path.join(self.folder, "checkpoints")
        servers, flags = self.start_ps(2, 2, extra=["--reactors", 2, "--replicas", 1, "--memory-limit", "3G",
                                                    "--checkpoint-dir", checkpoints, "--checkpoint-every", 2])
        self.start_workers(flags, 2, ["--data", os.path.join(data, "train.tsv"), "--format", "criteo", "--model", "lr",
                                      "--epochs", 100000, "--reactors", 1, "--consistency", "ssp:4"])
        return re.search(r"http ([\d.]+:\d+)", servers[0].wait_line("ready"))[1]

    def start_prometheus(self, http):
        """With the shipped files, but for the address, the intervals and the ranges of the rules."""
        program = need("prometheus")
        with open(os.path.join(SHARE, "prometheus/scrape.yml"), encoding="utf-8") as file:
            text = file.read()
        self.assertIn("127.0.0.1:9480", text)
        self.file("scrape.yml", text.replace("127.0.0.1:9480", http).replace("15s", "1s"))
        with open(os.path.join(SHARE, "prometheus/alerts.yml"), encoding="utf-8") as file:
            self.file("alerts.yml", re.sub(r"\[\dm\]", "[5s]", file.read()))
        port = harness.free_ports(1)[0]
        self.start(program, f"--config.file={self.folder}/scrape.yml", f"--storage.tsdb.path={self.folder}/data-of-prometheus",
                   f"--web.listen-address=127.0.0.1:{port}")
        return port

    def queries(self):
        """(where, query) of the dashboard and the rules; of an alert what it compares."""
        with open(os.path.join(SHARE, "grafana/starling.json"), encoding="utf-8") as file:
            for panel in json.load(file)["panels"]:
                for target in panel.get("targets", []):
                    yield panel["title"], target["expr"].replace("$job", "starling").replace("$__rate_interval", "5s")
        with open(os.path.join(SHARE, "prometheus/alerts.yml"), encoding="utf-8") as file:
            text = re.sub(r">-\n((?: {10,}.*\n)+)", lambda match: " ".join(match[1].split()) + "\n", file.read())
        for name, expression in re.findall(r"- (?:record|alert): (\S+)\n\s+expr: (.*)\n", text):
            for part in re.split(r" and ", re.sub(r"\[\dm\]", "[5s]", expression)):
                left, *right = re.split(r" (?:==|>=|>) (?!0\))", part)
                yield from ((name, side) for side in [left, *right] if side.startswith(("max by", left)))

    def test_all_queries_return_data(self):
        need("prometheus")
        port = self.start_prometheus(self.start_job())

        def targets():
            reply = self.get(port, "/api/v1/targets", state="active")
            found = [] if reply is None else reply["data"]["activeTargets"]
            return sorted((target["labels"]["role"], target["labels"]["task"]) for target in found
                          if target["health"] == "up")
        self.wait_for("targets", lambda: targets() == [("ps", "0"), ("ps", "1"), ("worker", "0"), ("worker", "1")])
        queries = list(self.queries())
        self.assertGreater(len(queries), 40)
        empty = queries
        end = time.monotonic() + harness.DEADLINE_S / 2
        while empty and time.monotonic() < end:
            empty = [(where, query) for where, query in empty
                     if not (self.get(port, "/api/v1/query", query=query) or {"data": {}})["data"].get("result")]
            time.sleep(0.5)
        self.assertEqual(empty, [])


if __name__ == "__main__":
    harness.main()
