#!/usr/bin/env python3
"""/api/slow and /api/hot of a real server: a pull that waits for a worker is shown with the time for which it
waited, and the key that is used most with its share."""

import contextlib
import json
import time
import unittest
import urllib.error
import urllib.request

import harness
import protocol_client as pc

HOT_KEY, OTHER_KEYS, ROUNDS = (1 << 64) - 2, 400, 150  # of shard 1
THRESHOLD_S = 0.05


class SlowHot(harness.StarlingTest):
    def setUp(self):
        super().setUp()
        self.peers = contextlib.ExitStack()
        self.addCleanup(self.peers.close)

    def begin(self, *extra):
        """Two servers of a shard each, and two workers. ps/0 hosts the coordinator."""
        self.servers, flags = self.start_ps(2, 2, extra=["--lease", 60, "--reactors", 1, *extra])
        self.http = [server.wait_line(" ready: ").rsplit(", http ", 1)[1] for server in self.servers]
        coordinator = "tcp://" + flags[1].split(",")[0]
        self.workers = [pc.Client(coordinator, role=pc.ROLE_WORKER, task_index=task) for task in range(2)]
        for worker in self.workers:
            self.peers.callback(worker.close)

    def fetch(self, task, path, is_enough):
        """The answer of a server, as soon as it is enough."""
        end, body = time.monotonic() + harness.DEADLINE_S, None
        while True:
            url = f"http://{self.http[task]}{path}"
            with contextlib.suppress(urllib.error.HTTPError):  # 503: it does not know the coordinator's address yet
                with urllib.request.urlopen(url, timeout=harness.DEADLINE_S) as answer:
                    body = answer.read().decode()
                    body = json.loads(body) if path.startswith("/api/") else body
                if is_enough(body):
                    return body
            self.assertLess(time.monotonic(), end, body)
            time.sleep(0.05)

    def key_of(self, shard):
        return next(key for key in range(1000) if pc.shard_of(key, 2) == shard)

    def end(self):
        self.peers.close()
        self.drain(self.servers)

    def test_a_pull_waits_for_a_worker(self):
        self.begin("--slow-request", f"{THRESHOLD_S * 1000:g}ms")
        waiting, other = self.workers
        spec = {"name": "clicks", "dim": 4, "consistency": {"mode": pc.BSP, "worker_count": 2}}
        table, _ = waiting.open(**spec), other.open(**spec)
        waiting.tick(0)
        connection, key = waiting.shards[1], self.key_of(1)
        pull = connection.start(pc.pull(table, [key] * 3), clock=1)
        self.fetch(1, "/metrics", lambda text: "\nstarling_parked_requests 1\n" in text)
        time.sleep(2 * THRESHOLD_S)  # the pull waits for as long, at least
        other.tick(0)
        connection.finish(pull)
        for task in (1, 0):  # ps/1 redirects to ps/0
            slow = self.fetch(task, "/api/slow", lambda body: "pull" in [of["op"] for of in body["requests"]])
            self.assertEqual(slow["threshold_us"], THRESHOLD_S * 1e6)
            request, = [of for of in slow["requests"] if of["op"] == "pull"]
            self.assertEqual([request[name] for name in ("server", "shard", "client", "table", "op", "keys")],
                             ["ps/1", 1, "worker/0", "clicks", "pull", 3])
            self.assertGreaterEqual(request["phases"]["clock_us"], THRESHOLD_S * 1e6)
            self.assertAlmostEqual(sum(request["phases"].values()), request["total_us"], delta=6)
            self.assertLess(abs(time.time() - request["time"]), harness.DEADLINE_S)
        self.end()

    def test_the_key_that_is_used_most(self):
        self.begin()
        worker = self.workers[0]
        table = worker.open(name="users", dim=2)
        for at in range(ROUNDS):
            worker.pull(table, [HOT_KEY] * 40 + [1 + (at * 60 + i) % OTHER_KEYS for i in range(60)])
        shard = 1
        for task in (shard, 0):  # ps/1 redirects to ps/0
            hot = self.fetch(task, "/api/hot", lambda body: any(
                key["key"] == str(HOT_KEY) and 0.2 < key["share"] < 0.8
                for table in body["tables"] for key in table["keys"][:1]))
            self.assertEqual([table["table"] for table in hot["tables"]], ["users"])
            self.assertEqual(hot["tables"][0]["keys"][0]["shard"], shard)
            self.assertTrue(all(key["share"] < 0.2 for key in hot["tables"][0]["keys"][1:]), hot)
        self.end()


if __name__ == "__main__":
    unittest.main()
