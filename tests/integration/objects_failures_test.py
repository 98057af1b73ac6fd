#!/usr/bin/env python3
"""What users of objects see when processes fail: each row of the table of failures, with real processes over TCP.
--runs N [ROW...] repeats the rows and prints a table: texts, times until the newest version is visible again,
lateness, torn bytes."""

import argparse
import collections
import concurrent.futures
import random
import re
import signal
import statistics
import sys
import time
import unittest

import etcd_test
import harness
import objects_test

BYTES = 4 << 20  # of a version
BLOCKS = BYTES >> 18
RATE = BYTES  # per second, of processes that fail while others read there
CALL_MS = 1000  # of calls that are expected to fail
JOBS = 4  # rows at a time: they wait more than they work

Answer = collections.namedtuple("Answer", "error version took_us late_us torn text")
Seen = collections.namedtuple("Seen", "recovery_s late_us torn texts")
is_long = False
table = collections.defaultdict(list)  # of rows: what was seen in each run


class Peer:
    """An objects_peer, which answers commands."""

    def __init__(self, test, agent="off", rate=0, pool="0", metadata=None):
        self.test, self.seen = test, 0
        test.hosts += 1
        host = f"{test.label}-{test.hosts if agent == 'off' else 'agent'}"
        self.process = test.start("objects_peer", "-" if metadata else test.catalogue, metadata or "-", agent, host,
                                  rate, pool, commands=True)
        self.process.wait_line("ready")

    def send(self, *words):
        self.process.write(" ".join(map(str, words)) + "\n")

    def wait(self, pattern):
        match, self.seen = self.process.wait_match(pattern, self.seen)
        return match

    def answer(self, error="ok", *texts):
        """The answer to the command, which is an expected one (error: None: any)."""
        found = self.wait(r"= (\D+) (\d+) (\d+) (\d+) (\d+) ?(.*)").groups()
        answer = Answer(found[0], *map(int, found[1:5]), found[5])
        self.test.note(answer)
        if error is not None:
            self.test.assertEqual(answer.error, error, self.process.output)
        for text in texts:
            self.test.assertIn(text, answer.text)
        return answer

    def do(self, *words):
        self.send(*words)
        return self.answer()

    def publish(self, version, origin="caller", name="m", size=BYTES):
        self.do("begin", name, version, origin, size, 60000)
        self.do("commit", 60000)

    def get(self, version=1, timeout_ms=60000):
        """Begins a get; returns when a quarter has arrived."""
        self.send("get", "m", version, BYTES, timeout_ms)
        self.wait("arriving")

    def signal(self, number):
        self.process.signal(number)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.process.wait()


class Row(objects_test.ObjectsTest):
    def setUp(self):
        super().setUp()
        self.label, self.hosts = f"failures-{random.getrandbits(40)}", 0
        self.texts, self.late_us, self.torn = [], 0, 0
        self.fault_s, self.recovery_s = None, None

    def tearDown(self):
        self.assertEqual(self.torn, 0)
        if self.recovery_s is not None:
            seen = Seen(self.recovery_s, self.late_us, self.torn, self.texts)
            table[self.id().split(".", 1)[1].replace("test_", "")].append(seen)

    def note(self, answer):
        self.late_us = max(self.late_us, answer.late_us)
        self.torn += answer.torn
        if answer.error != "ok":
            self.texts.append(f"{answer.error}: {answer.text}")

    def start_catalogue(self, *flags):
        self.catalogue = f"127.0.0.1:{harness.free_ports(1)[0]}"
        return self.restart_catalogue(*flags)

    def restart_catalogue(self, *flags):
        server = self.start("starling-objects", "serve", "--name", self.catalogue, *flags)
        server.wait_line("serves the catalogue")
        return server

    def start_keeper(self, folder):
        keeper = self.start("starling-objects", "serve", "--dir", self.path(folder), "--catalogue", self.catalogue,
                            "--rate", RATE, "--host", f"{self.label}-{folder}")
        keeper.wait_line("serves stored versions")
        return keeper

    def start_agent(self, pool="64M", *flags):
        agent = self.start("starling-objects", "serve", "--agent", "--agent-name", self.label, "--catalogue",
                           self.catalogue, "--pool-memory", pool, "--host", f"{self.label}-agent", *flags)
        agent.wait_line("serves readers")
        return agent

    def wait_holders(self, count, name="m"):
        end = time.monotonic() + harness.DEADLINE_S
        while [one["holders"] for one in self.entries(self.catalogue, "ls", name)][-1:] != [count]:
            self.assertLess(time.monotonic(), end)

    def fault(self):
        self.fault_s = time.monotonic()

    def recovered(self):
        self.recovery_s = time.monotonic() - self.fault_s

    def recover(self, reader, versions, command="get"):
        """Until the reader has the newest version, which is one of these."""
        end, words = time.monotonic() + harness.DEADLINE_S, {"get": (0, BYTES), "open": (0,)}[command]
        while True:
            reader.send(command, "m", *words, 2000)
            answer = reader.answer(error=None)
            if answer.error == "ok" and answer.version in versions:
                return self.recovered()
            self.assertLess(time.monotonic(), end, answer)


class Publisher(Row):
    def start_storage(self, origin):
        """Returns the process that stores what is published with the origin, or else the catalogue."""
        server = self.start_catalogue()
        return {"agent": self.start_agent, "ps": lambda: self.start_keeper("k")}.get(origin, lambda: server)()

    def start_publisher(self, origin):
        publisher = Peer(self, agent=self.label if origin == "agent" else "off", pool="64000000")
        return publisher, "host" if origin == "agent" else origin

    def before(self, origin, has_commit=True, stands_still=True):
        """Version 2 is not published, since the process that it is given to stands still meanwhile. The catalogue may
        find COMMIT of a publisher's own pool then, and forgets the version with the publisher's lease. If nothing
        stands still, it is published or not."""
        storage = self.start_storage(origin)
        publisher, origin = self.start_publisher(origin)
        getter, reader, later, next_publisher = (Peer(self) for _ in range(4))
        publisher.publish(1, origin)
        getter.do("get", "m", 1, BYTES, 60000)
        self.wait_holders(2)
        publisher.do("begin", "m", 2, origin, BYTES, 60000)
        if stands_still:
            storage.signal(signal.SIGSTOP)
        if has_commit:
            publisher.send("commit", 60000)
            time.sleep(random.uniform(0, 0.1 if stands_still else 0.02))
        self.fault()
        publisher.kill()
        storage.signal(signal.SIGCONT)
        self.recover(reader, [1] if stands_still else [1, 2])
        next_publisher.publish(3)
        self.assertEqual(later.do("get", "m", 0, BYTES, 60000).version, 3)

    def test_killed_before_commit(self):
        self.before("host", has_commit=False)

    def test_killed_before_the_answer_own_pool(self):
        self.before("host")

    def test_killed_before_the_answer_agent(self):
        self.before("agent")

    def test_killed_before_the_answer_keepers(self):
        self.before("ps")

    def test_killed_at_any_moment_own_pool(self):
        self.before("host", stands_still=False)

    def test_killed_at_any_moment_agent(self):
        self.before("agent", stands_still=False)

    def test_killed_at_any_moment_keepers(self):
        self.before("ps", stands_still=False)

    def after(self, origin, has_getter=False):
        self.start_storage(origin)
        publisher, origin = self.start_publisher(origin)
        getter, reader = Peer(self), Peer(self)
        publisher.publish(1, origin)
        if has_getter:
            getter.do("get", "m", 1, BYTES, 60000)
        self.fault()
        publisher.kill()
        self.recover(reader, [1])

    def test_killed_after_the_answer_caller_and_a_getter(self):
        self.after("caller", has_getter=True)

    def test_killed_after_the_answer_own_pool_and_a_getter(self):
        self.after("host", has_getter=True)

    def test_killed_after_the_answer_agent(self):
        self.after("agent")

    def test_killed_after_the_answer_keepers(self):
        self.after("ps")


class Parent(Row):
    """One of two sources of a get, while it runs. Its user sees nothing."""

    def check(self, fail):
        self.start_catalogue()
        parents, getter = [Peer(self, rate=RATE), Peer(self, rate=RATE)], Peer(self)
        parents[0].publish(1)
        parents[1].do("get", "m", 1, BYTES, 60000)
        self.wait_holders(2)
        getter.get()
        self.fault()
        fail(random.choice(parents))
        self.assertEqual(getter.answer().version, 1)
        self.recovered()
        self.assertEqual(self.texts, [])

    def test_killed(self):
        self.check(Peer.kill)

    def test_stopped(self):
        self.check(lambda parent: parent.signal(signal.SIGSTOP))

    def test_with_wrong_bytes(self):
        self.check(lambda parent: parent.do("damage"))


class LastHolder(Row):
    def test_killed(self):
        self.start_catalogue()
        publisher, getter, reader, next_publisher = Peer(self, rate=RATE // 4), Peer(self), Peer(self), Peer(self)
        publisher.publish(1)
        getter.get(timeout_ms=3000)
        self.fault()
        publisher.kill()
        next_publisher.publish(2)
        self.recover(reader, [2])
        text = getter.answer("deadline").text
        self.assertRegex(text, rf"missing blocks [0-9, -]+ \(\d+ of {BLOCKS}\); last holder 127.0.0.1:\d+")


class Catalogue(Row):
    def test_killed_and_restarted(self):
        server = self.start_catalogue()
        publisher, getter, other, reader, later = Peer(self, rate=RATE), *(Peer(self) for _ in range(4))
        publisher.publish(1)
        getter.get()
        server.signal(signal.SIGKILL)
        server.wait()
        self.assertEqual(getter.answer().version, 1)
        other.send("get", "m", 0, BYTES, CALL_MS)
        other.answer("deadline", self.catalogue)
        publisher.send("begin", "m", 2, "caller", BYTES, CALL_MS)
        self.assertNotIn("just started", publisher.answer("deadline", self.catalogue).text)
        self.fault()  # from here on it is not there because its start takes time
        self.restart_catalogue()
        self.recover(reader, [1])
        publisher.publish(2)
        self.assertEqual(later.do("get", "m", 0, BYTES, 60000).version, 2)

    def test_killed_and_replaced_by_etcd(self):
        store = f"{etcd_test.Etcd(self).url}/deep"
        server = self.start("starling-objects", "serve", "--metadata", store)
        server.wait_line("serves")
        publisher, getter, other, reader, later = (Peer(self, metadata=store, rate=rate) for rate in (RATE, 0, 0, 0, 0))
        publisher.publish(1)
        getter.get()
        self.fault()
        server.signal(signal.SIGKILL)
        server.wait()
        self.assertEqual(getter.answer().version, 1)
        other.send("get", "m", 0, BYTES, CALL_MS)
        other.answer("deadline", "the catalogue at 127.0.0.1:")
        self.recover(reader, [1])
        publisher.publish(2)
        self.assertEqual(later.do("get", "m", 0, BYTES, 60000).version, 2)


class Keeper(Row):
    def check(self, replicas, followers, restart=False):
        self.start_catalogue("--replicas", replicas)
        folders = [f"keeper{i}" for i in range(replicas + 1)]
        keepers = [self.start_keeper(folder) for folder in folders]
        publisher, getter, follower = Peer(self), Peer(self), Peer(self, rate=RATE)
        for name in ("warm", "m"):
            publisher.publish(1, "ps", name, 8 if name == "warm" else BYTES)
            self.wait_holders(len(keepers), name)
        if followers:
            follower.do("get", "m", 1, BYTES, 60000)
            self.wait_holders(len(keepers) + 1)
        publisher.kill()
        getter.get()
        self.fault()
        killed = random.randrange(len(keepers))
        keepers[killed].signal(signal.SIGKILL)
        keepers[killed].wait()
        if restart:
            self.fault()
            self.start_keeper(folders[killed])
        self.assertEqual(getter.answer().version, 1)
        self.recovered()
        self.assertEqual(self.texts, [])

    def test_killed_with_a_replica(self):
        self.check(1, 0)

    def test_killed_with_a_follower(self):
        self.check(0, 1)

    def test_killed_alone_and_restarted(self):
        self.check(0, 0, restart=True)


class Agent(Row):
    def start_all(self):
        self.start_catalogue()
        publisher, agent, reader = Peer(self), self.start_agent(), Peer(self, agent=self.label)
        publisher.publish(1)
        self.assertEqual(reader.do("open", "m", 0, 60000).version, 1)
        return publisher, agent, reader

    def check(self, reader, name):
        """The view is intact, and another one cannot be opened."""
        self.assertEqual(reader.do("check").version, 1)
        reader.send("open", "m", 2, CALL_MS)
        reader.answer("deadline", "agent", name)

    def test_killed(self):
        publisher, agent, reader = self.start_all()
        agent.signal(signal.SIGKILL)
        agent.wait()
        publisher.publish(2)
        self.check(reader, self.label)
        self.fault()
        self.start_agent()
        self.recover(reader, [2], "open")

    def test_stopped(self):
        publisher, agent, reader = self.start_all()
        agent.signal(signal.SIGSTOP)
        publisher.publish(2)
        self.check(reader, f"process {agent.pid}")
        self.fault()
        agent.signal(signal.SIGCONT)
        self.recover(reader, [2], "open")


class Reader(Row):
    def test_killed(self):
        """What its view has held in the pool is free at once."""
        self.start_catalogue()
        publisher = Peer(self)
        self.start_agent("6M")
        reader, other = Peer(self, agent=self.label), Peer(self, agent=self.label)
        publisher.publish(1)
        reader.do("open", "m", 0, 60000)
        publisher.publish(2)
        other.send("open", "m", 2, 60000)
        other.answer("no memory", "pool")
        self.fault()
        reader.kill()
        self.recover(other, [2], "open")

    def test_child_stopped(self):
        """Meanwhile its pin ends (in the long form), and another version is where it reads."""
        self.start_catalogue()
        publisher, getter = Peer(self, rate=RATE), Peer(self)
        self.start_agent("6M", "--rate", RATE)
        reader, other = Peer(self, agent=self.label), Peer(self, agent=self.label)
        publisher.publish(1)
        publisher.publish(1, name="n")
        reader.do("open", "m", 0, 60000)
        self.wait_holders(2)
        reader.kill()
        getter.get(timeout_ms=120000)
        getter.signal(signal.SIGSTOP)
        time.sleep(32 if is_long else 0.5)
        if is_long:
            other.do("open", "n", 0, 60000)
        self.fault()
        getter.signal(signal.SIGCONT)
        self.assertEqual(getter.answer().version, 1)
        self.recovered()


def run(case):
    result = unittest.TestResult()
    case.run(result)
    return case, result


def print_table():
    print(f"{'row':55} {'runs':>4} {'median s':>8} {'most s':>8} {'late ms':>8} {'torn':>4}  user's text")
    for row, seen in table.items():
        times = [one.recovery_s for one in seen]
        texts = collections.Counter(re.sub(r"\d+", "N", text) for one in seen for text in one.texts)
        shown = {re.sub(r"\d+", "N", text): text for one in seen for text in one.texts}
        text = "; ".join(f"{count} x {shown[key]}" for key, count in texts.most_common(2)) or "none: no error"
        print(f"{row:55} {len(seen):4} {statistics.median(times):8.2f} {max(times):8.2f} "
              f"{max(one.late_us for one in seen) / 1000:8.1f} {sum(one.torn for one in seen):4}  {text}")


def main():
    global is_long
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, help="the long form")
    parser.add_argument("--jobs", type=int, default=JOBS, help="rows at a time")
    parser.add_argument("rows", nargs="*", help="default: all; else those whose name has one of these in it")
    options = parser.parse_args()
    is_long = options.runs is not None
    found = harness.flat(unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]))
    names = [(type(case), case.id().rsplit(".", 1)[1]) for case in found
             if not options.rows or any(row in case.id() for row in options.rows)]
    cases = [kind(name) for _ in range(options.runs or 1) for kind, name in names]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for case, result in pool.map(run, cases):
            problems = result.failures + result.errors
            failed += len(problems)
            state = "skipped: " + result.skipped[0][1] if result.skipped else "FAILED" if problems else "ok"
            print(f"{case.id()}: {state}", *(text for _, text in problems), sep="\n", flush=True)
    if is_long:
        print_table()
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
