#!/usr/bin/env python3
"""Errors if DPDK is asked for and its device cannot be opened."""

import harness
import dpdk_jobs


class Refused(dpdk_jobs.DpdkTest):
    """The device cannot be opened: its interface does not exist."""

    NOWHERE = "net_af_packet0,iface=nowhere?addr=10.77.0.1"

    def start_one(self, endpoint, *more):
        control, data = harness.free_ports(2)
        flags = ["--endpoint-map", self.file("map", f"127.0.0.1:{control}={endpoint.format(port=data)}\n")]
        return self.start("starling-ps", *flags, "--worker-hosts", "a", "--job-name", "ps",
                          "--task-index", 0, "--insecure", *more)

    def test_alone_it_is_an_error(self):
        server = self.start_one(f"dpdk://{self.NOWHERE}&port=9200")
        self.assertEqual(server.wait(), 1, server.output)
        for words in ("\"nowhere\"", "data endpoint dpdk://10.77.0.1:9200: ", "starling-ps doctor"):
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
