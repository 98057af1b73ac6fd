"""Pulls, pushes and frames over an RDMA device, by a server and a worker of this machine, in turns with perftest on the same
device and cores."""

import peers
from driver import Contestant, number, size_text, sizes
from processes import Failure, Found

PARTS = ("bulk", "round-trip", "rate")
FRAME_BYTES, LONG = 64, 1 << 20
BYTES_MAX, DEPTH_MAX = 64 << 20, 4096
# Targets, of what polls; of pulls and pushes from LONG on.
PULL_OF_WRITE, PUSH_OF_READ, ROUND_TRIP_OF_LAT, RATE_OF_SEND = 0.9, 0.9, 1.3, 0.8
MODES = ("polling", "event mode")


def add_arguments(parser):
    add = parser.add_argument
    add("--part", choices=("all", *PARTS), default="all", help="what is measured")
    add("--device", help="the RDMA device; without it the first that is active")
    add("--address", metavar="IP", help="of the device's network interface, if the system does not tell it")
    add("--sizes", type=sizes("sizes", BYTES_MAX, 1024, 4), default="1M", help="bytes of what is pulled and pushed")
    add("--bulk-depth", type=number("bulk-depth", 1, 128), default=16, help="of them in flight, each an array of its own")
    add("--depth", type=number("depth", 1, DEPTH_MAX), default=64, help="messages of 64 bytes in flight, one way")


class Rdma:
    def __init__(self, bench):
        self.bench, self.options = bench, bench.options
        try:
            self.device = peers.find_device("/sys", self.options.device, self.options.address)
        except Failure as failure:
            raise Failure(f"{failure}\n(in a virtual machine that has a device: bench/rdma-vm)") from None
        self.perftest = bench.peer(peers.Perftest, device=self.device)
        name, address, _ = self.device
        self.workers = {mode: bench.start_once(
            "ipc", f"--lens={','.join(map(str, self.options.sizes))}", f"--keys={self.options.bulk_depth}",
            f"--rdma-address={address}", f"--rdma-device={name}",
            *(["--server-polls", "--workers-poll"] if mode == "polling" else [])) for mode in MODES}

    def of_perftest(self, tool, what, size, depth, mode="polling"):
        if self.perftest:
            yield Contestant(f"{tool}, {what}", self.perftest.turn(tool, size, depth, "poll" if mode == "polling" else "events"))

    def bulk(self):
        for index, size in enumerate(self.options.sizes):
            for way, tool in (("pull", "ib_write_bw"), ("push", "ib_read_bw")):
                yield from self.of_perftest(tool, size_text(size), size, self.options.bulk_depth)
                for mode, workers in self.workers.items():
                    yield Contestant(f"{way}, {mode}, {size_text(size)}",
                                     lambda *times, workers=workers, words=(way, index), size=size: Found(
                                         bytes=("1/s", workers().turn(*times, *words).value("keys") * size)))

    def frames(self, mode, quantities, *flags):
        name, address, _ = self.device
        turn = self.bench.alone("frames", f"--endpoint=rdma://{address}:0", f"--rdma-device={name}", f"--bytes={FRAME_BYTES}",
                                *flags, *(["--polling"] if mode == "polling" else []))
        return Contestant(f"frames, {mode}", lambda *times: turn(*times).only(*quantities))

    def round_trips(self):
        for mode, workers in self.workers.items():
            yield from self.of_perftest("ib_send_lat", mode, FRAME_BYTES, 1, mode)
            yield self.frames(mode, ("p50", "p99"), "--answers")
            yield Contestant(f"pull of a row, {mode}", lambda *times, workers=workers: workers().turn(*times, "trips"))

    def rates(self):
        yield from self.of_perftest("ib_send_bw", "64 bytes", FRAME_BYTES, self.options.depth)
        yield from (self.frames(mode, ("messages",), f"--depth={self.options.depth}") for mode in MODES)

    def contestants(self):
        for part, contestants in zip(PARTS, (self.bulk, self.round_trips, self.rates)):
            if self.options.part in ("all", part):
                yield from contestants()


def add_ratios(bench):
    for size in bench.options.sizes:
        text = size_text(size)
        for mode in MODES:
            held = size >= LONG and mode == "polling"
            bench.compare("bytes", f"pull, {mode}, {text}", f"ib_write_bw, {text}", PULL_OF_WRITE if held else 0)
            bench.compare("bytes", f"push, {mode}, {text}", f"ib_read_bw, {text}", PUSH_OF_READ if held else 0)
        bench.compare("bytes", f"ib_read_bw, {text}", f"ib_write_bw, {text}")
    for mode in MODES:
        bench.compare("p50", f"frames, {mode}", f"ib_send_lat, {mode}", most=ROUND_TRIP_OF_LAT if mode == "polling" else 0)
        bench.compare("p50", f"pull of a row, {mode}", f"ib_send_lat, {mode}")
        bench.compare("messages", f"frames, {mode}", "ib_send_bw, 64 bytes", RATE_OF_SEND if mode == "polling" else 0)


def run(bench):
    rdma, options = Rdma(bench), bench.options
    bench.measure(list(rdma.contestants()))
    add_ratios(bench)
    name, address, _ = rdma.device
    return (f"{name} at {address}; pulls and pushes of {options.bulk_depth} arrays under way, as many messages of ib_write_bw and "
            f"ib_read_bw; the server keeps the first push of a key; frames of {FRAME_BYTES} bytes, {options.depth} under way one "
            "way; round trips of one, and of a row of 64 bytes")
