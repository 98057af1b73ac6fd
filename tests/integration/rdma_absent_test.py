#!/usr/bin/env python3
"""Where there is no RDMA: what asks for it and nothing else is refused, with the reason and what to do;
what has TCP beside it says once that it does without, and works."""

import os
import sys

import harness
import job_test

DEVICES = "/sys/class/infiniband"


class RdmaAbsent(job_test.Generated):
    def learns(self, server, flags, *more):
        """One worker of the ps, to its end, and that of the ps."""
        output = self.run_to_end("starling-worker", *flags, *self.data, "--model", "lr", *more)
        self.assertIn("test AUC", output)
        self.drain([server])

    def start_one(self, data, *more):
        """A ps whose data endpoint the map names; with the flags for its workers."""
        control, self.port = harness.free_ports(2)
        path = self.file("map", f"127.0.0.1:{control}={data.format(port=self.port)}\n")
        flags = ["--endpoint-map", path, "--worker-hosts", "a"]
        return self.start("starling-ps", *flags, "--job-name", "ps", "--task-index", 0, *more), flags

    def assert_dropped(self, server, endpoint, why):
        """Said once, whatever the number of reactors; and what is left is ready."""
        self.assertNotIn("rdma", server.wait_line("ready"))
        told = [line for line in server.lines if "workers connect over the other data endpoint" in line]
        self.assertEqual(len(told), 1, server.output)
        self.assertIn(endpoint, told[0])
        self.assertRegex(told[0], why)

    def test_rdma_alone_is_refused(self):
        server, _ = self.start_one("rdma://127.0.0.1:{port}")
        self.assertEqual(server.wait(), 2, server.output)
        self.assertRegex(server.output, "accepts tcp, shm(, dpdk)? here")
        self.assertIn(f"data endpoint rdma://127.0.0.1:{self.port}: ", server.output)
        self.assertIn("`starling-ps doctor", server.output)
        self.assertNotIn("ready", server.output)

    def test_a_map_with_both_is_served_by_tcp(self):
        server, flags = self.start_one("rdma://127.0.0.1:{port},tcp://127.0.0.1:{port}")
        self.assert_dropped(server, f"rdma://127.0.0.1:{self.port}: ", "`starling-ps doctor`")
        self.assertIn(f"data tcp://127.0.0.1:{self.port}, ", server.wait_line("ready"))
        self.learns(server, flags)

    def test_the_flag_is_no_more_than_a_wish(self):
        servers, flags = self.start_ps(extra=["--rdma"],
                                       env={"NETWORK_PS_CORE_NUMBER": "3", "STARLING_SHM": "0"})
        self.assert_dropped(servers[0], "rdma://127.0.0.1:0: ", "`starling-ps doctor`")
        self.learns(servers[0], flags)

    def test_one_fact_is_one_line(self):
        server, flags = self.start_one("rdma://127.0.0.1:{port},tcp://127.0.0.1:{port}")
        self.assert_dropped(server, f"rdma://127.0.0.1:{self.port}: ", "no RDMA device|libibverbs|built without")
        slow = ("a turn took", "was held up", "was delayed")  # a machine that stalls is another fact
        told = [line for line in server.lines
                if " W " in line and not any(words in line for words in slow)]
        self.assertLessEqual(len(told), 1, server.output)
        self.learns(server, flags)

    def test_the_variable_goes_before_the_flag(self):
        servers, flags = self.start_ps(extra=["--rdma"], env={"STARLING_RDMA": "0"})
        servers[0].wait_line("ready")
        self.assertIn("STARLING_RDMA=0 has precedence over --rdma", servers[0].output)
        self.assertNotIn("rdma://", servers[0].output)
        self.learns(servers[0], flags)

    def test_variables_of_other_programs_do_not_stop_a_job_without_rdma(self):
        env = {"NCCL_IB_GID_INDEX": "auto", "MC_GID_INDEX": "3"}
        servers, flags = self.start_ps(env=env)
        output = self.run_to_end("starling-worker", *flags, *self.data, "--model", "lr", env=env)
        self.assertIn("test AUC", output)
        self.assertNotIn("GID_INDEX", output + servers[0].output)
        self.drain(servers)

    def test_there_is_none_with_tls(self):
        tls = self.tls_flags("IP:127.0.0.1")
        servers, flags = self.start_ps(extra=[*tls, "--rdma"])
        self.assert_dropped(servers[0], "rdma://127.0.0.1:0: ", "TLS")
        self.learns(servers[0], flags, *tls)

    def test_rdma_alone_is_refused_with_tls(self):
        server, _ = self.start_one("rdma://127.0.0.1:{port}", *self.tls_flags("IP:127.0.0.1"))
        self.assertIn(server.wait(), (1, 2), server.output)
        self.assertIn(f"data endpoint rdma://127.0.0.1:{self.port}: ", server.output)


if __name__ == "__main__":
    if os.path.isdir(DEVICES) and os.listdir(DEVICES):
        print(f"skipped: there are RDMA devices in {DEVICES}")
        sys.exit(harness.SKIPPED)
    harness.main()
