#!/usr/bin/env python3
"""The example of a request handler, as a job of several processes: a scheduler, two servers whose
handler answers a pull when all workers have pushed, three workers that check what they get."""

import random

import harness

SERVERS, WORKERS, ROUNDS = 2, 3, 20


class KvHandler(harness.StarlingTest):
    def expect(self, lines):
        self.assertEqual(sorted(line for line in lines if line.startswith("worker ")),
                         [f"worker {rank} of {WORKERS}, {SERVERS} servers: {ROUNDS} rounds: "
                          "as expected" for rank in range(WORKERS)])

    def test_all_by_itself(self):
        port, = harness.free_ports(1)
        self.expect(self.run_to_end("kv_handler", "--local", port).splitlines())

    def test_in_any_order(self):
        variables = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_NUM_SERVER": str(SERVERS), "DMLC_NUM_WORKER": str(WORKERS),
                     "DMLC_NODE_HOST": "127.0.0.1", "NETWORK_PS_CORE_NUMBER": "1"}
        roles = ["scheduler"] + ["server"] * SERVERS + ["worker"] * WORKERS
        for port in harness.free_ports(3):
            variables["DMLC_PS_ROOT_PORT"] = str(port)
            random.shuffle(roles)
            with self.subTest(order=roles):
                processes = [self.start("kv_handler", env={**variables, "DMLC_ROLE": role})
                             for role in roles]
                self.end_well(processes)
                self.expect([line for process in processes for line in process.lines])

    def test_two_cores_are_two_servers(self):
        port, = harness.free_ports(1)
        output = self.run_to_end("kv_handler", "--local", port,
                                 env={"NETWORK_PS_CORE_NUMBER": "2"})
        self.assertEqual(output.count(f"{2 * SERVERS} servers: {ROUNDS} rounds: as expected"),
                         WORKERS)

    def test_bad_variables(self):
        self.run_to_end("kv_handler", status=2)
        self.run_to_end("kv_handler", env={"DMLC_ROLE": "master"}, status=2)
        output = self.run_to_end("kv_handler", env={"DMLC_ROLE": "worker"}, status=1)
        self.assertIn("DMLC_", output)


if __name__ == "__main__":
    harness.main()
