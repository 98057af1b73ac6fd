#!/usr/bin/env python3
"""Checks the rules of the source tree that no compiler checks: which folder may include which, what
global symbols are called, how long functions and files may be, where atomics, locks and foreign
headers may appear; which words pages (*.md) and comments may use, and that links lead somewhere.
Prints each breach as FILE:LINE: reason and exits 1 if there is any.

    tests/tidy.py [--self-test]
"""

import collections
import functools
import glob
import os
import re
import subprocess
import sys

import circles

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# ROOM -> rooms that it may include; every room may include itself and core. "ROOM+" stands for the
# room and all that it may include.
ARROWS = {
    "core": "",
    "reactor": "",
    "config": "",
    "net/wire": "",
    "net": "reactor net/wire",
    "net/base": "net+",
    "net/session": "net+",
    "net/rma": "net+",
    "net/tcp": "net/base+",
    "net/shm": "net/base+",
    "net/rdma": "net/base+",
    "net/dpdk": "net/base+",
    "net/dpdk/module": "net/dpdk+",
    "net/builtin": "net/base+ net/tcp net/shm net/rdma net/dpdk",
    "net/store": "net/http reactor",
    "ps/observe": "ps/coordinator+",
    "ps/observe/web": "",
    "net/http": "reactor",
    "ps/optimizer": "",
    "ps/table": "ps/optimizer",
    "ps/snapshot": "ps/table+ net/session",
    "ps/shard": "ps/snapshot+ net/wire",
    "ps/checkpoint": "ps/snapshot reactor",
    "ps/server": "ps/shard+ ps/checkpoint net/session+",
    "ps/replication": "ps/server+",
    "ps/coordinator": "net/session net/store+",
    "ps/agent": "net/session+",
    "ps/process": "ps/replication+ ps/coordinator+ ps/agent+ net/builtin+ ps/observe net/http ps/observe/web",
    "ps": "ps/process+ ps/publish net/http config programs/doctor reactor",
    "ps/publish": "ps/process+ ps objects/reader+",
    "worker/client": "net/session+ net/builtin+",
    "programs/models": "programs/safetensors ps/optimizer",
    "programs/train": "programs/models programs/safetensors programs/ckpt ps/optimizer worker/client+ net/http config",
    "net/transfer": "net/store+ net/session+ net/rma net/builtin+",
    "objects/catalogue": "",
    "objects/node": "objects/catalogue net/transfer net/store net/base net/wire reactor",
    "objects/reader": "objects/catalogue objects/node+",
    "worker/kv": "worker/client+ ps config",
    "programs/serve/base": "objects/catalogue objects/node objects/reader",
    "programs/serve/gateway": "programs/serve/base objects/reader+ net/transfer+ reactor",
    "programs/serve/worker": "programs/serve/base programs/serve/engine objects/reader+ net/transfer+ reactor",
    "programs/serve/http": "programs/serve/gateway+ net/http reactor config",
    "programs/serve": "programs/serve/http+ programs/serve/worker+ programs/serve/engine+ programs/launch programs/models config",
    "programs/serve/engine": "objects/catalogue objects/node objects/reader programs/models ps/optimizer",
    "programs/launch": "config",
    "programs/safetensors": "",
    "programs/ckpt": "ps/checkpoint+ ps/optimizer programs/safetensors config",
    "programs/objects": "objects/catalogue objects/node objects/reader net/store net/tcp programs/safetensors config",
    "programs/top": "net/http config",
    "programs/ctl": "programs/ckpt+ programs/top config",
    "programs/doctor": "net/builtin+ net/transfer config",
    "bench": "worker/client+ ps/table+ objects/catalogue objects/node objects/reader programs/serve/engine programs/serve/base programs/serve/worker config",
    "python": "",
    "compat/mooncake": "",
}

# Rooms that use the public headers alone, not even core.
PUBLIC_ONLY = {"python", "compat/mooncake"}

# A pattern that may appear only in files that match.
CONFINED = [
    (r"#include <liburing", r"reactor/ring.*|net/(tcp|shm)/.*|bench/bare_.*", "liburing"),
    (r"#include <(infiniband|rdma)/", r"net/rdma/.*", "verbs"),
    (r"#include <rte_", r"net/dpdk/module/.*", "DPDK"),
    (r"#include <curl/", r"net/http/client\.c|programs/serve/client\.c", "libcurl"),
    (r"#include <openssl/", r"net/session/auth\.c|net/tcp/tls.*|net/store/etcd_json\.c", "OpenSSL"),
    (r"#include .*(protobuf-c|\.pb-c\.h)", r"tests/unit/net/session/.*|programs/serve/engine/onnx\..*", "protobuf-c"),
    (r"#include <n?curses", r"programs/top/screen\.c", "ncurses"),
    (r"#include <cblas", r"programs/serve/engine/.*", "OpenBLAS"),
    (r"#include <ini\.h", r"config/config_file\.c", "libinih"),
    (r"#include <microhttpd", r"net/http/server\.c|bench/bare_http\.c", "libmicrohttpd"),
    (r"#include <stdatomic.h>|\b_Atomic\b|\b__atomic_|\b__sync_",
     r"core/(spsc|cell)\.h|core/(fork|log)\.c|core/arena_(ahead|pages)\.c|core/shared\.c|reactor/(offload|mailbox|reactor).*|"
     r"net/shm/segment\.h|net/trace\..|objects/node/board\.h|ps/process/(hosted|state)\..|worker/client/client_io\.h|reactor/(completion|view)\..|net/transfer/(route|segment)\..",
     "atomics"),
    (r"\bpthread_(mutex|rwlock|spin|cond)_",
     r"core/(arena_ahead|event|log|shared)\.c|core/metrics\..|reactor/(mailbox|port|reactor).*|worker/client/(send_arena|error_feedback|relay).*|"
     r"net/session/resolve\.c|net/rdma/(cm|device|listen)\.c|net/dpdk/module/(device|memory)\.c|"
     r"bench/transfer_initiator\.c|worker/kv/(engine|join|serve).*|ps/server/token\.c|compat/mooncake/.*",
     "a lock"),
    (r"#include <Python.h>", r"python/native/python\.h", "Python.h"),
    (r"#include \"config/", r"config/.*|bench/.*|programs/(?!serve/|train/).*|worker/kv/.*|programs/serve/([^/]*|http/.*)|ps/run.*|programs/train/(main|flags|generate|predict)\..*",
     "config"),
]
FORBIDDEN = [
    (r"typedef (struct|union|enum)\b", "typedef of a struct, union or enum"),
    (r"\b(TODO|FIXME|XXX|HACK)\b", "unfinished work"),
    (r"#include \"[^\"]*\.c\"", "a .c file is included"),
    (r"\b(strcpy|strcat|sprintf|gets|alloca|strtok)\s*\(", "an unsafe function"),
]
# Where variables of the environment are read, and the table that has them all: those that are not in it, and do
# not begin with STARLING_, a launcher would not pass on to other hosts. Slurm's are the launcher's own, PATH and
# TMPDIR the system's, NOTIFY_SOCKET one service's.
VARIABLE_TABLE = "config/settings.c"
VARIABLE_FOLDERS = ("config", "core", "net", "objects", "programs", "ps", "reactor", "worker")
VARIABLE = re.compile(r'"((?:NETWORK|PS|WORKER|DMLC|MC|NCCL)_[A-Z0-9_]+|TF_CONFIG)"|'
                      r'getenv\("(?!SLURM_|PATH"|TMPDIR"|NOTIFY_SOCKET"|STARLING_)(\w+)"\)')
# Variables of ps-lite that have no effect, but a warning (config/dmlc.c): no launcher needs to pass them on.
VARIABLES_WITHOUT_EFFECT = ("DMLC_ENABLE_UCX", "DMLC_NUM_PORTS", "PS_DROP_MSG")
# Identifiers of words that docs/glossary.md has replaced, and what to say instead.
RETIRED = {
    r"(sl|SL)_(image|cut)_": "snapshot", r"sl_seat_": "leader", r"sl_ledger_": "coordinator_log",
    r"sl_aside_|SL_ASIDE_": "offload", r"sl_hub_|SL_HUB_": "client_io", r"sl_link_|SL_LINK_": "shard_conn",
    r"sl_\w+_store_(find|apply|create)": "table", r"sl_rdma_rail_": "nic", r"sl_dpdk_(side|flights?|seen|train)_": "netif, "
    "sent_packets, received_packets, bundle", r"\w*_landings?\b": "reply_buffer", r"\w*_obstacle\b": "last_error",
    r"\w+_(hands_over|hand_over)\b": "migrate, or switch_over of a primary", r"\w*_in_step\b": "in_sync",
}
# The same for the prose of pages: a word outside code spans and blocks, in any case.
RETIRED_WORDS = {
    r"(?<!container )images?": "snapshot", r"(a|an|the|its|each|every|no|one|whose) cuts?": "snapshot",
    r"seats?": "leader", r"ledgers?": "coordinator log", r"landings?": "reply buffer", r"aside": "offload, or buffered",
    r"hubs?": "client reactor", r"(in|out of) step": "in sync, or not in sync", r"mad": "malicious",
    r"whoever": "a noun", r"farewells?": "goodbye", r"near(er)? ways?": "preferred path",
}
# Where "image" is the bytes of one part of an object, or of a container, and where a cable is cut.
TERMS_OF_PLACES = {
    "image": r"objects|serve|onnx|container|rdma-vm|core/limits\.h", "the cut": r"tests/conformance/tcp_cut_test\.c"}
# Folders whose README is that of a folder above, which names each of them in backticks.
README_ABOVE = ("programs/", "python/", "tests/python", "tests/unit/")
FOLDER_FILES_MAX = 5  # without a README
# What the system says of its errors, as log lines quote it.
SYSTEM_TEXTS = ("No space left on device", "No such file or directory", "Device or resource busy")
LINK = re.compile(r"\[[^\]\n]*\]\(<?([^)\s>]+)>?\)")
# Prefixes that all files below a folder may have, beside their own.
ROOM_PREFIXES = {"net/store/": "metastore", "objects/": "objects", "programs/serve/": "serve"}
FUNCTION_LINES_MAX = 70
DISPATCH_LINES_MAX = 120  # a function that is one switch
FILE_LINES_MAX = 800
HEADER_LINES_MAX = 300
STRUCT_MEMBERS_MAX = 25
STRUCT_BOOLEANS_MAX = 3
# Structs that have more members, or more booleans; the numbers may only become smaller.
LARGE_STRUCTS = {
    "include/starling.h:sl_client_options": (30, 8),
    "include/starling_transfer.h:sl_transfer_options": (25, 5),
    "net/dpdk/port.h:sl_dpdk_port_info": (25, 4),
    "net/rdma/library.h:sl_rdma_library": (52, 3),
    "net/rdma/state.h:sl_rdma_link": (25, 4),
    "net/rdma/state.h:sl_rdma_end": (25, 4),
    "net/session/message.h:sl_message_hello": (25, 4),
    "net/session/message.h:sl_message_welcome": (25, 4),
    "ps/snapshot/block.h:sl_clocks_worker": (25, 4),
}
# Headers that are longer, and may only become shorter. The public API is one header by intent.
LONG_HEADERS = {
    "include/starling.h": 508,
    "include/starling_kv.h": 350,
    "include/starling_objects.h": 473,
    "include/starling_transfer.h": 316,
    "net/transport.h": 318,
}
# .c files whose functions are declared neither in a header of their name, or of the first words of it
# (snapshot_base.c: snapshot.h, snapshot_internal.h), nor in the public header of their room; and why.
HEADERLESS = {
    "compat/mooncake/engine.c": "the header of the system whose functions these are declares them",
    "net/builtin/builtin.c": "net/transport.h declares them: net calls them and may not include net/builtin",
    "net/dpdk/module/enter.c": "net/dpdk/module.h declares it: the interface of program and plug-in",
    "net/rdma/without_verbs.c": "takes the place of rdma.c and device_list.c",
    "programs/doctor/cores.c": "checks.h declares the checks, one function each",
    "programs/doctor/dpdk.c": "likewise",
    "programs/doctor/kernel.c": "likewise",
    "programs/doctor/rdma.c": "likewise",
}


@functools.cache
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
    """sl_<file>_, sl_<folder>_, or a leading part of the file's name: shard/snapshot_base.c may have
    sl_snapshot_base_, sl_snapshot_ and sl_shard_. ROOM_PREFIXES has more."""
    stem = os.path.splitext(os.path.basename(path))[0]
    folder = os.path.basename(os.path.dirname(path))
    words = stem.split("_")
    stems = ["_".join(words[:i]) for i in range(len(words), 0, -1)] + [folder]
    stems += [prefix for room, prefix in ROOM_PREFIXES.items() if path.startswith(room)]
    return any(name == f"sl_{s}" or name.startswith(f"sl_{s}_") for s in stems)


def room_of(path):
    """The room of a file: the longest folder of its path that has arrows."""
    folder = os.path.dirname(path)
    while folder and folder not in ARROWS:
        folder = os.path.dirname(folder)
    return folder or path.split("/")[0]


def reachable(room):
    found = {room, "core"}
    for name in ARROWS[room].split():
        found |= reachable(name[:-1]) if name.endswith("+") else {name}
    return found


def check_includes(path, text):
    room = room_of(path)
    if room not in ARROWS:
        return
    allowed = reachable(room) - ({"core"} if room in PUBLIC_ONLY else set())
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r'#include "([^"]+/[^"]+)"', line)
        other = room_of(match.group(1)) if match else room
        if other not in allowed:
            yield number, (f"{room} must not include {other}; it may include "
                           f"{', '.join(sorted(allowed - {room}))}")


def check_patterns(path, text, code):
    # Most files have few of them: lines are only looked at for those that they have.
    subjects = code + "\n" + "\n".join(re.findall(r"^#include .*", text, re.M))
    confined = [each for each in CONFINED if not path.startswith("tests/") and
                not re.fullmatch(each[1], path) and re.search(each[0], subjects)]
    forbidden = [each for each in FORBIDDEN if not (path.startswith("compat/") and "typedef" in each[0]) and re.search(each[0], text if "TODO" in each[0] else subjects)]
    if not confined and not forbidden:
        return
    for number, (line, bare) in enumerate(zip(text.split("\n"), code.split("\n")), 1):
        subject = line if line.startswith("#include") else bare
        for pattern, where, what in confined:
            if re.search(pattern, subject):
                yield number, f"{what} belongs in {where} only"
        for pattern, what in forbidden:
            if re.search(pattern, line if "TODO" in pattern else subject):
                yield number, what


def check_words(path, code):
    if not re.search(rf"\b({'|'.join(RETIRED)})", code):
        return
    for number, line in enumerate(code.split("\n"), 1):
        for pattern, instead in RETIRED.items():
            match = re.search(rf"\b({pattern})", line)
            if match:
                yield number, f"{match.group()}: a retired word (docs/glossary.md); say {instead}"


def strip_code(text):
    """Blanks the code spans and blocks of a page, keeping the line structure."""
    pattern = re.compile(r"^(```|~~~).*?^\1[^\n]*$|`[^`\n]+`|^    [^\n]*$", re.S | re.M)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def anchors_of(text):
    """The anchors that a page's headings have."""
    found = set()
    for title in re.findall(r"^#+ (.+?)\s*$", strip_fences(text), re.M):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
        slug, number = re.sub(r"[^\w\- ]", "", title).replace(" ", "-"), 0
        while (anchor := slug if number == 0 else f"{slug}-{number}") in found:
            number += 1
        found.add(anchor)
    return found


def strip_fences(text):
    return re.sub(r"^```.*?^```[^\n]*$", "", text, flags=re.S | re.M)


def check_link(path, target):
    """The reason why a link is broken, or None."""
    name, _, anchor = target.partition("#")
    other = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
    full = os.path.join(ROOT, other)
    if not os.path.exists(full):
        return f"the link {target} leads nowhere"
    if anchor and other.endswith(".md"):
        if anchor not in anchors_of(read(other)):
            return f"the link {target} leads to no heading"
    return None


PAGE_FILE = re.compile(r"`([a-z][\w-]*(?:/[\w-]+)*\.(?:c|h|py|proto))`")


def page_file_exists(path, name):
    """A file is named from the root or from the page; in a room's README also by its last part."""
    folder = os.path.dirname(path)
    if "/" in name:
        return any(os.path.exists(os.path.join(ROOT, base, name)) for base in ("", folder))
    return not (folder and path.endswith("README.md")) or any(
        glob.iglob(os.path.join(ROOT, folder, "**", name), recursive=True))


def check_page_names(path, text):
    """Files exist; in a table row, a function is in one of the files of that row."""
    for number, line in enumerate(text.split("\n"), 1):
        names = PAGE_FILE.findall(line)
        missing = [name for name in names if not page_file_exists(path, name)]
        for name in missing:
            yield number, f"there is no file {name}"
        if missing or not line.startswith("|") or not all("/" in name for name in names):
            continue
        code = "".join(read(name) for name in names if os.path.exists(os.path.join(ROOT, name)))
        for function in re.findall(r"`(sl_\w+)`", line) if code else []:
            if not re.search(rf"\b{function}\b", code):
                yield number, f"{function} is not in {' or '.join(names)}"


@functools.cache
def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def source_texts():
    """The constant parts of the string literals of the programs, those that have several words."""
    found = set()
    for path in sources(".c"):
        if path.startswith(("tests/", "bench/", "examples/")):
            continue
        for run in re.findall(r'(?:"(?:\\.|[^"\\\n])*"\s*(?:(?:PRI|SL_)\w+\s*)?)+', read(path)):
            text = "".join(re.findall(r'"((?:\\.|[^"\\\n])*)"', run)).replace('\\"', '"')
            parts = re.split(r"%[-+0-9.*#]*(?:hh|h|ll|l|z)?[a-zA-Z]?", text)
            found.update(part.strip() for part in parts if len(part) >= 10 and " " in part.strip())
    return found


def check_quotes(text, texts):
    """Log lines that the tables of a page quote: a clause of each is in the source."""
    joined = "\n".join(texts)
    for number, line in enumerate(text.split("\n"), 1):
        for quote in re.findall(r"`([^`]+)`", line) if line.startswith("|") else []:
            for part in re.split(r"…|\.\.\.", quote):
                clauses = [clause for clause in re.split(r"[:;,] ", part.strip(" .,:;"))
                           if re.search(r"(^| )([A-Za-z']+ ){3}[A-Za-z']+", clause) and clause not in SYSTEM_TEXTS]
                if clauses and not any(c in joined or any(t in part for t in texts) for c in clauses):
                    yield number, f"no log line of the programs has: {part.strip()}"


def check_prose(_, text):
    for number, line in enumerate(text.split("\n"), 1):
        for pattern, instead in RETIRED_WORDS.items() if ANY_RETIRED.search(line) else ():
            match = re.search(rf"\b(?:{pattern})\b", line, re.I)
            if match:
                yield number, f"{match.group()}: a retired word (docs/glossary.md); say {instead}"


COMMENT = re.compile(r'"""(?P<doc>.*?)"""|"(?:\\.|[^"\\\n])*"|/\*(?P<c>.*?)\*/|//(?P<line>[^\n]*)', re.S)
PYTHON_COMMENT = re.compile(
    r'"""(?P<doc>.*?)"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#(?P<line>[^\n]*)', re.S)
NAME = re.compile(r"`[^`]*`|\w*_\w+|\w+\(\)|[\w-]+(?:[./][\w-]+)+")
ANY_RETIRED = re.compile(r"\b(?:%s)\b" % "|".join(
    re.sub(r"\(\?<!.*?\)", "", words).replace(" ", r"[\s*#]+") for words in RETIRED_WORDS), re.I)


def check_comments(path, text):
    """Words of comments and docstrings; names of code and of files are none."""
    if not ANY_RETIRED.search(text):
        return
    for match in (PYTHON_COMMENT if path.endswith(".py") else COMMENT).finditer(text):
        comment = next((part for part in match.groups() if part), "")
        words = re.sub(r"[\s*#]+", " ", NAME.sub(" ", comment))
        for _, reason in check_prose(path, words):
            word = reason.split(":")[0].lower()
            if not any(word.startswith(term) and re.search(where, path) for term, where in TERMS_OF_PLACES.items()):
                yield text[:match.start()].count("\n") + 1, reason


MENTION = re.compile(r"(?<![\w/.*%<])(?:[\w-]+/)*[\w-]+\.[ch]\b")
OTHERS_HEADERS = ("zlib.h", "transfer_engine_c.h")


@functools.cache
def tree_files():
    """The names of the C files of the tree, and the ends of their paths."""
    found = set()
    for name in sources(".c", ".h"):
        parts = name.split("/")
        found.update("/".join(parts[i:]) for i in range(len(parts)))
    return found


def check_mentions(path, text):
    """Files that comments name are there: by their name, or by the end of their path."""
    for match in COMMENT.finditer(text):
        for name in MENTION.findall(match["c"] or match["line"] or ""):
            if name not in tree_files() and name not in OTHERS_HEADERS:
                yield text[:match.start()].count("\n") + 1, f"{name}: there is no such file"


def check_readmes(paths):
    """Yields (folder, reason) of each folder that no README describes."""
    folders = [os.path.dirname(path) for path in paths]
    for folder in sorted(set(folders)):
        readme = f"{folder}/README.md"
        while folder.startswith(README_ABOVE) and not os.path.exists(os.path.join(ROOT, readme)):
            readme = f"{os.path.dirname(os.path.dirname(readme))}/README.md"
        is_named = (os.path.exists(os.path.join(ROOT, readme)) and
                    (readme == f"{folder}/README.md" or f"`{os.path.relpath(folder, os.path.dirname(readme))}" in read(readme)))
        if folders.count(folder) > FOLDER_FILES_MAX and not is_named:
            yield folder, f"has more than {FOLDER_FILES_MAX} source files: {readme} does not exist, or does not name the folder"


def check_rows(readme, text):
    """Yields (line, reason) of each row of a README's table of files that names none."""
    is_table = False
    for number, line in enumerate(text.split("\n"), 1):
        is_table = line.startswith("|") and (is_table or line.startswith("| file |"))
        for name in re.findall(r"`([^`]+)`", line.split("|")[1]) if is_table else []:
            base = os.path.join(ROOT, os.path.dirname(readme), re.sub(r"(\.\*|\.[ch])$", "", name))
            if not glob.glob(base) and not glob.glob(base + ".*"):
                yield number, f"{name}: there is no such file"


def check_examples(text):
    """C code of a page is part of an example, which the build compiles."""
    examples = "".join(read(path) for path in sources(".c") if path.startswith("examples/"))
    for block in re.finditer(r"```c\n(.*?)```", text, re.DOTALL):
        if block.group(1) not in examples:
            yield text[:block.start()].count("\n") + 1, "this code is in no file of examples/"


def check_page(path, text):
    yield from check_page_names(path, text)
    if path == "docs/objects.md":
        yield from check_examples(text)
    if path.startswith("docs/") and path.count("/") == 1:
        yield from check_quotes(text, SOURCE_TEXTS)
    for number, line in enumerate(strip_code(text).split("\n"), 1):
        for target in LINK.findall(line):
            reason = None if re.match(r"\w+:", target) else check_link(path, target)
            if reason is not None:
                yield number, reason
    yield from check_prose("", strip_code(text))


def is_of_peer(name, path):
    """Whether it is a function of the system whose programs the room runs: of a header in its include/."""
    folder = os.path.join(os.path.dirname(path), "include")
    return path.startswith("compat/") and any(
        re.search(rf"\b{name}\(", read(f"{folder}/{header}")) for header in glob.glob("**/*.h", root_dir=os.path.join(ROOT, folder), recursive=True))


def check_functions(path, code):
    for name, is_static, first, last, body in functions(code):
        length = last - first + 1
        limit = DISPATCH_LINES_MAX if "switch (" in body else FUNCTION_LINES_MAX
        if length > limit:
            yield first, f"{name} has {length} lines, more than {limit}"
        if path.startswith(("tests/", "examples/")) or is_static or name == "main" or name.startswith("PyInit_"):
            continue
        if path.endswith(".c") and not prefix_fits(name, path) and not is_of_peer(name, path):
            yield first, f"global symbol {name} lacks the prefix of its file"


def known_variables():
    with open(os.path.join(ROOT, VARIABLE_TABLE), encoding="utf-8") as file:
        return set(re.findall(r"[A-Z][A-Z0-9]*_[A-Z0-9_]+", file.read()))


def structs(code):
    """Yields (name, line, members, booleans) of each named struct; a nested struct is one member."""
    for match in re.finditer(r"^struct (\w+) \{\n(.*?)^\}", code, re.S | re.M):
        body, before = match.group(2), None
        while before != body:
            before, body = body, re.sub(r"\{[^{}]*\}|\([^()]*\)", "", body)
        members = [(part.count(",") + 1, re.search(r"\bbool +\w", part)) for part in body.split(";") if part.strip()]
        yield (match.group(1), code.count("\n", 0, match.start()) + 1, sum(count for count, _ in members),
               sum(count for count, is_bool in members if is_bool))


def check_structs(codes, large=None):
    """Yields (path, line, reason): structs beyond the limits that LARGE_STRUCTS does not allow, and what it allows
    in vain. codes: {path: code without comments}."""
    left = dict(LARGE_STRUCTS if large is None else large)
    for path, code in codes.items():
        for name, line, members, booleans in structs(code):
            allowed = left.pop(f"{path}:{name}", (STRUCT_MEMBERS_MAX, STRUCT_BOOLEANS_MAX))
            found = (members if members > STRUCT_MEMBERS_MAX else STRUCT_MEMBERS_MAX,
                     booleans if booleans > STRUCT_BOOLEANS_MAX else STRUCT_BOOLEANS_MAX)
            if found[0] > allowed[0] or found[1] > allowed[1]:
                yield path, line, (f"struct {name} has {members} members, {booleans} of them booleans: more than "
                                   f"{allowed[0]} and {allowed[1]}; group members, or make an enum of the booleans")
            elif found != allowed:
                yield path, line, f"struct {name} has become smaller: LARGE_STRUCTS should say {found}"
    for name in left:
        yield "tests/tidy.py", 1, f"LARGE_STRUCTS has {name}, which does not exist"


def check_variables(path, text, known):
    if path.split("/")[0] not in VARIABLE_FOLDERS or path == VARIABLE_TABLE:
        return
    for number, line in enumerate(text.split("\n"), 1):
        for groups in VARIABLE.findall(line):
            name = groups[0] or groups[1]
            if name not in known and name not in VARIABLES_WITHOUT_EFFECT:
                yield number, f"the variable {name} is missing in {VARIABLE_TABLE}"


def check_file(path, text):
    code = strip_comments(text)
    count = text.count("\n")
    limit = LONG_HEADERS.get(path, HEADER_LINES_MAX) if path.endswith(".h") else FILE_LINES_MAX
    if count > limit:
        yield count, f"{count} lines, more than {limit}: split the file by idea"
    yield from check_includes(path, text)
    yield from check_patterns(path, text, code)
    yield from check_functions(path, code)
    yield from check_words(path, code)
    yield from check_comments(path, text)
    yield from check_mentions(path, text)
    yield from check_variables(path, text, KNOWN_VARIABLES)


def sources(*suffixes):
    patterns = ["*" + suffix for suffix in suffixes]
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", *patterns], cwd=ROOT,
                            capture_output=True, text=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        return [p for p in listed.stdout.split() if os.path.exists(os.path.join(ROOT, p))]
    found = []
    for folder, _, names in os.walk(ROOT):
        if "/build" in folder or "/." in folder:
            continue
        found += [os.path.relpath(os.path.join(folder, n), ROOT) for n in names
                  if n.endswith(suffixes)]
    return found


KNOWN_VARIABLES = known_variables()
SOURCE_TEXTS = source_texts()


def public_text(path):
    """The public headers of the room of a file: ROOM/ROOM.h, and those in include/."""
    folder = os.path.dirname(path)
    headers = [f"{folder}/{os.path.basename(folder)}.h", *glob.glob("include/*.h", root_dir=ROOT)]
    return "".join(read(header) for header in headers if os.path.exists(os.path.join(ROOT, header)))


def is_headerless(path, code):
    """Whether a .c file of the product exports functions that no header of its name declares, nor the
    public header of its room."""
    if not path.endswith(".c"):
        return False
    words = os.path.basename(path)[:-2].split("_")
    names = ["_".join(words[:i]) + end for i in range(1, len(words) + 1) for end in (".h", "_internal.h")]
    if any(os.path.exists(os.path.join(ROOT, os.path.dirname(path), name)) for name in names):
        return False
    exported = [name for name, is_static, *_ in functions(code)
                if not is_static and name != "main" and not name.startswith("PyInit_")]
    public = public_text(path) if exported else ""
    return any(not re.search(rf"\b{name}\(", public) for name in exported)


def check_headers(by_room, allowed):
    """Yields (path, reason) of each headerless file that `allowed` lacks, and of what it has in vain."""
    found = {path for files in by_room.values() for path, code in files.items() if is_headerless(path, code)}
    for path in sorted(found - allowed.keys()):
        yield path, "has no header of its name: declare there what other files call"
    for path in sorted(allowed.keys() - found):
        yield path, "needs no place in HEADERLESS any more"


DECLARED = re.compile(r"^(?!static|typedef|#)\w[^;{}()=\n]*\b(sl_\w+)\(", re.M)


def check_declared(codes):
    """Yields (path, line, reason) of each function that a header of the product declares and no other file needs: an
    inline function of the header counts."""
    words = {path: collections.Counter(re.findall(r"\bsl_\w+", code)) for path, code in codes.items()}
    users = collections.Counter(word for found in words.values() for word in found)
    for path, code in codes.items():
        for match in DECLARED.finditer(code) if path.endswith(".h") and not path.startswith(("include/", "tests/", "bench/")) else []:
            if words[path][match[1]] == 1 and users[match[1]] < 3:
                yield path, code[:match.start()].count("\n") + 1, f"{match[1]}: no other file calls it: declare it static, or drop it"


def self_test():
    """Each rule must catch a breach of it."""
    long_body = "\n".join(["    x++;"] * 80)
    breaches = [
        ("config/cluster.c", 'static const char *name = "DMLC_NOT_IN_THE_TABLE";\n'),
        ("ps/process/a.c", 'static const char *f(void)\n{\n    return getenv("OTHER");\n}\n'),
        ("core/a.c", '#include "ps/shard/shard.h"\n'),
        ("worker/client/a.c", '#include "ps/shard/shard.h"\n'),
        ("ps/shard/shard.c", '#include "config/cli.h"\n'),
        ("ps/shard/shard.c", '#include "ps/server/server.h"\n'),
        ("ps/coordinator/table.c", '#include "ps/table/table.h"\n'),
        ("ps/shard/shard.c", "#include <liburing.h>\n"),
        ("net/transport.c", "#include <infiniband/verbs.h>\n"),
        ("net/tcp/send.c", "#include <rdma/rdma_cma.h>\n"),
        ("net/rdma/send.c", "    pthread_mutex_lock(&m);\n"),
        ("ps/shard/shard.c", "static _Atomic int x;\n"),
        ("net/shm/send.c", "static _Atomic int x;\n"),
        ("ps/shard/shard.c", "    pthread_mutex_lock(&m);\n"),
        ("ps/shard/shard.c", "int other_name(void)\n{\n}\n"),
        ("ps/shard/shard.c", "static int f(void)\n{\n" + long_body + "\n}\n"),
        ("ps/shard/shard.c", "typedef struct x y;\n"),
        ("python/native/step.c", '#include "core/clock.h"\n'),
        ("python/native/step.c", "#include <Python.h>\n"),
        ("ps/shard/shard.c", "    struct sl_image_block *block;\n"),
        ("worker/client/step.c", "    bool is_in_step;\n"),
        ("ps/shard/shard.c", "/* TODO */\n"),
        ("ps/shard/shard.c", "/* See nowhere.c. */\n"),
        ("ps/shard/shard.c", "/* An image of a shard, as a stream. */\n"),
        ("net/session/session.c", "/* By the near\n * way. */\n"),
        ("tests/support/unit.h", "int a; // whoever calls\n"),
        ("ps/shard/shard.c", "\n" * (FILE_LINES_MAX + 1)),
        ("ps/shard/shard.h", "\n" * (HEADER_LINES_MAX + 1)),
    ]
    clean = [
        ("ps/shard/shard.c", '#include "net/wire/frame.h"\nint sl_shard_run(void)\n{\n}\n'),
        ("ps/shard/push.c", "int sl_shard_push_all(int a,\n                      int b)\n{\n}\n"),
        ("net/tcp/send.c", "#include <liburing.h>\nvoid sl_tcp_send_all(void)\n{\n}\n"),
        ("net/shm/segment.h", "#include <stdatomic.h>\n"),
        ("net/rdma/library.h", "#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n"),
        ("ps/run.c", '#include "config/cli.h"\nint main(void)\n{\n}\n'),
    ]
    pages = ["[a](nowhere.md)\n", "[a](README.md#no-such-heading)\n", "The image of a shard.\n", "It was a mad peer.\n",
             "See `core/nowhere.c`.\n", "| `sl_no_such_function` | `core/pool.c` |\n"]
    for text in pages:
        assert list(check_page("CONTRIBUTING.md", text)), f"not caught: {text!r}"
    assert list(check_quotes("| `ps/1 has said what no program says` |", SOURCE_TEXTS))
    assert list(check_page("docs/objects.md", "```c\nint nowhere;\n```\n"))
    assert not list(check_page("a.md", "[b](README.md#limits) `image`\n\n    a cut\n"))
    assert list(check_comments("tests/a.py", 'def f():\n    """Whoever calls."""\n'))
    assert not list(check_comments("tests/a.py", 'x = "whoever" + \'#\' \'whoever\'\n'))
    assert not list(check_comments("objects/a.c", 'f("whoever"); /* an image; sl_seat_open() */\n'))
    assert [line for line, _ in check_rows("core/README.md", "| file | |\n| --- | |\n| `pool.h`, `nowhere.*` | |\n")] == [3]
    assert list(check_readmes([f"nowhere/{i}.c" for i in range(FOLDER_FILES_MAX + 1)]))
    assert list(check_readmes([f"programs/nowhere/{i}.c" for i in range(FOLDER_FILES_MAX + 1)]))
    assert not list(check_readmes([f"core/{i}.c" for i in range(FOLDER_FILES_MAX + 1)]))
    ring = {"net/tcp/a.c": "void sl_a(void)\n{\n    sl_b();\n}\n",
            "net/tcp/b.c": "void sl_b(void)\n{\n    sl_a();\n}\n"}
    assert [is_breach for _, is_breach, _ in circles.check({"net/tcp": ring}, {})] == [True]
    assert not list(circles.check({"net/tcp": ring}, {"net/tcp": 2}))
    alone = {"net/tcp": {"net/tcp/alone.c": "int sl_alone_run(void)\n{\n}\n"}}
    assert list(check_headers(alone, {})) and not list(check_headers(alone, {"net/tcp/alone.c": "a test"}))
    assert list(check_headers({}, {"net/tcp/alone.c": "gone"}))
    alone = {"core/a.h": "int sl_a(int b);\n", "core/a.c": "int sl_a(int b)\n{\n    return sl_a(b);\n}\n"}
    assert list(check_declared(alone)) and not list(check_declared({**alone, "core/b.c": "int c = sl_a(1);\n"}))
    crowd = {"a.h": "struct sl_a {\n    bool a, b, (*c)(int, int), d;\n" + "    int i;\n" * 22 + "};\n"}
    assert list(check_structs(crowd, {})) and list(check_structs(crowd, {"a.h:sl_a": (27, 4)}))
    assert not list(check_structs(crowd, {"a.h:sl_a": (26, 4)}))
    for path, text in breaches:
        assert list(check_file(path, text)), f"not caught: {path}: {text[:60]!r}"
    for path, text in clean:
        assert not list(check_file(path, text)), f"caught: {path}: {list(check_file(path, text))}"


@functools.cache
def product():
    """{room: {path: code without comments}} of the product."""
    found = {}
    for path in sources(".c", ".h"):
        if not path.startswith(("tests/", "examples/", "bench/")):
            found.setdefault(room_of(path), {})[path] = strip_comments(read(path))
    return found


def main():
    self_test()
    breaches = 0
    checks = {".md": check_page, ".1": check_prose}
    for path in sorted(sources(".c", ".h", ".md", ".1")):
        for line, reason in checks.get(os.path.splitext(path)[1], check_file)(path, read(path)):
            print(f"{path}:{line}: {reason}")
            breaches += 1
    for path in sources(".py"):
        for line, reason in check_comments(path, read(path)) if path != "tests/tidy.py" else []:
            print(f"{path}:{line}: {reason}")
            breaches += 1
    for path in sources("README.md"):
        for line, reason in check_rows(path, read(path)) if "/vendor/" not in path else []:
            print(f"{path}:{line}: {reason}")
            breaches += 1
    for folder, reason in check_readmes(sources(".c", ".h", ".py")):
        print(f"{folder}: {reason}")
        breaches += 1
    for room, is_breach, reason in circles.check(product(), circles.CIRCLES):
        print(f"{room}: {reason}")
        breaches += is_breach
    for path, reason in check_headers(product(), HEADERLESS):
        print(f"{path}: {reason}")
        breaches += 1
    codes = {path: code for files in product().values() for path, code in files.items()}
    for path, line, reason in check_structs(codes):
        print(f"{path}:{line}: {reason}")
        breaches += 1
    for path, line, reason in check_declared({path: strip_comments(read(path)) for path in sources(".c", ".h")}):
        print(f"{path}:{line}: {reason}")
        breaches += 1
    if breaches:
        print(f"{breaches} breaches of the tree's rules")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
