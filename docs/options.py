#!/usr/bin/env python3
"""Writes the option lists of docs/configuration.md and of the man pages from the tables of the programs.

    docs/options.py [--bin DIR] [--check]

Each list is between two comments of its page; the rest of a page is written by hand. --check changes nothing, and
exits with status 1 if a page differs from what the programs have. CTest runs it as docs_options.
"""
import argparse
import difflib
import os
import re
import subprocess
import sys

DOCS = os.path.dirname(os.path.abspath(__file__))
# Command; its letter in the column "programs"; the man page that lists all its options, or its own ones only.
COMMANDS = [
    (("starling-ps",), "P", "starling-ps", True),
    (("starling-ps", "doctor"), None, "starling-ps", False),
    (("starling-worker",), "W", "starling-worker", True),
    (("starling-worker", "predict"), None, "starling-worker", True),
    (("starling-worker", "generate"), None, "starling-worker", True),
    (("starling-launch",), "L", "starling-launch", True),
    (("starling-ctl",), None, "starling-ctl", True),
]
FIELDS = ("name", "variable", "aliases", "metavar", "default", "accepts", "help")


def sections_of(bin_dir, command):
    """Returns [(title, [option])]; options before the first heading have the command's last word as title."""
    table = subprocess.run([os.path.join(bin_dir, command[0]), *command[1:], "--help=table"], check=True,
                           capture_output=True, text=True).stdout
    sections = [(command[-1], [])]
    for line in table.splitlines():
        fields = line.split("\t")
        if len(fields) == 1:
            sections.append((line, []))
        else:
            option = dict(zip(FIELDS, fields))
            option["default"] = option["default"].strip().removeprefix("Default: ").removesuffix(".")
            sections[-1][1].append(option)
    return [(title, options) for title, options in sections if options]


def derived(option):
    return "STARLING_" + option["name"].upper().replace("-", "_")


def aliases(option):
    return [("--" if name.islower() else "") + name.removeprefix("!") + (" (inverted)" if name[0] == "!" else "")
            for name in option["aliases"].split()]


# ---- man pages ----

def sentences(text):
    """A sentence a line; a line that begins with a dot or quote would be a request."""
    lines = re.sub(r"(?<=[.]) (?=[A-Z])", "\n", text).split("\n")
    return [("\\&" if line[0] in ".'" else "") + line.replace("\\", "\\e") for line in lines]


def man_option(option):
    metavar = option["metavar"]
    if option["name"]:
        yield f".It Fl -{option['name']}" + (f" Ar {metavar}" if metavar else "")
    else:
        yield f".It Ev {option['variable']} Ns = Ns Ar {metavar or '0|1'}"
    yield from sentences(option["help"])
    if option["name"] and option["variable"] not in ("", derived(option)):
        yield f"Variable: {option['variable']}."
    if option["aliases"]:
        yield f"Older names: {', '.join(aliases(option))}."
    if option["default"]:
        yield f"Default: {option['default']}."


def man_list(sections, has_titles):
    for title, options in sections:
        if has_titles:
            yield f".Ss {title}"
        yield ".Bl -tag -width Ds"
        for option in options:
            yield from man_option(option)
        yield ".El"


# ---- configuration.md ----

def code(text):
    return "`" + text.replace("|", "\\|") + "`"


def prose(text):
    """Marks flags and variables; a star or bar has no meaning."""
    text = re.sub(r"(?<![\w-])--[a-z][a-z-]*|\b(?:[A-Z]+_)+[A-Z]+\b|\{[a-z]+(?:\+[A-Z])?\}|(?<!\w)\.endpoint_map", r"`\g<0>`", text)
    return text.replace("|", "\\|")


def accepts(option):
    text = option["accepts"]
    for pattern, short in ((r"a (?:whole )?number from (.*)", r"\1"), (r"a duration from (.*?), such as.*", r"\1"),
                           (r"0, 1, true or false.*", "boolean"), (r"a number of bytes.*", "size")):
        text = re.sub(rf"^{pattern}$", short, text)
    return "" if text == option["metavar"] else text.replace("|", ", ")


def md_row(programs, option):
    names = [code((f"--{option['name']} {option['metavar']}" if option["name"] else option["variable"]).strip())]
    if option["name"] and option["variable"] not in ("", derived(option)):
        names.append(code(option["variable"]))
    text, default = option["help"], option["default"]
    said = re.search(r" ?\bDefault: (.*?)\.(?= |$)", text)
    if said and not default:
        text, default = text[:said.start()] + text[said.end():], said.group(1)
    if option["aliases"]:
        text += " Older names: " + ", ".join(re.sub(r"^\S+", lambda m: code(m.group()), name)
                                             for name in aliases(option)) + "."
    text = re.sub(r"`[^`]*`|[^`]+", lambda m: m.group() if m.group()[0] == "`" else prose(m.group()), text)
    cells = [", ".join(names), *([programs] if programs else []), prose(default), prose(accepts(option)), text]
    return "| " + " | ".join(cells) + " |"


def md_table(rows):
    has_programs = any(programs for programs, _ in rows)
    head = ["option", *(["programs"] if has_programs else []), "default", "accepts", "meaning"]
    return ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |",
            *(md_row(programs, option) for programs, option in rows)]


def merged(tables):
    """Returns {title: [(programs, option)]}; the same option of several programs is one row."""
    out = {}
    for letter, sections in tables:
        for title, options in sections:
            rows = out.setdefault(title, [])
            for option in options:
                like = [i for i, (_, other) in enumerate(rows) if other["name"] == option["name"] and
                        other["variable"] == option["variable"] and other["help"] == option["help"]]
                if like and letter:
                    rows[like[0]] = (f"{rows[like[0]][0]} {letter}", rows[like[0]][1])
                elif not like:
                    rows.append((letter, option))
    # An option of one program only needs no column.
    return {title: [(None if {p for p, _ in rows} in ({"W"}, {"L"}) else p, o) for p, o in rows]
            for title, rows in out.items()}


# ---- pages ----

def fill(path, comment, lists):
    """Replaces the lists between the comments of a page. Returns the new text."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    begin, end = comment
    pattern = re.compile(rf"^{re.escape(begin[0])}(.*?){re.escape(begin[1])}\n.*?^({re.escape(end)})\n", re.M | re.S)
    used = set()

    def replace(match):
        used.add(match.group(1))
        return "\n".join([f"{begin[0]}{match.group(1)}{begin[1]}", *lists[match.group(1)], match.group(2), ""])

    text = pattern.sub(replace, text)
    if used != set(lists):
        sys.exit(f"{path}: no place for the options {sorted(set(lists) - used)}")
    return text


def pages(bin_dir):
    tables = {command: sections_of(bin_dir, command) for command, *_ in COMMANDS}
    man = {}
    for command, _, page, is_whole in COMMANDS:
        sections = tables[command] if is_whole else tables[command][:1]
        has_titles = sections[0][0] != command[-1]
        man.setdefault(page, {})[" ".join(command)] = list(man_list(sections, has_titles))
    for page, lists in man.items():
        path = os.path.join(DOCS, "man", f"{page}.1")
        yield path, fill(path, (('.\\" Options of ', ", written by docs/options.py:"), '.\\" End of options.'), lists)
    path = os.path.join(DOCS, "configuration.md")
    whole = [(letter, tables[command] if is_whole else tables[command][:1])
             for command, letter, page, is_whole in COMMANDS if page != "starling-ctl"]  # its man page alone has them
    # Titles without what stands in brackets or behind a colon.
    lists = {re.sub(r"( \(|:|,).*", "", title): md_table(rows) for title, rows in merged(whole).items()}
    yield path, fill(path, (("<!-- options: ", " (docs/options.py) -->"), "<!-- end of options -->"), lists)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bin", default=os.path.join(DOCS, "..", "build", "release", "bin"))
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    differs = False
    for path, text in pages(arguments.bin):
        with open(path, encoding="utf-8") as file:
            old = file.read()
        if arguments.check:
            sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), text.splitlines(True), path, "programs", n=0))
            differs = differs or old != text
        elif old != text:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    if differs:
        sys.exit("The pages differ from the programs: run docs/options.py --bin DIR")


if __name__ == "__main__":
    main()
