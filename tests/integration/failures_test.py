#!/usr/bin/env python3
"""Real processes and real faults: nothing hangs, and nothing is carried out twice. Faults come at
moments that a seed decides (STARLING_SEED repeats one); every wait has a deadline."""

import functools
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import harness
import sum_job

SEED = int(os.environ.get("STARLING_SEED", random.SystemRandom().getrandbits(32)))
MODES = ("asp", "ssp:2", "bsp")
# Who is stopped with his machine for some seconds must not be lost by it.
LEASE_S = 6
EC_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


class FaultTest(harness.StarlingTest):
    def setUp(self):
        super().setUp()
        self.random = random.Random(f"{SEED} {self.id()}")

    def cluster(self, lease_s=LEASE_S, **options):
        cluster = sum_job.Cluster(self, lease_s=lease_s, **options)
        harness.wait_lines(cluster.ps, "ready")
        return cluster

    def assert_gives_up(self, start, *words):
        """Of a worker that tries in vain until its time to start is up. That is short, unless something
        stood still meanwhile, so that it could not find out why."""
        for seconds in ("500ms", 3, 30):
            worker = start("--start-timeout", seconds)
            self.assert_ends(worker, status=1)
            if all(word in worker.output for word in words):
                return
        self.assert_ends(worker, *words, status=1)

    def assert_ends(self, process, *words, status=0):
        self.assertEqual(process.wait(), status, process.output)
        for word in words:
            self.assertIn(word, process.output)

    def wait_middle(self, worker, others=()):
        """Waits until a worker of a sum job is somewhere in the middle of it, and the others at work."""
        harness.wait_lines(others, "iteration 0")
        worker.wait_line(f"iteration {8 * self.random.randrange(1, 8)}")
        time.sleep(self.random.uniform(0, 0.03))

    def training(self, *args):
        """Arguments for a starling-worker on a little data."""
        return ["--data", self.file("data", "1 1:1 2:1\n0 3:1 4:1\n" * 2000), "--model", "lr", *args]


class KilledWorker(FaultTest):
    """kill -9 of a worker in the middle of a job, in each mode."""

    def kill_one(self, consistency, replaced):
        cluster = self.cluster(60 if replaced else LEASE_S, proxied=False)
        job = sum_job.SumJob(self, cluster, consistency, gated=True)
        workers = job.start_all()
        victim = self.random.randrange(4)
        self.wait_middle(workers[victim], workers)
        workers[victim].signal(signal.SIGKILL)
        self.assert_ends(workers[victim], status=-signal.SIGKILL)
        cluster.ps[0].wait_line(f"worker/{victim} is disconnected")
        if replaced:
            workers[victim] = job.start(victim)
            workers[victim].wait_line("begins with iteration")
        else:
            del workers[victim]
        job.open_gate()
        for worker in workers:
            self.assert_ends(worker)
        self.assertGreater(job.check(), 3 * job.iterations)
        said = f"worker/{victim} was replaced" if replaced else f"worker/{victim} expired: no heartbeat"
        cluster.ps[0].wait_line(said)
        cluster.drain()

    def test_without_replacement(self):
        for consistency in MODES:
            with self.subTest(consistency=consistency):
                self.kill_one(consistency, replaced=False)

    def test_with_replacement(self):
        for consistency in MODES:
            with self.subTest(consistency=consistency):
                self.kill_one(consistency, replaced=True)


class Network(FaultTest):
    """Workers and ps that run all the time, and a network between them that does not."""

    FAULTS = (lambda p: p.cut(reset=True), lambda p: p.cut(reset=False),
              lambda p: p.cut(which=lambda index: index % 2 == 0),
              lambda p: p.truncate("target"), lambda p: p.truncate("client"),
              lambda p: p.half_close("target"), lambda p: p.half_close("client"),
              lambda p: p.delay(0.02), lambda p: p.throttle(20000),
              lambda p: p.black_hole(), lambda p: (p.refuse(), p.cut()))

    def test_data_connections(self):
        """Each fault once in each mode, on the connections to one ps or the other."""
        for consistency in MODES:
            with self.subTest(consistency=consistency):
                # A hello that falls into the black hole is said again after 10 s.
                cluster = self.cluster(lease_s=40)
                job = sum_job.SumJob(self, cluster, consistency, iterations=200, gated=True)
                workers = job.start_all()
                harness.wait_lines(workers, "iteration 0")
                for fault in self.random.sample(self.FAULTS, len(self.FAULTS)):
                    proxy = self.random.choice(cluster.data)
                    fault(proxy)
                    time.sleep(self.random.uniform(0.02, 0.2))
                    proxy.restore()
                for proxy in cluster.data:
                    proxy.cut()
                job.open_gate()
                for worker in workers:
                    self.assert_ends(worker, "connection lost", "connected again", "0 failed")
                self.assertEqual(job.check(), 4 * job.iterations)
                cluster.drain()

    def test_coordinator_connections(self):
        """Of the workers and of ps/1; barriers are asked for again."""
        cluster = self.cluster(lease_s=20)  # on a busy machine a welcome takes as long as a lost connection
        args = self.training("--epochs", "20", "--consistency", "bsp")
        cuts = cluster.control.cut()  # of ps/1: the workers may be done before the next one
        workers = self.start_workers(cluster.worker_flags, 4, args)
        while any(worker.running() for worker in workers):
            cuts += cluster.control.cut()
            time.sleep(self.random.uniform(0.05, 0.3))
        for worker in workers:
            self.assert_ends(worker)
        self.assertGreater(cuts, 0)
        cluster.ps[1].wait_line("the coordinator is reachable again")
        cluster.drain()

    def test_away_for_longer_than_the_lease(self):
        """The shard has forgotten its clients. Nobody knows what became of a step that had been sent:
        its worker says so, rather than to do it twice; one whose step had not left goes on."""
        cluster = self.cluster()
        job = sum_job.SumJob(self, cluster, "bsp", gated=True)
        workers = job.start_all()
        self.wait_middle(workers[0], workers)
        cluster.data[1].refuse()
        cluster.data[1].cut()
        job.open_gate()
        for index in range(4):
            cluster.ps[1].wait_line(f"worker/{index} expired: it has not reconnected")
        cluster.data[1].restore()
        for worker in workers:
            worker.wait_line("it has forgotten this client, which was away for too long")
            if worker.wait() != 0:
                self.assert_ends(worker, "failed: closed: ps/1 shard ", status=1)
        job.check()
        cluster.drain()

    def test_silence_ends_by_the_deadline(self):
        """A network that takes everything and delivers nothing: steps end in time, and say where.
        When it is back, so are they."""
        cluster = self.cluster()
        job = sum_job.SumJob(self, cluster, "asp", iterations=400, timeout_ms=1000, pause_ms=20,
                             goes_on=True, gated=True)
        workers = job.start_all()
        self.wait_middle(workers[0], workers)
        cluster.data[1].black_hole()
        harness.wait_lines(workers, "failed: deadline: ps/1 shard ")
        cluster.data[1].restore()
        job.open_gate()
        for worker in workers:
            self.assert_ends(worker)
        self.assertGreater(job.check(), 3 * job.iterations)
        cluster.drain()


class KilledPs(FaultTest):
    def test_steps_fail_until_it_is_started_again(self):
        """The coordinator's, and another."""
        for victim in (0, 1):
            with self.subTest(victim=victim):
                cluster = self.cluster(proxied=False)
                job = sum_job.SumJob(self, cluster, "asp", iterations=400, timeout_ms=500,
                                     pause_ms=20, goes_on=True, gated=True)
                workers = job.start_all()
                self.wait_middle(workers[0], workers)
                cluster.ps[victim].signal(signal.SIGKILL)
                self.assert_ends(cluster.ps[victim], status=-signal.SIGKILL)
                harness.wait_lines(workers, f"failed: deadline: ps/{victim} shard {victim}")
                cluster.ps[victim] = cluster.start_ps(victim)
                harness.wait_lines(workers, "the server was restarted: its tables began anew")
                job.open_gate()
                for worker in workers:
                    self.assert_ends(worker)
                job.check(restarted=(victim,))
                cluster.drain()

    def test_training_fails_and_names_it(self):
        cluster = self.cluster(proxied=False)
        workers = self.start_workers(
            cluster.worker_flags, 4,
            self.training("--epochs", "100000", "--consistency", "bsp", "--timeout", "6"))
        workers[0].wait_line("loss")
        cluster.ps[1].signal(signal.SIGKILL)
        for worker in workers:
            self.assert_ends(worker, "deadline of 6000 ms passed", status=1)
        self.assertIn("ps/1", workers[0].output)

    def test_who_waits_for_it_can_be_stopped(self):
        """Long before its step's deadline; it says no goodbye, so that it is lost."""
        cluster = self.cluster(proxied=False, worker_count=2)
        workers = self.start_workers(cluster.worker_flags, 2,
                                     self.training("--epochs", "100000", "--timeout", "4000", "--log", "debug"))
        harness.wait_lines(workers, "loss")
        cluster.ps[1].signal(signal.SIGKILL)
        for worker, number in zip(workers, (signal.SIGTERM, signal.SIGINT)):
            worker.wait_line("ps/1 reactor ")
            worker.signal(number)
        for worker, number in zip(workers, (signal.SIGTERM, signal.SIGINT)):
            self.assert_ends(worker, "exits without a goodbye", status=128 + number)
        for index in range(2):
            cluster.ps[0].wait_line(f"worker/{index} is disconnected")


class StoppedProcess(FaultTest):
    """SIGSTOP and SIGCONT: as a machine that swaps, or a debugger."""

    def stop(self, process, seconds):
        process.signal(signal.SIGSTOP)
        time.sleep(seconds)
        process.signal(signal.SIGCONT)

    def job(self, consistency):
        cluster = self.cluster(proxied=False)
        job = sum_job.SumJob(self, cluster, consistency, gated=True)
        workers = job.start_all()
        self.wait_middle(workers[1], workers)
        return cluster, job, workers

    def test_worker_within_its_lease(self):
        cluster, job, workers = self.job("bsp")
        self.stop(workers[1], LEASE_S / 6)
        job.open_gate()
        for worker in workers:
            self.assert_ends(worker)
        self.assertEqual(job.check(), 4 * job.iterations)
        cluster.drain()

    def test_worker_beyond_its_lease(self):
        """The others go on, and then without it. In BSP it cannot go on where it was. In ASP it can,
        if it was stopped between two steps; else nobody knows what became of its push."""
        for consistency in ("asp", "bsp"):
            with self.subTest(consistency=consistency):
                cluster, job, workers = self.job(consistency)
                stopped = workers.pop(1)
                stopped.signal(signal.SIGSTOP)
                job.open_gate()
                cluster.ps[1].wait_line("worker/1 expired")
                for worker in workers:
                    self.assert_ends(worker)
                stopped.signal(signal.SIGCONT)
                if stopped.wait() != 0 or consistency == "bsp":
                    self.assert_ends(stopped, "failed: closed: ", status=1)
                self.assertGreater(job.check(), 3 * job.iterations)
                cluster.drain()

    def test_ps_beyond_its_lease(self):
        """Nobody can take its place, so everybody waits: the coordinator's, and another."""
        for victim in (0, 1):
            with self.subTest(victim=victim):
                cluster, job, workers = self.job("bsp")
                self.stop(cluster.ps[victim], 1.25 * LEASE_S)
                job.open_gate()
                for worker in workers:
                    self.assert_ends(worker, "0 failed")
                self.assertEqual(job.check(), 4 * job.iterations)
                cluster.drain()


class StartedTwice(FaultTest):
    def test_worker(self):
        servers, flags = self.start_ps()
        args = self.training("--epochs", "100000")
        first = self.start_workers(flags, 1, args)[0]
        first.wait_line("loss")
        second = self.start_workers(flags, 1, args)[0]
        self.assert_ends(second, "worker/0 is a member already", "is started twice", status=1)
        first.signal(signal.SIGTERM)
        self.assert_ends(first, status=128 + signal.SIGTERM)
        self.drain(servers)


class Secrets(FaultTest):
    def secret(self, name, mode=0o600):
        path = self.file(name, f"the secret of cluster {name}\n")
        os.chmod(path, mode)
        return ["--secret-file", path]

    def worker(self, flags, *args):
        return self.start_workers(flags, 1, self.training(*args))[0]

    def test_who_may_work(self):
        servers, flags = self.start_ps(extra=self.secret("right"))
        servers[0].wait_line("ready")
        self.assert_ends(self.worker(flags, *self.secret("right")))
        self.assert_gives_up(functools.partial(self.worker, flags, *self.secret("wrong")),
                             "the one that was used is another", "compare the secret files")
        self.assert_ends(self.worker(flags), "this cluster needs a secret", "--secret-file", status=1)
        servers[0].wait_line("refused: this cluster needs a secret")
        self.drain(servers)

    def test_ps_without_a_secret_is_not_trusted(self):
        servers, flags = self.start_ps()
        self.assert_gives_up(functools.partial(self.worker, flags, *self.secret("right")),
                             "it did not prove that it has the secret: it asks for none")
        self.drain(servers)

    def test_open_network(self):
        port = harness.free_ports(1)[0]
        cluster = ["--ps-hosts", f"0.0.0.0:{port}", "--worker-hosts", "a", "--job-name", "ps"]
        self.assert_ends(self.start("starling-ps", *cluster), "is open to the network",
                         "--secret-file", "--insecure", status=2)
        for flags in (self.secret("right"), ["--insecure"]):
            server = self.start("starling-ps", *cluster, *flags)
            server.wait_line("ready")
            self.drain([server])


class Tls(FaultTest):
    def setUp(self):
        super().setUp()
        if shutil.which("openssl") is None:
            self.skipTest("no openssl to make certificates with")
        for authority in ("ours", "theirs"):
            self.openssl("req", "-x509", "-nodes", *EC_KEY, "-days", "60", "-keyout",
                         f"{authority}.ca.key", "-out", f"{authority}.ca", "-subj", f"/CN={authority}")
            self.file("names", "subjectAltName=IP:127.0.0.1\n")
            self.openssl("req", "-new", "-nodes", *EC_KEY, "-keyout", f"{authority}.key",
                         "-out", "request", "-subj", "/CN=node")
            self.openssl("x509", "-req", "-in", "request", "-days", "60", "-CA", f"{authority}.ca",
                         "-CAkey", f"{authority}.ca.key", "-CAcreateserial", "-extfile", "names",
                         "-out", f"{authority}.crt")
        self.servers, self.flags = self.start_ps(extra=self.tls("ours", "ours"))
        self.servers[0].wait_line("ready")

    def openssl(self, *args):
        subprocess.run(["openssl", *args], cwd=self.folder, check=True, capture_output=True,
                       timeout=harness.DEADLINE_S)

    def tls(self, certificate, authority):
        return ["--tls-cert", f"{certificate}.crt", "--tls-key", f"{certificate}.key", "--tls-ca",
                f"{authority}.ca"]

    def worker(self, *args):
        return self.start_workers(self.flags, 1, self.training(*args))[0]

    def test_who_may_work(self):
        self.assert_ends(self.worker(*self.tls("ours", "ours")))
        self.assert_gives_up(functools.partial(self.worker, *self.tls("ours", "theirs")),
                             "its certificate is not accepted: it is signed by an unknown authority")
        self.assert_gives_up(functools.partial(self.worker, *self.tls("theirs", "ours")),
                             "it does not know the authority that has signed our certificate")
        worker = self.worker("--start-timeout", "5")
        self.assert_ends(worker, status=1)
        self.assertRegex(worker.output, "(could not reach|was not welcomed by) coordinator")
        self.servers[0].wait_line("it speaks no TLS")
        self.assert_ends(self.worker(*self.tls("ours", "ours")))
        self.drain(self.servers)

    def test_files_are_replaced(self):
        """SIGHUP: connections that begin later use the new ones; flawed ones change nothing."""
        [server] = self.servers
        for kind in ("crt", "key", "ca"):
            shutil.copy(os.path.join(self.folder, f"ours.{kind}"), os.path.join(self.folder, f"old.{kind}"))
            os.replace(os.path.join(self.folder, f"theirs.{kind}"), os.path.join(self.folder, f"ours.{kind}"))
        server.signal(signal.SIGHUP)
        server.wait_line("SIGHUP: new connections use certificate ours.crt as it is now")
        self.assert_gives_up(functools.partial(self.worker, *self.tls("old", "old")),
                             "its certificate is not accepted: it is signed by an unknown authority")
        self.assert_ends(self.worker(*self.tls("ours", "ours")))
        shutil.copy(os.path.join(self.folder, "ours.crt"), os.path.join(self.folder, "good.crt"))
        self.file("ours.crt", "no certificate\n")
        server.signal(signal.SIGHUP)
        server.wait_line("SIGHUP: certificate, key and authority stay as they were")
        os.replace(os.path.join(self.folder, "good.crt"), os.path.join(self.folder, "ours.crt"))
        self.assert_ends(self.worker(*self.tls("ours", "ours")))
        self.drain(self.servers)


class FullDisk(FaultTest):
    def test_report(self):
        """It is there whole or not at all, and the job says so."""
        disk = os.path.join(self.folder, "disk")
        os.mkdir(disk)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "none", disk],
                          capture_output=True, check=False).returncode != 0:
            self.skipTest("no right to mount a small tmpfs")
        self.addCleanup(subprocess.run, ["umount", disk], check=True)
        with open(os.path.join(disk, "fill"), "wb") as fill:
            fill.write(bytes(4096))
        servers, flags = self.start_ps()
        report = os.path.join(disk, "report.json")
        worker = self.start_workers(flags, 1, self.training("--report", report))[0]
        self.assert_ends(worker, report, "No space left on device", status=1)
        self.assertEqual(harness.visible(disk), ["fill"])
        self.drain(servers)


if __name__ == "__main__":
    print(f"seed {SEED}: STARLING_SEED={SEED} repeats it", file=sys.stderr)
    harness.main()
