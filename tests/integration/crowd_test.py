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
BEGUN = pc.HEADER.size + 100
LEASE_S = 2
SPARSE_SUM = {"name": "sum", "dim": 3}


class Crowd(harness.StarlingTest):
    def setUp(self):
        super().setUp()
        self.servers, flags = self.start_ps(2, 1, extra=["--lease", LEASE_S],
                                            env={"NETWORK_PS_CORE_NUMBER": "1"})
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
        frame = pc.Frame(pc.REQUEST, payload, 1, int(pc.WAIT_S * 1e6))
        return pc.frame_bytes(frame)

    def crowd(self, frame):
        """Each has sent the header of the frame, and a little of its payload."""
        endpoint = self.witness.cluster["ps"][0]["data_endpoint"]
        crowd = []
        for _ in range(CROWD):
            peer = pc.Connection(endpoint, pc.PURPOSE_DATA, shard=0)
            self.peers.callback(peer.close)
            self.assertGreaterEqual(peer.credit_bytes, len(frame))
            peer.socket.sendall(frame[:BEGUN])
            crowd.append(peer)
        return crowd

    def test_in_the_middle_of_long_requests(self):
        table = self.witness.open(**SPARSE_SUM)
        array = self.witness.open(name="array", kind=pc.DENSE, length=LENGTH)
        frame = self.long_request(array)
        finishers = self.crowd(frame)[:FINISHERS]
        sent = BEGUN
        end = time.monotonic() + 2 * LEASE_S
        while time.monotonic() < end or finishers:
            for peer in finishers:  # who stops is closed after 10 s
                peer.socket.sendall(frame[sent:sent + 1])
            sent += 1
            self.check_served(table)
            if time.monotonic() < end:
                time.sleep(0.1)
            else:
                first = finishers.pop(0)
                first.socket.sendall(frame[sent:])
                self.assertEqual(first.reply(1).status, 0)
        done = self.witness.shards[0].do(pc.dense_pull(array, self.start, 10))
        self.assertEqual(done, [(float(FINISHERS),) * 10])
        for server in self.servers:
            self.assertNotIn("lost", server.output)
        self.peers.close()
        self.drain(self.servers)


if __name__ == "__main__":
    harness.main()
