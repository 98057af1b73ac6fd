#!/usr/bin/env python3
"""Jobs over the kernel's network devices, by AF_PACKET: pairs of virtual ones, of which each worker has
one in a network of its own, as if it were on another machine. The kernel goes by the same devices, with
other addresses, for what is over TCP. For root."""

import os
import signal

import dpdk_jobs
import harness
import networks
import stranger_test
import sum_job

class Veth(dpdk_jobs.Links):
    """ta0, ta1 ... of the ps, which lead to tb0, tb1 ...; all end with the test's network. `more`: of each
    device."""

    control = "10.78.255.1"

    def __init__(self, test, count, more=""):
        self._more = more
        self._networks = [networks.start(test) for _ in range(count)]
        for index, network in enumerate(self._networks):
            networks.join(test, f"ta{index}", f"10.78.{index}.1", network, f"tb{index}", f"10.78.{index}.2")
            networks.run(*self.enter(index), "ip", "route", "add", self.control, "via", f"10.78.{index}.1")

    def of_ps(self, index):
        return f"net_af_packet{index},iface=ta{index}?addr={dpdk_jobs.SERVER}{self._more}"

    def of_worker(self, index):
        return f"net_af_packet0,iface=tb{index}?addr={dpdk_jobs.worker_address(index)}{self._more}"

    def enter(self, index):
        return networks.within(self._networks[index])


def adult():
    return ["--data", harness.adult("train"), "--test", harness.adult("test"), "--format", "libsvm",
            "--model", "lr", "--lr", "0.04", "--consistency", "bsp", "--epochs", "1",
            "--batch-size", "256"]


class Cluster(sum_job.Cluster):
    """One ps; over TCP comes only who looks at its tables in the end."""

    def __init__(self, test, links, workers, **options):
        self.behind = links.control
        self._data = test.data_endpoint(links, beside=True)
        super().__init__(test, ps_count=1, worker_count=workers, proxied=False,
                         extra=["--insecure", *test.more_devices(links, workers)], **options)

    def data_endpoint(self, port):
        return self._data


class Jobs(dpdk_jobs.DpdkTest):
    def little(self):
        return ["--data", self.file("data", "1 1:1 2:1\n0 3:1 4:1\n" * 2000), "--model", "lr"]

    def test_eight_workers_learn_the_same_as_over_tcp(self):
        """With a sanitizer, fewer."""
        workers = 4 if os.environ.get("STARLING_SANITIZED") else 8
        over_tcp = self.train(adult(), None, workers)
        over_dpdk = self.train(adult(), Veth(self, workers), workers)
        self.assertEqual((over_dpdk["auc"], over_dpdk["loss"]), (over_tcp["auc"], over_tcp["loss"]))

    def test_two_reactors_beside_tcp_and_faults(self):
        """Connections are handed over to the reactor of their shard, over what loses packets, too."""
        self.faults = "loss=0.01,reorder=0.01,duplicate=0.01,corrupt=0.002,truncate=0.002,short=0.1,delay_us=200"
        self.train([*self.little(), "--test", self.file("test", "1 1:1 2:1\n0 3:1 4:1\n")],
                   Veth(self, 2, "&queues=2"), workers=2, reactors=2, beside=True)

    def test_a_worker_without_a_device_comes_over_tcp(self):
        links = Veth(self, 1)
        server, workers = self.begin([*self.little(), "--epochs", 2], links, workers=1, beside=True)
        self.assert_ends(workers[0])
        self.links = None
        worker = self.start("starling-worker", *self.flags, "--job-name", "worker", "--task-index", 0,
                            *self.little(), "--join")
        self.assert_ends(worker, "not over DPDK: this process was given no --dpdk-device; over TCP")
        self.drain([server])
        self.assertEqual(dpdk_jobs.accepted(server), 1)

    def test_launched(self):
        """By patterns, of which each process gets its own; with a script for ssh, which enters a network."""
        links = Veth(self, 2)
        hosts = "".join(f"  net{index}) exec {' '.join(links.enter(index))} sh -c \"$2\";;\n" for index in range(2))
        ssh = self.file("ssh", f"#!/bin/sh\ncase $1 in\n{hosts}  *) exec sh -c \"$2\";;\nesac\n")
        os.chmod(ssh, 0o700)
        output = self.run_to_end(
            "starling-launch", "--insecure", "--ssh", f"'{ssh}'", "--host-list",
            self.file("hosts", f"{links.control} ps\nnet0 worker\nnet1 worker\n"), "--ps-dpdk-device",
            "net_af_packet{worker},iface=ta{worker}?addr=10.77.0.1", "--worker-dpdk-device",
            "net_af_packet0,iface=tb{task}?addr=10.77.0.{task+2}", "--", *self.little())
        self.assertGreaterEqual(output.count("connection made: dpdk://10.77.0.1:9200 over dpdk"), 2, output)

    def test_killed_worker(self):
        """Nothing is lost, nothing carried out twice; another comes in its place, by its device."""
        links = Veth(self, 2)
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
        self.assertEqual(dpdk_jobs.accepted(cluster.ps[0]), 3)

    def test_ps_drains_under_load(self):
        server, workers = self.begin([*self.little(), "--epochs", 100000, "--timeout", 3, "--log", "debug"], Veth(self, 2),
                                     workers=2)
        harness.wait_lines(workers, "loss")
        server.signal(signal.SIGTERM)
        self.assert_ends(server)
        for worker in workers:
            self.assert_ends(worker, "ps/0", status=1)


class Stranger(stranger_test.StrangerTest):
    control = Veth.control

    def start(self, name, *args, **options):
        if name == "stranger":
            name, *args = [*self.links.enter(1), harness.program(name), *args]
        return super().start(name, *args, **options)

    def test_dpdk(self):
        """The ps has a device for the worker and one for the stranger."""
        self.links = Veth(self, 2)
        self.meet(self.data_endpoint(self.links, beside=False), f"dpdk://{dpdk_jobs.SERVER}:{dpdk_jobs.PORT}",
                  self.links.of_worker(1), more=self.more_devices(self.links, 2))


if __name__ == "__main__":
    networks.enter()
    networks.run("ip", "address", "add", Veth.control, "dev", "lo")
    dpdk_jobs.main()
