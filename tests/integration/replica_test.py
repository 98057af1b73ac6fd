#!/usr/bin/env python3
"""Shards with backups: what was acknowledged is there after a ps has been killed, once, whatever it
was doing. STARLING_REPLICA_SEED says when they are killed."""

import os
import random
import re
import signal
import time

import dmlc_test
import harness
import protocol_client
import sum_job

SEED = int(os.environ.get("STARLING_REPLICA_SEED", random.randrange(1 << 32)))
# Other tests beside this one can hold a process up for seconds.
LEASE_S = 6


def wait_count(process, text, count):
    """Until so many lines of the process contain `text`."""
    end = time.monotonic() + harness.DEADLINE_S
    while sum(text in line for line in process.lines) < count:
        if time.monotonic() > end:
            raise AssertionError(f"no {count} times '{text}':\n{process.output}")
        time.sleep(0.02)


class ReplicaTest(harness.StarlingTest):
    """ps/0 has the coordinator, and lives; the others may be killed."""

    def setUp(self):
        super().setUp()
        self.rng = random.Random(SEED)

    def start_cluster(self, ps_count=3, worker_count=3, reactors=1, extra=()):
        self.cluster = sum_job.Cluster(self, ps_count=ps_count, worker_count=worker_count,
                                       lease_s=LEASE_S, reactors=reactors, proxied=False,
                                       extra=["--replicas", 1, *extra])
        harness.wait_lines(self.cluster.ps, "ready")
        self.in_sync = 0
        self.wait_in_sync(ps_count)

    def wait_in_sync(self, more):
        """Waits until so many more pairs of a ps and its backup are in sync."""
        self.in_sync += more
        wait_count(self.cluster.ps[0], ": they are in sync", self.in_sync)

    def start_job(self, consistency, **options):
        self.job = sum_job.SumJob(self, self.cluster, consistency, gated=True, **options)
        self.workers = self.job.start_all()
        self.workers[0].wait_line("iteration 8")
        time.sleep(self.rng.random() * 0.3)

    def kill(self, index):
        self.cluster.ps[index].signal(signal.SIGKILL)
        self.cluster.ps[index].wait()

    def wait_served(self, owner, by):
        self.cluster.ps[0].wait_line(f"ps/{by} serves the shards of ps/{owner} from now on")

    def end_job(self, workers=None):
        """All that was pushed was acknowledged, and is there."""
        self.job.open_gate()
        for worker in self.workers if workers is None else workers:
            self.assertEqual(worker.wait(), 0, f"seed {SEED}\n{worker.output}\n"
                             + "\n".join(ps.output for ps in self.cluster.ps))
        acknowledged = self.job.check()
        if workers is None:
            self.assertEqual(acknowledged, len(self.workers) * self.job.iterations)


class TakeOver(ReplicaTest):
    def kill_amid(self, consistency, victim, **options):
        self.start_cluster(**options)
        self.start_job(consistency)
        self.kill(victim)
        self.wait_served(victim, (victim + 1) % 3)
        self.end_job()

    def test_of_a_job_without_clocks(self):
        self.kill_amid("asp", 1)

    def test_of_whole_steps(self):
        self.kill_amid("bsp", 2)

    def alone(self, shards):
        """What the coordinator and each shard say of their backups."""
        client = protocol_client.Client(self.cluster.coordinator)
        try:
            self.assertEqual(client.control.ask("stats_get", "stats")["degraded_shards"], shards)
            stats = [shard.ask("stats_get", "stats") for shard in client.shards]
        finally:
            client.goodbye()
        self.assertEqual(sum(of["degraded_ms"] > 0 for of in stats), shards)
        return sum(of["degraded_writes"] for of in stats)

    def test_that_a_monitor_sees(self):
        self.start_cluster()
        self.start_job("asp")
        self.assertEqual(self.alone(0), 0)
        self.kill(1)
        self.wait_served(1, 2)
        self.end_job()
        self.assertGreater(self.alone(2), 0)
        self.cluster.ps[1] = self.cluster.start_ps(1)
        self.wait_in_sync(2)
        alone = self.alone(0)
        self.assertGreater(alone, 0)
        ps = [self.cluster.ps[i] for i in (1, 2, 0)]
        self.drain(ps)
        told = sum(int(word) for process in ps for word in
                   re.findall(r"(\d+) writes acknowledged while degraded", process.output))
        self.assertGreaterEqual(told, alone)

    def test_of_several_shards(self):
        self.kill_amid("ssp:2", 1, reactors=2)

    def test_of_several_shards_of_a_reactor(self):
        self.kill_amid("bsp", 1, extra=["--shards", 12])

    def test_a_primary_that_was_held_up_acknowledges_nothing_more(self):
        self.start_cluster()
        self.start_job("bsp")
        held = self.cluster.ps[1]
        held.signal(signal.SIGSTOP)
        self.wait_served(1, 2)
        held.signal(signal.SIGCONT)
        self.assertEqual(held.wait(), 1, held.output)
        self.assertIn("restart it", held.output)
        self.end_job()


    def test_one_that_is_told_to_end(self):
        """What it has not answered is asked for at the backup: the job notices a pause."""
        for consistency in ("bsp", "ssp:2", "asp"):
            with self.subTest(consistency):
                self.start_cluster()
                self.start_job(consistency)
                for index in (1, 2):
                    self.cluster.ps[index].signal(signal.SIGTERM)
                    self.assertEqual(self.cluster.ps[index].wait(), 0)
                    self.cluster.ps[index] = self.cluster.start_ps(index)
                    self.wait_in_sync(2)
                self.end_job()


class Again(ReplicaTest):
    def restart(self, index):
        """The process that replaces it gets the backups that no server has; then they are in sync."""
        self.cluster.ps[index] = self.cluster.start_ps(index)
        self.wait_in_sync(2)

    def test_the_one_and_then_the_other(self):
        self.start_cluster(reactors=2)
        self.start_job("bsp", iterations=400)
        for index, backup in ((1, 2), (2, 1), (1, 2)):
            self.kill(index)
            wait_count(self.cluster.ps[0], f"ps/{backup} serves the shards of ps/1 from now on",
                       2 if (index, self.in_sync) == (1, 7) else 1)
            self.restart(index)
        self.end_job()


class WithTheCoordinator(ReplicaTest):
    """ps/0 is killed, and nobody has written down what the coordinator on it knew: the ps tell the
    next one who has what."""

    def restart_ps_0(self):
        self.cluster.ps[0] = self.cluster.start_ps(0)
        self.in_sync = 0

    def test_its_backup_serves(self):
        for consistency in ("bsp", "asp"):
            with self.subTest(consistency):
                self.start_cluster(reactors=2)
                self.start_job(consistency)
                self.kill(0)
                self.restart_ps_0()
                self.wait_served(0, 1)
                self.wait_in_sync(2)
                self.end_job()

    def test_after_a_take_over(self):
        """Epochs go on."""
        self.start_cluster()
        self.start_job("ssp:2", iterations=400)
        self.kill(1)
        self.wait_served(1, 2)
        self.cluster.ps[1] = self.cluster.start_ps(1)
        self.wait_in_sync(2)
        for _ in range(2):
            self.kill(0)
            self.restart_ps_0()
            self.wait_served(0, 1) if _ == 0 else None
            self.wait_in_sync(2)
        self.kill(2)
        self.wait_served(1, 1)
        self.wait_served(2, 0)
        self.end_job()


class Workers(ReplicaTest):
    def test_a_worker_that_is_killed_with_a_ps(self):
        self.start_cluster()
        self.start_job("bsp")
        self.workers[2].signal(signal.SIGKILL)
        self.kill(1)
        self.wait_served(1, 2)
        self.end_job(self.workers[:2])


class Checkpoints(ReplicaTest):
    """The primary of a shard writes its part of a checkpoint."""

    def setUp(self):
        super().setUp()
        self.checkpoints = os.path.join(self.folder, "checkpoints")
        self.flags = ["--checkpoint-dir", self.checkpoints, "--checkpoint-every", 0]

    def ask(self):
        """Another checkpoint is made; returns its number."""
        client = protocol_client.Client(self.cluster.coordinator)
        try:
            return client.control.ask_alive("checkpoint_ask", "checkpoint_done",
                                            harness.DEADLINE_S)["number"]
        finally:
            client.goodbye()

    def again(self, *flags, replicas=1):
        """All ps are started again."""
        self.cluster.start_flags = ["--lease", LEASE_S, *self.flags, "--restore", "newest", *flags]
        self.cluster.start_flags += ["--replicas", 1] if replicas else []
        self.cluster.ps = [self.cluster.start_ps(i) for i in range(3)]
        self.in_sync = 0
        for ps in self.cluster.ps:
            ps.wait_line("is restored")
            ps.wait_line("ready")
        if replicas:
            self.wait_in_sync(3)

    def test_by_who_has_taken_over(self):
        self.start_cluster(reactors=2, extra=self.flags)
        self.start_job("bsp")
        self.assertEqual(self.ask(), 1)
        self.kill(2)
        self.wait_served(2, 0)  # the last shards, of the last ps, by the first
        self.assertEqual(self.ask(), 2)
        self.assertEqual(self.ask(), 3)
        self.end_job()
        self.cluster.ps.pop()
        self.cluster.drain()
        self.assertIn("checkpoint 4 is the last one", self.cluster.ps[0].output)
        self.again()
        self.job.check()
        # What was restored is what the backups have, too.
        self.kill(1)
        self.wait_served(1, 2)
        self.job.check()
        self.cluster.ps[1] = self.cluster.start_ps(1)
        self.cluster.ps[1].wait_line("restores nothing: others serve its shards now")
        self.wait_in_sync(2)
        self.cluster.ps[1].wait_line("ready")
        self.assertEqual(self.ask(), 5)
        self.job.check()
        self.cluster.drain()
        self.again(replicas=0)
        self.job.check()
        self.cluster.drain()

    def test_a_ps_and_its_backup_are_killed(self):
        """The shards that were lost come back as the checkpoint has them, where they were last."""
        self.start_cluster(extra=self.flags)
        self.cluster.extend("--restore", "newest")
        self.start_job("asp")
        self.kill(1)
        self.wait_served(1, 2)
        held = self.job.noted("acknowledged")
        self.ask()
        self.kill(2)
        self.wait_served(2, 0)
        self.cluster.ps[0].wait_line("ps/2 had the shards of ps/1 without a backup in sync")
        self.cluster.ps[2] = self.cluster.start_ps(2)
        self.cluster.ps[2].wait_line("shard 1: checkpoint 1 is restored")
        self.job.open_gate()
        self.end_well(self.workers)
        self.job.check(restarted={1}, held=held)
        self.assertEqual(self.ask(), 2)


class Scheduler(dmlc_test.DmlcTest):
    """With a scheduler of its own every ps may be lost."""

    def wait_trains(self, workers):
        """Each says once more how far it is."""
        said = [sum("/100000  " in line for line in worker.lines) for worker in workers]
        for worker, before in zip(workers, said):
            wait_count(worker, "/100000  ", before + 1)

    def end(self, scheduler, servers, workers):
        """Each trains on with what is there now, until it is told to end."""
        self.wait_trains(workers)
        self.stop(workers)
        for process in [*servers, scheduler]:
            self.assertEqual(process.wait(), 0, process.output + scheduler.output)

    def test_a_job_that_trains_outlives_ps_0_and_the_one_behind_it(self):
        self.job["DMLC_NUM_SERVER"] = "3"
        self.model += self.ENDLESS
        scheduler = self.start_role("scheduler", "--lease", LEASE_S)
        servers = [self.start_role("server", "--replicas", 1, env={"DMLC_RANK": str(rank)})
                   for rank in range(3)]
        workers = [self.start_role("worker") for _ in range(dmlc_test.WORKERS)]
        wait_count(scheduler, ": they are in sync", 3)
        self.wait_trains(workers)
        servers[0].signal(signal.SIGKILL)
        servers[0].wait()
        servers[0] = self.start_role("server", "--replicas", 1, env={"DMLC_RANK": "0"})
        scheduler.wait_line("ps/1 serves the shards of ps/0 from now on")
        wait_count(scheduler, ": they are in sync", 5)
        servers[1].signal(signal.SIGKILL)
        servers[1].wait()
        scheduler.wait_line("ps/0 serves the shards of ps/0 from now on")
        scheduler.wait_line("ps/2 serves the shards of ps/1 from now on")
        self.end(scheduler, [servers[0], servers[2]], workers)


    def test_a_job_that_trains_outlives_the_scheduler_and_a_ps(self):
        self.job["DMLC_NUM_SERVER"] = "3"
        self.model += self.ENDLESS

        def start_scheduler():
            return self.start_role("scheduler", "--lease", LEASE_S)

        def start_server(rank):
            return self.start_role("server", "--replicas", 1, env={"DMLC_RANK": str(rank)})

        scheduler = start_scheduler()
        servers = [start_server(rank) for rank in range(3)]
        workers = [self.start_role("worker") for _ in range(dmlc_test.WORKERS)]
        wait_count(scheduler, ": they are in sync", 3)
        self.wait_trains(workers)
        for process in (scheduler, servers[1]):
            process.signal(signal.SIGKILL)
            process.wait()
        scheduler = start_scheduler()
        servers[1] = start_server(1)
        scheduler.wait_line("ps/2 serves the shards of ps/1 from now on")
        wait_count(scheduler, ": they are in sync", 2)
        self.end(scheduler, servers, workers)


class Launched(harness.StarlingTest):
    """Under the launcher a ps that is killed is not the end of the job."""

    def launch(self, *flags):
        data = self.file("data", "1 1:1 2:1\n0 3:1 4:1\n" * 2000)
        launcher = self.start("starling-launch", "--ps", 3, "--workers", 2, "--replicas", 1,
                              "--lease", LEASE_S, *flags, "--", "--data", data, "--model", "lr",
                              "--epochs", 100000, "--timeout", 60, "--batch-size", 100)
        wait_count(launcher, ": they are in sync", 3)
        launcher.wait_line("starling-worker/milestones has id")  # a worker is connected
        return launcher

    def kill(self, launcher, index):
        for child in harness.children_of(launcher.pid):
            words = harness.command_of(child)
            if words[0].endswith("starling-ps") and words[words.index("--task-index") + 1] == str(index):
                os.kill(child, signal.SIGKILL)
                return
        self.fail(f"no ps/{index}:\n{launcher.output}")

    def end(self, launcher):
        """It ends as it is told, and nothing has failed."""
        launcher.signal(signal.SIGTERM)
        self.assertEqual(launcher.wait(), 128 + signal.SIGTERM, launcher.output)
        self.assertNotIn("training failed", launcher.output)

    def test_a_ps_is_started_again_and_becomes_the_backup(self):
        launcher = self.launch("--restart-ps", 2)
        self.kill(launcher, 1)
        launcher.wait_line("ps/1 failed: killed by signal 9 (Killed); restarting in 1 s")
        launcher.wait_line("ps/2 serves the shards of ps/1 from now on")
        wait_count(launcher, ": they are in sync", 5)
        self.kill(launcher, 2)
        launcher.wait_line("ps/1 serves the shards of ps/1 from now on")
        wait_count(launcher, ": they are in sync", 7)
        self.end(launcher)

    def test_ps_0_is_started_again_with_the_coordinator(self):
        """There is a checkpoint; but its backup has what came since."""
        for flags in ((), ("--checkpoint-dir", self.folder + "/checkpoints", "--checkpoint-every", 1,
                           "--restore", "newest")):
            with self.subTest(flags):
                launcher = self.launch("--restart-ps", 1, *flags)
                if flags:
                    launcher.wait_line("checkpoint 1 is complete")
                self.kill(launcher, 0)
                launcher.wait_line("ps/1 serves the shards of ps/0 from now on")
                wait_count(launcher, ": they are in sync", 5)
                self.assertNotIn("is restored", launcher.output)
                self.end(launcher)


class Refused(harness.StarlingTest):
    def refuses(self, *words, args=()):
        output = self.run_to_end("starling-ps", *args, status=2)
        for word in words:
            self.assertIn(word, output)

    def test_what_cannot_be(self):
        ports = harness.free_ports(2)
        one = ["--ps-hosts", f"127.0.0.1:{ports[0]}", "--worker-hosts", "a", "--job-name", "ps",
               "--task-index", 0]
        two = ["--ps-hosts", ",".join(f"127.0.0.1:{p}" for p in ports), *one[2:]]
        self.refuses("needs a second server", args=[*one, "--replicas", 1])
        self.refuses("--replicas", "0 to 1", args=[*two, "--replicas", 2])
        path = self.file("map", f"127.0.0.1:{ports[0]}=shm://127.0.0.1:{ports[0]}\n")
        self.refuses("needs a data endpoint of tcp",
                     args=[*two, "--replicas", 1, "--endpoint-map", path])

    def test_ps_that_differ(self):
        ports = harness.free_ports(2)
        flags = ["--ps-hosts", ",".join(f"127.0.0.1:{p}" for p in ports), "--worker-hosts", "a",
                 "--job-name", "ps", "--start-timeout", 30]
        self.start("starling-ps", *flags, "--task-index", 0, "--replicas", 1,
                   env={"NETWORK_PS_CORE_NUMBER": "1"}).wait_line("waiting")
        other = self.start("starling-ps", *flags, "--task-index", 1, "--replicas", 1,
                           env={"NETWORK_PS_CORE_NUMBER": "2"})
        self.assertEqual(other.wait(), 1)
        self.assertIn("all servers need the same number of shards", other.output)
        other = self.start("starling-ps", *flags, "--task-index", 1,
                           env={"NETWORK_PS_CORE_NUMBER": "1"})
        self.assertEqual(other.wait(), 1)
        self.assertIn("it has other --replicas", other.output)


if __name__ == "__main__":
    harness.main()
