#!/usr/bin/env python3
"""Checks the rules of the source tree that no compiler checks: which folder may include which, what
global symbols are called, how long functions and files may be, where atomics, locks and foreign
headers may appear. Prints each breach as FILE:LINE: reason and exits 1 if there is any.

    tests/tidy.py [--self-test]
"""

import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# A -> B: A may include B. A folder may always include itself. Nested folders are named when they
# have rules of their own.
ARROWS = {
    "core": set(),
    "reactor": {"core"},
    "net": {"core", "reactor"},
    "ps": {"core", "reactor", "net"},
    "worker": {"core", "reactor", "net"},
    "config": {"core"},
    "kv": {"core", "reactor", "net", "ps", "worker", "config"},
    "bench": {"core", "reactor", "net", "worker", "config"},
    "launch": {"core", "config"},
    "ckpt": {"core", "net", "ps"},
}
MAINS = {"ps/main.c", "worker/main.c", "bench/main.c", "launch/main.c", "ckpt/main.c"}

# Benchmarks of a table in this very process need the table; a program's flags need the parser.
EXTRA_ARROWS = {"bench/table.c": {"ps"}, "bench/table_reads.c": {"ps"},
                "worker/train/flags.c": {"config"},
                "worker/train/flags.h": {"config"}}

# A pattern that may appear only in files that match.
CONFINED = [
    (r"#include <liburing", r"reactor/ring.*|net/(tcp|shm)/.*|bench/bare_.*", "liburing"),
    (r"#include <(infiniband|rdma)/", r"net/rdma/.*", "verbs"),
    (r"#include <rte_", r"net/dpdk/module/.*|bench/bare_memif.*", "DPDK"),
    (r"#include <curl/", r"ps/store/etcd\.c", "libcurl"),
    (r"#include <openssl/", r"net/auth\.c|net/tcp/tls.*", "OpenSSL"),
    (r"#include .*(protobuf-c|\.pb-c\.h)", r"net/control/.*", "protobuf-c"),
    (r"#include <stdatomic.h>|\b_Atomic\b|\b__atomic_|\b__sync_",
     r"core/spsc\.h|core/log\.c|core/arena_(ahead|pages)\.c|core/shared\.c|reactor/(aside|mailbox|reactor).*|"
     r"net/shm/segment\.h|net/verbose\..|net/rdma/unmapped\.c|worker/hub\.h|"
     r"bench/bare_spsc\.c",
     "atomics"),
    (r"\bpthread_(mutex|rwlock|spin|cond)_", 
     r"core/(arena_ahead|shared)\.c|reactor/(mailbox|reactor).*|worker/(port|wire_memory)\.c|net/resolve\.c|"
     r"net/rdma/(cm|device|unmapped)\.c|net/dpdk/module/(device|memif|memory)\.c|"
     r"kv/engine.*",
     "a lock"),
    (r"#include \"net/(fault|dpdk/port_fault)", r"net/fault.*|net/dpdk/(port_fault|faults)\..*|bench/dpdk\.c",
     "a fault injector"),
    (r"#include \"config/",
     r"config/.*|bench/.*|launch/.*|kv/.*|(ps|worker|ckpt)/main\.c|worker/train/flags\..*", "config"),
]
FORBIDDEN = [
    (r"typedef (struct|union|enum)\b", "typedef of a struct, union or enum"),
    (r"\b(TODO|FIXME|XXX|HACK)\b", "unfinished work"),
    (r"#include \"[^\"]*\.c\"", "a .c file is included"),
    (r"\b(strcpy|strcat|sprintf|gets|alloca|strtok)\s*\(", "an unsafe function"),
]
# Where variables of the environment are read, and the table that has them all: what is not in it, a
# launcher would not pass on to other hosts. Slurm's are the launcher's own, PATH and TMPDIR the system's.
VARIABLE_TABLE = "config/variables.c"
VARIABLE_FOLDERS = ("ckpt", "config", "core", "kv", "launch", "net", "ps", "reactor", "worker")
VARIABLE = re.compile(r'"((?:STARLING|NETWORK|PS|WORKER|DMLC|MC|NCCL)_[A-Z0-9_]+|TF_CONFIG)"|'
                      r'getenv\("(?!SLURM_|PATH"|TMPDIR")(\w+)"\)')
FUNCTION_LINES_MAX = 70
DISPATCH_LINES_MAX = 120  # a function that is one switch
FILE_LINES_MAX = 800



def strip_comments(text):
    """Blanks comments and string literals, keeping the line structure."""
    pattern = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def functions(code):
    """Yields (name, is_static, first_line, last_line, body) of each function definition."""
    lines = code.split("\n")
    row = 0
    while row < len(lines):
        if lines[row] == "{":
            end = row
            while lines[end] != "}" and end + 1 < len(lines):
                end += 1
            start = row - 1
            while start > 0 and lines[start - 1].strip() and not lines[start - 1].startswith(
                    ("#", "}", "/")) and not lines[start - 1].rstrip().endswith((";", "}")):
                start -= 1
            head = " ".join(lines[start:row])
            name = re.search(r"(\w+)\s*\(", head)
            if name:
                yield (name.group(1), "static" in head.split("(")[0].split(), start + 1, end + 1,
                       "\n".join(lines[row:end]))
            row = end
        row += 1


def prefix_fits(name, path):
    """sl_<file>_ or, for a file that is a part of another (shard_push.c), a leading part of it."""
    stem = os.path.splitext(os.path.basename(path))[0]
    folder = os.path.basename(os.path.dirname(path))
    words = stem.split("_")
    stems = ["_".join(words[:i]) for i in range(len(words), 0, -1)]
    stems += [f"{folder}_{stem}", folder]  # net/tcp/send.c: sl_tcp_send_...
    return any(name.startswith(f"sl_{s}_") for s in stems)


def check_includes(path, text):
    folder = path.split("/")[0]
    if folder not in ARROWS or path in MAINS:
        return
    allowed = ARROWS[folder] | {folder} | EXTRA_ARROWS.get(path, set())
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r'#include "([^"/]+)/', line)
        if match and match.group(1) not in allowed:
            yield number, f"{folder} must not include {match.group(1)}"


def check_patterns(path, text, code):
    for number, (line, bare) in enumerate(zip(text.split("\n"), code.split("\n")), 1):
        subject = line if line.startswith("#include") else bare
        for pattern, where, what in CONFINED:
            if path.startswith("tests/"):
                continue
            if re.search(pattern, subject) and not re.fullmatch(where, path):
                yield number, f"{what} belongs in {where} only"
        for pattern, what in FORBIDDEN:
            if re.search(pattern, line if "TODO" in pattern else subject):
                yield number, what


def check_functions(path, code):
    for name, is_static, first, last, body in functions(code):
        length = last - first + 1
        limit = DISPATCH_LINES_MAX if "switch (" in body else FUNCTION_LINES_MAX
        if length > limit:
            yield first, f"{name} has {length} lines, more than {limit}"
        if path.startswith(("tests/", "examples/")) or is_static or name == "main":
            continue
        if path.endswith(".c") and not prefix_fits(name, path):
            yield first, f"global symbol {name} lacks the prefix of its file"


def known_variables():
    with open(os.path.join(ROOT, VARIABLE_TABLE), encoding="utf-8") as file:
        return {name for name, _ in VARIABLE.findall(file.read())}


def check_variables(path, text, known):
    if path.split("/")[0] not in VARIABLE_FOLDERS or path == VARIABLE_TABLE:
        return
    for number, line in enumerate(text.split("\n"), 1):
        for groups in VARIABLE.findall(line):
            name = groups[0] or groups[1]
            if name not in known:
                yield number, f"the variable {name} is missing in {VARIABLE_TABLE}"


def check_file(path, text):
    code = strip_comments(text)
    count = text.count("\n")
    if count > FILE_LINES_MAX:
        yield count, f"{count} lines, more than {FILE_LINES_MAX}"
    yield from check_includes(path, text)
    yield from check_patterns(path, text, code)
    yield from check_functions(path, code)
    yield from check_variables(path, text, KNOWN_VARIABLES)


def sources():
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.c", "*.h"], cwd=ROOT,
                            capture_output=True, text=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        return [p for p in listed.stdout.split() if os.path.exists(os.path.join(ROOT, p))]
    found = []
    for folder, _, names in os.walk(ROOT):
        if "/build" in folder or "/." in folder:
            continue
        found += [os.path.relpath(os.path.join(folder, n), ROOT) for n in names
                  if n.endswith((".c", ".h"))]
    return found


KNOWN_VARIABLES = known_variables()


def self_test():
    """Each rule must catch a breach of it."""
    long_body = "\n".join(["    x++;"] * 80)
    breaches = [
        ("config/env.c", 'static const char *name = "STARLING_NOT_IN_THE_TABLE";\n'),
        ("ps/a.c", 'static const char *f(void)\n{\n    return getenv("OTHER");\n}\n'),
        ("core/a.c", '#include "ps/shard.h"\n'),
        ("worker/a.c", '#include "ps/shard.h"\n'),
        ("ps/shard.c", '#include "config/env.h"\n'),
        ("ps/shard.c", "#include <liburing.h>\n"),
        ("net/transport.c", "#include <infiniband/verbs.h>\n"),
        ("net/tcp/send.c", "#include <rdma/rdma_cma.h>\n"),
        ("net/rdma/send.c", "    pthread_mutex_lock(&m);\n"),
        ("ps/shard.c", "static _Atomic int x;\n"),
        ("net/shm/send.c", "static _Atomic int x;\n"),
        ("ps/shard.c", "    pthread_mutex_lock(&m);\n"),
        ("ps/shard.c", "int other_name(void)\n{\n}\n"),
        ("ps/shard.c", "static int f(void)\n{\n" + long_body + "\n}\n"),
        ("ps/shard.c", "typedef struct x y;\n"),
        ("ps/shard.c", "/* TODO */\n"),
        ("ps/shard.c", "\n" * (FILE_LINES_MAX + 1)),
    ]
    clean = [
        ("ps/shard.c", '#include "net/wire/frame.h"\nint sl_shard_run(void)\n{\n}\n'),
        ("ps/shard_push.c", "int sl_shard_push_all(int a,\n                      int b)\n{\n}\n"),
        ("net/tcp/send.c", "#include <liburing.h>\nvoid sl_tcp_send_all(void)\n{\n}\n"),
        ("net/shm/segment.h", "#include <stdatomic.h>\n"),
        ("net/rdma/library.h", "#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n"),
        ("ps/main.c", '#include "config/env.h"\nint main(void)\n{\n}\n'),
    ]
    for path, text in breaches:
        assert list(check_file(path, text)), f"not caught: {path}: {text[:60]!r}"
    for path, text in clean:
        assert not list(check_file(path, text)), f"caught: {path}: {list(check_file(path, text))}"


def main():
    self_test()
    breaches = 0
    for path in sorted(sources()):
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            for line, reason in check_file(path, file.read()):
                print(f"{path}:{line}: {reason}")
                breaches += 1
    if breaches:
        print(f"{breaches} breaches of the tree's rules; docs/ and the file headers say why they exist")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
