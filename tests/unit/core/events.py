"""The events of the source and the table of docs/observe.md are the same: names and fields."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
USE = re.compile(r"\b(SL_EVENT|[A-Z]+_EVENT)\(")
FIELD = re.compile(r'SL_EVENT_(?:NUMBER|TEXT)\(\s*"([a-z_]+)"')
NAME = re.compile(r'"([a-z_]+)"')


def arguments(text, start):
    """The text up to the parenthesis that closes the one before `start`."""
    depth, at = 1, start
    while depth > 0:
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    return text[start:at - 1]


def without_fields(text):
    """Blanks the fields, so that the names of events are the strings that are left."""
    found = re.search(r"SL_EVENT_(NUMBER|TEXT)\(", text)
    while found:
        inside = arguments(text, found.end())
        text = text[:found.start()] + text[found.end() + len(inside) + 1:]
        found = re.search(r"SL_EVENT_(NUMBER|TEXT)\(", text)
    return text


def events_of(text):
    """(name, fields) of each event. A macro of the file adds the fields of its definition."""
    macros = {match.group(1): FIELD.findall(match.group(2)) for match in
              re.finditer(r"#define ([A-Z]+_EVENT)\((.*?[^\\])\n", text, re.S)}
    text = re.sub(r"#define .*?[^\\]\n", "\n", text, flags=re.S)
    for match in USE.finditer(text):
        inside = arguments(text, match.end())
        fields = macros.get(match.group(1), []) + FIELD.findall(inside)
        for name in NAME.findall(without_fields(inside)):
            yield name, frozenset(fields)


def listed(page):
    """Of the table below the heading "Events"."""
    section = page.split("\n## Events\n", 1)[1].split("\n## ", 1)[0]
    return {(match.group(1), frozenset(re.findall(r"`([a-z_]+)`", match.group(2))))
            for match in re.finditer(r"^\| `([a-z_]+)` \| \w+ \| ([^|]*)\|", section, re.M)}


def main():
    files = [path for path in ROOT.glob("*/**/*.c")
             if path.parts[len(ROOT.parts)] not in ("build", "tests")]
    found = {event for path in files for event in events_of(path.read_text())}
    expected = listed((ROOT / "docs/observe.md").read_text())
    for name, fields in sorted(found - expected, key=str):
        print(f"docs/observe.md lacks: | `{name}` | fields: {', '.join(sorted(fields))}")
    for name, fields in sorted(expected - found, key=str):
        print(f"docs/observe.md has an event that the source lacks: {name} ({', '.join(sorted(fields))})")
    assert len(found) > 30, "the pattern finds the events"
    return found != expected


if __name__ == "__main__":
    sys.exit(main())
