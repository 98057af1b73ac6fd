"""Frames over DPDK's memif between two processes, in turns with packets of the same ports without the protocol, and with
frames over TCP, on the same cores."""

import os

from driver import Contestant, number, numbers, sizes

PARTS = ("bulk", "round-trip", "rate")
FRAME_BYTES, HEADER_BYTES = 64, 32
# Targets.
BULK_OF_BARE, RATE_OF_TCP = 0.8, 4


def add_arguments(parser):
    add = parser.add_argument
    add("--part", choices=("all", *PARTS), default="all", help="what is measured")
    add("--size", type=sizes("size", 64 << 20, 65536, 1), default="1M", help="bytes of a long frame")
    add("--mtu", type=numbers("mtu", 576, 9600, 4), default="1500,9000",
        help="bytes of a packet without its Ethernet header; of all parts but bulk the first is taken")
    add("--bulk-depth", type=number("bulk-depth", 1, 64), default=4, help="long frames in flight")
    add("--depth", type=numbers("depth", 1, 1024, 6), default="8,64,512", help="requests of 64 bytes in flight; the last counts")


class Dpdk:
    def __init__(self, bench):
        self.bench, self.options = bench, bench.options

    def contestant(self, name, mtu, quantities, *flags):
        """mtu: None for TCP."""
        over = (["--endpoint=dpdk://10.0.0.1:0", f"--socket={os.path.join(self.bench.folder, 'memif')}", f"--mtu={mtu}"]
                if mtu else [])
        turn = self.bench.alone("frames", *over, "--touched", "--polling", *flags)
        return Contestant(name, lambda *times: turn(*times).only(*quantities))

    def long(self, what, mtu, *more):
        return self.contestant(bulk_name(what, mtu), mtu, ("bytes",), f"--bytes={self.options.size[0] + HEADER_BYTES}",
                               f"--depth={self.options.bulk_depth}", *more)

    def bulk(self):
        for mtu in self.options.mtu:
            yield self.long("packets", mtu, "--bare")
            yield self.long("frames", mtu)
        yield self.long("frames", None)

    def round_trips(self):
        for name, mtu in (("round trip", self.options.mtu[0]), ("round trip, tcp", None)):
            yield self.contestant(name, mtu, ("p50", "p99"), "--answers")

    def rates(self):
        for depth in self.options.depth:
            for mtu in (self.options.mtu[0], None):
                yield self.contestant(rate_name(mtu, depth), mtu, ("messages",), "--answers", "--rate-only", f"--depth={depth}")

    def contestants(self):
        for part, contestants in zip(PARTS, (self.bulk, self.round_trips, self.rates)):
            if self.options.part in ("all", part):
                yield from contestants()


def bulk_name(what, mtu):
    return f"{what}, mtu {mtu}" if mtu else f"{what}, tcp"


def rate_name(mtu, depth):
    return f"requests{'' if mtu else ', tcp'}, {depth} under way"


def run(bench):
    options = bench.options
    bench.measure(list(Dpdk(bench).contestants()))
    for mtu in options.mtu:
        ours = bulk_name("frames", mtu)
        bench.compare("bytes", ours, bulk_name("packets", mtu), BULK_OF_BARE)
        bench.compare("bytes", ours, bulk_name("frames", None))
    bench.compare("p50", "round trip, tcp", "round trip")
    for depth in options.depth:
        bench.compare("messages", rate_name(options.mtu[0], depth), rate_name(None, depth),
                      RATE_OF_TCP if depth == options.depth[-1] else 0)
    return (f"memif without zero copy; frames of {options.size[0]} bytes of payload, {options.bulk_depth} under way; requests and "
            f"answers of {FRAME_BYTES} bytes; payloads are written line by line and read word by word")
