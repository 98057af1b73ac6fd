#!/usr/bin/env python3
"""Checkpoints of real processes: what is saved is there again, on the same cluster and on others,
after kill -9 in the middle of a job too; and a disk that is full, or files that are damaged, are
said in words. Moments are decided by a seed (STARLING_SEED repeats one)."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import time

import harness
import protocol_client
import sum_job

SEED = int(os.environ.get("STARLING_SEED", random.SystemRandom().getrandbits(32)))
LEASE_S = 20

ADAGRAD, ADAM = 3, 6
EMB = {"name": "emb", "kind": protocol_client.SPARSE, "dim": 7,
       "optimizer": {"kind": ADAM, "lr": 0.01, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8},
       "initializer": {"kind": 2, "a": -1.0, "b": 1.0, "seed": 5}, "consistency": {}}
WIDE = {"name": "wide", "kind": protocol_client.DENSE, "length": 5000,
        "optimizer": {"kind": ADAGRAD, "lr": 0.1, "epsilon": 1e-6}, "initializer": {},
        "consistency": {}}


class CheckpointTest(harness.StarlingTest):
    def setUp(self):
        super().setUp()
        self.random = random.Random(f"{SEED} {self.id()}")
        self.checkpoints = os.path.join(self.folder, "checkpoints")

    def flags(self, *more):
        return ["--checkpoint-dir", self.checkpoints, "--checkpoint-every", "0", *more]

    def folder_of(self, number):
        return os.path.join(self.checkpoints, f"checkpoint-{number:06d}")

    def files_of(self, number):
        return sorted(name for name in os.listdir(self.folder_of(number)) if name.endswith(".slc"))

    def manifest(self, number):
        with open(os.path.join(self.folder_of(number), "manifest.json"), encoding="ascii") as file:
            return json.load(file)

    def cluster(self, ps_count=1, worker_count=1, reactors=1, more=()):
        """Ps that are ready; returns (processes, coordinator)."""
        ps, flags = self.start_ps(ps_count, worker_count, extra=self.flags(*more),
                                  env={"NETWORK_PS_CORE_NUMBER": str(reactors)})
        harness.wait_lines(ps, "ready")
        return ps, flags[1].split(",")[0]

    @contextlib.contextmanager
    def client(self, coordinator):
        client = protocol_client.Client(coordinator)
        try:
            yield client
            client.goodbye()
        finally:
            client.close()

    def ask(self, client):
        return client.control.ask_alive("checkpoint_ask", "checkpoint_done",
                                        harness.DEADLINE_S)["number"]

    def kill(self, processes):
        for process in processes:
            process.signal(signal.SIGKILL)
        for process in processes:
            process.wait()

    def refused(self, *flags):
        """What a ps says that does not start."""
        ps, _ = self.start_ps(extra=flags)
        self.assertNotEqual(ps[0].wait(), 0, ps[0].output)
        self.assertNotIn("ready", ps[0].output)
        return ps[0].output


class Model:
    """Tables of each kind, filled from a seed, and what is in them."""

    KEYS = [0, 1, 2**64 - 1] + [key * 7919 for key in range(3, 700)]

    def __init__(self, client, seed):
        self.client = client
        self.random = random.Random(seed)
        self.emb, self.wide = client.open(**EMB), client.open(**WIDE)

    def push(self, share=1.0):
        keys = [key for key in self.KEYS if self.random.random() < share]
        self.client.push(self.emb, keys,
                         [[self.random.uniform(-1, 1) for _ in range(7)] for _ in keys])
        count = int(WIDE["length"] * share)
        self.client.dense_push(self.wide, 0, [self.random.uniform(-1, 1) for _ in range(count)])

    def state(self):
        return (self.client.pull(self.emb, self.KEYS),
                list(self.client.dense_pull(self.wide, 0, WIDE["length"])))


class Flags(CheckpointTest):
    def test_newest_of_none_begins_with_nothing(self):
        ps, coordinator = self.cluster(more=["--restore", "newest"])
        with self.client(coordinator) as client:
            Model(client, 1).push()
        self.drain(ps)
        self.assertIn("holds no complete checkpoint: starts empty", ps[0].output)


class SaveAndRestore(CheckpointTest):
    def test_by_asking_and_by_the_timer(self):
        ps, flags = self.start_ps(extra=["--checkpoint-dir", self.checkpoints,
                                         "--checkpoint-every", "1"])
        ps[0].wait_line("checkpoint 2 is complete")
        with self.client(flags[1]) as client:
            self.assertGreater(self.ask(client), 2)
        self.drain(ps)

    def test_stray_folder_is_ignored(self):
        os.makedirs(self.folder_of(10**12 - 1))
        ps, coordinator = self.cluster(2, more=["--restore", "newest"])
        with self.client(coordinator) as client:
            model = Model(client, 1)
            model.push()
            self.assertEqual(self.ask(client), 1)
            saved = model.state()
        self.drain(ps)
        for process in ps:
            self.assertEqual(process.output.count("checkpoint-999999999999 is ignored"), 1,
                             process.output)
        ps, coordinator = self.cluster(2, more=["--restore", "newest"])
        with self.client(coordinator) as client:
            self.assertEqual(Model(client, 1).state(), saved)
            self.assertIn(self.ask(client), (2, 3))  # the orderly end may have made 2
        self.drain(ps)

    def test_same_cluster(self):
        """A full one and two that add to it; then pushes go on as they would have."""
        ps, coordinator = self.cluster(reactors=2)
        with self.client(coordinator) as client:
            model = Model(client, 1)
            for share in (1.0, 0.1, 0.02):
                model.push(share)
                number = self.ask(client)
            saved = model.state()
            self.assertEqual([self.manifest(n)["base"] for n in (1, 2, 3)], [0, 1, 2])
            model.push()
        self.kill(ps)
        ps, coordinator = self.cluster(reactors=2, more=["--restore", "newest"])
        with self.client(coordinator) as client:
            again = Model(client, 3)
            self.assertEqual(again.state(), saved)
            again.push(0.5)
            after = again.state()
            self.assertNotEqual(after, saved)
        self.kill(ps)
        # The same pushes on the same checkpoint make the same of it: steps and slots are restored.
        ps, coordinator = self.cluster(reactors=2, more=["--restore", str(number)])
        with self.client(coordinator) as client:
            again = Model(client, 3)
            again.push(0.5)
            self.assertEqual(again.state(), after)
        self.drain(ps)

    def test_other_clusters(self):
        """1 -> 3 -> 2 processes, of 1 and 2 reactors with one shard or more: the same rows, bit for bit."""
        saved, more = None, []
        for ps_count, reactors, shards in ((1, 1, 1), (3, 1, 9), (2, 2, 10), (1, 1, 1)):
            ps, coordinator = self.cluster(ps_count, reactors=reactors, more=[*more, "--shards", shards])
            with self.client(coordinator) as client:
                model = Model(client, 1)
                if saved is None:
                    model.push()
                    saved = model.state()
                self.assertEqual(model.state(), saved)
                number = self.ask(client)
            self.assertEqual(len(self.files_of(number)), shards)
            self.kill(ps)
            more = ["--restore", "newest"]

    def test_orderly_end_loses_nothing(self):
        ps, coordinator = self.cluster(2)
        with self.client(coordinator) as client:
            model = Model(client, 1)
            model.push()
            saved = model.state()
        self.drain(ps)
        self.assertIn("the last one", ps[0].output + ps[1].output)
        self.assertEqual(harness.visible(self.checkpoints), ["checkpoint-000001"])
        ps, coordinator = self.cluster(2, more=["--restore", "newest"])
        with self.client(coordinator) as client:
            self.assertEqual(Model(client, 1).state(), saved)
        self.drain(ps)

    def test_orderly_end_of_one_after_the_other(self):
        """The last checkpoint of the first is of both, and the second has nothing more to save."""
        ps, coordinator = self.cluster(2)
        with self.client(coordinator) as client:
            Model(client, 1).push()
        for process in reversed(ps):
            process.signal(signal.SIGTERM)
            self.assertEqual(process.wait(), 0, process.output)
        self.assertIn("is the last one", ps[1].output)
        self.assertIn("nothing was written since the last complete one", ps[0].output)


class FoldersOfTheirOwn(CheckpointTest):
    """Two ps, each with a folder on a disk of its own."""

    def begin_one(self, task, *more):
        return self.start("starling-ps", "--ps-hosts", self.hosts, "--worker-hosts", "127.0.0.1:1",
                          "--job-name", "ps", "--task-index", task, "--checkpoint-dir",
                          f"{self.checkpoints}-{task}", "--checkpoint-every", "0", *more,
                          env={"NETWORK_PS_CORE_NUMBER": "1"})

    def begin(self, *more):
        self.hosts = ",".join(f"127.0.0.1:{port}" for port in harness.free_ports(2))
        return [self.begin_one(task, *more) for task in range(2)], self.hosts.split(",")[0]

    def folder_of(self, number, task=1):
        return os.path.join(f"{self.checkpoints}-{task}", f"checkpoint-{number:06d}")

    def save(self, count, *more):
        """So many checkpoints, then all are killed; returns what each has."""
        ps, coordinator = self.begin(*more)
        harness.wait_lines(ps, "ready")
        states = []
        with self.client(coordinator) as client:
            model = Model(client, 1)
            for _ in range(count):
                model.push(0.3)
                states.append(model.state())
                self.ask(client)
        self.kill(ps)
        return states

    def restored(self, *more):
        """What is there after a restart, and the number of the next checkpoint."""
        ps, coordinator = self.begin("--restore", "newest", *more)
        harness.wait_lines(ps, "ready")
        with self.client(coordinator) as client:
            state, number = Model(client, 1).state(), self.ask(client)
        self.kill(ps)
        return state, number

    def test_manifest_that_one_of_them_has(self):
        states = self.save(3)
        os.remove(os.path.join(self.folder_of(3), "manifest.json"))
        self.assertEqual(self.restored(), (states[1], 4))

    def test_one_that_comes_later_after_going_back(self):
        """It goes on from what the job has, with the same flags, and from nothing that was left."""
        self.save(3)
        flags = ["--restore", "1", "--checkpoint-keep", "3"]
        ps, coordinator = self.begin(*flags)
        harness.wait_lines(ps, "ready")
        for number in (1, 4):
            if number == 4:
                with self.client(coordinator) as client:
                    Model(client, 1).push()
                    self.assertEqual(self.ask(client), number)
            self.kill([ps[1]])
            harness.wait_unheard("127.0.0.1", int(self.hosts.rsplit(":", 1)[1]))
            ps[1] = self.begin_one(1, *flags)
            ps[1].wait_line("ready")
            self.assertIn(f"checkpoint {number} is restored", ps[1].output)
        self.kill(ps)

    def test_disk_that_is_gone(self):
        self.save(2)
        shutil.rmtree(f"{self.checkpoints}-1")
        ps, _ = self.begin("--restore", "newest")
        ps[0].wait_line("ps/0 has checkpoint 2 to restore, ps/1 has none")
        self.kill(ps)


class Damage(CheckpointTest):
    """Three checkpoints, each full; the newest is damaged in some way."""

    def setUp(self):
        super().setUp()
        ps, coordinator = self.cluster(more=["--checkpoint-incrementals", "0", "--checkpoint-keep", "3"])
        self.states = []
        with self.client(coordinator) as client:
            model = Model(client, 1)
            for _ in range(3):
                model.push(0.3)
                self.states.append(model.state())
                self.ask(client)
        self.kill(ps)
        self.victim = os.path.join(self.folder_of(3), self.files_of(3)[0])

    def assert_falls_back(self, *words, to=2):
        """Without leave to fall back it does not start, and says what is wrong."""
        said = self.refused(*self.flags("--restore", "newest"))
        for word in (*words, "--restore-fallback"):
            self.assertIn(word, said)
        self.assertEqual(harness.visible(self.checkpoints),
                         [f"checkpoint-{n:06d}" for n in (1, 2, 3)])
        ps, coordinator = self.cluster(more=["--restore", "newest", "--restore-fallback"])
        for word in (*words, "checkpoint 3 is skipped", f"checkpoint {to} is restored"):
            self.assertIn(word, ps[0].output)
        with self.client(coordinator) as client:
            self.assertEqual(Model(client, 1).state(), self.states[to - 1])
            self.assertEqual(self.ask(client), 4)  # no number is used twice
        self.drain(ps)

    def test_one_bit(self):
        with open(self.victim, "r+b") as file:
            file.seek(self.random.randrange(os.path.getsize(self.victim)))
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1 << self.random.randrange(8)]))
        self.assert_falls_back(self.victim)

    def test_manifest(self):
        path = os.path.join(self.folder_of(3), "manifest.json")
        with open(path, "r+b") as file:
            file.truncate(os.path.getsize(path) - 5)
        self.assert_falls_back(path)

    def test_all_of_them(self):
        for number in (1, 2, 3):
            os.truncate(os.path.join(self.folder_of(number), self.files_of(number)[0]), 100)
        for which in ("3", "newest"):
            said = self.refused(*self.flags("--restore", which, "--restore-fallback"))
            self.assertIn("is intact; start without --restore", said)
            for number in (1, 2, 3):
                self.assertIn(f"checkpoint {number} is skipped", said)

    def test_what_was_gone_back_from(self):
        """Abandoned checkpoints are neither the newest, nor restored from."""
        ps, coordinator = self.cluster(more=["--restore", "1"])
        ps[0].wait_line("2 checkpoints of")
        self.kill(ps)
        ps, coordinator = self.cluster(more=["--restore", "newest"])
        with self.client(coordinator) as client:
            model = Model(client, 1)
            self.assertEqual(model.state(), self.states[0])
            model.push()
            self.assertEqual(self.ask(client), 4)
        self.kill(ps)
        os.truncate(os.path.join(self.folder_of(4), self.files_of(4)[0]), 100)
        ps, coordinator = self.cluster(more=["--restore", "newest", "--restore-fallback"])
        with self.client(coordinator) as client:
            self.assertEqual(Model(client, 1).state(), self.states[0])
        self.kill(ps)
        os.rename(os.path.join(self.folder_of(3), "manifest.json.abandoned"),
                  os.path.join(self.folder_of(3), "manifest.json"))
        ps, coordinator = self.cluster(more=["--restore", "3"])
        with self.client(coordinator) as client:
            self.assertEqual(Model(client, 1).state(), self.states[2])
        self.drain(ps)

    def test_unfinished_one_is_no_checkpoint(self):
        os.remove(os.path.join(self.folder_of(3), "manifest.json"))
        ps, coordinator = self.cluster(more=["--restore", "newest"])
        with self.client(coordinator) as client:
            self.assertEqual(Model(client, 1).state(), self.states[1])
            self.assertEqual(self.ask(client), 4)
        self.drain(ps)


class KilledPs(CheckpointTest):
    """kill -9 of ps in a job that runs, and their restart from the newest checkpoint. Workers go on
    by themselves: no step of theirs fails, and what is lost is what was acknowledged between the
    checkpoint and the end."""

    def kill_in_job(self, consistency, victims, reactors=1):
        cluster = sum_job.Cluster(self, ps_count=2, lease_s=LEASE_S, proxied=False,
                                  reactors=reactors, extra=self.flags())
        harness.wait_lines(cluster.ps, "ready")
        job = sum_job.SumJob(self, cluster, consistency, iterations=200, gated=True)
        workers = job.start_all()
        for worker in workers:
            worker.wait_line(f"iteration {8 * self.random.randrange(1, 8)}")
        with self.client(cluster.coordinator) as client:
            for _ in range(2):  # the second adds to the first
                held = job.noted("acknowledged")
                number = self.ask(client)
                time.sleep(self.random.uniform(0, 0.1))
        self.kill([cluster.ps[victim] for victim in victims])
        time.sleep(self.random.uniform(0, 0.5))
        cluster.extend("--restore", "newest")
        for victim in victims:
            cluster.ps[victim] = cluster.start_ps(victim)
        for victim in victims:
            cluster.ps[victim].wait_line(f"checkpoint {number} is restored")
            cluster.ps[victim].wait_line("ready")
        job.open_gate()
        for worker in workers:
            self.assertEqual(worker.wait(), 0, worker.output)
            self.assertIn("the server was restarted from a checkpoint", worker.output)
            self.assertIn(", 0 failed", worker.output)
        shards = {victim * reactors + i for victim in victims for i in range(reactors)}
        self.assertEqual(job.check(restarted=shards, held=held), 4 * job.iterations)
        cluster.drain()

    def test_bsp(self):
        self.kill_in_job("bsp", [1])

    def test_ssp(self):
        self.kill_in_job("ssp:2", [1], reactors=2)

    def test_all(self):
        self.kill_in_job(self.random.choice(("asp", "ssp:2", "bsp")), [0, 1])

    def test_workers_ask_by_themselves(self):
        """When sl_client_checkpoint returns, the checkpoint is there, whatever dies then: of each
        worker, what it had pushed before it asked."""
        after = 16
        cluster = sum_job.Cluster(self, ps_count=2, lease_s=LEASE_S, proxied=False,
                                  extra=self.flags())
        harness.wait_lines(cluster.ps, "ready")
        job = sum_job.SumJob(self, cluster, "asp", gated=True,
                             flags=["--checkpoint-after", after])
        workers = job.start_all()
        numbers = {int(worker.wait_line("has checkpoint").split()[-1]) for worker in workers}
        self.kill(workers + cluster.ps)
        for number in numbers:
            self.assertEqual(self.manifest(number)["number"], number)
        cluster.extend("--restore", "newest")
        cluster.ps = [cluster.start_ps(i) for i in range(2)]
        harness.wait_lines(cluster.ps, f"checkpoint {max(numbers)} is restored")
        held = {push for push in job.noted("acknowledged") if push[2] < after}
        job.open_gate()
        workers = job.start_all()
        self.end_well(workers)
        held |= {push for push in job.noted("acknowledged") if push[1] == 1}
        job.check(restarted={0, 1}, held=held, last=False)
        cluster.drain()

    def test_whole_job_is_started_again(self):
        """New ps and new workers: they go on where the checkpoint is."""
        for consistency in ("asp", "bsp"):
            with self.subTest(consistency=consistency):
                shutil.rmtree(self.checkpoints, ignore_errors=True)
                cluster = sum_job.Cluster(self, ps_count=2, lease_s=LEASE_S, proxied=False,
                                          extra=self.flags())
                harness.wait_lines(cluster.ps, "ready")
                job = sum_job.SumJob(self, cluster, consistency, gated=True)
                workers = job.start_all()
                harness.wait_lines(workers, "iteration 24")
                with self.client(cluster.coordinator) as client:
                    held = job.noted("acknowledged")
                    self.ask(client)
                self.kill(workers + cluster.ps)
                cluster.extend("--restore", "newest")
                cluster.ps = [cluster.start_ps(i) for i in range(2)]
                harness.wait_lines(cluster.ps, "is restored")
                workers = job.start_all()
                begins = [int(worker.wait_line("begins with iteration").split()[-1])
                          for worker in workers]
                self.assertTrue(consistency == "asp" or min(begins) >= 24, begins)
                job.open_gate()
                self.end_well(workers)
                held |= {push for push in job.noted("acknowledged") if push[1] == 1}
                job.check(restarted={0, 1}, held=held, last=False)
                cluster.drain()


def wait_trained(launcher):
    """Until the workers have, of which one says so: before, a signal just ends them."""
    launcher.wait_line("[worker/0] epoch")


def descendants(pid):
    """Every process below this one."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True)
    children = {}
    for child, parent in (map(int, line.split()) for line in listed.stdout.splitlines()):
        children.setdefault(parent, []).append(child)
    found = []
    for child in children.get(pid, []):
        found += [child, *descendants(child)]
    return found


class Signals(CheckpointTest):
    """Launcher, ps and workers get their signals at once, and again: the last checkpoint is made."""

    def stop_all(self, *numbers):
        data = self.file("data", "1 1:1 2:1\n0 3:1 4:1\n" * 2000)
        launcher = self.start("starling-launch", "--ps", 2, "--workers", 2, *self.flags(), "--",
                              "--data", data, "--model", "lr", "--epochs", 100000, "--batch-size", 100)
        wait_trained(launcher)
        everybody = [launcher.pid, *descendants(launcher.pid)]
        for number in numbers:
            for pid in everybody:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        # Of several signals that wait, the kernel may deliver another one first.
        self.assertIn(launcher.wait(), [128 + number for number in numbers], launcher.output)
        self.assertEqual(launcher.output.count("is the last one"), 2, launcher.output)
        self.assertEqual(self.manifest(1)["number"], 1)

    def test_term_to_all(self):
        self.stop_all(signal.SIGTERM)

    def test_repeated_to_all(self):
        self.stop_all(signal.SIGTERM, signal.SIGINT, signal.SIGTERM)

    def test_timeout_program(self):
        """GNU timeout sends the signal to its child, then to the group of both."""
        data = self.file("data", "1 1:1 2:1\n0 3:1 4:1\n" * 2000)
        log = os.path.join(self.folder, "log")
        with open(log, "wb") as out:
            timeout = subprocess.Popen(
                [*harness.END_WITH_PARENT, "timeout", "600", harness.program("starling-launch"), "--ps", "2", "--workers", "2",
                 *self.flags(), "--", "--data", data, "--model", "lr", "--epochs", "100000",
                 "--batch-size", "100"],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self.folder,
                env=harness.environment())
        self.addCleanup(timeout.wait)
        self.addCleanup(timeout.kill)
        end = time.monotonic() + harness.DEADLINE_S
        while "[worker/0] epoch" not in self.read(log):
            self.assertLess(time.monotonic(), end, self.read(log))
            time.sleep(0.05)
        timeout.terminate()  # it passes it on to its child and to its group, as when its time is up
        timeout.wait(harness.DEADLINE_S)
        self.assertEqual(self.read(log).count("is the last one"), 2, self.read(log))

    def read(self, path):
        with open(path, encoding="utf-8") as file:
            return file.read()

    def test_quit_ends_at_once(self):
        ps, coordinator = self.cluster()
        with self.client(coordinator) as client:
            Model(client, 1).push()
        ps[0].signal(signal.SIGQUIT)
        self.assertEqual(ps[0].wait(), 128 + signal.SIGQUIT, ps[0].output)
        self.assertEqual(harness.visible(self.checkpoints), [])


class Lost(CheckpointTest):
    """Values that are lost, and checkpoints that cannot be made, fail the job."""

    def launch(self, *flags, ps=2):
        data = self.file("data", "1 1:1 2:1\n0 3:1 4:1\n" * 2000)
        launcher = self.start("starling-launch", "--ps", ps, "--workers", 2, *self.flags("--restore", "newest"),
                              "--restart-ps", 3, *flags, "--", "--data", data, "--model", "lr",
                              "--epochs", 100000, "--batch-size", 100)
        wait_trained(launcher)
        return launcher

    def kill_ps(self, launcher, task):
        for pid in harness.children_of(launcher.pid):
            words = harness.command_of(pid)
            if words[0].endswith("starling-ps") and words[words.index("--task-index") + 1] == str(task):
                os.kill(pid, signal.SIGKILL)
                return
        self.fail(launcher.output)

    def lose(self, launcher, task, *words):
        self.kill_ps(launcher, task)
        self.assertNotEqual(launcher.wait(), 0, launcher.output)
        for word in words:
            self.assertIn(word, launcher.output)
        self.assertNotIn("is complete", launcher.output)
        self.assertFalse(os.path.exists(os.path.join(self.folder_of(1), "manifest.json")))

    def test_ps_that_returns_with_nothing(self):
        self.lose(self.launch(), 1, "ps/1 was restarted without the values of its shards",
                  "no last checkpoint: ps/1 was restarted")

    def test_workers_that_are_started_again(self):
        self.lose(self.launch("--restart-workers", 3), 1,
                  "ps/1 restarted without its parameters: restart the job")

    def test_last_checkpoint_that_cannot_be_made(self):
        ps, coordinator = self.cluster()
        with self.client(coordinator) as client:
            Model(client, 1).push()
        os.makedirs(os.path.join(self.folder_of(1), "manifest.json"))
        for process in ps:
            process.signal(signal.SIGTERM)
        for process in ps:
            self.assertEqual(process.wait(), 1, process.output)
            self.assertIn("no last checkpoint", process.output)


class Stopped(CheckpointTest):
    """A job that was stopped in order goes on with the same command where it was: each worker trains
    each of its batches once. Only the last run is told of fewer epochs, so that it ends."""

    BATCHES = 20  # of each worker, in each epoch

    def command(self, consistency, epochs):
        data = self.file("data", "1 1:1 2:1\n0 3:1 4:1\n" * 100 * self.BATCHES)
        return ["--ps", 2, "--workers", 2, *self.flags("--restore", "newest"), "--", "--data", data,
                "--test", data, "--model", "lr", "--epochs", epochs, "--batch-size", 100,
                "--consistency", consistency, "--report", os.path.join(self.folder, "report")]

    def batches(self):
        """That the last run has trained, by worker."""
        counts = []
        for name in ("report", "report.1"):
            path = os.path.join(self.folder, name)
            with open(path, encoding="utf-8") as file:
                counts.append(json.load(file)["batches"])
            os.remove(path)
        return counts

    def stop_in_the_middle(self, launcher):
        wait_trained(launcher)
        launcher.signal(signal.SIGTERM)
        self.assertEqual(launcher.wait(), 128 + signal.SIGTERM, launcher.output)
        self.assertIn("is the last one", launcher.output)

    def goes_on(self, consistency):
        command = self.command(consistency, 100000)
        launcher = self.start("starling-launch", *command)
        self.stop_in_the_middle(launcher)
        done = self.batches()
        for stopped in (True, False):
            if stopped:
                launcher = self.start("starling-launch", *command)
                launcher.wait_line("continues with iteration")
                self.stop_in_the_middle(launcher)
            else:
                epochs = max(done) // self.BATCHES + 2
                launcher = self.start("starling-launch", *self.command(consistency, epochs))
                self.assertEqual(launcher.wait(), 0, launcher.output)
            for count in done:
                self.assertIn(f"continues with iteration {count}, where the job is", launcher.output)
            done = [before + now for before, now in zip(done, self.batches())]
        self.assertEqual(done, [epochs * self.BATCHES] * 2)
        self.assertIn("test AUC", launcher.output)
        self.assertNotIn("a new job begins", launcher.output)

    def test_asp(self):
        self.goes_on("asp")

    def test_bsp(self):
        self.goes_on("bsp")

    def test_ssp(self):
        self.goes_on("ssp:2")

    def test_an_evaluation_that_failed_is_repeated_alone(self):
        """The test file is spoilt while the job trains, and repaired behind its end."""
        self.assertTrue(any(self.repeats_the_evaluation(epochs) for epochs in (300, 3000)))

    def repeats_the_evaluation(self, epochs):
        """False: the job was over before its file was spoilt."""
        self.checkpoints = os.path.join(self.folder, f"checkpoints-{epochs}")
        command = self.command("asp", epochs)
        path = command[command.index("--test") + 1]
        with open(path, encoding="ascii") as file:
            rows = file.read()
        test = self.file("test", rows)
        command[command.index("--test") + 1] = test
        launcher = self.start("starling-launch", *command)
        wait_trained(launcher)
        self.file("test", "1 1:1\n")
        if launcher.wait() == 0:
            return False
        self.assertIn("the test data must have rows of both labels", launcher.output)
        self.batches()
        self.file("test", rows)
        output = self.run_to_end("starling-launch", *command)
        self.assertIn("the evaluation failed, which is repeated", output)
        self.assertEqual(self.batches(), [0, 0])
        self.assertIn("test AUC", output)
        return True

    def test_a_finished_job_is_not_trained_again_in_silence(self):
        command = self.command("asp", epochs=1)
        self.run_to_end("starling-launch", *command)
        self.batches()
        output = self.run_to_end("starling-launch", *command)
        self.assertRegex(output, r" W ps/0 .*a new job starts with its values, at iteration 0")
        self.assertEqual(self.batches(), [self.BATCHES] * 2)


class Launched(CheckpointTest):
    """The launcher starts a ps that was killed again; the training goes on to its end."""

    def train(self, *flags, status=0):
        data = self.file("data", "1 1:1 2:1\n0 3:1 4:1\n" * 2000)
        launcher = self.start("starling-launch", "--ps", 2, "--workers", 2, *flags, "--", "--data",
                              data, "--model", "lr", "--epochs", 3000 if status == 0 else 1,
                              "--timeout", 60, "--batch-size", 100)
        return launcher

    def test_ps_is_started_again(self):
        launcher = self.train("--checkpoint-dir", self.checkpoints, "--checkpoint-every", 1,
                              "--restore", "newest", "--restart-ps", 1)
        launcher.wait_line("checkpoint 1 is complete")
        ps = [int(line.split()[0]) for line in subprocess.run(
            ["ps", "-o", "pid=,args=", "--ppid", str(launcher.pid)], capture_output=True, text=True,
            check=True).stdout.splitlines() if "starling-ps" in line]
        self.assertEqual(len(ps), 2)
        os.kill(self.random.choice(ps), signal.SIGKILL)
        launcher.wait_line("restarting in 1 s (restart 1 of 1)")
        launcher.wait_line("is restored")
        launcher.wait_line("the server was restarted from a checkpoint")
        launcher.signal(signal.SIGTERM)
        launcher.wait()
        self.assertNotIn("training failed", launcher.output)

    def test_another_job_begins_with_the_rows(self):
        """When a job is over, another one trains on: on the same ps and on others."""
        rows = []
        for ps in (2, 2, 1):
            data = self.file("data", "1 1:1 2:1\n0 3:1 4:1\n" * 500)
            launcher = self.start("starling-launch", "--ps", ps, "--workers", 2, "--checkpoint-dir",
                                  self.checkpoints, "--restore", "newest", "--", "--data", data,
                                  "--test", data, "--model", "lr", "--epochs", 2, "--report",
                                  os.path.join(self.folder, "report.json"))
            self.assertEqual(launcher.wait(), 0, launcher.output)
            self.assertIn("is the last one", launcher.output)
            with open(os.path.join(self.folder, "report.json"), encoding="utf-8") as file:
                report = json.load(file)
            rows.append(report)
            self.assertNotIn("nothing to train", launcher.output)
        losses = [report["test"]["loss"] for report in rows]
        self.assertGreater(losses[0], losses[1])
        self.assertGreater(losses[1], losses[2])

    def test_needs_a_checkpoint(self):
        for flags in (["--restart-ps", 1], ["--restart-ps", 1, "--checkpoint-dir", "c"],
                      ["--restart-ps", 1, "--checkpoint-dir", "c", "--restore", 3]):
            launcher = self.start("starling-launch", *flags, "--", "--data", "x")
            self.assertEqual(launcher.wait(), 2, launcher.output)
            self.assertIn("--restart-ps has no effect without --checkpoint-dir and --restore newest, "
                          "or --replicas 1",
                          launcher.output)


class Disks(CheckpointTest):
    def test_full_disk(self):
        """The checkpoint is aborted in words, the job goes on, and what there was stays whole."""
        os.mkdir(self.checkpoints)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none",
                                  self.checkpoints], check=False, capture_output=True)
        if mounted.returncode != 0:
            self.skipTest(f"no small disk can be made: {mounted.stderr.decode().strip()}")
        self.addCleanup(subprocess.run, ["umount", self.checkpoints], check=True)
        ps, coordinator = self.cluster(more=["--checkpoint-incrementals", "0"])
        with self.client(coordinator) as client:
            model = Model(client, 1)
            model.push(0.2)
            saved = model.state()
            self.assertEqual(self.ask(client), 1)
            with open(os.path.join(self.checkpoints, "filler"), "wb", 0) as filler:
                with contextlib.suppress(OSError):
                    while True:
                        filler.write(b"x" * 512)
            with self.assertRaises(protocol_client.Refused) as refused:
                self.ask(client)
            self.assertIn("No space left on device", refused.exception.text)
            model.push()
            self.assertNotEqual(model.state(), saved)
            os.remove(os.path.join(self.checkpoints, "filler"))
            model.push()
            saved = model.state()
            number = self.ask(client)
        self.kill(ps)
        ps, coordinator = self.cluster(more=["--restore", str(number)])
        with self.client(coordinator) as client:
            self.assertEqual(Model(client, 1).state(), saved)
        self.kill(ps)


if __name__ == "__main__":
    harness.main()
