#!/usr/bin/env python3
"""Real processes and real faults: nothing hangs, and nothing is carried out twice. Faults come at
moments that a seed decides (STARLING_SEED repeats one); every wait has a deadline."""

import os
import random
import signal
import sys
import time

import harness
import sum_job

SEED = int(os.environ.get("STARLING_SEED", random.SystemRandom().getrandbits(32)))


class FaultTest(harness.StarlingTest):
    def setUp(self):
        super().setUp()
        self.random = random.Random(f"{SEED} {self.id()}")

    def cluster(self, **options):
        cluster = sum_job.Cluster(self, **options)
        for ps in cluster.ps:
            ps.wait_line("ready")
        return cluster

    def assert_ends(self, process, status=0):
        self.assertEqual(process.wait(), status, process.output)


class KilledWorker(FaultTest):
    """kill -9 of a worker in the middle of a job, in each mode."""

    def kill_one(self, consistency, replaced):
        cluster = self.cluster(proxied=False)
        job = sum_job.SumJob(self, cluster, consistency)
        workers = job.start_all()
        victim = self.random.randrange(4)
        workers[victim].wait_line(f"iteration {8 * self.random.randrange(1, 8)}")
        time.sleep(self.random.uniform(0, 0.03))
        workers[victim].signal(signal.SIGKILL)
        self.assert_ends(workers[victim], -signal.SIGKILL)
        if replaced:
            workers[victim] = job.start(victim)
            workers[victim].wait_line("begins with iteration")
        for index, worker in enumerate(workers):
            if index != victim or replaced:
                self.assert_ends(worker)
        acknowledged, _ = job.check()
        self.assertGreater(acknowledged, 3 * job.iterations)
        if not replaced:
            cluster.ps[0].wait_line(f"worker/{victim}")
        cluster.drain()
        return cluster

    def test_without_replacement(self):
        for consistency in ("asp", "ssp:2", "bsp"):
            with self.subTest(consistency=consistency):
                self.kill_one(consistency, replaced=False)

    def test_with_replacement(self):
        for consistency in ("asp", "ssp:2", "bsp"):
            with self.subTest(consistency=consistency):
                self.kill_one(consistency, replaced=True)


def main():
    print(f"seed {SEED}: STARLING_SEED={SEED} repeats it", file=sys.stderr)
    harness.main()


if __name__ == "__main__":
    main()
