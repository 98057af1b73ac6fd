#!/usr/bin/env python3
"""Whole jobs over RDMA, on a machine that has a device: RDMA_DEV, RDMA_KIND, RDMA_NETDEV and RDMA_IP say
which (tests/rdma-vm sets them). A device of software is slow: the jobs are small. Training and Faults are
what is run by default; the others take longer."""

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

DEVICE, KIND, NETDEV, ADDRESS = (os.environ.get(name)
                                 for name in ("RDMA_DEV", "RDMA_KIND", "RDMA_NETDEV", "RDMA_IP"))
BESIDE = "127.0.0.1"  # where the same ps is reached over TCP
NOBODY = "192.0.2.1"  # an address of no machine (RFC 5737)


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True,
                          timeout=harness.DEADLINE_S).stdout


def queue_pairs():
    """Of all processes, on the device."""
    return int(re.search(r"\bqp (\d+)", run("rdma", "resource", "show", DEVICE))[1])


def set_link(state):
    run("ip", "link", "set", NETDEV, state)


def delete_device():
    """Returns when it is gone, for which all who have it open must have closed it."""
    run("rdma", "link", "delete", DEVICE)


def add_device():
    """Unless it is there."""
    if os.path.exists(f"/sys/class/infiniband/{DEVICE}"):
        return
    run("rdma", "link", "add", DEVICE, "type", KIND, "netdev", NETDEV)


def until(condition, what, seconds=harness.DEADLINE_S):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"gave up waiting: {what}")
        time.sleep(0.05)


def accepted(servers):
    """Connections over RDMA so far, as the ps tell of them."""
    return sum("accepted: rdma://" in line for server in servers for line in list(server.lines))


def endpoint_rdma(port):
    return f"rdma://{ADDRESS}:{port}"


def endpoint_tcp(port):
    return f"tcp://{BESIDE}:{port}"


def endpoint_both(port):
    return f"{endpoint_rdma(port)},{endpoint_tcp(port)}"


class RdmaTest(failures_test.FaultTest):
    """Processes on one machine, which would choose shared memory otherwise."""

    locked_bytes = None  # as much as each process may lock; root's privilege to lock more is taken away

    def setUp(self):
        super().setUp()
        self.before = queue_pairs()

    def start(self, name, *args, env=None, **options):
        env = {"STARLING_SHM": "0", "PS_VERBOSE": "1", **(env or {})}
        if self.locked_bytes is not None:
            args = ["--bounding-set", "-ipc_lock", "prlimit", f"--memlock={self.locked_bytes}",
                    harness.program(name), *args]
            name = "/usr/bin/setpriv"
        return super().start(name, *args, env=env, **options)

    def wait_connected(self, servers, connections):
        """So many connections were accepted over RDMA in all."""
        until(lambda: accepted(servers) >= connections, f"{connections} connections over RDMA")

    def wait_unconnected(self):
        until(lambda: queue_pairs() == self.before, "no connections over RDMA")


class TrainingTest(RdmaTest):
    """starling-worker."""

    def setUp(self):
        super().setUp()
        self.report = os.path.join(self.folder, "report.json")

    def click_log(self, rows, epochs, model="fm"):
        """What the workers are to learn: made up."""
        self.run_to_end("starling-worker", "generate", "--out", self.folder, "--rows", rows,
                        "--test-rows", rows // 2, "--seed", "7")
        return ["--data", os.path.join(self.folder, "train.tsv"), "--test",
                os.path.join(self.folder, "test.tsv"), "--format", "criteo", "--model", model,
                "--epochs", epochs]

    def begin(self, data, endpoint, consistency, *extra, ps_count=2, workers=4, reactors=1, env=None):
        """Ps whose data endpoints the map names, and workers that train on them."""
        ports = harness.free_ports(2 * ps_count)
        control, data_ports = ports[:ps_count], ports[ps_count:]
        lines = [f"{BESIDE}:{c}={endpoint(d)}\n" for c, d in zip(control, data_ports)]
        flags = ["--endpoint-map", self.file("map", "".join(lines)), "--worker-hosts",
                 ",".join("abcdefgh"[:workers])]
        ps_env = {"NETWORK_PS_CORE_NUMBER": str(reactors), **(env or {})}
        trust = [] if "STARLING_SECRET_FILE" in ps_env else ["--insecure"]
        servers = [self.start("starling-ps", *flags, "--job-name", "ps", "--task-index", i, *trust,
                              *extra, env=ps_env) for i in range(ps_count)]
        harness.wait_lines(servers, "ready")
        args = [*data, "--consistency", consistency, "--report", self.report, *extra]
        return servers, self.start_workers(flags, workers, args, env=env)

    def finish(self, servers, workers):
        """The report of worker 0."""
        for worker in workers:
            self.assert_ends(worker)
        self.drain(servers)
        self.wait_unconnected()
        with open(self.report, encoding="utf-8") as file:
            return json.load(file)

    def train_over(self, endpoint, data, consistency, ps_count=1, workers=8):
        """What the model was worth in the end, after it was learned by this way and no other."""
        servers, workers = self.begin(data, endpoint, consistency, ps_count=ps_count, workers=workers)
        report = self.finish(servers, workers)
        for worker in workers:
            self.assertNotIn("over tcp://", worker.output)
            self.assertNotIn("connection lost", worker.output)
        connections = 0 if endpoint is endpoint_tcp else ps_count * len(workers)
        self.assertEqual(accepted(servers), connections)
        return report["test"]

    def assert_same(self, data, *endpoints):
        """A job in BSP is worth the same, to the last digit, by each way."""
        first, *others = [self.train_over(endpoint, data, "bsp") for endpoint in endpoints]
        for other in others:
            self.assertEqual((other["auc"], other["loss"]), (first["auc"], first["loss"]))


class Training(TrainingTest):
    def test_eight_workers_learn_the_same_as_over_tcp(self):
        self.assert_same(self.click_log(rows=1000, epochs=1, model="lr"), endpoint_tcp, endpoint_both)

    def test_ps_drains_under_load(self):
        data = self.click_log(rows=1000, epochs=100000) + ["--timeout", "6", "--log", "debug"]
        servers, workers = self.begin(data, endpoint_rdma, "asp", workers=2)
        harness.wait_lines(workers, "loss")
        for server in servers:
            server.signal(signal.SIGTERM)
        for server in servers:
            self.assert_ends(server)
        for worker in workers:
            self.assert_ends(worker, "ps/", status=1)
        self.wait_unconnected()


class MoreTraining(TrainingTest):
    def test_adult(self):
        """Where the shared data has it."""
        data = ["--data", harness.adult("train"), "--test", harness.adult("test"), "--format", "libsvm",
                "--model", "lr", "--lr", "0.04", "--epochs", "1"]
        self.assert_same(data, endpoint_tcp, endpoint_rdma)

    def test_rdma_alone_is_the_same(self):
        self.assert_same(self.click_log(rows=4000, epochs=3), endpoint_tcp, endpoint_rdma)

    def test_asp_is_near_to_what_it_is_over_tcp(self):
        """Nobody waits for anybody: the first worker may have left before the last one comes."""
        data = self.click_log(rows=4000, epochs=3)
        over_tcp, over_rdma = [self.train_over(endpoint, data, "asp", ps_count=2, workers=4)
                               for endpoint in (endpoint_tcp, endpoint_both)]
        self.assertLess(abs(over_rdma["auc"] - over_tcp["auc"]), 0.03)

    def test_two_reactors_and_a_secret(self):
        """Connections are handed over to the reactor of their shard."""
        secret = self.file("secret", "the secret of this cluster")
        os.chmod(secret, 0o600)
        servers, workers = self.begin(self.click_log(rows=4000, epochs=3), endpoint_rdma, "bsp",
                                      workers=2, reactors=2, env={"STARLING_SECRET_FILE": secret})
        self.wait_connected(servers, 8)
        self.finish(servers, workers)

    def test_forbidden(self):
        """STARLING_RDMA=0 keeps a worker to TCP."""
        servers, workers = self.begin(self.click_log(rows=4000, epochs=3), endpoint_both, "asp",
                                      workers=2, ps_count=1, env={"STARLING_RDMA": "0"})
        self.finish(servers, workers)
        self.assertEqual(accepted(servers), 0)

    def test_little_memory_may_be_locked(self):
        """What cannot be registered is copied, or waits."""
        self.locked_bytes = 2 << 20
        servers, workers = self.begin(self.click_log(rows=4000, epochs=1), endpoint_rdma, "bsp",
                                      ps_count=1, workers=2)
        self.finish(servers, workers)
        self.assertGreaterEqual(accepted(servers), 2)
        self.assertIn("could not be registered", servers[0].output)


class RdmaCluster(sum_job.Cluster):
    def data_endpoint(self, port):
        return endpoint_both(port)


class FaultsTest(RdmaTest):
    """Nothing is lost, nothing carried out twice, while processes die and the device goes away."""

    def begin(self, consistency="asp", count=4, pause_ms=30, **options):
        """Workers, all of them in the middle of a job over RDMA, of which none ends before end()."""
        cluster = RdmaCluster(self, lease_s=60, proxied=False, extra=["--insecure"])
        harness.wait_lines(cluster.ps, "ready")
        job = sum_job.SumJob(self, cluster, consistency, pause_ms=pause_ms, gated=True, flags=["--no-shm"],
                             **options)
        workers = [job.start(index) for index in range(count)]
        self.wait_connected(cluster.ps, 2 * count)
        harness.wait_lines(workers, "iteration 0")
        return cluster, job, workers

    def end(self, cluster, job, workers, restarted=()):
        job.open_gate()
        for worker in workers:
            self.assert_ends(worker)
        acknowledged = job.check(restarted)
        cluster.drain()
        self.wait_unconnected()
        return acknowledged

    def setUp(self):
        super().setUp()
        self.addCleanup(add_device)
        self.addCleanup(set_link, "up")

    def lose_device(self, workers):
        """The port goes down, and the device away, which does not wait for the processes' end. All
        go on over TCP."""
        set_link("down")
        harness.wait_lines(workers, "over tcp://")
        delete_device()

    def bring_device_back(self, cluster):
        set_link("up")
        add_device()
        harness.wait_lines(cluster.ps, "rdma: listening on")


class Faults(FaultsTest):
    def test_killed_worker(self):
        cluster, job, workers = self.begin("bsp", iterations=80)
        workers[1].signal(signal.SIGKILL)
        self.assert_ends(workers[1], status=-signal.SIGKILL)
        workers[1] = job.start(1)
        workers[1].wait_line("begins with iteration")
        self.wait_connected(cluster.ps, 10)
        self.assertGreater(self.end(cluster, job, workers), 3 * job.iterations)

    def test_killed_ps(self):
        cluster, job, workers = self.begin(iterations=400, timeout_ms=1000, goes_on=True)
        cluster.ps[1].signal(signal.SIGKILL)
        self.assert_ends(cluster.ps[1], status=-signal.SIGKILL)
        for worker in workers:
            # On a loaded machine ps/0 may miss a deadline, too.
            worker.wait_line("failed: deadline: ps/1 shard ")
        cluster.ps[1] = cluster.start_ps(1)
        harness.wait_lines(workers, "the server was restarted: its tables began anew")
        self.end(cluster, job, workers, restarted=(1,))

    def test_device_goes_and_comes_back(self):
        """Who comes when it reconnected is connected over RDMA."""
        cluster, job, workers = self.begin(count=3, iterations=400)
        self.lose_device(workers)
        self.bring_device_back(cluster)
        workers.append(job.start(3))
        self.assertEqual(self.end(cluster, job, workers), 4 * job.iterations)
        self.assertGreaterEqual(accepted(cluster.ps), 8)
        self.assertNotIn("over tcp://", workers[3].output)


class MoreFaults(FaultsTest):
    def test_device_is_deleted_in_the_middle(self):
        """Whose connections by RDMA are all well."""
        cluster, job, workers = self.begin(iterations=200)
        delete_device()
        harness.wait_lines(workers, "over tcp://")
        self.bring_device_back(cluster)
        self.assertEqual(self.end(cluster, job, workers), 4 * job.iterations)

    def test_workers_go_back_by_themselves(self):
        """A minute after they have lost it."""
        cluster, job, workers = self.begin(iterations=240, pause_ms=500)
        self.lose_device(workers)
        self.bring_device_back(cluster)
        harness.wait_lines(workers, "the preferred path works again")
        self.wait_connected(cluster.ps, 16)
        self.assertEqual(self.end(cluster, job, workers), 4 * job.iterations)

    def test_stopped_ps(self):
        """SIGSTOP: senders to the ps wait for its credit, and lose nothing."""
        cluster, job, workers = self.begin()
        cluster.ps[1].signal(signal.SIGSTOP)
        time.sleep(2)
        cluster.ps[1].signal(signal.SIGCONT)
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

    def test_no_memory_may_be_locked(self):
        """The same; and what to do about it is said."""
        self.locked_bytes = 16 << 10
        server = self.start_one(endpoint_rdma)
        self.assertNotEqual(server.wait(), 0, server.output)
        self.assertIn("ulimit -l", server.output)
        server = self.start_one(endpoint_both)
        server.wait_line("ready")
        self.assertIn("ulimit -l", server.output)
        self.drain([server])

    def test_doctor_finds_the_device(self):
        output = self.run_to_end("starling-ps", "doctor", "--transport", "rdma")
        self.assertIn(DEVICE, output)


if __name__ == "__main__":
    if not all((DEVICE, KIND, NETDEV, ADDRESS)):
        print("skipped: no RDMA device: set RDMA_DEV, RDMA_KIND, RDMA_NETDEV and RDMA_IP")
        sys.exit(harness.SKIPPED)
    harness.main()
