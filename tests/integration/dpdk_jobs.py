"""Whole jobs over DPDK, in processes that each have devices of their own: dpdk_veth_test.py makes them. A ps
has a device for each worker."""

import json
import os
import sys

import failures_test
import harness

SERVER = "10.77.0.1"  # of all the ps's devices: they have a worker at the other end each, and nobody else
PORT = 9200


def worker_address(index):
    return f"10.77.0.{10 + index}"


def accepted(server):
    """Connections over DPDK so far, as the ps tells of them."""
    return sum("accepted: dpdk://" in line for line in list(server.lines))


def fallen_back(workers):
    """Sessions that began over TCP, since over DPDK nobody answered for ten seconds: a busy machine is that slow
    under a sanitizer."""
    return sum(": not through dpdk://" in line and "no answer from the host" in line
               for worker in workers for line in list(worker.lines))


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


class DpdkTest(failures_test.FaultTest):
    """Processes on one machine, which would choose shared memory otherwise."""

    links = None   # while they are over TCP
    faults = None  # of all devices: tests/support/fault_port.h

    def start(self, name, *args, env=None, **options):
        """A worker has the device of its index, in the namespace of that device."""
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
                            "--insecure", "--lease", 60,  # under a sanitizer a device takes long to open
                            *devices, env={"NETWORK_PS_CORE_NUMBER": str(reactors)})
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
        if links is not None:
            sessions = workers * options.get("reactors", 1)
            self.assertGreaterEqual(accepted(server) + fallen_back(processes), sessions, server.output)
            if accepted(server) == 0 and os.environ.get("STARLING_SANITIZED"):
                self.skipTest("this machine is too busy: no session began over DPDK")
            self.assertGreater(accepted(server), 0)
        with open(report, encoding="utf-8") as file:
            return json.load(file)["test"]


def main():
    if not os.path.exists(harness.program("starling-dpdk.so")):
        print("skipped: there is no starling-dpdk.so: libdpdk-dev is not installed")
        sys.exit(harness.SKIPPED)
    harness.main()
