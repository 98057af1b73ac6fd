#!/usr/bin/env python3
"""Reports of starling-bench: completes, prints, compares and draws what a benchmark has found.

report.py finish RAW [--json FILE] [--compare FILE] [--plot DIR]   starling-bench runs this at its end
report.py check BENCHMARK [the same options]                       whether finish can do that; at its start
report.py targets [--bin DIR] [--only NAME,...] [OPTION...]        all benchmarks that have targets, and their ratios

Charts are drawn by gnuplot, which reads its script from standard input. Every text in the script is in single
quotes, in which gnuplot knows only the doubled quote, and executes nothing.
"""

import argparse
import json
import math
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time

from processes import Failure

FORMAT = "starling-bench report 1"
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "p99.99": 0.9999, "p99.999": 0.99999}
QUIET_PERCENT = 10  # of a core
SPREAD_SAMPLES_MIN = 3  # fewer samples have no spread
COLORS = 8  # of gnuplot's; then they are repeated, dashed
CHARTS_MAX = 64
CHART_PIXELS, KEY_PIXELS, BAR_PIXELS = 560, 11, 26
TARGETS = [("serving", []), ("bulk", ["--sizes", "1M,16M"]), ("bulk", ["--sizes", "1M,16M", "--over", "shm"]),
           ("scale", []), ("ipc", []), ("train", []), ("train", ["--over", "shm"])]


# ---- Completing ------------------------------------------------------------------------------------------------


def quantile(samples, share):
    """Linear between two samples; None (JSON has no NaN) sorts last and makes the result None."""
    ordered = sorted(samples, key=lambda value: (value is None, value))
    place = share * (len(ordered) - 1)
    below = int(place)
    pair = ordered[below], ordered[min(below + 1, len(ordered) - 1)]
    return None if None in pair else pair[0] + (place - below) * (pair[1] - pair[0])


def summarize(item):
    for name, share in (("median", 0.5), ("low", 0.25), ("high", 0.75)):
        item[name] = quantile(item["samples"], share)


def holds(ratio):
    """A ratio that is not a number holds no target."""
    median = ratio["median"]
    return ((not ratio["least"] or median is not None and median >= ratio["least"])
            and (not ratio["most"] or median is not None and median <= ratio["most"]))


def histogram_quantile(buckets, count, share):
    seen = 0
    for upper, number in buckets:
        seen += number
        if seen >= share * count - 1e-9:
            return upper
    return 0


def read_line(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline().strip()
    except OSError:
        return ""


def core_list(text):
    """The cores of a list as sysfs has it: 0-3,8."""
    cores = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cores |= set(range(int(first), int(last or first) + 1))
    return cores


def siblings(core):
    """The hyper-threads of its physical core."""
    return core_list(read_line(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"))


def nearness(a, b):
    """How near two cores are."""
    base = f"/sys/devices/system/cpu/cpu{a}/"
    if a == b:
        return "the same core"
    if b in siblings(a):
        return "hyper-threads of one core"
    shared = [(read_line(f"{base}cache/index{i}/level"), read_line(f"{base}cache/index{i}/size")) for i in range(8)
              if b in core_list(read_line(f"{base}cache/index{i}/shared_cpu_list"))]
    if not shared:
        return "share no cache"
    level, size = min(shared)
    return f"share L{level}" + (f" of {size}" if size else "")


def machine(raw):
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        cpu = re.search(r"^model name\s*: (.*)$", file.read(), re.MULTILINE)
    pages = re.search(r"\[(\w+)\]", read_line("/sys/kernel/mm/transparent_hugepage/enabled"))
    server, client = raw["server_core"], raw["client_core"]
    return {"cpu": cpu.group(1) if cpu else "unknown", "cores": os.cpu_count(),
            "cores_usable": len(os.sched_getaffinity(0)), "kernel": f"{platform.system()} {platform.release()}",
            "huge_pages": pages.group(1) if pages else "unknown",
            "congestion": read_line("/proc/sys/net/ipv4/tcp_congestion_control") or "unknown", "build": raw["build"],
            "server_core": server, "client_core": client, "nearness": nearness(server, client)}


def complete(raw):
    """A report of what starling-bench, or a script beside this one, has measured."""
    report = {"format": FORMAT, "benchmark": raw["benchmark"], "setting": raw["setting"],
              "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "machine": machine(raw),
              **{name: raw[name] for name in ("rounds", "rounds_left_out", "rounds_disturbed", "seconds", "warm_up",
                                              "figures", "ratios", "distributions")}}
    for item in report["figures"] + report["ratios"]:
        summarize(item)
    for ratio in report["ratios"]:
        ratio["holds"] = holds(ratio)
    for spread in report["distributions"]:
        spread["unit"] = "ns"
        spread["quantiles"] = {name: min(spread["max"], histogram_quantile(spread["buckets"], spread["count"], share))
                               for name, share in SHARES.items()}
    return report


# ---- Printing --------------------------------------------------------------------------------------------------


def print_columns(align, rows):
    """Rows of texts in columns; align has a letter for each, l or r."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(align))]
    print()
    for row in rows:
        cells = (cell.rjust(width) if side == "r" else cell.ljust(width)
                 for cell, width, side in zip(row, widths, align))
        print(("  " + "  ".join(cells)).rstrip())


def scale(value, unit):
    """Large rates, bytes and counts are given in thousands, millions, ...: (divisor, unit with its prefix)."""
    divisor, prefix = 1, ""
    if value is not None and (unit.endswith("/s") or unit in ("", "B")):
        for next_prefix in "kMGT":
            if abs(value) / divisor < 10000:
                break
            divisor, prefix = divisor * 1000, next_prefix
    if prefix and unit.startswith("1/"):
        unit = unit[1:]
    blank = " " if prefix and len(unit) > 3 and unit != "B/s" else ""  # "MB/s", but "M keys/s"
    return divisor, prefix + blank + unit


def value_text(value):
    """Four digits, or a whole number."""
    if value is None:
        return "nan"
    size = abs(value)
    if size >= 1e9 or 0 < size < 0.01:
        return f"{value:.4g}"
    decimals = 0 if value == int(value) or size >= 1000 else 1 if size >= 100 else 2 if size >= 10 else 3
    return f"{value:.{decimals}f}"


def scaled_text(value, divisor):
    return value_text(None if value is None else value / divisor)


def quartiles_text(item, divisor=1):
    if len(item["samples"]) == 1:
        return ""
    return f"{scaled_text(item['low'], divisor)} .. {scaled_text(item['high'], divisor)}"


def label(figure):
    return figure["name"] + (f", {figure['x']:.9g} {figure['x_name']}" if "x_name" in figure else "")


def target_text(ratio):
    least, most = ratio["least"], ratio["most"]
    return (f"{least:g} to {most:g}" if least and most else f"at least {least:g}" if least
            else f"at most {most:g}" if most else "")


def print_head(report):
    about = report["machine"]
    usable = "" if about["cores_usable"] == about["cores"] else f" ({about['cores_usable']} for us)"
    print(f"{report['benchmark']}: {report['setting']}\n  machine   {about['cpu']}, {about['cores']} cores{usable}; "
          f"{about['kernel']}; huge pages {about['huge_pages']}; TCP {about['congestion']}")
    if about["server_core"] >= 0 and about["client_core"] >= 0:
        print(f"  cores     server {about['server_core']}, client {about['client_core']}: {about['nearness']}")
    print(f"  build     {about['build']}")
    if report["rounds"]:
        print(f"  measured  {report['rounds']} rounds of {report['seconds']:g} s, each after {report['warm_up']:g} s to "
              "warm up")


def figure_rows(figures):
    before = None
    for figure in figures:
        divisor, unit = scale(figure["median"], figure["unit"])
        is_next = label(figure) == before
        before = label(figure)
        yield ["" if is_next else before, "" if is_next else figure["transport"], figure["quantity"],
               scaled_text(figure["median"], divisor), unit, quartiles_text(figure, divisor)]


def spread_row(spread):
    # Of fewer values than that, the last one would be reported: the longest has a column of its own.
    known = {name: spread["count"] * (1 - share) >= 1 - 1e-9 for name, share in SHARES.items()}
    return [spread["name"], value_text(spread["count"]),
            *(value_text(spread["quantiles"][name] / 1e3) if known[name] else "" for name in SHARES),
            value_text(spread["max"] / 1e3)]


def ratio_row(ratio):
    target = target_text(ratio)
    return [ratio["name"], ratio["transport"], value_text(ratio["median"]), quartiles_text(ratio), target,
            ("holds" if ratio["holds"] else "MISSED") if target else ""]


def print_disturbed(count, text):
    if count > 0:
        print(f"\n{count} round{' is' if count == 1 else 's are'} {text}")


def print_report(report):
    print_head(report)
    if report["figures"]:
        print_columns("lllrll", [["what", "over", "quantity", "median", "unit", "quartiles"],
                                 *figure_rows(report["figures"])])
    if report["distributions"]:
        print_columns("l" + "r" * (len(SHARES) + 2), [["time of each, us", "count", *SHARES, "longest"],
                                                      *map(spread_row, report["distributions"])])
    if report["ratios"]:
        print_columns("llrlll", [["ratio", "over", "median", "quartiles", "target", ""],
                                 *map(ratio_row, report["ratios"])])
    print_disturbed(report["rounds_left_out"],
                    f"left out: other programs took more than {QUIET_PERCENT} % of a core")
    print_disturbed(report["rounds_disturbed"],
                    f"counted although other programs took more than {QUIET_PERCENT} % of a core: there was no quiet "
                    "one; repeat this on a quiet machine")


# ---- Comparing -------------------------------------------------------------------------------------------------


def read_report(path, benchmark):
    """An older report, which must be about this benchmark."""
    try:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        if report["format"] != FORMAT:
            raise ValueError(f"its \"format\" is not \"{FORMAT}\"")
        for item in report["figures"] + report["ratios"]:
            if not item["samples"] or not all(value is None or isinstance(value, (int, float))
                                              for value in item["samples"]):
                raise ValueError(f"{item['name']}: has no samples, or one that is no number")
            summarize(item)
        subject = report["benchmark"]
        report["setting"], *(report["machine"][name] for name in ("cpu", "kernel", "build"))
    except OSError as error:
        raise Failure(f"{path}: the older report cannot be opened: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Failure(f"{path}: is no report of starling-bench: {error!r}") from None
    if subject != benchmark:
        raise Failure(f"{path}: is a report of \"{subject}\"; \"{benchmark}\" can only be compared with its own")
    return report


def identity(item):
    return tuple(item.get(name) for name in ("name", "quantity", "unit", "x_name", "x"))


def verdict(then, now):
    """Empty where the change is within what the rounds themselves differ by."""
    counts = len(then["samples"]), len(now["samples"])
    if min(counts) < SPREAD_SAMPLES_MIN or None in (then["median"], now["median"], then["high"], now["high"]):
        return ""
    change = now["median"] - then["median"]
    if abs(change) <= max(now["high"] - now["low"], then["high"] - then["low"]):
        return ""
    unit = now.get("unit", "")
    direction = 1 if unit.endswith("/s") or now.get("least") else -1 if unit in ("s", "ms", "us", "ns") or now.get(
        "most") else 0
    return "* differs" if direction == 0 else "* better" if change * direction > 0 else "* WORSE"


def print_comparison(report, older, path):
    print(f"\ncompared with {path}")
    for what, then, now in [("setting", older["setting"], report["setting"])] + [
            (what, older["machine"][name], report["machine"][name])
            for what, name in (("machine", "cpu"), ("kernel", "kernel"), ("build", "build"))]:
        if then != now:
            print(f"  {what:9} {then}; now {now}")
    rows = [["what", "quantity", "then", "now", "unit", "now / then", ""]]
    old_items = {identity(item): item for item in older["figures"] + older["ratios"]}
    items = report["figures"] + report["ratios"]
    for now in items:
        then = old_items.get(identity(now))
        if then is not None:
            divisor, unit = scale(then["median"], now.get("unit", "-"))
            change = (1 if then["median"] == now["median"] else now["median"] / then["median"]
                      if then["median"] and now["median"] is not None else math.nan)
            rows.append([label(now), now.get("quantity", "ratio"), scaled_text(then["median"], divisor),
                         scaled_text(now["median"], divisor), unit.replace("-", ""), f"{change:.3f}", verdict(then, now)])
    found = len(rows) - 1
    print_columns("llrrlrl", rows if found else rows + [["nothing in common"] + [""] * 6])
    if found < len(items) or found < len(old_items):
        print(f"  without a counterpart: {len(items) - found} here, {max(len(old_items) - found, 0)} there")
    print("  * differs by more than the quartiles of either lie apart")


# ---- Drawing ---------------------------------------------------------------------------------------------------


def quoted(text):
    return "'" + re.sub(r"[\x00-\x1f]", " ", text).replace("'", "''") + "'"


def number(value):
    return "NaN" if value is None else f"{value:.9g}"


def head(report, path, title, height):
    return f"""reset
set encoding utf8
set terminal svg size 960,{height} dynamic noenhanced font 'sans,13' background rgb 'white'
set grid
set key outside bottom center vertical maxcols 2 noenhanced
set style fill solid 0.6
set output {quoted(path)}
set title {quoted(report["benchmark"] + ": " + title)}
"""


def block(name, rows):
    return f"${name} << END_OF_DATA\n" + "".join(
        " ".join(map(number, row)) + "\n" for row in rows) + "END_OF_DATA\n"


def plot(lines):
    """One plot of all lines, each (what gnuplot is to draw, its title)."""
    return "plot " + ", ".join(f"{what} lw 2 dt {1 + i // COLORS} title {quoted(title)}"
                               for i, (what, title) in enumerate(lines)) + "\n"


def is_wide(values, least):
    return bool(values) and min(values) > 0 and max(values) / min(values) >= least


def axes(figures):
    xs = [f["x"] for f in figures]
    ys = [f[member] for f in figures for member in ("low", "high") if f[member] is not None]
    top, bottom = max(ys, default=0), min(ys, default=0)
    text = f"set xlabel offset 0,0.4 {quoted(figures[0]['x_name'])}\n"
    text += f"set ylabel {quoted(figures[0]['unit'])}\nset offsets graph 0.03, graph 0.03, 0, 0\n"
    text += "set format y '{}'\n".format("%.10g" if top < 1e4 else "%.1s%c")
    text += "set logscale x\n" if is_wide(xs, 8) else ""
    if is_wide(ys, 100):
        return text + "set logscale y\n"
    return text + f"set yrange [{'*' if bottom < 0 else 0}:{1 if bottom == top == 0 else '*'}]\n"


def draw_curves(report, path, figures):
    curves = {}
    for figure in figures:
        curves.setdefault(f"{figure['name']}: {figure['quantity']}", []).append(figure)
    title = f"{figures[0]['unit'] or 'counts'} by {figures[0]['x_name']}"
    data = "".join(block(f"curve{i}", [(f["x"], f["low"], f["median"], f["high"]) for f in points])
                   for i, points in enumerate(curves.values()))
    return (head(report, path, title, CHART_PIXELS + KEY_PIXELS * len(curves)) + data + axes(figures)
            + plot([(f"$curve{i} using 1:3:2:4 with yerrorlines", name)
                    for i, name in enumerate(curves)]))


def draw_ratios(report, path):
    """A bar for each, from the top; its quartiles, and a mark where the target is."""
    ratios = report["ratios"]
    rows = [(i, r["low"], r["median"], r["high"], r["least"] or r["most"] or None,
             0x4daf4a if r["holds"] else 0xe41a1c) for i, r in enumerate(ratios)]
    names = ", ".join(quoted(r["name"].replace("%", "%%")) + f" {i}" for i, r in enumerate(ratios))
    return (head(report, path, "ratios; | is the target", 120 + BAR_PIXELS * len(ratios))
            + "unset key\nset xrange [0:*]\nset offsets 0, graph 0.05, 0, 0\n"
            f"set yrange [{len(ratios) - 1}.5:-0.5]\nset ytics ({names})\n" + block("ratios", rows)
            + "plot $ratios using ($3/2):1:(0):3:($1-0.35):($1+0.35):6 with boxxyerror "
            "lc rgb variable, $ratios using 3:1:2:4 with xerrorbars lc rgb 'black' pt 0, "
            "$ratios using 5:($1-0.42):(0):(0.84) with vectors nohead lw 4 lc rgb 'black'\n")


def draw_times(report, path):
    """For each distribution: how often a time is exceeded, as one in so many."""
    text = head(report, path, "times", CHART_PIXELS + KEY_PIXELS * len(report["distributions"]))
    text += ("set logscale xy\nset xlabel 'one in ... takes longer' offset 0,0.4\n"
             "set ylabel 'us'\nset format x '%.0s%c'\n")
    for i, spread in enumerate(report["distributions"]):
        before, rows = 0, []
        for upper, count in spread["buckets"]:
            rows.append((spread["count"] / (spread["count"] - before), upper / 1e3))
            before += count
        text += block(f"spread{i}", rows)
    return text + plot([(f"$spread{i} using 1:2 with steps", spread["name"])
                        for i, spread in enumerate(report["distributions"])])


def draw_charts(report, folder):
    """Draws curves, ratios and distributions as SVG into the folder."""
    charts = [("ratios", draw_ratios, ())] if report["ratios"] else []
    charts += [("times", draw_times, ())] if report["distributions"] else []
    by_axes = {}
    for figure in report["figures"]:
        if "x_name" in figure:
            by_axes.setdefault((figure["unit"], figure["x_name"]), []).append(figure)
    charts += [(f"{unit} by {x}", draw_curves, (figures,)) for (unit, x), figures in by_axes.items()]
    if not charts:
        print(f"{folder}: nothing to draw: no curves, ratios or distributions", file=sys.stderr)
        return
    paths, script = [], ""
    for i, (what, draw, arguments) in enumerate(charts[:CHARTS_MAX], 1):
        name = re.sub(r"[^A-Za-z0-9.]", "-", f"{report['benchmark']}-{i}-{what}") + ".svg"
        paths.append(os.path.join(folder, name))
        script += draw(report, paths[-1], *arguments)
    os.makedirs(folder, exist_ok=True)
    done = subprocess.run(["gnuplot", "-"], input=script + "unset output\n", text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"{folder}: gnuplot failed, status {done.returncode}")
    print("\n" + "\n".join(f"  chart     {path}" for path in paths))


# ---- Commands --------------------------------------------------------------------------------------------------


def check_writable(path):
    where = path if os.path.exists(path) else os.path.dirname(path) or "."
    if not os.access(where, os.W_OK):
        raise Failure(f"{path}: the report cannot be written")


def check(benchmark, options):
    """Whether finish can do what is asked: before anything is measured."""
    if options.compare:
        read_report(options.compare, benchmark)
    if options.json:
        check_writable(options.json)
    if options.plot:
        if os.path.exists(options.plot) and not os.path.isdir(options.plot):
            raise Failure(f"--plot {options.plot}: is no directory")
        if shutil.which("gnuplot") is None:
            raise Failure("--plot needs gnuplot, which is not installed: apt-get install gnuplot-nox")
        check_writable(options.plot)


def text_of(report):
    """As JSON, with each figure on one line."""
    members = []
    for name, value in report.items():
        text = json.dumps(value)
        if isinstance(value, list) and value:
            text = "[\n" + ",\n".join("    " + json.dumps(item) for item in value) + "\n  ]"
        members.append(f"  {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(members) + "\n}\n"


def finish(raw, options):
    """Prints the report, compares it, writes it, draws it. The older report may be the file that is written."""
    report = complete(raw)
    older = read_report(options.compare, report["benchmark"]) if options.compare else None
    print_report(report)
    if older:
        print_comparison(report, older, options.compare)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            file.write(text_of(report))
    if options.plot:
        draw_charts(report, options.plot)


def run_targets(options, more):
    """Runs each benchmark, and gathers the ratios of all."""
    program = os.path.join(options.bin, "starling-bench")
    names = list(dict.fromkeys(name for name, _ in TARGETS))
    only = options.only.split(",") if options.only else names
    if not set(only) <= set(names):
        raise Failure(f"--only {options.only}: accepts some of {','.join(names)}")
    raw = {"benchmark": "targets", "setting": "the ratios of each benchmark that has targets", "rounds": 0, "seconds": 0,
           "warm_up": 0, "rounds_left_out": 0, "rounds_disturbed": 0, "figures": [], "ratios": [], "distributions": []}
    with tempfile.TemporaryDirectory(prefix="starling-targets-") as folder:
        path = os.path.join(folder, "report.json")
        for name, arguments in TARGETS:
            if name not in only:
                continue
            plot_flags = ["--plot", os.path.join(options.plot, name)] if options.plot else []
            if options.plot:
                os.makedirs(options.plot, exist_ok=True)
            subprocess.run([program, name, *arguments, *more, *plot_flags, "--json", path], check=True)
            print(flush=True)
            with open(path, encoding="utf-8") as file:
                part = json.load(file)
            raw["ratios"] += part["ratios"]
            for count in ("rounds_left_out", "rounds_disturbed"):
                raw[count] += part[count]
            raw.update(build=part["machine"]["build"], server_core=part["machine"]["server_core"],
                       client_core=part["machine"]["client_core"], rounds=part["rounds"], seconds=part["seconds"],
                       warm_up=part["warm_up"])
    finish(raw, options)


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, subject in (("finish", "raw"), ("check", "benchmark"), ("targets", None)):
        command = commands.add_parser(name)
        if subject:
            command.add_argument(subject)
        for flag in ("--json", "--compare", "--plot"):
            command.add_argument(flag)
    command.add_argument("--bin", default=os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                                       "../build/release/bin"))
    command.add_argument("--only", help="names of benchmarks, with commas between them; other options are theirs")
    options, more = parser.parse_known_args(argv)
    if more and options.command != "targets":
        parser.error(f"unknown: {' '.join(more)}")
    return options, more


def main(argv):
    options, more = parse_arguments(argv)
    try:
        if options.command == "check":
            check(options.benchmark, options)
        elif options.command == "targets":
            check("targets", options)
            run_targets(options, more)
        else:
            with open(options.raw, encoding="utf-8") as file:
                finish(json.load(file), options)
        sys.stdout.flush()
    except (Failure, OSError) as failure:
        print(f"starling-bench: {failure}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as failure:
        return failure.returncode
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
