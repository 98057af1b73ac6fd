#!/usr/bin/env python3
"""Many clients in the middle of long requests at once: more than a reactor has places for such
requests, and more than it has receive buffers. Everybody else is served meanwhile, and nobody is
lost; places go to the clients in the order in which they came.

STARLING_CROWD_CLIENTS says how many clients share the network of SlowNetwork, which prints the latency of
small pulls without them and beside them. Its figures need five cores."""

import contextlib
import multiprocessing
import os
import time

import harness
import protocol_client as pc

CLIENTS = int(os.environ.get("STARLING_CROWD_CLIENTS", "40"))
SENDERS = 4  # processes that the clients of SlowNetwork are spread over
NETWORK_BYTES_PER_S = 120_000_000
CROWD = 400
FINISHERS = 60
LENGTH = 2_000_000  # elements, of which each of two shards has half: 4 MB
BUDGET_S = 600
BEGUN = pc.HEADER.size + 100
LEASE_S = 6
SPARSE_SUM = {"name": "sum", "dim": 3}


class CrowdTest(harness.StarlingTest):
    """Base of the tests: two ps of one reactor, and a witness who is served by both."""

    def start_cluster(self, *extra):
        self.servers, flags = self.start_ps(2, 1, extra=extra, env={"NETWORK_PS_CORE_NUMBER": "1"})
        self.coordinator = "tcp://" + flags[1].split(",")[0]
        self.peers = contextlib.ExitStack()
        self.addCleanup(self.peers.close)
        for server in self.servers:
            server.wait_line("ready")
        self.witness = pc.Client(self.coordinator)
        self.peers.callback(self.witness.close)

    def check_served(self, table):
        """By both ps, and heard by the coordinator."""
        self.witness.control.ask("heartbeat", "heartbeat")
        rows = self.witness.pull(table, list(range(20)))
        self.assertEqual(rows, [(0.0, 0.0, 0.0)] * 20)

    def long_request(self, array):
        """A push of all that shard 0 has of the array: 1 to each element."""
        _, start, end = next(part for part in pc.dense_ranges(LENGTH, 2, array.id) if part[0] == 0)
        self.start = start
        payload = pc.request_payload([pc.dense_push(array, start, [1.0] * (end - start))])
        self.assertGreater(len(payload), 3 << 20)
        return pc.frame_bytes(pc.Frame(pc.REQUEST, payload, 1, BUDGET_S * 1000000))

    def finish(self):
        for server in self.servers:
            self.assertNotIn("lost", server.output)
        self.peers.close()
        self.drain(self.servers)


class Crowd(CrowdTest):
    def crowd(self, frame):
        """Each has sent the header of the frame, and a little of its payload. Returns who is to finish,
        and how much each of these has sent."""
        endpoint = self.witness.cluster["ps"][0]["data_endpoint"]
        finishers, sent = [], BEGUN
        for index in range(CROWD):
            if index % 20 == 0:
                self.witness.control.ask("heartbeat", "heartbeat")
                sent = self.one_more_byte(finishers, frame, sent)
            peer = pc.Connection(endpoint, pc.PURPOSE_DATA, shard=0)
            self.peers.callback(peer.close)
            self.assertGreaterEqual(peer.credit_bytes, len(frame))
            peer.socket.sendall(frame[:sent])
            if index < FINISHERS:
                finishers.append(peer)
        return finishers, sent

    def one_more_byte(self, finishers, frame, sent):
        """Who stops is closed after 10 s."""
        for peer in finishers:
            peer.socket.sendall(frame[sent:sent + 1])
        return sent + 1

    def test_in_the_middle_of_long_requests(self):
        self.start_cluster("--lease", LEASE_S)
        table = self.witness.open(**SPARSE_SUM)
        array = self.witness.open(name="array", kind=pc.DENSE, length=LENGTH)
        frame = self.long_request(array)
        finishers, sent = self.crowd(frame)
        end = time.monotonic() + 1.5 * LEASE_S
        while time.monotonic() < end or finishers:
            sent = self.one_more_byte(finishers, frame, sent)
            self.check_served(table)
            if time.monotonic() < end:
                time.sleep(0.1)
            else:
                first = finishers.pop(0)
                first.socket.sendall(frame[sent:])
                self.assertEqual(first.reply(1).status, 0)
        done = self.witness.shards[0].do(pc.dense_pull(array, self.start, 10))
        self.assertEqual(done, [(float(FINISHERS),) * 10])
        self.finish()


class Sender:
    """Clients that push a long frame each, over their share of the network."""

    def __init__(self, endpoint, frame, count, bytes_per_s):
        self._frame = memoryview(frame)
        self._rate = bytes_per_s
        self._peers = [pc.Connection(endpoint, pc.PURPOSE_DATA) for _ in range(count)]
        self._sent = {peer: 0 for peer in self._peers}
        for peer in self._peers:
            peer.socket.setblocking(False)

    def _send(self, peer, count):
        with contextlib.suppress(BlockingIOError):
            count = peer.socket.send(self._frame[self._sent[peer]:self._sent[peer] + count])
            self._sent[peer] += count
            return count
        return 0

    def run(self):
        """Sends in turns of 64 KiB, then receives the replies."""
        unfinished, passed, start = set(self._peers), 0, time.monotonic()
        while unfinished:
            moved = 0
            for peer in list(unfinished):
                while passed > self._rate * (time.monotonic() - start):
                    time.sleep(0.0005)
                count = self._send(peer, 64 << 10)
                moved, passed = moved + count, passed + count
                if self._sent[peer] == len(self._frame):
                    unfinished.remove(peer)
            if not moved:
                time.sleep(0.001)
        for peer in self._peers:
            peer.socket.setblocking(True)
            status = peer.reply(1, 600).status
            if status:
                raise AssertionError(f"a push ended with status {status}")
            peer.close()


def percentile(values, part):
    return sorted(values)[int(len(values) * part)]


class SlowNetwork(CrowdTest):
    def latencies(self, table, is_over):
        """Of small pulls from shard 0, in ms, until `is_over` says so."""
        keys = [key for key in range(20) if pc.shard_of(key, 2) == 0]
        latencies, beat = [], time.monotonic()
        while not is_over():
            start = time.monotonic()
            self.witness.shards[0].do(pc.pull(table, keys))
            latencies.append((time.monotonic() - start) * 1000)
            if start > beat + 0.5:
                self.witness.control.ask("heartbeat", "heartbeat")
                beat = start
            time.sleep(0.001)
        return latencies

    def test_everybody_finishes(self):
        self.start_cluster()
        table = self.witness.open(**SPARSE_SUM)
        array = self.witness.open(name="array", kind=pc.DENSE, length=LENGTH)
        frame = self.long_request(array)
        start = time.monotonic()
        alone = self.latencies(table, lambda: time.monotonic() > start + 5)
        endpoint = self.witness.cluster["ps"][0]["data_endpoint"]
        fork = multiprocessing.get_context("fork")  # what it runs cannot be pickled
        senders = [fork.Process(target=lambda: Sender(
            endpoint, frame, CLIENTS // SENDERS, NETWORK_BYTES_PER_S / SENDERS).run())
            for _ in range(SENDERS)]
        start = time.monotonic()
        for sender in senders:
            sender.start()
        beside = self.latencies(table, lambda: not any(sender.is_alive() for sender in senders))
        seconds = time.monotonic() - start
        for sender in senders:
            sender.join()
            self.assertEqual(sender.exitcode, 0)
        done = self.witness.shards[0].do(pc.dense_pull(array, self.start, 10))
        self.assertEqual(done, [(float(CLIENTS // SENDERS * SENDERS),) * 10])
        print(f"  {CLIENTS} clients pushed {len(frame)} bytes each in {seconds:.0f} s; small pulls beside "
              f"them, and alone: p50 {percentile(beside, 0.5):.3f} and {percentile(alone, 0.5):.3f} ms, "
              f"p99 {percentile(beside, 0.99):.3f} and {percentile(alone, 0.99):.3f} ms, "
              f"longest {max(beside):.1f} and {max(alone):.1f} ms", flush=True)
        self.finish()


if __name__ == "__main__":
    harness.main()
