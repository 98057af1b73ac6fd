#!/usr/bin/env python3
"""Circles of files: files of one room that call each other in a ring, so that none can be read or
tested without the others. Computes the calls between the files of each room (a function that is
defined in one file and called in another); tests/tidy.py refuses a circle of more files than CIRCLES
allows. The numbers there may only become smaller. Calls through a pointer are allowed.

    tests/circles.py [ROOM]    prints the circles of all rooms, or of one, with a ring of each
"""

import os
import re
import sys

# ROOM -> files of its largest circle. Rooms that are not listed have none.
CIRCLES = {
    "ps/checkpoint": 3,
    "ps/server": 4,
    "worker/client": 4,
}

HELP = """    Calls run one way in a room: from the file that decides to the files that do the work.
    To open the ring, remove one of its calls:
    - return a verdict instead of calling upward, or leave it in the struct, as sl_conn_fail does;
    - move a function that needs little of its file into a file below both;
    - put the two files together if they are one idea."""

WORD = re.compile(r"\b(sl_\w+)\s*\(")


def calls_of_room(files):
    """files: {path: code without comments}. Returns {path: {path: (line, name) of the first call}}. An
    inline function belongs to its header."""
    from tidy import functions
    found = {path: list(functions(code)) for path, code in files.items()}
    home = {name: path for path in files for name, is_static, _, _, _ in found[path]
            if not is_static or path.endswith(".h")}
    calls = {path: {} for path in files}
    for path, code in sorted(files.items()):
        lines = code.split("\n")
        for _, _, first, _, body in found[path]:
            start = lines.index("{", first - 1) + 1
            for match in WORD.finditer(body):
                other = home.get(match.group(1), path)
                if other != path:
                    line = start + body.count("\n", 0, match.start())
                    calls[path].setdefault(other, (line, match.group(1)))
    return calls


def units(paths):
    """A .c file and its header count as one."""
    return sorted({os.path.splitext(path)[0] for path in paths})


def circles_of(calls):
    """The strongly connected components of more than one unit, largest first (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(path):
        index[path] = low[path] = len(index)
        stack.append(path)
        for other in calls[path]:
            if other not in index:
                visit(other)
                low[path] = min(low[path], low[other])
            elif other in stack:
                low[path] = min(low[path], index[other])
        if low[path] == index[path]:
            at = stack.index(path)
            if len(units(stack[at:])) > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for path in sorted(calls):
        if path not in index:
            visit(path)
    return sorted(found, key=lambda circle: len(units(circle)), reverse=True)


def way_back(calls, circle, begin):
    """A shortest way along calls from a file of the circle back to itself."""
    ways, seen = [[begin]], set()
    for way in ways:  # which grows meanwhile
        for other in calls[way[-1]]:
            if other == begin:
                return way + [begin]
            if other in circle and other not in seen:
                seen.add(other)
                ways.append(way + [other])
    return None


def ring_of(calls, circle):
    """A shortest ring of calls within the circle, as lines to print."""
    ring = min((way_back(calls, circle, begin) for begin in circle), key=len)
    for one, other in zip(ring, ring[1:]):
        line, name = calls[one][other]
        yield f"    {one}:{line} calls {name} of {other}"


def check(by_room, limits):
    """Yields (room, is_breach, text) of each room whose largest circle has not the size in `limits`."""
    for room, files in sorted(by_room.items()):
        calls = calls_of_room(files)
        circles = circles_of(calls)
        largest = len(units(circles[0])) if circles else 0
        allowed = limits.get(room, 0)
        if largest > allowed:
            names = " ".join(os.path.basename(path) for path in units(circles[0]))
            ring = "\n".join(ring_of(calls, circles[0]))
            yield room, True, (f"{largest} files form a circle, {allowed or 'none'} may: {names}\n"
                               f"  One ring of it:\n{ring}\n{HELP}")
        elif largest < allowed:
            yield room, False, (f"the largest circle has {largest or 'no'} files now: lower the {allowed} "
                                f"in CIRCLES of tests/circles.py")


def main(only):
    from tidy import product
    for room, files in sorted(product().items()):
        calls = calls_of_room(files)
        for circle in circles_of(calls) if only in (None, room) else []:
            names = [os.path.basename(path) for path in units(circle)]
            print(f"{room}: {len(names)}: {' '.join(names)}")
            print("\n".join(ring_of(calls, circle)))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
