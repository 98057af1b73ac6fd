#!/usr/bin/env python3
"""Faults of transfers between real processes: what the user reads, and how long beyond its deadline a call
returns. `--runs 20` repeats each fault and prints the table of docs/failures.md."""

import collections
import re
import signal
import sys
import time

import etcd_test
import harness
import protocol_client
import proxy

BYTES = 16 << 20
MOVE_MS = 30000
SLOW = 4e6  # bytes per second of a connection: a batch takes seconds
runs = 1

Answer = collections.namedtuple("Answer", "err took_s late_s text")
table = collections.defaultdict(list)  # fault -> answers


class Peer:
    """A process with an engine. Its memory: private, or shared with peers on this host. Its name stays free for
    another when it is killed."""

    def __init__(self, test, name=None, store="P2PHANDSHAKE", endpoints="tcp://127.0.0.1:0", memory="private"):
        name = name or f"127.0.0.1:{harness.free_ports(1)[0]}"
        self.process = test.start("transfer_peer", name, store, endpoints, memory, BYTES, commands=True)
        self.name = self.process.wait_line("serves ").split(" ")[1]
        self._seen = self.process.lines.index(f"serves {self.name}") + 1

    def send(self, command, timeout_ms=0, word="-"):
        self.process.write(f"{command} {timeout_ms} {word}\n")

    def answer(self, pattern=r"(\S+) (\d+) (\d+) (.*)"):
        """The next line that matches; the log stands between."""
        line, self._seen = self.process.wait_match(rf"{pattern}$", self._seen)
        return line

    def result(self):
        err, took_us, late_us, text = self.answer().groups()
        return Answer(err, int(took_us) / 1e6, int(late_us) / 1e6, text)

    def do(self, *command):
        self.send(*command)
        return self.result()

    def holds(self, value):
        self.send("holds", 0, value)
        return self.answer("(yes|no)").group() == "yes"

    def begin(self, timeout_ms):
        """Batches until one fails, from when they move."""
        self.send("run", timeout_ms)
        self.answer("moving")
        time.sleep(0.02)

    def signal(self, number):
        self.process.signal(number)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.process.wait()

    def quit(self):
        """In good order."""
        self.process.write("\n")
        status = self.process.wait()
        assert status == 0, self.process.output


class FaultsTest(harness.StarlingTest):
    def note(self, fault, answer, err, *words):
        for word in words:
            self.assertRegex(answer.text, word)
        self.assertIn(answer.err, err.split("|"), answer)
        table[fault].append(answer)

    def pair(self, **options):
        target, initiator = Peer(self, **options), Peer(self, endpoints=options.get("endpoints", "-"))
        self.assertEqual(initiator.do("open", MOVE_MS, target.name).err, "ok")
        return target, initiator

    def repeat(self, run):
        for _ in range(runs):
            run()
            self.doCleanups()  # also of setUp: each run has processes and a folder of its own
            self.setUp()


class Targets(FaultsTest):
    def test_is_killed(self):
        self.repeat(self.kill)

    def kill(self):
        target, initiator = self.pair()
        initiator.begin(1000)
        target.kill()
        self.note("the target is killed; a deadline of 1 s", initiator.result(), "deadline", target.name)
        self.note("… and one of 20 s", initiator.do("read", 20000), "closed", target.name, "has ended")
        initiator.quit()

    def test_is_killed_and_started_again(self):
        self.repeat(self.restart)

    def restart(self):
        """While the initiator is stopped, which otherwise gives the target up after some seconds."""
        target, initiator = self.pair()
        initiator.begin(20000)
        initiator.signal(signal.SIGSTOP)
        target.kill()
        again = Peer(self, name=target.name)
        initiator.signal(signal.SIGCONT)
        self.note("the target is killed, and started again with its name; 20 s", initiator.result(), "closed",
                  target.name, "open the segment again")
        initiator.do("close")
        self.note("… the segment is opened again", initiator.do("open", MOVE_MS, target.name), "ok")
        self.assertEqual(initiator.do("read", MOVE_MS).err, "ok")
        again.quit()
        initiator.quit()

    def test_ends(self):
        self.repeat(self.end_in_order)

    def end_in_order(self):
        target, initiator = self.pair()
        initiator.begin(20000)
        target.quit()
        self.note("the target ends; 20 s", initiator.result(), "closed", target.name, "has shut down")
        initiator.quit()

    def test_is_stopped(self):
        self.repeat(lambda: self.stop("tcp", 1000))
        self.repeat(lambda: self.stop("tcp", 3000))

    def test_at_shared_memory_is_stopped(self):
        self.repeat(lambda: self.stop("shm", 1000))
        self.repeat(lambda: self.stop("shm", 3000))

    def stop(self, scheme, timeout_ms):
        """With private memory, which is moved as frames."""
        target, initiator = self.pair(endpoints="tcp://127.0.0.1:0" + (",shm://" if scheme == "shm" else ""))
        initiator.begin(timeout_ms)
        target.signal(signal.SIGSTOP)
        self.note(f"the target is stopped ({scheme}); {timeout_ms // 1000} s", initiator.result(), "deadline",
                  target.name)
        target.signal(signal.SIGCONT)
        self.note("… and runs again", initiator.do("read", MOVE_MS), "ok")
        target.quit()
        initiator.quit()

    def test_of_shared_memory_is_stopped_and_killed(self):
        self.repeat(self.stop_shared)

    def stop_shared(self):
        target, initiator = self.pair(memory="shared", endpoints="tcp://127.0.0.1:0,shm://")
        self.assertEqual(initiator.do("read", MOVE_MS).err, "ok")
        target.signal(signal.SIGSTOP)
        self.note("the target of shared memory is stopped", initiator.do("write", MOVE_MS, 7), "ok")
        target.signal(signal.SIGCONT)
        self.assertTrue(target.holds(7))
        initiator.begin(1000)
        target.kill()
        self.note("… and killed; 1 s", initiator.result(), "deadline", target.name)
        initiator.quit()


class Initiators(FaultsTest):
    def test_is_killed_or_stopped(self):
        self.repeat(self.kill)

    def kill(self):
        target, initiator = self.pair()
        other = Peer(self, endpoints="-")
        self.assertEqual(other.do("open", MOVE_MS, target.name).err, "ok")
        initiator.begin(MOVE_MS)
        initiator.signal(signal.SIGSTOP)
        self.note("an initiator is stopped: another one", other.do("read", MOVE_MS), "ok")
        initiator.kill()
        self.note("… and killed: another one", other.do("write", MOVE_MS, 3), "ok")
        self.assertTrue(target.holds(3))
        target.quit()
        other.quit()


class Networks(FaultsTest):
    """A proxy before the control endpoint and one before the lanes, which the first one names."""

    def proxied(self):
        (lanes,), (before_lanes,) = harness.free_ports(1), harness.free_ports(1)
        self.target = Peer(self, endpoints=f"tcp://127.0.0.1:{lanes}")
        host, port = self.target.name.split(":")
        names = tuple(f"tcp://127.0.0.1:{port}".encode() for port in (lanes, before_lanes))
        self.lanes = proxy.Proxy((host, lanes), ("127.0.0.1", before_lanes))
        self.control = proxy.Proxy((host, int(port)), replace=names)
        self.addCleanup(self.lanes.close)
        self.addCleanup(self.control.close)
        self.initiator = Peer(self)
        self.name = "{}:{}".format(*self.control.address)
        self.assertEqual(self.initiator.do("open", MOVE_MS, self.name).err, "ok")
        self.assertEqual(self.initiator.do("read", MOVE_MS).err, "ok")
        self.assertGreater(self.lanes.connections, 0)

    def quit(self):
        self.initiator.quit()
        self.target.quit()

    def test_lane_is_cut(self):
        self.repeat(self.cut)

    def cut(self):
        self.proxied()
        self.lanes.throttle(SLOW)
        self.initiator.send("write", 20000, 5)
        time.sleep(0.05)
        self.assertGreater(self.lanes.cut(), 0)
        self.lanes.throttle(0)
        self.note("lanes are cut inside a WRITE; 20 s", self.initiator.result(), "ok")
        self.assertTrue(self.target.holds(5))
        self.quit()

    def test_network_drops_everything(self):
        self.repeat(self.drop)

    def drop(self):
        self.proxied()
        self.initiator.begin(1000)
        self.lanes.black_hole()
        self.control.black_hole()
        self.note("the network drops everything; 1 s", self.initiator.result(), "deadline", self.name)
        self.lanes.restore()
        self.control.restore()
        self.note("… and works again", self.initiator.do("read", MOVE_MS), "ok")
        self.quit()

    def test_the_peer_sends_an_error(self):
        self.repeat(lambda: self.send_error(protocol_client.REFUSED))
        self.repeat(lambda: self.send_error(protocol_client.TOO_LARGE))

    def send_error(self, code):
        """On idle connections, and in the middle of other bytes. Lanes connect again."""
        message = protocol_client.encode("Control", {"error": {"code": code, "text": "an error of a test"}})
        error = protocol_client.frame_bytes(protocol_client.Frame(protocol_client.CONTROL, message))
        self.proxied()
        self.lanes.inject(error)
        self.note("the peer sends an error on its lanes", self.initiator.do("read", MOVE_MS), "ok")
        self.lanes.throttle(SLOW)
        self.initiator.send("read", MOVE_MS)
        time.sleep(0.05)
        self.lanes.inject(error)
        self.lanes.throttle(0)
        self.assertEqual(self.initiator.result().err, "ok")
        self.control.inject(error)
        if code == protocol_client.REFUSED:
            self.initiator.send("run", MOVE_MS)
            self.note("… on the control connection", self.initiator.result(), "closed", "an error of a test")
            self.initiator.do("close")
            self.assertEqual(self.initiator.do("open", MOVE_MS, self.name).err, "ok")
        self.assertEqual(self.initiator.do("write", MOVE_MS, 9).err, "ok")
        self.assertTrue(self.target.holds(9))
        self.quit()

    def test_old_bytes_are_not_written_over_new_ones(self):
        self.repeat(self.delay_cut)
        self.repeat(self.delay_timed_out)

    def delay(self, timeout_ms):
        """A WRITE of ones, of which the proxy keeps a part."""
        self.proxied()
        self.lanes.throttle(SLOW)
        self.initiator.send("write", timeout_ms, 1)
        time.sleep(0.05)
        self.assertGreater(self.lanes.hold(), 0)
        self.lanes.throttle(0)

    def write_over(self, fault):
        self.note(fault, self.initiator.do("write", MOVE_MS, 2), "ok")
        self.lanes.release()
        time.sleep(0.1)
        self.assertTrue(self.target.holds(2), fault)
        self.quit()

    def delay_cut(self):
        self.delay(MOVE_MS)
        self.lanes.half_close("client")
        self.assertEqual(self.initiator.result().err, "ok")
        self.write_over("a lane is cut inside a WRITE, old bytes arrive later: the next WRITE stays")

    def delay_timed_out(self):
        self.delay(500)
        self.note("the network keeps bytes of a WRITE; 0.5 s", self.initiator.result(), "deadline", self.name)
        self.write_over("… they arrive later: the next WRITE stays")


class Stores(FaultsTest):
    def test_etcd_is_killed(self):
        self.repeat(self.kill_etcd)

    def kill_etcd(self):
        etcd = etcd_test.Etcd(self)
        target, initiator = Peer(self, store=etcd.url), Peer(self, store=etcd.url)
        self.assertEqual(initiator.do("open", MOVE_MS, target.name).err, "ok")
        etcd.stop()
        self.note("etcd is killed: a batch", initiator.do("read", MOVE_MS), "ok")
        other = Peer(self)
        self.assertEqual(other.do("open", MOVE_MS, target.name).err, "ok")
        initiator.do("close")
        self.note("… a segment is opened; 2 s", initiator.do("open", 2000, target.name), "i/o|deadline",
                  "metadata store")
        etcd.start()
        self.note("… and etcd runs again", initiator.do("open", MOVE_MS, target.name), "ok")
        for peer in (other, initiator, target):
            peer.quit()

    def test_target_is_killed_and_started_again(self):
        self.repeat(self.restart)

    def restart(self):
        etcd = etcd_test.Etcd(self)
        target, initiator = Peer(self, store=etcd.url), Peer(self, store=etcd.url)
        self.assertEqual(initiator.do("open", MOVE_MS, target.name).err, "ok")
        target.kill()
        initiator.do("close")
        self.note("a target in etcd is killed; its segment is opened", initiator.do("open", MOVE_MS, target.name),
                  "refused", target.name, "record in the metadata store")
        again = Peer(self, name=target.name, store=etcd.url)
        self.note("… and started again with its name", initiator.do("open", MOVE_MS, target.name), "ok")
        self.assertEqual(initiator.do("read", MOVE_MS).err, "ok")
        again.quit()
        initiator.quit()


def print_table():
    print("\n| fault; deadline | the user reads | after, s | most beyond the deadline, ms |\n| --- | --- | --- | --- |")
    for fault, answers in table.items():
        texts = sorted({re.sub(r"127\.0\.0\.1:\d+|0x\w+", "…", f"{a.err} {a.text}".strip()) for a in answers},
                       key=len)
        took = [a.took_s for a in answers]
        print(f"| {fault} | {' / '.join(texts[:2])} | {min(took):.2f} to {max(took):.2f} "
              f"| {max(a.late_s for a in answers) * 1000:.1f} |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--runs"]:
        runs = int(sys.argv[2])
        del sys.argv[1:3]
    try:
        harness.main()
    finally:
        if runs > 1:
            print_table()
