#!/usr/bin/env python3
"""Runs whole jobs with faults, many times, and says what became of each: one line a run, and a
summary. Not part of the test suite: it takes minutes, and data that is not in the tree.

    tests/integration/soak.py --train FILE --test FILE [--runs 20] [--seed N] [KIND...]

kill  a factorization machine on 8 workers and 2 ps; a random worker is killed at a random moment and
      started again by starling-launch. The run ends, with an AUC close to the undisturbed one.
cut   the same job; a random fault of the network every now and then, through proxies.
sum   jobs of integers under both; the sums are exact, whatever was cut or killed.
replica      the same job with --replicas 1: a random worker is killed at a random moment and started
             again, then ps/1. It says how long pushes waited for the backup.
replica_sum  jobs of integers with --replicas 1: a random worker is killed, then ps/1; exact sums.
replica_again  jobs of integers on three ps: a worker and a ps are killed in one moment, or the ps
               stands still or is told to end, and is killed again as it comes back; three times.
store, store_sum  likewise with --cluster-store: a worker is killed, the leader of an etcd of three, and
             then the ps that hosts the coordinator.

Consistency modes take turns. Exit status 1 when any run was not as it should be."""

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import sys
import time

import etcd_test
import failures_test
import harness
import sum_job

AUC_TOLERANCE = 0.003
KINDS = ("kill", "cut", "sum", "replica", "replica_sum", "replica_again", "store",
         "store_sum")
TRAINING_KINDS = {"kill", "cut", "replica", "store"}
MODES = failures_test.MODES
WORKERS = 8
LEASE_S = 2


class Failed(Exception):
    """A run was not as it should be."""


class TooLate(Exception):
    """The job had ended before the fault came: the run does not count."""


class Round(harness.StarlingTest):
    """The processes and the folder of one run."""

    failureException = Failed

    def runTest(self):
        """Nobody calls it: unittest wants one."""


@contextlib.contextmanager
def one_round():
    round_ = Round()
    round_.setUp()
    try:
        yield round_
    finally:
        round_.doCleanups()


def workers_of(launcher):
    """Pids of the starling-worker processes under a launcher, by task index."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, ValueError):
            with open(f"/proc/{name}/stat", encoding="ascii") as file:
                parent = int(file.read().rsplit(")", 1)[1].split()[1])
            with open(f"/proc/{name}/cmdline", encoding="utf-8") as file:
                words = file.read().split("\0")
            if parent == launcher.pid and words[0].endswith("starling-worker"):
                found[int(words[words.index("--task-index") + 1])] = int(name)
    return found


class Soak:
    def __init__(self, args):
        self.random = random.Random(args.seed)
        self.data = ["--data", args.train, "--test", args.test, "--format", "libsvm", "--epochs",
                     args.epochs]
        self.undisturbed = {}  # mode -> (auc, seconds of training)

    # A training job

    def training(self, round_, mode):
        return [*self.data, "--model", "fm", "--factors", "8", "--consistency", mode, "--report",
                os.path.join(round_.folder, "report.json")]

    def report(self, round_):
        """Of whoever evaluated."""
        for name in sorted(os.listdir(round_.folder)):
            if name.startswith("report.json"):
                with open(os.path.join(round_.folder, name), encoding="utf-8") as file:
                    report = json.load(file)
                if report["test"] is not None:
                    return report
        raise Failed("nobody has evaluated the model")

    def launch(self, round_, mode):
        return round_.start("starling-launch", "--ps", 2, "--workers", WORKERS, "--ps-reactors", 1,
                            "--worker-reactors", 1, "--lease", LEASE_S, "--restart-workers", 1, "--",
                            *self.training(round_, mode))

    def end(self, process):
        if process.wait() != 0:
            raise Failed(f"{process.name} failed:\n{process.output}")

    def judge(self, round_, mode):
        """What is printed of a run that has ended."""
        auc = self.report(round_)["test"]["auc"]
        off = auc - self.undisturbed[mode][0]
        if abs(off) > AUC_TOLERANCE:
            raise Failed(f"AUC {auc:.4f} is {off:+.4f} off")
        return f"AUC {auc:.4f} ({off:+.4f})"

    def measure_undisturbed(self, times=3):
        """Of some jobs the middle AUC, and the time of the fastest, so that kills come while the
        others are not done."""
        for mode in MODES:
            found = []
            for _ in range(times):
                with one_round() as round_:
                    self.end(self.launch(round_, mode))
                    report = self.report(round_)
                    found.append((report["seconds"]["training"], report["test"]["auc"]))
            seconds, auc = min(each[0] for each in found), statistics.median(each[1] for each in found)
            self.undisturbed[mode] = (auc, seconds)
            print(f"undisturbed {mode}: AUC {auc:.4f}, trained in {seconds:.1f} s", flush=True)

    # The kinds of runs

    def kill(self, round_, mode):
        launcher = self.launch(round_, mode)
        victim = self.random.randrange(WORKERS)
        while victim not in workers_of(launcher):
            time.sleep(0.01)
        moment = self.random.uniform(0, self.undisturbed[mode][1])
        time.sleep(moment)
        pid = workers_of(launcher).get(victim)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.end(launcher)
        if f"worker/{victim} failed: killed by signal 9" not in launcher.output:
            raise TooLate
        return f"worker/{victim} killed after {moment:.2f} s, {self.judge(round_, mode)}"

    def cut(self, round_, mode):
        cluster = sum_job.Cluster(round_, worker_count=WORKERS, lease_s=LEASE_S)
        for ps in cluster.ps:
            ps.wait_line("ready")
        workers = round_.start_workers(cluster.worker_flags, WORKERS, self.training(round_, mode),
                                       env={"NETWORK_WORKER_CORE_NUMBER": "1"})
        faults = self.disturb(cluster, workers)
        for worker in workers:
            self.end(worker)
        cluster.drain()
        return f"{faults} faults, {self.judge(round_, mode)}"

    def disturb(self, cluster, workers, meanwhile=lambda: None):
        """Faults at random moments, of the network to either ps or to the coordinator, until all
        workers have ended; returns how many."""
        faults = 0
        while any(worker.running() for worker in workers):
            time.sleep(self.random.uniform(0, 0.4))
            proxy = self.random.choice([*cluster.data, cluster.control])
            self.random.choice(failures_test.Network.FAULTS)(proxy)
            time.sleep(self.random.uniform(0, 0.15))
            proxy.restore()
            meanwhile()
            faults += 1
        return faults

    def sum(self, round_, mode):
        cluster = sum_job.Cluster(round_, lease_s=LEASE_S)
        for ps in cluster.ps:
            ps.wait_line("ready")
        job = sum_job.SumJob(round_, cluster, mode, iterations=300)
        workers = job.start_all()
        victim, moment = self.random.randrange(len(workers)), self.random.uniform(0, 1)
        begin = time.monotonic()

        def kill_once():
            if job.runs[victim] == 1 and time.monotonic() - begin > moment:
                workers[victim].signal(signal.SIGKILL)
                if workers[victim].wait() != -signal.SIGKILL:
                    raise TooLate
                time.sleep(1)  # as starling-launch does
                workers[victim] = job.start(victim)

        faults = self.disturb(cluster, workers, kill_once)
        for worker in workers:
            self.end(worker)
        if job.runs[victim] == 1:
            raise TooLate
        acknowledged = job.check()
        cluster.drain()
        return f"{faults} faults, worker/{victim} killed, {acknowledged} pushes acknowledged, exact"

    # With replicas

    def replicated(self, round_, worker_count):
        """A cluster of two ps, each with the backup of the other, in step."""
        cluster = sum_job.Cluster(round_, worker_count=worker_count, lease_s=LEASE_S, proxied=False,
                                  extra=["--replicas", 1])
        for ps in cluster.ps:
            ps.wait_line("ready")
        return cluster

    def stored(self, round_, worker_count):
        """Likewise, with an etcd of three."""
        return etcd_test.Cluster(round_, etcd_test.Etcd(round_, 3), worker_count=worker_count,
                                 extra=["--replicas", 1])

    def kill_one(self, workers, start):
        """Kills a worker, and starts another in its place as starling-launch does."""
        victim = self.random.randrange(len(workers))
        workers[victim].signal(signal.SIGKILL)
        if workers[victim].wait() != -signal.SIGKILL:
            raise TooLate
        time.sleep(1)
        workers[victim] = start(victim)
        return victim

    def kill_servers(self, cluster):
        """Kills ps/1; with a cluster store its leader, and then the ps that hosts the coordinator.
        Waits until the backup serves; returns the index of the ps, and the words for it."""
        victim, killed = 1, ""
        if isinstance(cluster, etcd_test.Cluster):
            cluster.etcd.kill_leader()
            time.sleep(self.random.uniform(0, 1))
            victim, killed = cluster.host(), "etcd's leader and "
        other = 1 - victim
        begin = time.monotonic()
        cluster.ps[victim].signal(signal.SIGKILL)
        cluster.ps[victim].wait()
        cluster.ps[other].wait_line(f"ps/{other} serves the shards of ps/{victim} from now on")
        return victim, f"{killed}ps/{victim} killed, served again in {time.monotonic() - begin:.2f} s"

    def end_survivor(self, cluster, dead_ps):
        cluster.ps[1 - dead_ps].signal(signal.SIGTERM)
        self.end(cluster.ps[1 - dead_ps])

    def train(self, round_, mode, cluster):
        args = self.training(round_, mode)

        def start(index):
            return round_.start("starling-worker", *cluster.worker_flags, "--job-name", "worker",
                                "--task-index", index, *args, env={"NETWORK_WORKER_CORE_NUMBER": "1"})

        workers = [start(index) for index in range(WORKERS)]
        cluster.ps[cluster.host()].wait_line("table fm/bias")
        first, second = sorted(self.random.uniform(0, self.undisturbed[mode][1] / 2) for _ in range(2))
        time.sleep(first)
        worker = self.kill_one(workers, start)
        time.sleep(second - first)
        if not all(worker.running() for worker in workers):
            raise TooLate
        ps, said = self.kill_servers(cluster)
        for each in workers:
            self.end(each)
        self.end_survivor(cluster, ps)
        return f"worker/{worker} killed after {first:.2f} s, after {second - first:.2f} s {said}, " \
               f"{self.judge(round_, mode)}"

    def count(self, round_, mode, cluster):
        job = sum_job.SumJob(round_, cluster, mode, iterations=600, gated=True)
        workers = job.start_all()
        workers[0].wait_line("iteration 8")
        worker = self.kill_one(workers, job.start)
        time.sleep(self.random.uniform(0, 1))
        ps, said = self.kill_servers(cluster)
        job.open_gate()
        for each in workers:
            self.end(each)
        acknowledged = job.check()
        self.end_survivor(cluster, ps)
        return f"worker/{worker} killed, {said}, {acknowledged} pushes acknowledged, exact"

    def replica(self, round_, mode):
        return self.train(round_, mode, self.replicated(round_, WORKERS))

    def replica_sum(self, round_, mode):
        return self.count(round_, mode, self.replicated(round_, 4))

    def wait_in_step(self, ps, others):
        """Until ps/0 has said of the shards of every ps that their backup is in step, last of all."""
        end = time.monotonic() + harness.DEADLINE_S
        while True:
            last = {}
            for line in ps.lines:
                for owner in range(others + 1):
                    if f"the shards of ps/{owner}" in line:
                        last[owner] = ": they are in sync (" in line
            if len(last) > others and all(last.values()):
                return
            if time.monotonic() > end:
                raise Failed(f"not all are in step:\n{ps.output}")
            time.sleep(0.05)

    def restart_ps(self, cluster, index):
        """Another process, and the coordinator knows it."""
        came = cluster.ps[0].output.count(f"ps/{index} came back")
        cluster.ps[index] = cluster.start_ps(index)
        while cluster.ps[0].output.count(f"ps/{index} came back") == came:
            if not cluster.ps[index].running():
                raise Failed(f"ps/{index} does not start:\n{cluster.ps[index].output}")
            time.sleep(0.01)

    def replica_again(self, round_, mode):
        cluster = sum_job.Cluster(round_, ps_count=3, lease_s=LEASE_S, proxied=False,
                                  extra=["--replicas", 1])
        for ps in cluster.ps:
            ps.wait_line("ready")
        job = sum_job.SumJob(round_, cluster, mode, iterations=600, gated=True)
        workers = job.start_all()
        workers[0].wait_line("iteration 8")
        said = []
        for _ in range(3):
            self.wait_in_step(cluster.ps[0], 2)
            victim = self.random.choice((1, 2))
            how = self.random.choice((signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM))
            cluster.ps[victim].signal(how)
            if how == signal.SIGKILL:
                self.kill_one(workers, job.start)
            elif how == signal.SIGSTOP:
                time.sleep(LEASE_S + self.random.uniform(0.5, 1))
                cluster.ps[victim].signal(signal.SIGCONT)
            cluster.ps[victim].wait()
            said.append(f"{signal.Signals(how).name} ps/{victim}")
            self.restart_ps(cluster, victim)
            time.sleep(self.random.uniform(0, 0.3))
            cluster.ps[victim].signal(signal.SIGKILL)
            cluster.ps[victim].wait()
            self.restart_ps(cluster, victim)
        job.open_gate()
        for worker in workers:
            self.end(worker)
        return f"{', '.join(said)}, {job.check()} pushes acknowledged, exact"

    def store(self, round_, mode):
        return self.train(round_, mode, self.stored(round_, WORKERS))

    def store_sum(self, round_, mode):
        return self.count(round_, mode, self.stored(round_, 4))

    # All of them

    def run(self, kind, mode):
        """Returns whether all was as it should be, and what to say."""
        while True:
            try:
                with one_round() as round_:
                    return True, getattr(self, kind)(round_, mode)
            except TooLate:
                continue
            except (Failed, AssertionError) as error:
                return False, f"FAILED: {error}"

    def repeat(self, kind, runs):
        """Returns how many were as they should be."""
        good = 0
        for index in range(runs):
            mode = MODES[index % len(MODES)]
            begin = time.monotonic()
            is_good, said = self.run(kind, mode)
            good += is_good
            print(f"{kind} {index + 1}/{runs} {mode}: {said}, {time.monotonic() - begin:.1f} s",
                  flush=True)
        return good


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--train")
    parser.add_argument("--test")
    parser.add_argument("--epochs", default="3")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("kinds", nargs="*", default=KINDS)
    args = parser.parse_args()
    if set(args.kinds) - set(KINDS):
        parser.error(f"accepts {', '.join(KINDS)}")
    print(f"seed {args.seed}", flush=True)
    soak = Soak(args)
    if TRAINING_KINDS & set(args.kinds):
        if not args.train or not args.test:
            parser.error(f"{', '.join(sorted(TRAINING_KINDS))} want --train and --test")
        soak.measure_undisturbed()
    good = {kind: soak.repeat(kind, args.runs) for kind in args.kinds}
    print("; ".join(f"{kind}: {count} of {args.runs} as they should be"
                    for kind, count in good.items()))
    return 0 if all(count == args.runs for count in good.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
