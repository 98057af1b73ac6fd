"""Workers and server of one machine: shared memory, TCP over loopback and memcpy in turns, beside what was measured of ps-lite:
the counterpart of ps-lite's test_ipc_benchmark. LEN: bytes of each key (4 KB to 16 MB); REPEAT: rounds in each turn (as many
as --seconds allow); MODE: 0 push then pull, 1 push_pull, 2 push, 3 pull. NUM_KEY_PER_SERVER: the keys (40)."""

import os

from driver import OVER, Contestant, congestion, number, size_text
from processes import Found

MODES = ("push-then-pull", "push_pull", "push", "pull")
PARTS = ("goodput", "round-trip", "crowd")
# Targets.
TCP_OF_PSLITE, TCP_OF_BARE, SHM_OF_TCP, SHM_OF_MEMCPY, ROUND_TRIP_US, CROWD_OF_PSLITE = 2, 0.8, 4, 0.7, 1, 5
SHORT, LONG = 4 << 10, 1 << 20
CROWD_LEN = 1024  # bytes of a key's array with many workers
# What ps-lite did on the machine that the targets were set on, over loopback TCP: goodput of push_pull in Gb/s with 40 keys
# in flight and one worker, the better of dmlc's and BytePS's; and messages a second of 8 workers at 1 KB (README.md).
PSLITE = {4 << 10: 1.13, 64 << 10: 4.9, 1 << 20: 12.2, 4 << 20: 11.6, 16 << 20: 12.6}
PSLITE_KEYS, PSLITE_WORKERS, PSLITE_CROWD = 40, 8, 66000
PEER, BARE, BARE_TEXT = "ps-lite (README)", "bare echo", "64 KB both ways"
# As many bytes in flight as a server grants credit for, in messages of the longest kind.
BARE_BYTES, BARE_DEPTH = 65536, 256


def add_arguments(parser):
    add = parser.add_argument
    add("len", nargs="?", metavar="LEN", type=number("LEN", 1, 1 << 30))
    add("repeat", nargs="?", metavar="REPEAT", type=number("REPEAT", 1, 10**9), default=0)
    add("mode", nargs="?", metavar="MODE", type=number("MODE", 0, 3), default=1)
    add("--part", choices=("all", *PARTS), default="all", help="what is measured")
    add("--workers", type=number("workers", 1, 64), default=PSLITE_WORKERS, help="of one server, where there are many")
    add("--handler", choices=("keep", "sum"), default="keep",
        help="what the server does with pushes: keep the first of each key and acknowledge the others, or add up f32")
    add("--polling", choices=("false", "true"), default="true",
        help="whether server and worker spin when they are idle; of many workers none does")
    add("--congestion", type=congestion, default="cubic", help="TCP's congestion control")


def check(parser, options):
    try:
        options.keys = number("NUM_KEY_PER_SERVER", 1, 4096)(os.environ.get("NUM_KEY_PER_SERVER") or str(PSLITE_KEYS))
    except Exception as error:
        parser.error(str(error))
    options.lens = [options.len] if options.len else list(PSLITE)
    if options.handler == "sum" and any(size % 4 for size in options.lens):
        parser.error(f"LEN={options.len}: accepts multiples of 4 with --handler sum, which adds f32")


def wants(options, *parts):
    return options.part in ("all", *parts)


class Ipc:
    def __init__(self, bench):
        self.bench, self.options = bench, bench.options
        self.has_peer = self.options.mode == 1 and self.options.keys == PSLITE_KEYS
        self.crowd = f"{self.options.workers}:1, 1 KB"
        lens = self.options.lens if wants(self.options, "goodput") else [SHORT]
        one = wants(self.options, "goodput", "round-trip")
        self.pairs = {way: self.start(way, lens) for way in OVER} if one else {}
        self.crowds = ({way: self.start(way, [CROWD_LEN], self.options.workers) for way in OVER}
                       if wants(self.options, "crowd") else {})

    def start(self, way, lens, workers=1):
        """Many workers share their core: none of them spins."""
        options, polls = self.options, self.options.polling == "true"
        return self.bench.load(
            "ipc", f"--over={way}", f"--workers={workers}", f"--lens={','.join(map(str, lens))}", f"--keys={options.keys}",
            f"--repeat={options.repeat}", f"--handler={options.handler}", f"--congestion={options.congestion}",
            *(["--server-polls"] if polls else []), *(["--workers-poll"] if polls and workers == 1 else []))

    def goodput(self):
        memory = self.bench.start_once("memory")
        for index, size in enumerate(self.options.lens):
            words = MODES[self.options.mode], index
            for way in ("shm", "tcp"):
                yield Contestant(f"{way}, {size_text(size)}", lambda *times, load=self.pairs[way], words=words, size=size:
                                 goodput(load.turn(*times, *words).value("keys"), size), OVER[way])
            if size >= LONG:
                yield Contestant(f"memcpy, {size_text(size)}", lambda *times, size=size: goodput(
                    memory().turn(*times, size, self.options.keys).value("bytes") / size, size))
            if self.has_peer and size in PSLITE:
                yield constant(f"{PEER}, {size_text(size)}", "goodput", "Gb/s", PSLITE[size])
        echo = self.bench.start_once("echo", f"--depth={BARE_DEPTH}", f"--request-bytes={BARE_BYTES}",
                                     f"--reply-bytes={BARE_BYTES}", f"--congestion={self.options.congestion}",
                                     *(["--polling"] if self.options.polling == "true" else []))
        yield Contestant(f"{BARE}, {BARE_TEXT}", lambda *times: Found(
            goodput=("Gb/s", echo().turn(*times).value("requests") * 8 * BARE_BYTES / 1e9)), "TCP")

    def round_trips(self):
        for way in ("shm", "tcp"):
            yield Contestant(f"{way}, round trip", lambda *times, load=self.pairs[way]: load.turn(*times, "trips"), OVER[way])
        yield constant("a microsecond, round trip", "p50", "us", ROUND_TRIP_US)

    def crowd_messages(self):
        for way in ("shm", "tcp"):
            yield Contestant(f"{way}, {self.crowd}", lambda *times, load=self.crowds[way]: Found(
                messages=("1/s", load.turn(*times, MODES[self.options.mode], 0).value("keys"))), OVER[way])
        if self.has_peer and self.options.workers == PSLITE_WORKERS:
            yield constant(f"{PEER}, {self.crowd}", "messages", "1/s", PSLITE_CROWD)

    def contestants(self):
        parts = {"goodput": self.goodput, "round-trip": self.round_trips, "crowd": self.crowd_messages}
        for part, contestants in parts.items():
            if wants(self.options, part):
                yield from contestants()

    def ratio(self, what, quantity, one, other, least=0):
        """Of two transports, or of what was measured elsewhere: the name tells both."""
        self.bench.ratio(f"{one}, {what} / {other}", self.bench.figure(f"{one}, {what}", quantity),
                         self.bench.figure(f"{other}, {what}", quantity), least, mixed=True)

    def add_ratios(self):
        bench = self.bench
        for size in self.options.lens:
            text = size_text(size)
            self.ratio(text, "goodput", "tcp", PEER, TCP_OF_PSLITE)
            if size >= LONG:
                bench.ratio(f"tcp, {text} / {BARE}", bench.figure(f"tcp, {text}", "goodput"),
                            bench.figure(f"{BARE}, {BARE_TEXT}", "goodput"),
                            TCP_OF_BARE if self.options.handler == "keep" else 0)
            self.ratio(text, "goodput", "shm", "tcp", SHM_OF_TCP if size == SHORT else 0)
            self.ratio(text, "goodput", "shm", "memcpy", SHM_OF_MEMCPY)
        bench.ratio("shm, round trip, p50 / a microsecond", bench.figure("shm, round trip", "p50"),
                    bench.figure("a microsecond, round trip", "p50"), most=1)
        for way in ("tcp", "shm"):
            self.ratio(self.crowd, "messages", way, PEER, CROWD_OF_PSLITE)


def goodput(keys_per_s, size):
    return Found({"goodput": ("Gb/s", keys_per_s * 8 * size / 1e9), "time per key": ("us", 1e6 / keys_per_s)})


def constant(name, quantity, unit, value):
    """What was measured before."""
    return Contestant(name, lambda *_: Found({quantity: (unit, value)}))


def run(bench):
    ipc, options = Ipc(bench), bench.options
    bench.measure(list(ipc.contestants()))
    ipc.add_ratios()
    return (f"{MODES[options.mode].replace('-', ' ')} of {options.keys} keys under way, the server "
            f"{'adds pushes up' if options.handler == 'sum' else 'keeps the first push of a key'}; round trips are pulls of one "
            f"row of 64 bytes; {'polling' if options.polling == 'true' else 'event mode'}, TCP congestion control "
            f"{options.congestion}")
