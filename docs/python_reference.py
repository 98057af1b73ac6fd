#!/usr/bin/env python3
"""Writes docs/python-reference.md from the signatures and docstrings of the Python package.

    PYTHONPATH=build/release/python docs/python_reference.py [--check]

--check changes nothing, and exits with status 1 if the page differs from the package. CTest runs it as a part of
python_pages. Needs torch (Debian: python3-torch).
"""
import argparse
import dataclasses
import difflib
import inspect
import os
import re
import sys
import textwrap

import starling
import starling.objects
import starling.torch
import starling.transfer

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "python-reference.md")
WIDTH = 160
HEAD = """# Python: reference

All public names of the package, from its docstrings, which `help(starling.connect)` shows too. [python.md](python.md) is the guide.
"""


def kinds_of(base):
    return [name for name in starling.__all__ if isinstance(getattr(starling, name), type)
            and issubclass(getattr(starling, name), base)]


def sections():
    """Returns (title, module, names) of each section, which together have every public name."""
    found = [("Connections", starling, ["connect", "Client", "local_cluster", "LocalCluster"]),
             ("Tables", starling, ["SparseTable", "DenseTable", "Step", "TableEntry", "TableStats", "ScanBatch", "unique"]),
             ("Optimizers", starling, sorted(kinds_of(starling.Optimizer), key=lambda name: getattr(starling, name)._kind)),
             ("Initializers", starling, sorted(kinds_of(starling.Initializer), key=lambda name: getattr(starling, name)._kind)),
             ("Consistency and policy", starling, ["Consistency", "ASP", "BSP", "SSP", "Policy", "Slot"]),
             ("starling.torch", starling.torch, starling.torch.__all__),
             ("starling.objects", starling.objects, starling.objects.__all__),
             ("starling.transfer", starling.transfer, starling.transfer.__all__)]
    left = set(starling.__all__).difference(*(names for _, _, names in found), kinds_of(starling.StarlingError))
    if left:
        sys.exit(f"docs/python_reference.py: no section has {', '.join(sorted(left))}: add them to sections()")
    return found


class Default:
    """A default as a script writes it."""

    def __init__(self, value):
        self.value = value

    def __repr__(self):
        if self.value == starling.ASP:
            return "ASP"
        if dataclasses.is_dataclass(self.value) and self.value == type(self.value)():
            return f"{type(self.value).__name__}()"
        return repr(self.value)


def call_of(name, value):
    """Returns the call as text, and the names of its parameters."""
    signature = inspect.signature(value)
    # What all optimizers have is described once.
    common = inspect.signature(starling.Optimizer).parameters if getattr(value, "__bases__", ()) and \
        issubclass(value, starling.Optimizer) and value is not starling.Optimizer else {}
    parameters = [each.replace(annotation=each.empty, default=each.default if each.default is each.empty else Default(each.default))
                  for each in signature.parameters.values() if each.name != "self" and common.get(each.name) != each]
    return (f"`{name}{signature.replace(parameters=parameters, return_annotation=signature.empty)}`",
            {each.name for each in parameters})


def lines_of(text):
    """Wraps a paragraph or an item of a list, with what Markdown would take for its own outside of code escaped."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    escaped = "".join(part if part.startswith("`") else re.sub(r"([*<])", r"\\\1", part) for part in parts)
    return textwrap.wrap(escaped, WIDTH, subsequent_indent="  " if text.startswith("- ") else "", break_on_hyphens=False,
                         break_long_words=False)


def prose(value, parameters=()):
    """Yields the lines of a docstring: paragraphs, and the items that begin with names of parameters."""
    def mark(match):
        names = re.split(r", | and ", match[1] or "")
        if match[1] and not set(names) <= set(parameters):
            return match[0]
        return "\n" + (f"- {', '.join(f'`{name}`' for name in names)}: " if match[1] else "")

    for paragraph in inspect.getdoc(value).split("\n\n"):
        text = re.sub(r"(?:^|(?<=[.;] ))(\w+(?:(?:, | and )\w+)*): |(?<=\. )(?=Raises )", mark, " ".join(paragraph.split()))
        lines = text.strip().split("\n")
        for line, before in zip(lines, [lines[0], *lines]):
            if line.startswith("- ") != before.startswith("- "):
                yield ""
            yield from lines_of(re.sub("; $", ".", line))
        yield ""


def members_of(kind):
    """Returns the public members with a docstring, by name, those of bases first."""
    found = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("starling"):
            found.update(vars(base))
    return {name: value for name, value in found.items() if not name.startswith("_") and getattr(value, "__doc__", None)
            and (inspect.isroutine(value) or inspect.isdatadescriptor(value))}


def class_lines(name, kind):
    parameters = set(kind.__annotations__ if hasattr(kind, "_fields") else ())
    if dataclasses.is_dataclass(kind) or kind.__module__.startswith("starling.torch"):
        call, parameters = call_of(name, kind)
        yield from (call, "")
    yield from prose(kind, parameters)
    if hasattr(kind, "_fields"):
        comments = dict(re.findall(r"^ {4}(\w+): .*?(?:#: (.*))?$", inspect.getsource(kind), re.M))
        for field in kind._fields:
            yield from lines_of(f"- `{field}`" + (f": {comments[field]}" if comments[field] else ""))
        yield ""
        return
    members = members_of(kind)
    values = {member: value for member, value in members.items() if not inspect.isroutine(value)}
    for member, value in values.items():
        yield from lines_of(f"- `{member}`: {inspect.getdoc(value)}")
    if values:
        yield ""
    for member, value in members.items():
        if member not in values:
            call, parameters = call_of(member, value)
            yield from (f"**{call}**", "", *prose(value, parameters))


def page():
    yield from HEAD.split("\n")
    for title, module, names in sections():
        yield from (f"## {title}", "")
        for name in names:
            value = getattr(module, name)
            yield from (f"### {name}", "")
            if isinstance(value, type):
                yield from class_lines(name, value)
            elif callable(value):
                call, parameters = call_of(name, value)
                yield from (call, "", *prose(value, parameters))
            else:  # a constant, whose description follows it
                text = re.search(rf'^{name} = .*\n"""(.*)"""', inspect.getsource(inspect.getmodule(type(value))), re.M)
                yield from (f"`{value!r}`", "", text[1], "")
    yield from ("## Errors", "")
    for name in kinds_of(starling.StarlingError):
        value = getattr(starling, name)
        bases = ", ".join(f"`{base.__name__}`" for base in value.__bases__)
        yield from lines_of(f"- `{name}` ({bases}): {inspect.getdoc(value)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    text = "\n".join(page()) + "\n"
    old = ""
    if os.path.exists(PAGE):
        with open(PAGE, encoding="utf-8") as file:
            old = file.read()
    if arguments.check:
        sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), text.splitlines(True), PAGE, "package", n=0))
        if old != text:
            sys.exit("The page differs from the package: run docs/python_reference.py")
    elif old != text:
        with open(PAGE, "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()
