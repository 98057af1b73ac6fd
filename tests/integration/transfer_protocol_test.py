#!/usr/bin/env python3
"""docs/protocol.md, section Transfers, against real engines: transfer_client.py, written from the page,
must get the answers that the page promises. A peer that breaks the rules loses its connection, and the
others are served as before. Also the example of a transfer."""

import contextlib
import os
import random
import re
import signal
import socket
import struct
import time
import unittest

import harness
import protocol_client as pc
import transfer_client as tc
from protocol_client import Frame
from transfer_client import Segment, Slice

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/protocol.md")
BUFFER_BYTES = 8 << 20
LAST = (1 << 64) - 1
TEXT_BYTES = 4096  # of the example's memory


class EngineTest(harness.StarlingTest):
    """Helpers: targets, and segments that close with the test."""

    def setUp(self):
        super().setUp()
        self.target = None
        self.peers = contextlib.ExitStack()
        self.addCleanup(self.peers.close)

    def tearDown(self):
        """Whatever its peers did, the target ends well: here the findings of a sanitizer show."""
        self.peers.close()
        if self.target is not None:
            self.assertTrue(self.target.running(), self.target.output)
            self.target.signal(signal.SIGINT)
            self.assertEqual(self.target.wait(), 0, self.target.output)
        super().tearDown()

    def start_target(self, *flags):
        self.target = self.start("starling-bench", "transfer", "--mode=target", "--protocol=tcp",
                                 f"--buffer_size={BUFFER_BYTES}", "--threads=1", "--batch_size=1", *flags)
        self.name = self.target.wait_line("serves").split(" ")[0]

    def publish(self, text):
        """Memory that peers may read only."""
        self.target = self.start("transfer_example", "publish", text)
        self.name = self.target.wait_line(":")

    def segment(self, **options):
        segment = Segment(self.name, **options)
        self.peers.callback(segment.close)
        return segment

    @contextlib.contextmanager
    def refused(self, code):
        with self.assertRaises(pc.Refused) as caught:
            yield
        self.assertEqual(caught.exception.code, code, caught.exception)
        self.assertTrue(caught.exception.text)

    def assert_ended(self, connection, why):
        """The target closes the connection, and sends nothing but credit and answers before."""
        with self.assertRaises(pc.Closed, msg=why):
            while True:
                connection.receive(20)


class Page(unittest.TestCase):
    """The client against the frames of the page, without a target."""

    @classmethod
    def setUpClass(cls):
        with open(PAGE, encoding="utf-8") as file:
            blocks = re.findall(r"```hex ([\w-]+)\n(.*?)```", file.read(), re.DOTALL)
        cls.frames = {name: bytes.fromhex("".join(line.split(":")[1] for line in text.splitlines()))
                      for name, text in blocks}

    def test_operations(self):
        key = 0x1F2E3D4C5B6A7988
        slices = [Slice(tc.READ, key, 4096, 8), Slice(tc.WRITE, key, 8192, 5, b"hello")]
        request = Frame(pc.REQUEST, tc.request_payload(slices), 41, 30 * 10**6)
        self.assertEqual(pc.frame_bytes(request), self.frames["transfer-request"])
        data, = tc.data_frames(41, slices)
        self.assertEqual(pc.frame_bytes(data), self.frames["transfer-data"])
        for name, payload, credit in (("transfer-applied", tc.PREFIX.pack(1, 0), 5),
                                      ("transfer-read", bytes(range(8, 0, -1)), 8)):
            frame = self.frames[name]
            self.assertEqual(pc.parse_frame(frame[:32], frame[32:])[:6],
                             (pc.REPLY, payload, 42 if credit == 5 else 41, 0, credit, 1))

    def test_messages(self):
        for name in ("transfer-hello", "segment_get", "segment", "buffer_added", "buffer_gone",
                     "buffer_released", "notice", "notice_taken", "fence", "fenced"):
            payload = self.frames[name][32:]
            message = pc.decode("Control", payload)
            self.assertEqual(pc.encode("Control", message), payload, name)


class Operations(EngineTest):
    def test_what_was_written_is_read(self):
        self.start_target()
        segment = self.segment()
        for buffer in segment.buffers:
            self.assertEqual(buffer["access"], 3)
            self.assertGreaterEqual(buffer["bytes"], BUFFER_BYTES)
        buffer, lane = segment.buffers[0], segment.lane()
        first = lane.do(tc.read(buffer, 0, 16))[0]
        self.assertEqual(first, b"\1" * 16)  # the benchmark's own bytes
        sizes = [1, 7, 4096, 16384, 16385, 100001, tc.SLICE_BYTES_MAX]
        for size in sizes:
            data = random.randbytes(size)
            for offset in (0, 1, buffer["bytes"] - size):
                self.assertEqual(lane.do(tc.write(buffer, offset, data)), [None], size)
                self.assertEqual(lane.do(tc.read(buffer, offset, size)), [data], size)
        data = random.randbytes(tc.SLICES_MAX)
        lane.do(*[tc.write(buffer, i * 512, data[i:i + 1]) for i in range(tc.SLICES_MAX)])
        again = segment.lane(2).do(*[tc.read(buffer, i * 512, 1) for i in range(tc.SLICES_MAX)])
        self.assertEqual(b"".join(again), data)

    def test_credit_is_returned(self):
        self.start_target()
        segment = self.segment()
        lane = segment.lane()
        granted = (lane.credit_requests, lane.credit_bytes)
        self.assertEqual(granted, (256, 16 << 20))
        for _ in range(8):  # several times what the welcome granted
            slices = [tc.read(segment.buffers[0], i << 16, 1 << 16) for i in range(100)]
            slices += [tc.write(segment.buffers[0], i << 16, bytes(1 << 16)) for i in range(100)]
            ids = lane.start(slices)
            self.assertNotIn(b"", lane.finish(ids))
        self.assertEqual((lane.credit_requests, lane.credit_bytes), granted)

    def test_refused_slices_leave_the_lane(self):
        """Each is answered for itself; the slices beside it are done."""
        self.start_target()
        segment = self.segment()
        buffer, lane = segment.buffers[0], segment.lane()
        size = buffer["bytes"]
        lane.do(tc.write(buffer, 0, b"before"))
        wrong = dict(buffer, key=buffer["key"] ^ 1)
        cases = ((wrong, 0, pc.NOT_FOUND), (dict(buffer, key=0), 0, pc.NOT_FOUND), (buffer, size, pc.INVALID),
                 (buffer, size - 5, pc.INVALID), (buffer, LAST, pc.INVALID), (buffer, LAST - 5, pc.INVALID),
                 (buffer, (1 << 64) - buffer["address"], pc.INVALID))
        for which, offset, code in cases:
            for refused in (tc.read(which, offset, 6), tc.write(which, offset, b"astray")):
                answers = lane.finish(lane.start([tc.read(buffer, 0, 6), refused,
                                                  tc.write(buffer, 8, b"beside")]))
                self.assertIsInstance(answers[1], pc.Refused)
                self.assertEqual(answers[1].code, code, answers[1])
                self.assertEqual((answers[0], answers[2]), (b"before", None))
        self.assertEqual((lane.credit_requests, lane.credit_bytes), (256, 16 << 20))
        long = tc.write(wrong, 0, bytes(1 << 20))
        with self.refused(pc.NOT_FOUND):
            lane.do(long)
        self.assertEqual(lane.do(tc.read(buffer, 0, 6)), [b"before"])

    def test_access(self):
        self.publish("some text")
        segment = self.segment()
        buffer, = segment.buffers
        self.assertEqual((buffer["access"], buffer["bytes"]), (1, TEXT_BYTES))
        lane = segment.lane()
        with self.refused(pc.REFUSED):
            lane.do(tc.write(buffer, 0, b"other"))
        self.assertEqual(lane.do(tc.read(buffer, 0, 10)), [b"some text\0"])

    def test_checksums(self):
        self.start_target()
        segment = self.segment(checksum=True)  # the client refuses a frame without one
        buffer, lane = segment.buffers[0], segment.lane()
        data = random.randbytes(20000)
        lane.do(tc.write(buffer, 3, data))
        self.assertEqual(lane.do(tc.read(buffer, 3, len(data))), [data])

    def test_secret(self):
        secret = b"the secret of this engine"
        path = self.file("secret", secret)
        os.chmod(path, 0o600)
        self.start_target(f"--secret-file={path}")
        segment = self.segment(secret=secret)
        self.assertEqual(segment.lane().do(tc.read(segment.buffers[0], 0, 1)), [b"\1"])
        for other in (b"", b"another secret of others"):
            with self.assertRaises((pc.Refused, pc.Closed)):
                Segment(self.name, secret=other)


class Connections(EngineTest):
    def setUp(self):
        super().setUp()
        self.start_target()

    def test_incarnation(self):
        segment = self.segment()
        self.assertEqual(segment.lane(1, incarnation=0).welcome["incarnation"], segment.incarnation)
        with self.refused(pc.REFUSED):
            segment.lane(2, incarnation=segment.incarnation ^ 1)

    def test_only_transfers(self):
        with self.refused(pc.REFUSED):
            pc.Connection(self.name, pc.PURPOSE_CONTROL)

    def test_fence(self):
        """The lanes of that number and epoch are closed when the answer comes; others are not."""
        segment = self.segment()
        fenced, other = segment.lane(1, 5), segment.lane(2, 1)
        segment.control.ask("fence", "fenced", lane=1, epoch=5)
        self.assert_ended(fenced, "fenced")
        self.assertEqual(other.do(tc.read(segment.buffers[0], 0, 1)), [b"\1"])
        again = segment.lane(1, 6)
        segment.control.ask("fence", "fenced", lane=1, epoch=5)
        self.assertEqual(again.do(tc.read(segment.buffers[0], 0, 1)), [b"\1"])

    def test_a_notice_is_taken_once(self):
        """Again with the same number, it is answered, also where no more would fit."""
        segment = self.segment()
        notice = {"sender": "127.0.0.1:1", "name": "ready", "text": b"ok"}
        for _ in range(2):
            segment.control.ask("notice", "notice_taken", sequence=1, **notice)
        with self.refused(pc.AGAIN):
            for sequence in range(2, 2000):
                segment.control.ask("notice", "notice_taken", sequence=sequence, **notice)
        segment.control.ask("notice", "notice_taken", sequence=1, **notice)

    def test_a_notice_that_asks_needs_a_reader(self):
        """The application of this process takes notices, and answers none."""
        segment = self.segment()
        with self.refused(pc.AGAIN):
            segment.control.ask("notice", "notice_taken", sequence=1, sender="127.0.0.1:1", name="ready", asks=1)
        segment.control.ask("notice", "notice_taken", sequence=2, sender="127.0.0.1:1", name="ready")

    def test_goodbye(self):
        segment = self.segment()
        segment.lane().goodbye()
        segment.control.goodbye()


class ParameterServer(harness.StarlingTest):
    def test_has_no_transfers(self):
        servers, flags = self.start_ps()
        servers[0].wait_line("ready")
        with self.assertRaises(pc.Refused) as caught:
            Segment(flags[1])
        self.assertEqual(caught.exception.code, pc.UNSUPPORTED)
        self.drain(servers)


class Abuse(EngineTest):
    """Peers that break rules: their connection ends, and others are served as before."""

    def setUp(self):
        super().setUp()
        self.start_target()
        self.witness = self.segment()
        self.lane = self.witness.lane()
        self.buffer = self.witness.buffers[0]
        self.round = 0

    def check_served(self):
        """Old and new peers get exact bytes; nothing of a broken peer's work is among them."""
        self.round += 1
        mark = struct.pack("<Q", self.round)
        self.lane.do(tc.write(self.buffer, 0, mark))
        newcomer = Segment(self.name)
        try:
            got = newcomer.lane().do(tc.read(newcomer.buffers[0], 0, 8), tc.read(newcomer.buffers[0], 64, 8))
        finally:
            newcomer.close()
        self.assertEqual(got, [mark, b"\1" * 8])

    def hostile(self, why, *frames):
        """A lane that sends the frames, and must be ended."""
        segment = Segment(self.name)
        try:
            lane = segment.lane()
            with contextlib.suppress(pc.Closed):
                for frame in frames:
                    lane.send(frame)
            self.assert_ended(lane, why)
            self.assertEqual(segment.lane(2).do(tc.read(self.buffer, 64, 8)), [b"\1" * 8], why)
        finally:
            segment.close()

    def request(self, *slices, count=None, first=1, budget=10**6, tail=b""):
        return Frame(pc.REQUEST, tc.request_payload(slices, count) + tail, first, budget)

    def test_requests(self):
        one = tc.read(self.buffer, 64, 8)
        cases = {
            "no slices": self.request(count=0),
            "a count of 0": self.request(one, count=0),
            "a count above the slices": self.request(one, count=2),
            "a count below the slices": self.request(one, one, count=1),
            "257 slices": self.request(*[one] * 257),
            "a count of 257": self.request(one, count=257),
            "a far higher count": self.request(one, count=0xFFFFFFFF),
            "half a slice": self.request(one, tail=bytes(12)),
            "nothing": Frame(pc.REQUEST, b"", 1, 10**6),
            "half a prefix": Frame(pc.REQUEST, b"\1\0\0\0", 1, 10**6),
            "the zero of the prefix": Frame(pc.REQUEST, b"\1\0\0\0\1" + tc.request_payload([one])[5:], 1, 9**6),
            "the zeros of a slice": Frame(pc.REQUEST, tc.request_payload([one])[:-1] + b"\1", 1, 10**6),
            "op 0": self.request(one._replace(op=0)),
            "op 3": self.request(one._replace(op=3)),
            "no bytes": self.request(one._replace(bytes=0)),
            "more than 4 MiB": self.request(one._replace(bytes=(4 << 20) + 1)),
            "2^32 - 1 bytes": self.request(one._replace(bytes=(1 << 32) - 1)),
            "id 0": self.request(one, first=0),
            "ids beyond 2^64": self.request(one, one, first=LAST),
            "no budget": self.request(one, budget=0),
            "a status": self.request(one)._replace(status=1),
            "an unknown flag": self.request(one)._replace(flags=2),
        }
        for why, frame in cases.items():
            self.hostile(why, frame)
        self.hostile("an id again", self.request(one), self.request(one))
        self.hostile("an id below", self.request(one, first=9), self.request(one, first=8))
        self.check_served()

    def test_data(self):
        astray = tc.write(self.buffer, 64, b"a WRITE!")
        long = tc.write(self.buffer, 64, bytes(100000))
        wrong_key = long._replace(key=long.key ^ 1)
        announce = self.request(astray)
        cases = {
            "not announced": [Frame(pc.DATA, b"a WRITE!", 1)],
            "not announced, long": [Frame(pc.DATA, bytes(1 << 20), 1)],
            "of a READ": [self.request(tc.read(self.buffer, 64, 8)), Frame(pc.DATA, b"a WRITE!", 1)],
            "of another id": [announce, Frame(pc.DATA, b"a WRITE!", 2)],
            "of id 0": [announce, Frame(pc.DATA, b"a WRITE!", 0)],
            "too short": [announce, Frame(pc.DATA, b"a WRITE", 1)],
            "too long": [announce, Frame(pc.DATA, b"a WRITE!!", 1)],
            "empty": [announce, Frame(pc.DATA, b"", 1)],
            "long, too short": [self.request(long), Frame(pc.DATA, bytes(99999), 1)],
            "long, too long": [self.request(wrong_key), Frame(pc.DATA, bytes(100001), 1)],
            "in another order": [self.request(astray, astray), Frame(pc.DATA, b"a WRITE!", 2)],
            "missing before a request": [announce, self.request(astray, first=2)],
        }
        for why, frames in cases.items():
            self.hostile(why, *frames)
        self.check_served()

    def test_frames_of_other_types(self):
        for frame in (Frame(pc.REPLY, b"", 1), Frame(pc.CREDIT, credit_bytes=5), Frame(6), Frame(0),
                      Frame(pc.CONTROL, pc.encode("Control", {"id": 1, "segment_get": {}}))):
            self.hostile(frame, frame)
        self.check_served()

    def test_credit_overspent(self):
        """By one request; and by an initiator that reads no answers, to which the target returns no credit."""
        some = tc.write(self.buffer, 64, bytes(4 << 20))
        self.hostile("20 MiB", self.request(some, some, some, some, some))
        segment = Segment(self.name)
        self.peers.callback(segment.close)
        lane, count = segment.lane(), 4000
        with contextlib.suppress(pc.Closed):
            for i in range(1, count + 1):
                lane.send(self.request(tc.read(self.buffer, 0, 1 << 16), first=i, budget=60 * 10**6))
        self.assert_ended(lane, "it spent more than it has")
        self.assertLess(len(lane.reply_order), count)
        self.check_served()

    def test_data_that_ends_in_the_middle(self):
        """A WRITE whose connection ends may have reached the memory; the target goes on."""
        for part in (0, 1, 31, 32, 33, 5000):
            segment = Segment(self.name)
            lane = segment.lane()
            slices = [tc.write(self.buffer, 4096, bytes(100000))]
            lane.send(self.request(*slices))
            lane.socket.sendall(pc.frame_bytes(tc.data_frames(1, slices)[0])[:part])
            segment.close()
        self.check_served()

    def control(self, why, data):
        connection = pc.Connection(self.name, pc.PURPOSE_TRANSFER)
        try:
            with contextlib.suppress(ConnectionError):
                connection.socket.sendall(data)
            self.assert_ended(connection, why)
        finally:
            connection.close()

    def test_control_messages(self):
        def message(data, **fields):
            return pc.frame_bytes(Frame(pc.CONTROL, data, **fields))

        fields = {"segment_get": {"above": 1 << 40}, "fence": {"lane": 1, "epoch": 1},
                  "notice": {"sequence": 1, "sender": "x", "name": "n", "text": b"t"},
                  "buffer_released": {"keys": [1, 2]}}
        for name, values in fields.items():
            whole = pc.encode("Control", {"id": 1, name: values})
            for end in range(3, len(whole)):
                self.control((name, end), message(whole[:end]))
        cases = {
            "no body": message(b"\x08\x01"),
            "empty": message(b""),
            "a message of a parameter server": message(pc.encode("Control", {"id": 1, "barrier": {"name": "x"}})),
            "a message of a target": message(pc.encode("Control", {"id": 1, "fenced": {}})),
            "a second hello": message(pc.encode("Control", {"id": 1, "hello": {"protocol_version": pc.VERSION}})),
            "257 keys": message(pc.encode("Control", {"id": 1, "buffer_released": {"keys": [1] * 257}})),
            "a long text": message(pc.encode("Control", {"id": 1, "notice": {"name": "n", "text": bytes(4097)}})),
            "a fence of lane 0": message(pc.encode("Control", {"id": 1, "fence": {"lane": 0, "epoch": 1}})),
            "a request": pc.frame_bytes(self.request(tc.read(self.buffer, 0, 8))),
            "data": pc.frame_bytes(Frame(pc.DATA, b"abc", 1)),
            "long data": pc.frame_bytes(Frame(pc.DATA, bytes(1 << 20), 1)),
            "a long message": message(bytes(1 << 20)),
            "too long": struct.pack("<I", (1 << 20) + 1) + message(b"")[4:] + bytes(64),
        }
        for why, data in cases.items():
            self.control(why, data)
        self.check_served()

    def test_before_the_welcome(self):
        """A peer that has not been welcomed reaches nothing, and the target sends it nothing."""
        host, _, port = self.name.rpartition(":")
        data = self.witness.endpoints[0]
        for frame in (self.request(tc.read(self.buffer, 0, 8)), Frame(pc.DATA, b"abc", 1),
                      Frame(pc.DATA, bytes(1 << 20), 1), Frame(pc.CREDIT),
                      Frame(pc.CONTROL, pc.encode("Control", {"id": 1, "segment_get": {}}))):
            for address in ((host, int(port)), pc.endpoint_address(data)):
                with socket.create_connection(address, timeout=harness.DEADLINE_S) as peer:
                    with contextlib.suppress(ConnectionError):
                        peer.sendall(pc.frame_bytes(frame))
                        self.assertEqual(peer.recv(100), b"")
        for data in (b"GET / HTTP/1.1\r\n\r\n" + bytes(32), random.Random(1).randbytes(4096)):
            with socket.create_connection((host, int(port)), timeout=harness.DEADLINE_S) as peer:
                with contextlib.suppress(ConnectionError):
                    peer.sendall(data)
                    self.assertEqual(peer.recv(100), b"")
        self.check_served()

    def test_a_peer_that_asks_without_reading(self):
        burst = pc.frame_bytes(Frame(pc.CONTROL, pc.encode("Control", {"id": 1, "segment_get": {}}))) * 1000
        flood = pc.Connection(self.name, pc.PURPOSE_TRANSFER)
        self.peers.callback(flood.close)
        end = time.monotonic() + harness.DEADLINE_S
        with self.assertRaises(ConnectionError):
            while time.monotonic() < end:
                flood.socket.sendall(burst)
        self.check_served()


class Example(EngineTest):
    def test_one_process_reads_from_the_other(self):
        self.publish("a text in memory")
        self.assertEqual(self.run_to_end("transfer_example", "read", self.name), "a text in memory")

    def test_errors_name_the_peer(self):
        port, = harness.free_ports(1)
        output = self.run_to_end("transfer_example", "read", f"127.0.0.1:{port}", status=1)
        self.assertIn(str(port), output)
        self.run_to_end("transfer_example", "read", status=2)


if __name__ == "__main__":
    harness.main()
