"""Whole jobs over DPDK, in processes that each have devices of their own: dpdk_memif_test.py and
dpdk_veth_test.py say of what kind these are. A ps has a device for each worker."""

import json
import os
import signal
import sys

import failures_test
import harness
import sum_job

SERVER = "10.77.0.1"  # of all the ps's devices: they have a worker at the other end each, and nobody else
PORT = 9200


def worker_address(index):
    return f"10.77.0.{10 + index}"


def accepted(server):
    """Connections over DPDK so far, as the ps tells of them."""
    return sum("accepted: dpdk://" in line for line in list(server.lines))


class Links:
    """Between a ps and so many workers."""

    control = "127.0.0.1"  # where the ps is reached over TCP

    def of_ps(self, index):
        """Its device that leads to this worker, as --dpdk-device has it."""
        raise NotImplementedError

    def of_worker(self, index):
        raise NotImplementedError

    def enter(self, index):
        """What to start a worker by."""
        return []


class Cluster(sum_job.Cluster):
    """One ps; over TCP comes only who looks at its tables in the end."""

    def __init__(self, test, links, workers, **options):
        self.behind = links.control
        self._data = test.data_endpoint(links, beside=True)
        super().__init__(test, ps_count=1, worker_count=workers, proxied=False,
                         extra=["--insecure", *test.more_devices(links, workers)], **options)

    def data_endpoint(self, port):
        return self._data


class DpdkTest(failures_test.FaultTest):
    """Processes on one machine, which would choose shared memory otherwise."""

    links = None   # while they are over TCP
    faults = None  # of all devices: tests/support/fault_port.h

    def start(self, name, *args, env=None, **options):
        """Whoever is a worker has the device of its index, and is where that is."""
        env = {"STARLING_SHM": "0", "PS_VERBOSE": "1", **(env or {})}
        if self.faults is not None:
            env["STARLING_DPDK_MODULE"] = os.path.join(harness.BIN, "../tests/starling-dpdk-faulty.so")
            env["STARLING_TEST_FAULTS"] = self.faults
        if self.links is not None and name in ("starling-worker", "sum_worker"):
            index = args[args.index("--task-index") + 1]
            args = [*args, "--dpdk-device", self.links.of_worker(index)]
            name, *args = [*self.links.enter(index), harness.program(name), *args]
        return super().start(name, *args, env=env, **options)

    def data_endpoint(self, links, beside):
        port = harness.free_ports(1)[0]
        over_dpdk = f"dpdk://{links.of_ps(0)}&port={PORT}"
        return f"{over_dpdk},tcp://{links.control}:{port}" if beside else over_dpdk

    @staticmethod
    def more_devices(links, workers):
        """Of the ps; the first is in its endpoint."""
        return [word for index in range(1, workers) for word in ("--dpdk-device", links.of_ps(index))]

    def begin(self, args, links, workers=8, beside=False, reactors=1):
        """A ps and its workers, which go this way and no other: beside TCP, or alone. None: TCP."""
        control, data = harness.free_ports(2)
        host = "127.0.0.1" if links is None else links.control
        endpoint = f"tcp://{host}:{data}" if links is None else self.data_endpoint(links, beside)
        devices = [] if links is None else self.more_devices(links, workers)
        self.flags = ["--endpoint-map", self.file("map", f"{host}:{control}={endpoint}\n"),
                      "--worker-hosts", ",".join("abcdefgh"[:workers])]
        server = self.start("starling-ps", *self.flags, "--job-name", "ps", "--task-index", 0,
                            "--insecure", *devices, env={"NETWORK_PS_CORE_NUMBER": str(reactors)})
        server.wait_line("ready")
        self.links = links
        return server, self.start_workers(self.flags, workers, args)

    def train(self, args, links, workers=8, **options):
        """What the model was worth in the end."""
        report = os.path.join(self.folder, "report.json")
        server, processes = self.begin([*args, "--report", report], links, workers, **options)
        for worker in processes:
            self.assert_ends(worker)
            self.assertNotIn("connection lost", worker.output)
            self.assertNotIn("over TCP", worker.output)
        self.drain([server])
        for process in [server, *processes] if self.faults is not None else []:
            self.assertIn("faults on purpose", process.output)
        self.assertGreaterEqual(accepted(server), 0 if links is None else workers * options.get("reactors", 1))
        with open(report, encoding="utf-8") as file:
            return json.load(file)["test"]


def adult():
    return ["--data", harness.adult("train"), "--test", harness.adult("test"), "--format", "libsvm",
            "--model", "lr", "--lr", "0.04", "--consistency", "bsp", "--epochs", "1",
            "--batch-size", "256"]


class Jobs:
    """For each kind of link: make_links(count) makes them."""

    def test_eight_workers_learn_the_same_as_over_tcp(self):
        """Fewer where each is several times slower."""
        workers = 4 if os.environ.get("STARLING_SANITIZED") else 8
        over_tcp = self.train(adult(), None, workers)
        over_dpdk = self.train(adult(), self.make_links(workers), workers)
        self.assertEqual((over_dpdk["auc"], over_dpdk["loss"]), (over_tcp["auc"], over_tcp["loss"]))

    def test_killed_worker(self):
        """Nothing is lost, nothing carried out twice; another comes in its place, by its device."""
        links = self.make_links(2)
        cluster = Cluster(self, links, workers=2, lease_s=60)
        cluster.ps[0].wait_line("ready")
        self.links = links
        job = sum_job.SumJob(self, cluster, "bsp", iterations=80, pause_ms=10, gated=True,
                             flags=["--no-shm"])
        workers = [job.start(index) for index in range(2)]
        self.wait_middle(workers[1], workers)
        workers[1].signal(signal.SIGKILL)
        self.assert_ends(workers[1], status=-signal.SIGKILL)
        workers[1] = job.start(1)
        workers[1].wait_line("begins with iteration")
        job.open_gate()
        for worker in workers:
            self.assert_ends(worker)
            self.assertNotIn("over tcp://", worker.output)
        self.assertGreater(job.check(), job.iterations)
        cluster.drain()
        self.assertEqual(accepted(cluster.ps[0]), 3)

    def test_ps_drains_under_load(self):
        data = ["--data", self.file("data", "1 1:1 2:1\n0 3:1 4:1\n" * 2000), "--model", "lr",
                "--epochs", 100000, "--timeout", 3]
        server, workers = self.begin(data, self.make_links(2), workers=2)
        for worker in workers:
            worker.wait_line("loss")
        server.signal(signal.SIGTERM)
        self.assert_ends(server)
        for worker in workers:
            self.assert_ends(worker, "ps/0", status=1)


def main():
    if not os.path.exists(harness.program("starling-dpdk.so")):
        print("skipped: there is no starling-dpdk.so: libdpdk-dev is not installed")
        sys.exit(harness.SKIPPED)
    harness.main()
