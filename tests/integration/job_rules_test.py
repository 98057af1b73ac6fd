#!/usr/bin/env python3
"""What a job must not lose by a forgotten flag, a closed terminal or a process of another job; with real processes."""

import os
import signal

import harness


class JobTest(harness.StarlingTest):
    def setUp(self):
        super().setUp()
        self.checkpoints = os.path.join(self.folder, "checkpoints")
        self.data = self.file("data", "1 1:1 2:1\n0 3:1 4:1\n" * 2000)

    def flags(self, *more):
        every = [] if "--checkpoint-every" in more else ["--checkpoint-every", "0"]
        return ["--checkpoint-dir", self.checkpoints, *every, *more]

    def model(self, *more):
        return ["--data", self.data, "--format", "libsvm", "--model", "lr", *more]

    def numbers(self):
        """Checkpoints with a manifest."""
        names = harness.visible(self.checkpoints) if os.path.exists(self.checkpoints) else []
        return [int(name.split("-")[1]) for name in names if name.startswith("checkpoint-") and
                os.path.exists(os.path.join(self.checkpoints, name, "manifest.json"))]

    def ready(self, *more, count=1):
        servers, flags = self.start_ps(count, extra=self.flags(*more))
        harness.wait_lines(servers, "ready")
        return servers, flags


class Hangup(JobTest):
    """A closed terminal sends SIGHUP, and so does `systemctl reload`."""

    def test_ends_a_worker_and_no_service(self):
        config = self.file("starling.conf", "[server]\nlog = info\n")
        [server], flags = self.ready("--config", config)
        catalogue = self.start("starling-objects", "serve")
        catalogue.wait_line("serves the catalogue")
        [worker] = self.start_workers(flags, 1, self.model("--epochs", 100000))
        worker.wait_line("loss")  # it trains
        worker.signal(signal.SIGHUP)
        self.assertEqual(worker.wait(), 128 + signal.SIGTERM, worker.output)
        for level, said in (("loud", "log = loud: accepts debug, info, warn, error or off"), ("debug", f"log = debug, of {config}")):
            self.file("starling.conf", f"[server]\nlog = {level}\n")
            server.signal(signal.SIGHUP)
            server.wait_line(said)
        for _ in range(3):
            catalogue.signal(signal.SIGHUP)
        server.wait_line("apply after a restart")
        self.assertTrue(catalogue.running(), catalogue.output)
        catalogue.signal(signal.SIGTERM)
        self.assertEqual(catalogue.wait(), 0, catalogue.output)
        self.drain([server])

    def test_a_flag_for_the_level_has_precedence(self):
        config = self.file("starling.conf", "[server]\nlog = info\n")
        [server], _ = self.ready("--config", config, "--log", "info")
        self.file("starling.conf", "[server]\nlog = error\n")
        server.signal(signal.SIGHUP)
        server.wait_line("SIGHUP: --log stays as flag has it")
        self.drain([server])

    def test_nohup_ignores_it(self):
        """A worker that nohup starts; a server under nohup reads its files again."""
        [server], flags = self.ready()
        worker = self.start("starling-worker", *flags, "--task-index", 0, *self.model("--epochs", 100000),
                            before=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        worker.wait_line("loss")
        port = harness.free_ports(1)[0]
        other = self.start("starling-ps", "--ps-hosts", f"127.0.0.1:{port}", "--task-index", 0,
                           before=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        other.wait_line("ready")
        for process in (worker, other):
            process.signal(signal.SIGHUP)
        other.wait_line("SIGHUP: other options")
        self.assertTrue(worker.running(), worker.output)
        worker.signal(signal.SIGTERM)
        worker.wait()
        self.drain([other, server])


class Checkpoints(JobTest):
    """A directory that holds checkpoints of an earlier job."""

    def launch(self, *more, data=None, status=0):
        """A job of a server and a worker, to its end, with a last checkpoint."""
        return self.run_to_end("starling-launch", "--ps", 1, "--workers", 1, "--checkpoint-dir", self.checkpoints,
                               "--checkpoint-every", 0, *more, "--", "--data", data or self.data, "--format", "libsvm",
                               "--model", "lr", "--quiet", status=status)

    def test_neither_taken_nor_lost_without_a_word(self):
        self.launch()
        self.assertEqual(self.numbers(), [1])
        output = self.launch(status=1)
        self.assertRegex(output, f"{self.checkpoints} has checkpoints of an earlier job, the newest is 1: --restore newest "
                                 "continues that job; --fresh starts empty")
        self.assertIn("exit status 2", output)  # wrong usage: a service manager does not restart it
        self.assertEqual(self.numbers(), [1])
        self.assertIn("give one of them", self.launch("--fresh", "--restore", "newest", status=2))
        for number in range(2, 6):  # other jobs, which keep one checkpoint
            output = self.launch("--fresh", "--checkpoint-keep", 1)
            self.assertIn(f"starts empty: checkpoints of earlier jobs, up to {number - 1}, stay", output)
        self.assertEqual(self.numbers(), [1, 2, 3, 4, 5])
        self.launch("--restore", 1, "--checkpoint-keep", 1)  # the first job, continued
        self.assertIn(1, self.numbers())

    def test_retention_leaves_those_of_the_job_before(self):
        self.launch()
        [server], flags = self.ready("--fresh", "--checkpoint-every", 1, "--checkpoint-keep", 1, "--checkpoint-incrementals", 0)
        [worker] = self.start_workers(flags, 1, self.model("--epochs", 100000))
        server.wait_line("checkpoint 5 is complete")
        worker.signal(signal.SIGTERM)
        worker.wait()
        self.drain([server])
        self.assertEqual(self.numbers()[0], 1)
        self.assertGreater(self.numbers()[1], 2)  # of its own the oldest are gone
        # Also when that job is continued.
        [server], _ = self.ready("--restore", "newest", "--checkpoint-every", 1, "--checkpoint-keep", 1)
        self.drain([server])
        self.assertEqual(self.numbers()[0], 1)

    def test_another_rate_after_a_restore(self):
        self.launch()
        output = self.run_to_end("starling-launch", "--ps", 1, "--workers", 1, "--checkpoint-dir", self.checkpoints,
                                 "--restore", "newest", "--", *self.model("--quiet", "--lr", 0.01))
        self.assertIn("--lr 0.01: the tables of the restored job have 0.07, so pushes are scaled by 0.142857", output)

    def test_rate_is_kept_without_the_flag(self):
        self.run_to_end("starling-launch", "--ps", 1, "--workers", 1, "--checkpoint-dir", self.checkpoints,
                        "--checkpoint-every", 0, "--", *self.model("--quiet", "--lr", 0.01))
        output = self.run_to_end("starling-launch", "--ps", 1, "--workers", 1, "--checkpoint-dir", self.checkpoints,
                                 "--restore", "newest", "--", *self.model())
        self.assertIn("it keeps its learning rate of 0.01", output)
        self.assertNotIn("scaled by", output)

    def test_killed_server_returns_to_its_job(self):
        """With the flags that it had, its directory holds checkpoints of its own job."""
        servers, flags = self.start_ps(2, extra=self.flags("--checkpoint-every", 1, "--replicas", 1, "--reactors", 1, "--lease", 6))
        harness.wait_lines(servers, "ready")
        [worker] = self.start_workers(flags, 1, self.model("--epochs", 1000000, "--timeout", 60))
        servers[0].wait_line("checkpoint 1 is complete")
        servers[1].signal(signal.SIGKILL)
        servers[1].wait()
        servers[1] = self.start("starling-ps", *flags, "--job-name", "ps", "--task-index", 1,
                                *self.flags("--checkpoint-every", 1, "--replicas", 1, "--reactors", 1, "--lease", 6))
        servers[1].wait_line("ready")
        for process in (worker, *servers):
            self.assertTrue(process.running(), process.output)


class Identity(JobTest):
    """A scheduler and a worker are killed, their server is left over, and the next job has the same address."""

    def job(self, role):
        return {"DMLC_ROLE": role, "DMLC_NUM_WORKER": "1", "DMLC_NUM_SERVER": "1", "DMLC_PS_ROOT_URI": "127.0.0.1",
                "DMLC_PS_ROOT_PORT": str(self.port)}

    def begin(self, *, epochs, meets_other=False):
        scheduler = self.start("starling-ps", env=self.job("scheduler"))
        if meets_other:
            scheduler.wait_match(r".* waiting for worker/0$", 0)  # it has a server
        server = self.start("starling-ps", "--reactors", 1, env=self.job("server"))
        worker = self.start("starling-worker", *self.model("--epochs", epochs), env=self.job("worker"))
        return scheduler, server, worker

    def test_server_of_an_earlier_job(self):
        [self.port] = harness.free_ports(1)
        scheduler, stale, worker = self.begin(epochs=1000000)
        scheduler.wait_line("the job has begun")
        stale.wait_line("ready")
        for process in (worker, scheduler):
            process.signal(signal.SIGKILL)
            process.wait()
        stale.wait_line("lost the coordinator")
        scheduler, server, worker = self.begin(epochs=2, meets_other=True)
        self.assertEqual(worker.wait(), 0, worker.output)
        self.assertIn("rows             8000 in", worker.output)
        self.end_well((scheduler, server))
        self.assertEqual(stale.wait(), 1, stale.output)
        for process in (scheduler, stale):
            self.assertIn("ps/0 has tables and clocks of an earlier job", process.output)

    def test_worker_that_comes_too_late(self):
        """It trains nothing, and says so in a warning."""
        [server], flags = self.start_ps()
        server.wait_line("ready")
        [worker] = self.start_workers(flags, 1, self.model("--epochs", 1000000, "--batch-size", 4000, "--consistency", "bsp"))
        worker.wait_line("loss")
        late = self.start("starling-worker", *flags, "--job-name", "worker", "--task-index", 1, "--join",
                          *self.model("--epochs", 1, "--batch-size", 4000, "--consistency", "bsp"))
        self.assertRegex(late.wait_line("trains nothing"), " W worker/1 trains nothing: the job is at iteration [0-9]+, beyond")
        worker.signal(signal.SIGTERM)
        for process, status in ((worker, 128 + signal.SIGTERM), (late, 0)):
            self.assertEqual(process.wait(), status, process.output)
        self.drain([server])

    def test_scheduler_alone_is_restarted(self):
        [self.port] = harness.free_ports(1)
        scheduler, server, worker = self.begin(epochs=1000000)
        worker.wait_line("loss")  # it trains: a signal then ends it with a goodbye
        scheduler.signal(signal.SIGKILL)
        scheduler.wait()
        server.wait_line("lost the coordinator")
        scheduler = self.start("starling-ps", env=self.job("scheduler"))
        scheduler.wait_line("the job has begun")
        server.wait_line("the coordinator is reachable again")
        worker.signal(signal.SIGTERM)
        self.assertEqual(worker.wait(), 128 + signal.SIGTERM, worker.output)
        self.end_well((scheduler, server))


if __name__ == "__main__":
    harness.main()
