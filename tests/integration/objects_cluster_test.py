#!/usr/bin/env python3
"""Objects of a job: servers that store them, tables that are published while a job trains, checkpoints that
are put and fetched."""

import json
import os
import signal
import struct
import sys

import harness
import objects_test


def tensors_of(path):
    """{name: (shape, numbers)} of a safetensors file."""
    with open(path, "rb") as file:
        bytes_ = file.read()
    length = struct.unpack_from("<Q", bytes_)[0]
    head, found = json.loads(bytes_[8:8 + length]), {}
    for name, entry in head.items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            kind = {"U64": "Q", "F32": "f"}[entry["dtype"]]
            data = bytes_[8 + length + first:8 + length + last]
            found[name] = (entry["shape"], struct.unpack(f"<{len(data) // struct.calcsize(kind)}{kind}", data))
    return found


class Cluster(objects_test.ObjectsTest):
    """Two servers of two shards each, and workers that add numbers (sum_worker.c)."""

    SERVERS, SHARDS, WORKERS = 2, 4, 2

    def start_cluster(self, *extra, servers=SERVERS, shards=SHARDS):
        hosts = [f"127.0.0.1:{port}" for port in harness.free_ports(servers)]
        catalogue = f"127.0.0.1:{harness.free_ports(1)[0]}"
        names = [catalogue] + ["127.0.0.1:0"] * (servers - 1)
        servers = [self.start("starling-ps", "--ps-hosts", ",".join(hosts), "--num-workers", self.WORKERS,
                              "--task-index", i, "--reactors", shards // servers, "--objects", names[i],
                              "--catalogue", catalogue, "--objects-memory", "64M", *extra)
                   for i in range(servers)]
        harness.wait_lines(servers, "ready")
        return servers, hosts, catalogue

    def start_sums(self, hosts, consistency, *extra):
        """Workers that add up numbers until the file `gate` is there."""
        workers = [self.start("sum_worker", "--coordinator", hosts[0], "--task-index", i, "--workers", self.WORKERS,
                              "--consistency", consistency, "--timeout-ms", 60000, "--record", self.path(f"record{i}"),
                              "--gate", self.path("gate"), *extra) for i in range(self.WORKERS)]
        harness.wait_lines(workers, "begins with iteration")
        return workers

    def end_sums(self, workers):
        self.file("gate", "")
        self.end_well(workers)

    def publish(self, catalogue, name="model", tables="sum,sgd", shards=SHARDS):
        """Publishes and gets tables; returns {(table, shard): {key: row}}."""
        line = self.entries(catalogue, "put", name, "--tables", tables)[0]
        self.tool(catalogue, "get", f"{name}@{line['version']}", self.path("got"))
        tensors, found = tensors_of(self.path(f"got/{name}.safetensors")), {}
        for tensor, (shape, keys) in tensors.items():
            table, kind = tensor.rsplit("/", 1)
            if kind.startswith("keys."):
                self.assertEqual(sorted(set(keys)), list(keys))
                row_shape, rows = tensors[f"{table}/rows.{kind[5:]}"]
                self.assertEqual(row_shape, [shape[0], 1])
                found[table, int(kind[5:])] = dict(zip(keys, rows))
        self.assertEqual(sorted(found), sorted((t, s) for t in tables.split(",") for s in range(shards)))
        return line["version"], found

    def sums(self, found):
        """Checks that each shard is of one moment: its smallest key has the sum of its others. Returns the sums."""
        sums = set()
        for rows in found.values():
            if rows:
                shared = rows.pop(min(rows))
                self.assertEqual(sum(rows.values()), shared)
                sums.add(shared)
        return sums


class Tables(Cluster):
    def test_rows_of_a_job_that_stands_still(self):
        servers, hosts, catalogue = self.start_cluster()
        workers = self.start_sums(hosts, "bsp", "--iterations", 9)
        harness.wait_lines(workers, "iteration 0")
        expected = sum(1 + (i + w) % 7 for i in range(8) for w in range(self.WORKERS))
        sums = set()
        while sums != {expected}:  # the workers wait with their last iteration
            version, found = self.publish(catalogue)
            sums = self.sums(found)
        self.assertEqual(self.sums(self.publish(catalogue)[1]), {expected})
        listed = self.entries(catalogue, "ls")
        self.assertGreater(listed[-1]["version"], version)
        self.assertEqual({(entry["parts"], entry["origin"]) for entry in listed}, {(self.SERVERS, "ps")})
        self.assertLessEqual(len(listed), 3)
        version, found = self.publish(catalogue)
        rows = {key: row for (table, _), part in found.items() if table == "sgd" for key, row in part.items()}
        keys = [*rows][:100]
        output = self.run_to_end("rows_reader", "model", "sgd", *keys, 12345,
                                 env={"STARLING_OBJECTS_CATALOGUE": catalogue})
        for line in [f"version {version}", "12345 is not there"] + [f"{key} is {rows[key]:.9g}" for key in keys]:
            self.assertIn(line, output.split("\n"))
        output = self.tool(catalogue, "put", "model", "--tables", "sum,none", status=1)
        self.assertIn("none", output)
        self.end_sums(workers)
        self.end(*servers)

    def publish_while_training(self, consistency, pause_ms):
        """Sums of versions that are published while workers add."""
        servers, hosts, catalogue = self.start_cluster()
        workers = self.start_sums(hosts, consistency, "--iterations", 1000000, "--pause-ms", pause_ms)
        harness.wait_lines(workers, "iteration 8")
        found = [self.sums(self.publish(catalogue)[1]) for _ in range(4)]
        for worker in workers:
            worker.end()
        self.end(*servers)
        return found

    def test_a_shard_is_of_one_moment(self):
        found = self.publish_while_training("asp", 1)
        self.assertEqual(sorted(map(max, found)), list(map(max, found)))

    def test_all_shards_are_of_one_iteration(self):
        for pause_ms in (0, 50):
            found = self.publish_while_training("bsp", pause_ms)
            self.assertEqual([len(sums) for sums in found], [1] * len(found), found)
            self.assertEqual(sorted(map(max, found)), list(map(max, found)))


class Replicas(Cluster):
    def test_the_server_that_is_left_publishes_all_shards(self):
        servers, hosts, catalogue = self.start_cluster("--replicas", "1", "--lease", "5s")
        servers[0].wait_line("ps/0 has the backups of the shards of ps/1: they are in sync")
        workers = self.start_sums(hosts, "bsp", "--iterations", 9)
        harness.wait_lines(workers, "iteration 0")
        servers[1].signal(signal.SIGKILL)
        servers[1].wait()
        while "model@" not in self.run_to_end("starling-objects", "put", "model", "--tables", "sum", "--catalogue",
                                              catalogue, "--timeout", "2s", status=None):
            pass
        rows = self.publish(catalogue)[1]
        self.assertEqual(len(self.sums(rows)), 1)
        self.end_sums(workers)
        self.end(servers[0])


class Directory(Cluster):
    def test_published_tables_outlive_the_servers(self):
        servers, hosts, catalogue = self.start_cluster("--objects-dir", self.path("stored"))
        self.end_sums(self.start_sums(hosts, "bsp", "--iterations", 20))
        versions = [self.publish(catalogue)[0] for _ in range(4)]
        self.end(*servers)
        servers, _, catalogue = self.start_cluster("--objects-dir", self.path("stored"))
        self.wait_for(lambda: [entry["version"] for entry in self.entries(catalogue, "ls", "model")] == versions[1:])
        self.tool(catalogue, "get", "model", self.path("again"))
        self.assertEqual(tensors_of(self.path("again/model.safetensors")),
                         tensors_of(self.path("got/model.safetensors")))
        self.end(*servers)


class Checkpoints(Cluster):
    def rows(self, found):
        return {table: {key: row for (other, _), rows in found.items() if other == table for key, row in rows.items()}
                for table in ("sum", "sgd")}

    def test_put_and_fetched_and_restored_on_other_numbers_of_shards(self):
        servers, hosts, catalogue = self.start_cluster("--checkpoint-dir", self.path("saved"))
        self.end_sums(self.start_sums(hosts, "bsp", "--iterations", 40))
        rows = self.rows(self.publish(catalogue)[1])
        self.assertEqual(len(rows["sum"]), self.SHARDS * (1 + 40 * self.WORKERS))
        self.end(*servers)
        keeper, catalogue = self.serve()
        publisher = self.put(catalogue, "job/checkpoint", self.path("saved"))
        getters = [self.start("starling-objects", "get", "job/checkpoint", self.path(f"fetched{i}"), "--catalogue",
                              catalogue) for i in range(3)]
        for i, getter in enumerate(getters):
            self.assertEqual(getter.wait(), 0, getter.output)
            self.assertEqual(objects_test.tree(self.path(f"fetched{i}")), objects_test.tree(self.path("saved")))
        self.end(publisher, keeper)
        for shards in (1, 3):
            servers, _, catalogue = self.start_cluster("--checkpoint-dir", self.path(f"fetched{shards - 1}"),
                                                       "--restore", "newest", servers=1, shards=shards)
            self.assertEqual(self.rows(self.publish(catalogue, shards=shards)[1]), rows)
            self.end(*servers)


class Launched(Cluster):
    def test_a_worker_publishes(self):
        self.run_to_end("starling-worker", "generate", "--out", self.path("data"), "--rows", 2000)
        data = self.path("data/train.tsv")
        output = self.run_to_end("starling-launch", "--ps", 2, "--workers", 2, "--ps-reactors", 2, "--objects",
                                 "--objects-memory", "64M", "--", "--data", data, "--format", "criteo", "--model", "fm",
                                 "--publish", "fm", "--publish-every", "300ms", "--timeout", "60s")
        self.assertRegex(output, r"published fm@\d+ \(model=fm fields=39 factors=\d+ hidden=\d+,\d+ seed=\d+\)")
        self.assertNotIn("no version", output)

    def test_an_agent_on_the_host(self):
        """A program in the place of the worker finds the agent and the catalogue in its environment."""
        os.mkdir(self.path("bin"))
        for name in ("starling-ps", "starling-objects"):
            os.symlink(harness.program(name), self.path(f"bin/{name}"))
        os.chmod(self.file("bin/starling-worker", f"""#!{sys.executable}
import os, socket, subprocess, time
name = os.environ["STARLING_OBJECTS_AGENT"]
subprocess.run(["{self.path("bin/starling-objects")}", "ls"], check=True)
while True:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as agent:
        if agent.connect_ex(f"\\0starling-objects/{{os.getuid()}}/{{name}}") == 0:
            break
    time.sleep(0.05)
print("the agent is there")
"""), 0o700)
        output = self.run_to_end("starling-launch", "--objects", "--objects-memory", "64M", "--agents", "--bin-dir",
                                 self.path("bin"))
        self.assertIn("the agent is there", output)
        self.assertNotIn("continues without", output)

    def test_a_worker_that_cannot_publish_trains_on(self):
        data = self.file("d", "1 1:1 2:1\n0 3:1 4:1\n" * 50)
        output = self.run_to_end("starling-launch", "--catalogue", f"127.0.0.1:{harness.free_ports(1)[0]}", "--",
                                 "--data", data, "--model", "lr", "--publish", "lr", "--timeout", "1s")
        self.assertIn("--publish lr: no version", output)

    def test_flags_without_a_catalogue(self):
        output = self.run_to_end("starling-launch", "--agents", "--", "--data", "d", status=2)
        self.assertIn("--agents needs --objects", output)
        output = self.run_to_end("starling-worker", "--ps-hosts", "127.0.0.1:1", "--num-workers", 1, "--data", "d",
                                 "--publish", "m", status=2)
        self.assertIn("--catalogue", output)
        server = ["starling-ps", "--ps-hosts", "127.0.0.1:1,127.0.0.1:2", "--num-workers", 1, "--objects", "127.0.0.1:3"]
        output = self.run_to_end(*server, "--task-index", 1, status=2)
        self.assertIn("--catalogue", output)
        output = self.run_to_end(*server, "--task-index", 0, "--memory-limit", "1G", status=2)
        self.assertIn("--objects-memory", output)


if __name__ == "__main__":
    harness.main()
