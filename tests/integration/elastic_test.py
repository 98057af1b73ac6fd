#!/usr/bin/env python3
"""Servers come and go while workers push integers: what was acknowledged is there once, whatever
moved meanwhile. STARLING_REPLICA_SEED says when a server is killed."""

import collections
import contextlib
import signal
import time

import harness
import protocol_client
import replica_test
import sum_job

SHARDS = 8


class ElasticTest(harness.StarlingTest):
    def start_cluster(self, ps_count, *extra):
        self.cluster = sum_job.Cluster(self, ps_count=ps_count, worker_count=3,
                                       lease_s=replica_test.LEASE_S, proxied=False,
                                       extra=[*extra, "--shards", SHARDS])
        self.extra = extra
        harness.wait_lines(self.cluster.ps, "ready")

    def start_job(self, consistency):
        self.job = sum_job.SumJob(self, self.cluster, consistency, gated=True)
        self.workers = self.job.start_all()
        self.workers[0].wait_line("iteration 8")

    def places(self):
        """How many shards each server serves."""
        with contextlib.closing(protocol_client.Connection(
                "tcp://" + self.cluster.found, protocol_client.PURPOSE_CONTROL)) as control:
            cluster = control.ask("register", "cluster")
        return collections.Counter(place["primary"] for place in cluster["placements"])

    def wait_places(self, *counts):
        end = time.monotonic() + harness.DEADLINE_S
        while sorted(self.places().values()) != sorted(counts):
            self.assertLess(time.monotonic(), end, self.cluster.ps[0].output)
            time.sleep(0.05)

    def join(self):
        index = len(self.cluster.ps)
        self.cluster.ports.append(tuple(harness.free_ports(2)))
        flags = self.cluster.start_flags
        self.cluster.start_flags = ["--lease", replica_test.LEASE_S, *self.extra, "--join"]
        self.cluster.ps.append(self.cluster.start_ps(index))
        self.cluster.start_flags = flags

    def drain_away(self, index):
        self.run_to_end("starling-ctl", "--coordinator", self.cluster.found, "drain", f"ps/{index}", "--yes")
        ps = self.cluster.ps[index]
        self.assertEqual(ps.wait(), 0, ps.output)
        self.assertIn(f"ps/{index} was drained", ps.output)

    def end_job(self):
        self.job.open_gate()
        for worker in self.workers:
            self.assertEqual(worker.wait(), 0, worker.output + "\n"
                             + "\n".join(ps.output for ps in self.cluster.ps))
        self.assertEqual(self.job.check(), len(self.workers) * self.job.iterations)


class Elastic(ElasticTest):
    def grow_and_shrink(self, consistency):
        self.start_cluster(2)
        self.start_job(consistency)
        self.join()
        self.wait_places(3, 3, 2)
        self.join()
        self.wait_places(2, 2, 2, 2)
        for index in (1, 3, 2):
            self.drain_away(index)
        self.assertEqual(self.places(), {0: SHARDS})
        self.end_job()
        self.drain(self.cluster.ps[:1])

    def test_from_two_to_four_to_one_without_clocks(self):
        self.grow_and_shrink("asp")

    def test_from_two_to_four_to_one_in_whole_steps(self):
        self.grow_and_shrink("bsp")

    def test_a_server_is_killed_while_another_joins(self):
        self.start_cluster(2, "--replicas", 1)
        replica_test.wait_count(self.cluster.ps[0], ": they are in sync", 2)
        self.start_job("bsp")
        self.join()
        self.wait_places(3, 3, 2)
        in_sync = protocol_client.Connection("tcp://" + self.cluster.found, protocol_client.PURPOSE_CONTROL)
        end = time.monotonic() + harness.DEADLINE_S
        while in_sync.ask("stats_get", "stats")["degraded_shards"] > 0:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        in_sync.close()
        self.cluster.ps[1].signal(signal.SIGKILL)
        self.cluster.ps[1].wait()
        end = time.monotonic() + harness.DEADLINE_S
        while 1 in self.places():
            self.assertLess(time.monotonic(), end, self.cluster.ps[0].output)
            time.sleep(0.05)
        self.end_job()


if __name__ == "__main__":
    harness.main()
