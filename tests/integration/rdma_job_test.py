#!/usr/bin/env python3
"""Whole jobs over RDMA, on a machine that has a device: RDMA_DEV, RDMA_NETDEV and RDMA_IP say which
(tests/rdma-vm sets them). A device of software is slow: the jobs are small."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import failures_test
import harness
import sum_job

SKIPPED = 77
DEVICE, NETDEV, ADDRESS = (os.environ.get(name) for name in ("RDMA_DEV", "RDMA_NETDEV", "RDMA_IP"))
BESIDE = "127.0.0.1"  # where the same ps is reached over TCP
NOBODY = "192.0.2.1"  # an address of no machine (RFC 5737)


def queue_pairs():
    """Of all processes, on the device."""
    shown = subprocess.run(["rdma", "resource", "show", DEVICE], check=True, capture_output=True,
                           text=True, timeout=harness.DEADLINE_S)
    return int(re.search(r"\bqp (\d+)", shown.stdout)[1])


def set_link(state):
    subprocess.run(["ip", "link", "set", NETDEV, state], check=True, timeout=harness.DEADLINE_S)


def until(condition, what, seconds=harness.DEADLINE_S):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"gave up waiting: {what}")
        time.sleep(0.05)


class RdmaTest(failures_test.FaultTest):
    """Processes on one machine, which would choose shared memory otherwise."""

    def setUp(self):
        super().setUp()
        self.before = queue_pairs()

    def start(self, name, *args, env=None, cwd=None):
        return super().start(name, *args, env={"STARLING_SHM": "0", **(env or {})}, cwd=cwd)

    def wait_connected(self, connections):
        """Both ends of so many connections are on the device."""
        until(lambda: queue_pairs() >= self.before + 2 * connections,
              f"{connections} connections over RDMA")

    def wait_unconnected(self):
        until(lambda: queue_pairs() == self.before, "no connections over RDMA")


def endpoint_rdma(port):
    return f"rdma://{ADDRESS}:{port}"


def endpoint_tcp(port):
    return f"tcp://{BESIDE}:{port}"


def endpoint_both(port):
    return f"{endpoint_rdma(port)},{endpoint_tcp(port)}"


class Training(RdmaTest):
    """starling-worker on a small click log."""

    def setUp(self):
        super().setUp()
        self.run_to_end("starling-bench", "generate", "--out", self.folder, "--rows", "4000",
                        "--test-rows", "2000", "--seed", "7")
        self.data = ["--data", os.path.join(self.folder, "train.tsv"), "--test",
                     os.path.join(self.folder, "test.tsv"), "--format", "criteo", "--model", "fm",
                     "--epochs", "3"]
        self.report = os.path.join(self.folder, "report.json")

    def begin(self, endpoint, consistency, *extra, ps_count=2, workers=4, reactors=1, env=None):
        """Ps whose data endpoints the map names, and workers that train on them."""
        ports = harness.free_ports(2 * ps_count)
        control, data = ports[:ps_count], ports[ps_count:]
        lines = [f"{BESIDE}:{c}={endpoint(d)}\n" for c, d in zip(control, data)]
        flags = ["--endpoint-map", self.file("map", "".join(lines)), "--worker-hosts",
                 ",".join("abcdefgh"[:workers])]
        ps_env = {"NETWORK_PS_CORE_NUMBER": str(reactors), **(env or {})}
        trust = [] if "STARLING_SECRET_FILE" in ps_env else ["--insecure"]
        servers = [self.start("starling-ps", *flags, "--job-name", "ps", "--task-index", i, *trust,
                              *extra, env=ps_env) for i in range(ps_count)]
        for server in servers:
            server.wait_line("ready")
        args = [*self.data, "--consistency", consistency, "--report", self.report, *extra]
        return servers, self.start_workers(flags, workers, args, env=env)

    def finish(self, servers, workers):
        """The report of worker 0."""
        for worker in workers:
            self.assert_ends(worker)
        self.drain(servers)
        self.wait_unconnected()
        with open(self.report, encoding="utf-8") as file:
            return json.load(file)

    def train_over(self, endpoint, consistency):
        """What the model was worth in the end. In ASP nobody waits for anybody: the first worker may
        have left before the last one comes."""
        servers, workers = self.begin(endpoint, consistency)
        if endpoint is not endpoint_tcp:
            self.wait_connected(2 * len(workers) if consistency == "bsp" else 2)
        report = self.finish(servers, workers)
        for worker in workers:
            self.assertNotIn("over tcp://", worker.output)
        return report["test"]

    def test_bsp_is_the_same_as_over_tcp(self):
        tests = [self.train_over(endpoint, "bsp")
                 for endpoint in (endpoint_tcp, endpoint_both, endpoint_rdma)]
        for over_rdma in tests[1:]:
            self.assertEqual(over_rdma["auc"], tests[0]["auc"])
            self.assertEqual(over_rdma["loss"], tests[0]["loss"])

    def test_asp_is_near_to_what_it_is_over_tcp(self):
        over_tcp, over_rdma = [self.train_over(endpoint, "asp")
                               for endpoint in (endpoint_tcp, endpoint_both)]
        self.assertLess(abs(over_rdma["auc"] - over_tcp["auc"]), 0.03)

    def test_two_reactors_and_a_secret(self):
        """Connections are handed over to the reactor of their shard."""
        secret = self.file("secret", "the secret of this cluster")
        os.chmod(secret, 0o600)
        servers, workers = self.begin(endpoint_rdma, "bsp", workers=2, reactors=2,
                                      env={"STARLING_SECRET_FILE": secret})
        self.wait_connected(8)
        self.finish(servers, workers)

    def test_forbidden(self):
        """STARLING_RDMA=0 keeps a worker to TCP."""
        servers, workers = self.begin(endpoint_both, "asp", workers=2, ps_count=1,
                                      env={"STARLING_RDMA": "0"})
        for worker in workers:
            worker.wait_line("loss")
        self.assertEqual(queue_pairs(), self.before)
        self.finish(servers, workers)

    def test_ps_drains_under_load(self):
        self.data += ["--epochs", "100000", "--timeout", "3"]
        servers, workers = self.begin(endpoint_rdma, "asp", workers=2)
        for worker in workers:
            worker.wait_line("loss")
        for server in servers:
            server.signal(signal.SIGTERM)
        for server in servers:
            self.assert_ends(server)
        for worker in workers:
            self.assert_ends(worker, "ps/", status=1)
        self.wait_unconnected()


class RdmaCluster(sum_job.Cluster):
    def data_endpoint(self, port):
        return endpoint_both(port)


class Faults(RdmaTest):
    """Nothing is lost, nothing carried out twice, while processes die and the device goes away."""

    def begin(self, consistency="asp", **options):
        cluster = RdmaCluster(self, lease_s=20, proxied=False, extra=["--insecure"])
        for ps in cluster.ps:
            ps.wait_line("ready")
        job = sum_job.SumJob(self, cluster, consistency, flags=["--no-shm"], **options)
        workers = job.start_all()
        self.wait_middle(workers[0])
        self.assertGreaterEqual(queue_pairs(), self.before + 2)
        return cluster, job, workers

    def end(self, cluster, job, workers):
        for worker in workers:
            self.assert_ends(worker)
        acknowledged = job.check()
        cluster.drain()
        self.wait_unconnected()
        return acknowledged

    def test_killed_worker(self):
        cluster, job, workers = self.begin(consistency="bsp")
        workers[1].signal(signal.SIGKILL)
        self.assert_ends(workers[1], status=-signal.SIGKILL)
        cluster.ps[0].wait_line("worker/1 is away")
        workers[1] = job.start(1)
        workers[1].wait_line("begins with iteration")
        self.assertGreater(self.end(cluster, job, workers), 3 * job.iterations)

    def test_killed_ps(self):
        cluster, job, workers = self.begin(iterations=150, timeout_ms=1000, pause_ms=20,
                                           goes_on=True)
        cluster.ps[1].signal(signal.SIGKILL)
        self.assert_ends(cluster.ps[1], status=-signal.SIGKILL)
        for worker in workers:
            self.assertIn("ps/1 shard 0", worker.wait_line("failed: deadline"))
        cluster.ps[1] = cluster.start_ps(1)
        for worker in workers:
            worker.wait_line("the ps was restarted: its tables began anew")
            self.assert_ends(worker)
        job.check(restarted=(1,))
        cluster.drain()
        self.wait_unconnected()

    def test_port_goes_down_and_comes_back(self):
        """Everybody goes on over TCP. Who comes when it is back is connected over RDMA."""
        cluster, job, workers = self.begin(iterations=300, pause_ms=20)
        self.addCleanup(set_link, "up")
        set_link("down")
        for worker in workers:
            worker.wait_line("over tcp://")
        set_link("up")
        self.assertEqual(self.end(cluster, job, workers), 4 * job.iterations)
        cluster, job, workers = self.begin()
        self.wait_connected(8)
        self.assertEqual(self.end(cluster, job, workers), 4 * job.iterations)


class Refused(RdmaTest):
    def start_one(self, endpoint):
        control, data = harness.free_ports(2)
        flags = ["--endpoint-map", self.file("map", f"{BESIDE}:{control}={endpoint(data)}\n")]
        return self.start("starling-ps", *flags, "--worker-hosts", "a", "--job-name", "ps",
                          "--task-index", 0, "--insecure")

    def test_address_that_no_device_has(self):
        """Alone it is an error, beside TCP it is done without."""
        server = self.start_one(lambda port: f"rdma://{NOBODY}:{port}")
        self.assertNotEqual(server.wait(), 0, server.output)
        self.assertIn(f"rdma://{NOBODY}:", server.output)
        self.assertIn("starling-ps doctor", server.output)
        server = self.start_one(lambda port: f"rdma://{NOBODY}:{port},{endpoint_tcp(port)}")
        server.wait_line("ready")
        self.drain([server])

    def test_doctor_finds_the_device(self):
        output = self.run_to_end("starling-ps", "doctor", "--transport", "rdma")
        self.assertIn(DEVICE, output)


if __name__ == "__main__":
    if not all((DEVICE, NETDEV, ADDRESS)):
        print("skipped: no RDMA device: set RDMA_DEV, RDMA_NETDEV and RDMA_IP")
        sys.exit(SKIPPED)
    harness.main()
