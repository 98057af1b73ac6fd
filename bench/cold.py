"""Cold models, under each schedule: the time from the open to the answer. An agent, with a pool that does not hold the model
beside those of --evict, runs already."""

from driver import Contestant, number

SCHEDULES = ("optimal", "layer", "32768000", "whole")
FIXED = SCHEDULES[1:]


def add_arguments(parser):
    add = parser.add_argument
    add("--agent", metavar="NAME", required=True, help="the agent of this host")
    add("--model", metavar="NAME", required=True, help="a deployed model")
    add("--evict", metavar="NAME,...", required=True, help="models that take its place in the pool")
    add("--rows", type=number("rows", 1, 256), default=8, help="rows that are computed together")
    add("--drop-caches", type=number("drop-caches", 0, 1), default=0,
        help="1: empty the page cache before each load: files come from the disk")
    add("--timeline", metavar="FILE", help="write what happened in the first round: bench/serve.py draws it")


def run(bench):
    options, watched = bench.options, set()
    load = bench.load("cold", f"--agent={options.agent}", f"--model={options.model}", f"--evict={options.evict}",
                      f"--rows={options.rows}", f"--drop-caches={options.drop_caches}",
                      *([f"--timeline={options.timeline}"] if options.timeline else []))

    def turn(schedule, *times):
        is_first = options.timeline and schedule not in watched
        watched.add(schedule)
        return load.turn(*times, schedule, *(["watch"] if is_first else []))
    bench.measure([Contestant(name, lambda *times, name=name: turn(name, *times)) for name in SCHEDULES]
                  + [Contestant(f"{word} alone", lambda *times, word=word: load.turn(*times, word)) for word in ("load", "compute")])
    load.stop()  # writes the timeline
    times = {figure["name"]: figure for figure in bench.figures}

    def computed(name, choose, *of):
        return bench.add(name, "time", "ms", *map(choose, zip(*(times[one]["samples"] for one in of))))
    longer = computed("the longer of load and compute", max, "load alone", "compute alone")
    fixed = computed("the best fixed schedule", min, *FIXED)
    bench.ratio("optimal / the longer of load and compute", times["optimal"], longer, most=1.2)
    bench.ratio("optimal / whole", times["optimal"], times["whole"], most=0.65)
    bench.ratio("optimal / the best fixed schedule", times["optimal"], fixed, most=1.05)
    return f"{options.model}, {options.rows} rows; open to answer"
