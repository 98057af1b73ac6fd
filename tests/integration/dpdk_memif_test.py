#!/usr/bin/env python3
"""Jobs over memif, shared memory between two processes: what it does to devices that are none. And
what is said where DPDK is asked for and cannot be."""

import os
import signal

import harness
import dpdk_jobs


class Memif(dpdk_jobs.Links):
    """A socket for each worker, of which the ps is the server."""

    def __init__(self, test):
        self._folder = test.folder

    def _device(self, number, index, role, address):
        return (f"net_memif{number},role={role},id=0,socket={self._folder}/memif{index},"
                f"socket-abstract=no?addr={address}")

    def of_ps(self, index):
        return self._device(index, index, "server", dpdk_jobs.SERVER)

    def of_worker(self, index):
        return self._device(0, index, "client", dpdk_jobs.worker_address(index))


class Jobs(dpdk_jobs.Jobs, dpdk_jobs.DpdkTest):
    def make_links(self, count):
        return Memif(self)

    def little(self):
        return ["--data", self.file("data", "1 1:1 2:1\n0 3:1 4:1\n" * 2000), "--model", "lr"]

    def test_two_reactors_beside_tcp_and_faults(self):
        """Connections are handed over to the reactor of their shard, over what loses packets, too."""
        self.faults = "loss=0.01,reorder=0.01,duplicate=0.01,corrupt=0.002,truncate=0.002,short=0.1,delay_us=200"
        class TwoQueues(Memif):
            def _device(self, *of):
                return super()._device(*of) + "&queues=2"

        self.train([*self.little(), "--test", self.file("test", "1 1:1 2:1\n0 3:1 4:1\n")],
                   TwoQueues(self), workers=2, reactors=2, beside=True)

    def test_a_worker_without_a_device_comes_over_tcp(self):
        server, workers = self.begin([*self.little(), "--epochs", 2], Memif(self), workers=1, beside=True)
        self.assert_ends(workers[0])
        self.links = None
        worker = self.start("starling-worker", *self.flags, "--job-name", "worker", "--task-index", 0,
                            *self.little(), "--join")
        self.assert_ends(worker, "not over DPDK: this process was given no --dpdk-device; over TCP")
        self.drain([server])
        self.assertEqual(dpdk_jobs.accepted(server), 1)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "memif0")), "its socket is left behind")

    def test_a_killed_worker_holds_up_no_end(self):
        """Its link says that it has gone, long before its silence would."""
        server, workers = self.begin([*self.little(), "--epochs", 100000], Memif(self), workers=1)
        workers[0].wait_line("loss")
        workers[0].signal(signal.SIGKILL)
        self.assert_ends(workers[0], status=-signal.SIGKILL)
        self.drain([server])
        self.assertNotIn("still open at the drain timeout", server.output)

    def test_launched(self):
        """By patterns, of which each process gets its own."""
        memif = "id=0,socket=memif{},socket-abstract=no?addr=10.77.0."
        output = self.run_to_end(
            "starling-launch", "--ps", 1, "--workers", 2, "--insecure", "--ps-dpdk-device",
            "net_memif{worker},role=server," + memif.format("{worker}") + "1", "--worker-dpdk-device",
            "net_memif0,role=client," + memif.format("{task}") + "{task+2}", "--", *self.little())
        self.assertGreaterEqual(output.count("connection made: dpdk://10.77.0.1:9200 by dpdk"), 2, output)


class Refused(dpdk_jobs.DpdkTest):
    """The device cannot be: its socket's folder is not there."""

    NOWHERE = "net_memif0,role=server,id=0,socket=/nonexistent/socket,socket-abstract=no?addr=10.77.0.1"

    def start_one(self, endpoint, *more):
        control, data = harness.free_ports(2)
        flags = ["--endpoint-map", self.file("map", f"127.0.0.1:{control}={endpoint.format(port=data)}\n")]
        return self.start("starling-ps", *flags, "--worker-hosts", "a", "--job-name", "ps",
                          "--task-index", 0, "--insecure", *more)

    def test_alone_it_is_an_error(self):
        server = self.start_one(f"dpdk://{self.NOWHERE}&port=9200")
        self.assertEqual(server.wait(), 1, server.output)
        for words in ("/nonexistent/socket", "data endpoint dpdk://10.77.0.1:9200: ", "starling-ps doctor"):
            self.assertIn(words, server.output)
        self.assertNotIn("ready", server.output)

    def test_beside_tcp_it_is_done_without(self):
        server = self.start_one("tcp://127.0.0.1:{port}", "--dpdk-device", self.NOWHERE)
        self.assertNotIn("dpdk", server.wait_line("ready"))
        told = [line for line in server.lines if "workers connect over the other data endpoint" in line]
        self.assertEqual(len(told), 1, server.output)
        self.assertIn("dpdk://10.77.0.1:9200: ", told[0])
        self.drain([server])

    def test_address_that_no_device_has(self):
        server = self.start_one("dpdk://10.77.0.2:9200", "--dpdk-device", self.NOWHERE)
        self.assertEqual(server.wait(), 2, server.output)
        self.assertIn("dpdk://10.77.0.2:9200: no device has this address", server.output)
        server = self.start_one("dpdk://10.77.0.2:9200,tcp://127.0.0.1:{port}")
        server.wait_line("no device has this address")
        self.assertNotIn("dpdk", server.wait_line("ready"))
        self.drain([server])


if __name__ == "__main__":
    dpdk_jobs.main()
