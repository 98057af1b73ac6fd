#!/usr/bin/env python3
"""Reports of members, and the job that the coordinator shows from them: real ones and hostile ones."""

import contextlib
import json
import os
import re
import signal
import time
import urllib.error
import urllib.request

import harness
import protocol_client as pc

BASE_BYTES = 1024  # of a worker's report, at most
LEASE_S = 60  # of members that this test plays, which are silent while it waits
SCRIPT = "<script>alert('\"')</script>"


class Reports(harness.StarlingTest):
    def get(self, http, path):
        """The answer as JSON; None while it is not there yet."""
        with contextlib.suppress(urllib.error.HTTPError):
            with urllib.request.urlopen(f"http://{http}{path}", timeout=harness.DEADLINE_S) as answer:
                return json.load(answer)
        return None

    def until(self, http, path, holds):
        """Asks again until the answer holds; returns it."""
        end = time.monotonic() + harness.DEADLINE_S
        while True:
            answer = self.get(http, path)
            if answer is not None and holds(answer):
                return answer
            self.assertLess(time.monotonic(), end, answer)
            time.sleep(0.05)

    def dropped(self, http):
        """reason -> number of dropped reports."""
        with urllib.request.urlopen(f"http://{http}/metrics", timeout=harness.DEADLINE_S) as answer:
            text = answer.read().decode()
        return {reason: int(count) for reason, count in
                re.findall(r'starling_reports_dropped_total\{reason="(\w+)"\} (\d+)', text)}

    def until_dropped(self, http, reason, least):
        end = time.monotonic() + harness.DEADLINE_S
        while self.dropped(http)[reason] < least:
            self.assertLess(time.monotonic(), end, self.dropped(http))
            time.sleep(0.05)

    def join(self, server, role, task):
        """A member that this test plays; returns its connection and the coordinator's HTTP address."""
        control = re.search(r"tcp://([\d.]+:\d+)", server).group(1)
        member = pc.Connection(f"tcp://{control}", pc.PURPOSE_CONTROL, role=role, task_index=task)
        self.addCleanup(member.close)
        self.assertEqual(member.welcome["wants_reports"], 1)
        self.assertNotEqual(member.welcome["http"], "")
        return member, member.welcome["http"]

    def ready(self):
        (server,), _ = self.start_ps(extra=("--reactors", "1", "--lease", LEASE_S))
        return server.wait_line(" ready: ")

    def test_worker(self):
        """A worker's report is shown; one that is too long, too early or wrong is dropped and counted."""
        worker, http = self.join(self.ready(), pc.ROLE_WORKER, 0)
        worker.report({"uptime_ms": 1000, "http": "127.0.0.1:4711", "client": {"clock": 41, "steps": 7}})
        shown = self.until(http, "/api/cluster", lambda job: job["workers"] and job["workers"][0]["clock"] == 41)
        self.assertEqual(shown["workers"][0]["http"], "127.0.0.1:4711")
        self.assertEqual(shown["workers"][0]["name"], "worker/0")
        self.assertIsNone(shown["training"])  # as of a worker of an earlier release
        self.assertIn({"targets": ["127.0.0.1:4711"], "labels": {"role": "worker", "task": "0"}}, self.get(http, "/sd"))
        for _ in range(50):
            worker.report({"uptime_ms": 2000, "client": {"clock": 999}})
        self.until_dropped(http, "too_frequent", 1)
        worker.report(b"\x9a\x06\xfe\x07" + bytes(BASE_BYTES - 3))  # an unknown field, of one byte too much
        self.until_dropped(http, "too_long", 1)
        self.assertEqual(worker.ask("heartbeat", "heartbeat"), {})  # the connection stays open

    def test_job(self):
        """The servers, workers, tables and the history of a real job have rates; a killed worker is shown."""
        self.run_to_end("starling-worker", "generate", "--out", self.folder, "--rows", 4000, "--test-rows", 100)
        servers, flags = self.start_ps(2, 2, extra=("--reactors", "1", "--lease", "4", "--title", "clicks of May"))
        workers = self.start_workers(flags, 2, ("--data", os.path.join(self.folder, "train.tsv"), "--format", "criteo",
                                                "--test", os.path.join(self.folder, "test.tsv"), "--test-every", 1,
                                                "--lr", 0.125, "--epochs", 1000000))
        http = servers[0].wait_line(" ready: ").rsplit(", http ", 1)[1]
        job = self.until(http, "/api/cluster", lambda job: job["job"] == "running" and
                         job["totals"]["bytes_s"] and
                         len(job["servers"]) == 2 and all(server["shards"] and server["shards"][0]["requests_s"] and
                                                          server["shards"][0]["p99_us"] for server in job["servers"]) and
                         len(job["workers"]) == 2 and all(worker["steps_s"] for worker in job["workers"]) and
                         any(table["name"] == "lr/weights" and table["pulled_keys_s"] for table in job["tables"]))
        self.assertEqual([server["shards"][0]["serving"] for server in job["servers"]], ["ps/0", "ps/1"])
        self.assertGreater(job["totals"]["bytes_s"], job["totals"]["requests_s"])
        self.assertEqual((job["title"], job["mode"], job["trouble"]), ("clicks of May", "asp", []))
        self.assertGreater(job["uptime_s"], 0)
        job = self.until(http, "/api/cluster", lambda job: job["training"] and job["training"]["metric"] and
                         job["training"]["eta_s"] and job["training"]["epoch"] > 1)
        training = job["training"]
        self.assertEqual((training["epochs"], training["learning_rate"]), (1000000, 0.125))
        self.assertGreater(training["samples_s"], 0)
        self.assertTrue(0 < training["loss"] < 5, training)
        self.assertEqual(training["metric"]["name"], "test AUC")
        self.assertTrue(0 < training["metric"]["value"] <= 1, training)
        self.until(http, "/sd", lambda targets: len(targets) == 4)
        other = servers[1].wait_line(" ready: ").rsplit(", http ", 1)[1]
        self.until(other, "/api/history?of=table:lr/weights", lambda history: any(history["series"]["keys_s"]))  # redirected
        workers[0].wait_line(" rows/s  loss ")  # the progress, which one worker of the job prints
        self.assertNotIn("rows/s", workers[1].output)
        workers[1].signal(signal.SIGKILL)
        job = self.until(http, "/api/cluster", lambda job: job["workers"][1]["state"] == "expired")
        self.assertEqual(job["trouble"], ["worker/1 is expired"])
        events = self.until(http, "/api/events", lambda events: "worker_expired" in
                            [event["event"] for event in events["events"]])["events"]
        expired = next(event for event in events if event["event"] == "worker_expired")
        self.assertEqual((expired["level"], expired["process"], expired["fields"]["task"]), ("warn", "ps/0", 1))

    def test_page_of_a_short_job(self):
        """As soon as the page stays, it shows all that a job did which was shorter than the interval of reports."""
        self.run_to_end("starling-worker", "generate", "--out", self.folder, "--rows", 400, "--test-rows", 100)
        servers, flags = self.start_ps(2, 2, extra=("--reactors", "1", "--http-linger", "1h"))
        workers = self.start_workers(flags, 2, ("--data", os.path.join(self.folder, "train.tsv"), "--format", "criteo",
                                                "--test", os.path.join(self.folder, "test.tsv"), "--epochs", 3))
        self.assertEqual([worker.wait() for worker in workers], [0, 0])
        for server in reversed(servers):
            server.signal(signal.SIGTERM)
        http = servers[0].wait_line("the job has ended: its page stays").rsplit("http://", 1)[1]
        self.assertEqual(servers[1].wait(), 0)
        for _ in range(2):
            job = self.get(http, "/api/cluster")
            self.assertEqual((job["job"], job["trouble"], job["missing"]), ("over", [], []))
            self.assertEqual((job["training"]["epoch"], job["training"]["samples"]), (3, 1200))
            self.assertEqual(job["training"]["metric"]["name"], "test AUC")
            self.assertEqual([(worker["state"], worker["lag"]) for worker in job["workers"]], [("left", None)] * 2)
            self.assertEqual((len(job["tables"]), job["servers"][0]["state"]), (3, "serving"))
            self.assertGreater(job["servers"][0]["shards"][0]["rows"], 0)
        servers[0].signal(signal.SIGTERM)
        self.assertEqual(servers[0].wait(), 0)

    def test_page_of_an_ended_job(self):
        """--http-linger keeps the page when the server has drained, until a signal; not after SIGINT."""
        self.run_to_end("starling-worker", "generate", "--out", self.folder, "--rows", 4000, "--test-rows", 100)
        for number in (signal.SIGTERM, signal.SIGINT):
            (server,), flags = self.start_ps(extra=("--reactors", "1", "--http-linger", "1h"))
            worker, = self.start_workers(flags, 1, ("--data", os.path.join(self.folder, "train.tsv"), "--format", "criteo",
                                                    "--epochs", 1000000))
            http = server.wait_line(" ready: ").rsplit(", http ", 1)[1]
            self.until(http, "/api/cluster", lambda job: job["training"] and len(job["tables"]) == 3)
            worker.signal(signal.SIGTERM)
            worker.wait()
            server.signal(number)
            if number == signal.SIGTERM:
                server.wait_line(f"the job has ended: its page stays for 3600 s, or until a signal: http://{http}")
                job = self.until(http, "/api/cluster", lambda job: job["job"] == "over" and job["workers"][0]["state"] == "left")
                self.assertGreater(job["training"]["samples"], 0)
                self.assertEqual((job["trouble"], len(job["tables"])), ([], 3))
                self.until(http, "/api/events", lambda events: events["events"])
                server.signal(signal.SIGTERM)
            self.assertEqual(server.wait(), 0)
            self.assertEqual("its page stays" in server.output, number == signal.SIGTERM)

    def test_launcher_waits_for_the_page(self):
        """The grace period of the launcher begins when the page has ended."""
        data = self.file("data", "1 1:1 2:1\n0 3:1 4:1\n" * 200)
        launcher = self.start("starling-launch", "--ps", 1, "--workers", 1, "--grace", "1s", "--http-linger", "1h", "--",
                              "--data", data)
        launcher.wait_line("its page stays for 3600 s")
        time.sleep(2)  # longer than the grace period
        self.assertTrue(launcher.running(), launcher.output)
        server, = harness.children_of(launcher.pid)
        os.kill(server, signal.SIGTERM)
        self.assertEqual(launcher.wait(), 0, launcher.output)
        self.assertNotIn("is killed", launcher.output)

    def test_hostile_texts(self):
        """Names with control characters are dropped; quotes and tags are escaped."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in harness.free_ports(2))
        server = self.start("starling-ps", "--ps-hosts", hosts, "--worker-hosts", "127.0.0.1:1", "--job-name", "ps",
                            "--task-index", 0, "--reactors", 1, "--lease", LEASE_S)
        end = time.monotonic() + harness.DEADLINE_S
        member = None
        while member is None:  # it is not ready before all servers are there
            self.assertLess(time.monotonic(), end, server.output)
            with contextlib.suppress(ConnectionError):
                member, http = self.join(f"tcp://{hosts.split(',')[0]}", pc.ROLE_PS, 1)
        wrong = (b"\xff\xff\xff", {"tables": [{"name": "a\nb"}]}, {"tables": [{"name": ""}]},
                 {"http": "\"><script>:80"}, {"shards": [{"shard": 4096}]}, {"memory": 1 << 63})
        for count, content in enumerate(wrong, 1):
            self.until_invalid(member, content, http, count)
        self.until_accepted(member, http)
        self.assertTrue(server.running())

    def until_invalid(self, member, content, http, count):
        """Sends a report until one was not too early; waits for it to be counted."""
        end = time.monotonic() + harness.DEADLINE_S
        early = self.dropped(http)["too_frequent"]
        while True:
            member.report(content)
            member.ask("heartbeat", "heartbeat")  # the coordinator has seen the report
            if self.dropped(http)["too_frequent"] == early:
                break
            early = self.dropped(http)["too_frequent"]
            self.assertLess(time.monotonic(), end, content)
            time.sleep(0.1)
        self.until_dropped(http, "invalid", count)
        self.assertEqual(self.dropped(http)["invalid"], count, content)

    def until_accepted(self, member, http):
        table = {"name": SCRIPT, "rows": 3}

        def shows(job):
            member.report({"uptime_ms": int(time.monotonic() * 1000), "tables": [table]})
            return any(shown["name"] == table["name"] for shown in job["tables"])

        job = self.until(http, "/api/cluster", shows)
        self.assertEqual([shown["rows"] for shown in job["tables"] if shown["name"] == table["name"]], [3])
        self.assertEqual(job["servers"][1]["name"], "ps/1")


if __name__ == "__main__":
    harness.main()
