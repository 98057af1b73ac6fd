#!/usr/bin/env python3
"""Jobs of programs that are written for ps-lite and for BytePS's fork of it, on the headers of compat/."""

import os
import random
import signal

import harness


class PsLite(harness.StarlingTest):
    program = "ps_lite_app"

    def variables(self, servers, workers):
        port, = harness.free_ports(1)
        return {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": str(port), "DMLC_NUM_SERVER": str(servers),
                "DMLC_NUM_WORKER": str(workers), "PS_HEARTBEAT_TIMEOUT": "3"}

    def begin(self, *args, servers=2, workers=2, processes=None, env=None):
        """Starts the processes of a job in any order; returns them by role."""
        variables = {**self.variables(servers, workers), **(env or {})}
        roles = ["scheduler"] + ["server"] * servers + ["worker"] * (workers if processes is None else processes)
        random.shuffle(roles)
        started = {"scheduler": [], "server": [], "worker": []}
        for role in roles:
            started[role].append(self.start(self.program, *args, env={**variables, "DMLC_ROLE": role}))
        return started

    def expect_all(self, started):
        for process in sum(started.values(), []):
            self.assertEqual(process.wait(), 0, process.output)
            self.assertIn("as expected", process.output)

    def run_job(self, *args, **options):
        started = self.begin(*args, **options)
        self.expect_all(started)
        return started


class Jobs(PsLite):
    def test_arrays(self):
        self.assertIn("[2]: 1 2\nas expected", self.run_to_end(self.program, "arrays"))

    def test_nothing(self):
        self.run_job("nothing")

    def test_sums(self):
        self.run_job("sums", servers=3, workers=4)

    def test_start_does_not_wait(self):
        self.run_job("async")

    def test_lengths(self):
        self.run_job("lengths")

    def test_rounds_by_engine_threads(self):
        rounds = 100 if os.environ.get("STARLING_SANITIZED") else 1000
        self.run_job("rounds", rounds, servers=2, workers=4)

    def test_messages(self):
        self.run_job("messages", servers=2, workers=3)

    def test_two_customers(self):
        self.run_job("customers", servers=2, workers=2, processes=1)

    def test_barriers(self):
        self.run_job("barriers", self.folder, servers=2, workers=3)

    def test_ten_million_keys(self):
        self.run_job("large", 100_000 if os.environ.get("STARLING_SANITIZED") else 10_000_000, workers=1)

    def test_variables_of_the_program(self):
        variables = [f"{name}={value}" for name, value in self.variables(1, 1).items()]
        processes = [self.start(self.program, "environment", *variables, f"DMLC_ROLE={role}")
                     for role in ("worker", "server", "scheduler")]
        self.expect_all({"all": processes})


class Faults(PsLite):
    def failure(self, process):
        self.assertEqual(process.wait(), 3, process.output)
        return process.output

    def test_killed_server(self):
        started = self.begin("pushes")
        harness.wait_lines(started["worker"], "pushing")
        started["server"][0].signal(signal.SIGKILL)
        for worker in started["worker"]:
            self.assertRegex(self.failure(worker), r"push: .*app 0, timestamp \d+: .*ps/[01]")

    def test_killed_scheduler(self):
        started = self.begin("pushes")
        harness.wait_lines(started["worker"], "pushing")
        started["scheduler"][0].signal(signal.SIGKILL)
        for server in started["server"]:
            self.assertRegex(self.failure(server), "error: .*barrier.*coordinator .* not reachable for")
        for worker in started["worker"]:
            worker.end()

    def test_killed_worker(self):
        started = self.begin("pushes")
        harness.wait_lines(started["worker"], "pushing")
        started["worker"][0].signal(signal.SIGKILL)
        for server in started["server"]:
            self.assertRegex(self.failure(server), "error: .*barrier.*worker/[01]")
        self.assertRegex(self.failure(started["scheduler"][0]), "error: .*barrier.*worker/[01]")

    def test_answered_twice(self):
        started = self.begin("misuse", "twice", servers=1, workers=1)
        server, = started["server"]
        self.assertEqual(server.wait(), -signal.SIGABRT, server.output)
        self.assertRegex(server.output, r"app 0 answers request \d+ of node 9 twice")

    def test_never_answered(self):
        started = self.begin("misuse", "never", servers=1, workers=1)
        self.expect_all(started)
        self.assertRegex(started["worker"][0].output, "pull: .*app 0, timestamp 0: .*ps/0")
        self.assertIn("app 0 has never answered the pull of key 0 from node 9", started["server"][0].output)

    def test_answer_of_another_length(self):
        started = self.begin("misuse", "short", servers=1, workers=1)
        self.expect_all(started)
        self.assertRegex(started["worker"][0].output, "pull: .*app 0, timestamp 0: ")
        self.assertIn("app 0 answers 1 values and 0 lens to a pull of 8 keys", started["server"][0].output)

    def test_slicer(self):
        started = self.run_job("misuse", "slicer", servers=2, workers=1)
        self.assertRegex(started["worker"][0].output, "push: .*moves key 0 out of its range, to server 1")

    def test_wrong_calls(self):
        output = self.run_job("misuse", "group", servers=2, workers=1)["worker"][0].output
        self.assertRegex(output, "barrier: .*barrier of group 9: accepts")
        self.assertRegex(output, "barrier: .*barrier of group 2: this worker does not belong to it")
        self.assertRegex(output, "request: .*there is no node 108")
        self.assertRegex(output, "wait: .*timestamp 1000 was never returned")
        self.assertRegex(output, "keys: .*ascend")

    def test_wrong_variables(self):
        output = self.run_to_end(self.program, "sums", status=3)
        self.assertIn("DMLC_ROLE", output)
        output = self.run_to_end(self.program, "sums", env={"DMLC_ROLE": "joint"}, status=3)
        self.assertIn("DMLC_ROLE=joint: accepts scheduler, server, worker", output)


class Byteps(PsLite):
    program = "ps_lite_byteps_app"

    def test_one_instance(self):
        self.run_job("plain", servers=2, workers=2)

    def test_instances(self):
        self.run_job("plain", servers=2, workers=2, env={"DMLC_GROUP_SIZE": "3"})

    def test_receive_buffers(self):
        self.run_job("buffers", servers=2, workers=2, env={"DMLC_GROUP_SIZE": "2"})

    def test_joint(self):
        variables = self.variables(2, 2)
        processes = [self.start(self.program, env={**variables, "DMLC_ROLE": role})
                     for role in ("joint", "scheduler", "joint")]
        self.expect_all({"all": processes})

    def test_ranks(self):
        variables = self.variables(2, 2)
        self.expect_all({"all": [
            self.start(self.program, env={**variables, "DMLC_ROLE": role, **({"DMLC_RANK": rank} if rank else {})})
            for role, rank in (("server", "1"), ("worker", "1"), ("scheduler", None), ("worker", "0"), ("server", "0"))]})


if __name__ == "__main__":
    harness.main()
