#!/usr/bin/env python3
"""Gives the text that unit_core writes to the parser of python3-prometheus-client and to
promtool check metrics. Skipped (77) where both are missing.

    metrics_parsers.py UNIT_CORE
"""

import os
import shutil
import subprocess
import sys
import tempfile

SYSTEM_PYTHON = "/usr/bin/python3"  # has Debian's packages, where another Python comes first


def text_of(program):
    with tempfile.NamedTemporaryFile("r") as file:
        subprocess.run([program, "metrics_text"], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "METRICS_TEXT": file.name, "UNIT_CASE": "*for_parsers"})
        return file.read()


def check_client(text, parse):
    families = {family.name: family for family in parse(text)}
    value = {(sample.name, *sorted(sample.labels.items())): sample.value
             for family in families.values() for sample in family.samples}
    assert families["starling_requests"].documentation == "Back\\slash and\nnewline."
    assert families["starling_request_seconds"].type == "histogram"
    assert value["starling_requests_total", ("op", "pull")] == 3, value
    assert value["starling_table_rows", ("table", 'a"b\\c')] == 9, value
    assert value["starling_request_seconds_bucket", ("le", "0.000008"), ("op", "pull")] == 2, value
    assert value["starling_request_seconds_sum", ("op", "pull")] == 0.000016, value


def main():
    try:
        from prometheus_client.parser import text_string_to_metric_families as parse
    except ImportError:
        if os.path.exists(SYSTEM_PYTHON) and not os.path.samefile(sys.executable, SYSTEM_PYTHON):
            os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])
        parse = None
    promtool = shutil.which("promtool")
    if parse is None and promtool is None:
        print("skipped: neither python3-prometheus-client nor promtool (package prometheus)")
        return 77
    text = text_of(sys.argv[1])
    if parse is not None:
        check_client(text, parse)
    if promtool is not None:
        done = subprocess.run([promtool, "check", "metrics"], input=text, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == 0 and not done.stdout, done.stdout
    return 0


if __name__ == "__main__":
    sys.exit(main())
