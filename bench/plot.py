#!/usr/bin/env python3
"""Draws the charts of a report that starling-bench wrote as JSON: plot.py REPORT DIRECTORY

gnuplot reads its script from standard input. Every text in it is in single quotes, in which gnuplot
knows only the doubled quote, and carries out nothing.
"""

import json
import os
import re
import subprocess
import sys

COLORS = 8  # of gnuplot's; then they come again, dashed
CHARTS_MAX = 64
CHART_PIXELS, KEY_PIXELS, BAR_PIXELS = 560, 11, 26


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


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        report = json.load(file)
    charts = [("ratios", draw_ratios, ())] if report["ratios"] else []
    charts += [("times", draw_times, ())] if report["distributions"] else []
    by_axes = {}
    for figure in report["figures"]:
        if "x_name" in figure:
            by_axes.setdefault((figure["unit"], figure["x_name"]), []).append(figure)
    charts += [(f"{unit} by {x}", draw_curves, (figures,)) for (unit, x), figures in by_axes.items()]
    if not charts:
        print(f"{sys.argv[2]}: nothing to draw: no curves, ratios or distributions", file=sys.stderr)
        return 0
    paths, script = [], ""
    for i, (what, draw, arguments) in enumerate(charts[:CHARTS_MAX], 1):
        name = re.sub(r"[^A-Za-z0-9.]", "-", f"{report['benchmark']}-{i}-{what}") + ".svg"
        paths.append(os.path.join(sys.argv[2], name))
        script += draw(report, paths[-1], *arguments)
    os.makedirs(sys.argv[2], exist_ok=True)
    done = subprocess.run(["gnuplot", "-"], input=script + "unset output\n", text=True, check=False)
    if done.returncode == 0:
        print("\n" + "\n".join(f"  chart     {path}" for path in paths))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
