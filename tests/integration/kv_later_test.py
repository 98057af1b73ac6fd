#!/usr/bin/env python3
"""Servers on threads of a program (sl_kv_server_start), whose handler keeps requests and answers them from
other threads (sl_kv_reply). kv_later.c checks the sums of each round."""

import os
import signal

import harness

SERVERS, WORKERS = 2, 4
WITHOUT_SHM = {"STARLING_SHM": "0"}


class KvLater(harness.StarlingTest):
    def mode(self, name, *args, **options):
        port, = harness.free_ports(1)
        return self.run_to_end("kv_later", name, port, *args, **options)

    def expect_rounds(self, rounds, output):
        self.assertEqual(sorted(line for line in output.splitlines() if line.startswith("worker ")),
                         [f"worker {rank}: {rounds} rounds: as expected" for rank in range(WORKERS)])

    def test_rounds(self):
        rounds = 100 if os.environ.get("STARLING_SANITIZED") else 1000
        self.expect_rounds(rounds, self.mode("rounds", SERVERS, WORKERS, rounds, 100))

    def test_rounds_over_tcp(self):
        self.expect_rounds(50, self.mode("rounds", SERVERS, WORKERS, 50, 100, env=WITHOUT_SHM))

    def test_rounds_of_long_arrays(self):
        for env in ({}, WITHOUT_SHM):
            with self.subTest(env=env):
                self.expect_rounds(5, self.mode("rounds", SERVERS, WORKERS, 5, 200_000, env=env))

    def test_rounds_of_whole_arrays(self):
        """An array of 6 MB is sent in chunks, and passed to the handler whole."""
        for env in ({}, WITHOUT_SHM):
            with self.subTest(env=env):
                output = self.mode("rounds", 1, 2, 2, 1_500_001, env=env)
                self.assertEqual(output.count("2 rounds: as expected"), 2)

    def test_the_deadline_ends_a_request_without_an_answer(self):
        self.mode("silent")

    def test_a_server_stops_while_tokens_are_out(self):
        self.mode("stopped")

    def test_a_second_answer_ends_the_process(self):
        output = self.mode("twice", status=-signal.SIGABRT)
        self.assertIn("answered once", output)
        self.assertNotIn("answered twice", output)

    def test_the_handler_is_set_later(self):
        self.mode("later")

    def test_no_handler_is_set_later(self):
        self.mode("sum")

    def test_refused_starts(self):
        self.mode("refused")


class KilledWorker(harness.StarlingTest):
    """A worker is killed while its pulls are kept. The others get the sums with what it has pushed."""

    def check(self, env):
        port, = harness.free_ports(1)
        env = {**env, "PS_HEARTBEAT_TIMEOUT": "2"}
        args = (port, SERVERS, 3, 2, 1000)
        servers = self.start("kv_later", "servers", port, SERVERS, 3, env=env)
        servers.wait_line("servers are there")
        victim = self.start("kv_later", "victim", *args, env=env)
        others = [self.start("kv_later", "late", *args, env=env, commands=True) for _ in range(2)]
        victim.wait_line("waits")
        victim.signal(signal.SIGKILL)
        for other in others:
            other.write("\n")
        for other in others:
            self.assertEqual(other.wait(), 0, other.output)
            self.assertIn("2 rounds: as expected", other.output)
        self.assertEqual(servers.wait(), 0, servers.output)
        self.assertIn("every token was answered", servers.output)

    def test_over_shared_memory(self):
        self.check({})

    def test_over_tcp(self):
        self.check(WITHOUT_SHM)


if __name__ == "__main__":
    harness.main()
