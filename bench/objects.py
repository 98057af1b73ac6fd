"""Publishing and getting versions, beside hashing and READs of the same bytes; versions that many processes get at the same time,
each with a limited uplink, beside one process, and beside all of them reading from the origin; views of many readers of an
agent; and short versions beside pulls of one row."""

from driver import Contestant, number

PARTS = ("one", "fan-out", "crowd", "readers", "short")
PROCESSES_MAX = 256
# Targets.
GET_OF_READ, UNVERIFIED_OF_READ, PUBLISH_OF_HASH = 0.55, 0.85, 0.8
FAN_OUT_MOST, CROWD_MOST, VIEWS_MOST, IMAGES_MOST, SHORT_MOST = 1.3, 1.8, 1.2, 1.01, 15
ONE = {"publish": "publish", "XXH3-128": "hash", "get": "get", "get without digests": "get-unverified", "READ of 1 MB": "read"}
SHORT, PULL = "64 KB, commit to a polling reader", "pull of a row"


def add_arguments(parser):
    def add(flag, default, least, most, text):
        parser.add_argument(f"--{flag}", type=number(flag, least, most), default=default, help=text)
    parser.add_argument("--part", choices=("all", *PARTS), default="all", help="what is measured")
    add("megabytes", 1024, 1, 65536, "MiB of the version that one process publishes and gets")
    add("getters", 8, 2, PROCESSES_MAX, "processes of fan-out")
    add("getter-megabytes", 256, 1, 65536, "MiB that they get")
    add("getter-rate", 100, 1, 100000, "MB/s that leave each of them, and the origin")
    add("crowd", 64, 2, PROCESSES_MAX, "nodes of crowd, which follow")
    add("crowd-megabytes", 10, 1, 65536, "MiB that they get")
    add("crowd-rate", 20, 1, 100000, "MB/s that leave each of them, and the origin")
    add("readers", 32, 2, PROCESSES_MAX, "readers of an agent")
    add("reader-megabytes", 256, 1, 65536, "MiB of their view")


class Group:
    """Processes that get a version, beside one, and perhaps beside all of them reading from the origin."""

    def __init__(self, kind, getters, megabytes, rate):
        self.kind, self.getters, self.megabytes, self.rate = kind, getters, megabytes, rate

    def name(self, what, getters):
        return f"{what} {getters} x {self.megabytes} MiB, uplinks {self.rate} MB/s"

    def contestants(self, bench):
        shapes = [("get", self.kind, self.getters), ("get", self.kind, 1)]
        shapes += [("star", "star", self.getters)] if self.kind == "fan-out" else []
        for what, kind, getters in shapes:
            yield contestant(bench, self.name(what, getters), kind, self.megabytes << 20, getters, self.rate * 10**6)

    def add_ratios(self, bench, most):
        of_all = self.name("get", self.getters)
        bench.compare("time", of_all, self.name("get", 1), most=most)
        bench.compare("time", self.name("star", self.getters), of_all)


def contestant(bench, name, kind, size, getters=1, rate=0):
    turn = bench.alone("objects", f"--kind={kind}", f"--bytes={size}", f"--getters={getters}", f"--rate={rate}")
    return Contestant(name, turn, "" if kind in ("publish", "hash") else "TCP")


def run(bench):
    o = bench.options
    fan_out = Group("fan-out", o.getters, o.getter_megabytes, o.getter_rate)
    crowd = Group("crowd", o.crowd, o.crowd_megabytes, o.crowd_rate)
    # The first process of views and of short versions is the agent of the others.
    parts = {
        "one": lambda: [contestant(bench, name, kind, o.megabytes << 20) for name, kind in ONE.items()],
        "fan-out": lambda: fan_out.contestants(bench),
        "crowd": lambda: crowd.contestants(bench),
        "readers": lambda: [contestant(bench, name, "views", o.reader_megabytes << 20, 1 + readers)
                            for name, readers in (("views of all readers", o.readers), ("view of 1 reader", 1))],
        "short": lambda: [contestant(bench, SHORT, "short", 65536, 2),
                          Contestant(PULL, bench.served(bench.ps(), "objects", "--kind=pull"), "TCP")]}
    bench.measure([one for part in PARTS if o.part in ("all", part) for one in parts[part]()])
    bench.compare("bytes", "publish", "XXH3-128", PUBLISH_OF_HASH)
    bench.compare("bytes", "get", "READ of 1 MB", GET_OF_READ)
    bench.compare("bytes", "get without digests", "READ of 1 MB", UNVERIFIED_OF_READ)
    fan_out.add_ratios(bench, FAN_OUT_MOST)
    for quantity, most in (("time", VIEWS_MOST), ("images from the origin", IMAGES_MOST)):
        bench.compare(quantity, "views of all readers", "view of 1 reader", most=most)
    bench.compare("p50", SHORT, PULL, most=SHORT_MOST)
    crowd.add_ratios(bench, CROWD_MOST)
    return "processes on any core; every process of a group is a host of its own; time from the commit to the last getter"
