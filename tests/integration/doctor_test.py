#!/usr/bin/env python3
"""starling-ps doctor, on whatever machine this is."""

import json
import os
import tempfile

import harness


class Doctor(harness.StarlingTest):
    def doctor(self, *args, status=0, **how):
        return self.run_to_end("starling-ps", "doctor", *args, status=status, **how)

    def test_tcp_can_run_where_tests_run(self):
        output = self.doctor()
        self.assertRegex(output, r"(?m)^ok +io_uring +Linux |^warning +io_uring +Linux ")
        self.assertRegex(output, r"(?m)^tcp +can run \(asked for\)$")
        self.assertRegex(output, r"(?m)^dpdk +cannot run: .*dpdk device$")

    def test_what_cannot_run_says_what_to_do(self):
        output = self.doctor("--transport", "rdma", "--rdma-device", "none_of_this_name", status=1)
        self.assertRegex(output, r"(?m)^missing +rdma device .*\n +-> \w+")
        self.assertRegex(output, r"(?m)^rdma +cannot run: .*rdma device.* \(asked for\)$")

    def test_map_says_what_is_asked_for(self):
        both = self.file("both", "127.0.0.1:1=rdma://127.0.0.1:3,tcp://127.0.0.1:2\n")
        output = self.doctor("--endpoint-map", both, "--rdma-device", "none_of_this_name", status=1)
        self.assertRegex(output, r"(?m)^tcp +can run \(asked for\)$")
        self.assertRegex(output, r"(?m)^rdma +cannot run: .* \(asked for\)$")
        self.doctor("--endpoint-map", both, "--transport", "tcp")
        near = self.file("near", "127.0.0.1:1=shm://127.0.0.1:2\n")
        self.assertRegex(self.doctor("--endpoint-map", near), r"(?m)^shm +can run \(asked for\)$")

    def test_devices_of_dpdk(self):
        output = self.doctor("--transport", "dpdk", status=1)
        self.assertRegex(output, r"(?m)^missing +dpdk device +none is named\n +-> --dpdk-device")
        absent = "ffff:ff:1f.7?addr=10.0.0.1"
        for output in (self.doctor("--dpdk-device", absent, status=1),
                       self.doctor(env={"STARLING_DPDK_DEVICE": absent}, status=1)):
            self.assertRegex(output, r"(?m)^missing +dpdk device +ffff:ff:1f.7: ")
            self.assertRegex(output, r"(?m)^dpdk +cannot run: .* \(asked for\)$")
        made = self.file("made", "127.0.0.1:1=dpdk://net_null0,copy=1?addr=10.0.0.1&port=1,127.0.0.1:2\n")
        self.assertRegex(self.doctor("--endpoint-map", made, status=None),
                         r"(?m)^ok +dpdk device +net_null0 is made at the start$")
        self.assertIn("addr is missing", self.doctor("--dpdk-device", "net_null0", status=2))

    def test_the_map_and_variables_of_a_ps_count(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, ".endpoint_map"), "w") as file:
                file.write("127.0.0.1:1=rdma://127.0.0.1:3,tcp://127.0.0.1:2\n")
            output = self.doctor("--rdma-device", "none_of_this_name", status=1, cwd=folder)
            self.assertRegex(output, r"(?m)^rdma +cannot run: .* \(asked for\)$")
            self.doctor("--rdma-device", "none_of_this_name", env={"STARLING_RDMA": "0"}, cwd=folder)
        job = {"DMLC_ROLE": "server", "DMLC_NUM_SERVER": "1", "DMLC_NUM_WORKER": "1",
               "DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": "1"}
        output = self.doctor("--rdma-device", "none_of_this_name", status=1, env={**job, "DMLC_ENABLE_RDMA": "1"})
        self.assertRegex(output, r"(?m)^rdma +cannot run: .* \(asked for\)$")
        self.assertIn("DMLC_ENABLE_RDMA=yes", self.doctor(env={**job, "DMLC_ENABLE_RDMA": "yes"}, status=2))
        others = {"NCCL_IB_GID_INDEX": "auto"}
        self.doctor("--transport", "tcp", env=others)
        self.assertIn("NCCL_IB_GID_INDEX=auto", self.doctor("--transport", "rdma", env=others, status=2))

    def test_cores_are_those_of_the_environment(self):
        output = self.doctor(env={"NETWORK_PS_CORE_NUMBER": "256"})
        self.assertRegex(output, r"(?m)^warning +cores +\d+, for 256 reactors.*\n +-> --reactors ")

    def test_json(self):
        found = json.loads(self.doctor("--json"))
        self.assertEqual({"tcp", "shm", "rdma", "dpdk"}, set(found["transports"]))
        self.assertEqual({"asked": True, "runs": True}, found["transports"]["tcp"])
        checks = {check["check"]: check for check in found["checks"]}
        self.assertIn(checks["io_uring"]["verdict"], ("ok", "warning"))
        for check in found["checks"]:
            self.assertTrue(check["found"] and (check["verdict"] == "ok") == (check["advice"] == ""), check)

    def test_wrong_usage(self):
        for args, *words in ((["--transport", "ucx"], "--transport=ucx", "rdma"),
                             (["--rdma-gid-index", "x"], "--rdma-gid-index=x", "0 to 65535"),
                             (["--endpoint-map", "/nonexistent"], "/nonexistent"),
                             (["tcp"], "tcp")):
            output = self.doctor(*args, status=2)
            for word in words:
                self.assertIn(word, output)
        self.assertIn("PS_ENABLE_POLLING=maybe", self.doctor(env={"PS_ENABLE_POLLING": "maybe"}, status=2))


if __name__ == "__main__":
    harness.main()
