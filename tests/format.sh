#!/usr/bin/env bash
# Fails, naming the files, when a C file is not laid out as clang-format would.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v clang-format >/dev/null || {
    echo "skipped: clang-format is not installed"
    exit 77
}
find . -path './build*' -prune -o \( -name '*.c' -o -name '*.h' \) -print0 |
    xargs -0 -n 64 -P "$(nproc)" clang-format --dry-run --Werror
