#!/usr/bin/env python3
"""Compresses the files of the live page and writes them as a table in C.

    embed.py OUTPUT.c FILE...      files relative to the folder of this script
"""

import gzip
import hashlib
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def main(output, names):
    arrays, rows = [], []
    for index, name in enumerate(names):
        with open(os.path.join(HERE, name), "rb") as file:
            data = gzip.compress(file.read(), 9, mtime=0)  # no time: equal sources give equal programs
        path = "/" if name == "index.html" else "/" + name
        etag = hashlib.sha256(data).hexdigest()[:16]
        lines = (",".join(map(str, data[i:i + 32])) for i in range(0, len(data), 32))
        arrays.append(f"static const unsigned char file_{index}[] = {{\n" + ",\n".join(lines) + "};\n")
        rows.append(f'    {{"{path}", "{TYPES[os.path.splitext(name)[1]]}", "\\"{etag}\\"", '
                    f"file_{index}, sizeof file_{index}}},\n")
    with open(output, "w", encoding="ascii") as file:
        file.write('#include "ps/observe/web/web.h"\n\n' + "\n".join(arrays) +
                   "\nconst struct sl_web_file sl_web_files[] = {\n" + "".join(rows) + "};\n"
                   "const size_t sl_web_file_count = sizeof sl_web_files / sizeof sl_web_files[0];\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
