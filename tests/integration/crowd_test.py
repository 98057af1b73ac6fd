#!/usr/bin/env python3
"""Many clients in the middle of long requests at once: more than a reactor has places for such
requests, and more than it has receive buffers. Everybody else is served meanwhile, and nobody is
lost; places go to the clients in the order in which they came."""

import contextlib
import time

import harness
import protocol_client as pc

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
        harness.wait_lines(self.servers, "ready")
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


if __name__ == "__main__":
    harness.main()
