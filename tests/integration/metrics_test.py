#!/usr/bin/env python3
"""/metrics of real processes: complete against docs/metrics.md, valid for Prometheus, and equal to what
the workers themselves have counted."""

import collections
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import harness
import sum_job

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "metrics.md"
ROW = re.compile(r"\| `(\w+)` \| (counter|gauge|histogram) \| ([^|]*)\| [^|]+ \|")
TYPE = re.compile(r"# TYPE (\w+) (\w+)")
SAMPLE = re.compile(r'(\w+)(?:\{(.*)\})? (\S+)')
ADDRESS = re.compile(r"http (\S+:\d+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
TRAINING = "starling_training_"  # of starling-worker alone
OBJECTS = "starling_objects_"  # of nodes of objects
# Of tables that have lost or refused a row.
FORGETTING = tuple(f"starling_table_{name}" for name in ("part_bytes", "rows_", "keys_", "pushes_"))
ITERATIONS, WORKERS = 24, 8


def parse_prometheus(text):
    """The samples, as Prometheus's own client reads them; None where it is not installed."""
    sys.path.append("/usr/lib/python3/dist-packages")
    try:
        from prometheus_client import parser
    except ImportError:
        return None
    finally:
        sys.path.pop()
    return sum(len(family.samples) for family in parser.text_string_to_metric_families(text))


class Page:
    """A page: types and names of labels by family, and the samples."""

    def __init__(self, text):
        self.text = text
        self.types = dict(TYPE.findall(text))
        self.labels = collections.defaultdict(set)
        self.samples = {}
        for line in text.splitlines():
            if line.startswith("#"):
                continue
            name, labels, value = SAMPLE.fullmatch(line).groups()
            given = dict(LABEL.findall(labels or ""))
            self.samples[name, tuple(sorted(given.items()))] = float(value)
            family = name if name in self.types else re.sub("_(bucket|sum|count)$", "", name)
            self.labels[family] |= set(given) - {"le"}

    def sum(self, name, **labels):
        wanted = set(labels.items())
        return sum(value for (of, given), value in self.samples.items() if of == name and wanted <= set(given))


def documented():
    """{name: (type, labels)}, as the page has them."""
    found = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if match := ROW.match(line):
            name, kind, labels = match.groups()
            found[name] = kind, frozenset(re.findall(r"`(\w+)`", labels))
    return found


class Metrics(harness.StarlingTest):
    def scrape(self, process, path="/metrics"):
        address = ADDRESS.search(process.wait_line("http ")).group(1)
        with urllib.request.urlopen(f"http://{address}{path}", timeout=harness.DEADLINE_S) as answer:
            self.assertEqual(answer.headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
            return Page(answer.read().decode())

    def scrape_until(self, processes, is_enough):
        """Their pages, as soon as they are enough, or after a while."""
        end = time.monotonic() + harness.DEADLINE_S
        while True:
            pages = [self.scrape(process) for process in processes]
            if is_enough(pages) or time.monotonic() > end:
                return pages
            time.sleep(0.1)

    def expect_valid(self, page):
        count = parse_prometheus(page.text)
        if count is not None:
            self.assertEqual(count, len(page.samples))
        if shutil.which("promtool"):
            check = subprocess.run(["promtool", "check", "metrics"], input=page.text.encode(), capture_output=True, check=False)
            self.assertEqual((check.returncode, check.stderr), (0, b""))

    def expect_documented(self, pages, others=()):
        """The families of all pages are those of docs/metrics.md, but for `others`, which may be absent."""
        wanted = {name: row for name, row in documented().items() if not name.startswith(OBJECTS)}
        kinds, labels = {}, collections.defaultdict(set)
        for page in pages:
            kinds.update(page.types)
            for family, names in page.labels.items():
                labels[family] |= names
        self.assertEqual({name: (kind, frozenset(labels[name])) for name, kind in kinds.items()},
                         {name: row for name, row in wanted.items() if name in kinds or not name.startswith(tuple(others))})


class Job(Metrics):
    def setUp(self):
        super().setUp()
        folder = tempfile.mkdtemp(dir=self.folder)
        self.cluster = sum_job.Cluster(self, ps_count=2, worker_count=WORKERS, reactors=2, proxied=False,
                                       extra=("--replicas", 1, "--checkpoint-dir", folder, "--memory-limit", "1G"))
        self.pages = tempfile.mkdtemp(dir=self.folder)
        self.job = sum_job.SumJob(self, self.cluster, "ssp:2", ITERATIONS, pause_ms=0, gated=True,
                                  flags=("--metrics", self.pages, "--checkpoint-after", 2))

    def test_pages_equal_the_list_and_the_counts_of_the_workers(self):
        workers = self.job.start_all()
        servers = self.cluster.ps
        running = self.scrape_until(servers, self.is_running)
        self.job.open_gate()
        self.end_well(workers)
        clients = [Page(pathlib.Path(self.pages, str(task)).read_text(encoding="utf-8")) for task in range(WORKERS)]
        for page in running + clients:
            self.expect_valid(page)
        self.expect_documented(running + clients, [TRAINING, *FORGETTING])
        self.expect_state(running)
        self.expect_counts(servers, clients)

    def is_running(self, pages):
        return (pages[0].sum("starling_servers", state="serving") == 2
                and pages[0].sum("starling_workers", state="running") == WORKERS
                and all(page.sum("starling_checkpoint_number") > 0 and page.sum("starling_checkpoint_bytes") > 0
                        and page.sum("starling_replica_in_sync") == 2
                        and {"starling_worker_clock", "starling_hot_share"} <= set(page.types) for page in pages))

    def expect_state(self, pages):
        coordinator, other = pages
        self.assertEqual(coordinator.sum("starling_servers", state="serving"), 2)
        self.assertEqual(coordinator.sum("starling_workers", state="running"), WORKERS)
        self.assertNotIn("starling_workers", other.types)
        for page in pages:
            self.assertEqual(page.sum("starling_replica_in_sync"), 2)  # its own shards
            self.assertEqual(page.sum("starling_staleness_bound_steps"), 2)
            self.assertGreater(page.sum("starling_checkpoint_bytes"), 0)
            self.assertEqual(page.sum("starling_memory_limit_bytes"), 1 << 30)

    def expect_counts(self, servers, clients):
        """What the servers have counted when all workers have ended is what these have sent."""
        def total(pages, name, **labels):
            return sum(page.sum(name, **labels) for page in pages)

        sent = {op: total(clients, "starling_client_requests_total", op=op) for op in ("pull", "push", "tick")}
        keys = {"push": WORKERS * ITERATIONS * 2 * 4, "pull": WORKERS * ITERATIONS * 4}  # of each table, on 4 shards

        def counts(pages):
            return ({op: total(pages, "starling_requests_total", op=op) for op in sent},
                    {op: total(pages, "starling_keys_total", table="sum", op=op) for op in keys})

        pages = self.scrape_until(servers, lambda pages: counts(pages) == (sent, keys))
        self.assertEqual(counts(pages), (sent, keys))
        self.assertGreater(sent["push"], 0)
        self.assertEqual(total(pages, "starling_requests_total"), total(clients, "starling_client_requests_total"))
        self.assertEqual(total(pages, "starling_request_failures_total"), 0)
        self.assertEqual(total(clients, "starling_client_replies_total"), total(clients, "starling_client_requests_total"))
        self.assertEqual(total(clients, "starling_client_step_seconds_count"), WORKERS * (ITERATIONS + 1))
        self.assertEqual(total(clients, "starling_client_failures_total"), 0)
        for page in pages:
            self.expect_valid(page)
            shards = self.scrape(servers[pages.index(page)], "/metrics?detail=shard")
            self.expect_valid(shards)
            self.assertEqual(shards.sum("starling_requests_total"), page.sum("starling_requests_total"))
            self.expect_few_series(shards, reactors=2)

    def expect_few_series(self, page, reactors):
        """At most 3,000 if the server had 16 reactors and 64 tables."""
        def having(*labels):
            return sum(any(name in labels for name, _ in given) for _, given in page.samples)

        tables = len({value for _, given in page.samples for name, value in given if name == "table"})
        others = len(page.samples) - having("shard", "reactor", "table")
        self.assertLessEqual(others + having("shard", "reactor") * 16 // reactors + having("table") * 64 // tables, 3000)


class Training(Metrics):
    def test_worker_shows_its_training_and_its_client(self):
        data = self.file("data", "".join(f"{i % 2} {i // 2 % 2 + 1}:1\n" for i in range(1000)))  # nothing to learn
        _, flags = self.start_ps()
        worker, = self.start_workers(flags, 1, ["--data", data, "--format", "libsvm", "--model", "lr", "--epochs", "1000000",
                                                "--batch-size", "10"])
        page, = self.scrape_until([worker], lambda pages: pages[0].sum("starling_training_batches_total") > 10
                                  and pages[0].sum("starling_client_step_seconds_count") > 10)
        self.expect_valid(page)
        kinds = {name: kind for name, (kind, _) in documented().items()}
        self.assertLessEqual(page.types.items(), kinds.items())
        self.assertEqual({name for name in page.types if name.startswith(TRAINING)},
                         {name for name in kinds if name.startswith(TRAINING)})
        self.assertEqual(page.labels["starling_training_seconds_total"], {"in"})
        self.assertGreater(page.sum("starling_training_examples_total"), 10 * 10)
        self.assertGreater(page.sum("starling_training_loss"), 0)
        self.assertGreater(page.sum("starling_client_step_seconds_count"), 10)
        self.assertEqual(page.sum("starling_build_info", role="worker"), 1)


class Forgetting(Metrics):
    def test_a_table_that_loses_rows_says_why(self):
        data = self.file("data", "".join(f"{i % 2} {i % 500 + 1}:1\n" for i in range(1000)))
        (server,), flags = self.start_ps()
        self.start_workers(flags, 1, ["--data", data, "--format", "libsvm", "--model", "lr", "--epochs", "1000000", "--batch-size", "10",
                                      "--ttl-steps", "20"])
        page, = self.scrape_until([server], lambda pages: pages[0].sum("starling_table_rows_evicted_total", reason="ttl") > 100)
        self.expect_valid(page)
        known = documented()
        for name in (name for name in known if name.startswith(FORGETTING)):
            self.assertEqual((page.types[name], page.labels[name]), known[name])
        table, = {dict(labels)["table"] for name, labels in page.samples if name == "starling_table_rows_created_total"}
        evicted, created, rows, parts, whole = (page.sum(f"starling_table_{name}", table=table) for name in (
            "rows_evicted_total", "rows_created_total", "rows", "part_bytes", "bytes"))
        self.assertEqual((page.sum("starling_table_rows_evicted_total", reason="ttl"), page.sum("starling_table_rows_erased_total")),
                         (evicted, 0))
        self.assertEqual(created, rows + evicted)
        self.assertLessEqual(parts, whole)
        self.assertGreater(parts, whole / 2)

    def test_a_table_that_admits_keys_counts_what_it_refused(self):
        data = self.file("data", "".join(f"{i % 2} {i % 500 + 1}:1\n" for i in range(1000)))
        (server,), flags = self.start_ps()
        self.start_workers(flags, 1, ["--data", data, "--format", "libsvm", "--model", "lr", "--epochs", "1000000", "--batch-size", "10",
                                      "--admit-count", "5"])
        page, = self.scrape_until([server], lambda pages: pages[0].sum("starling_table_keys_admitted_total") >= 500)
        self.assertEqual([page.sum(f"starling_table_{name}") for name in (
            "keys_admitted_total", "pushes_refused_total", "keys_waiting")], [500, 4 * 500, 0])

    def test_a_table_that_admits_keys_by_a_filter_says_its_bytes(self):
        data = self.file("data", "".join(f"{i % 2} {i % 500 + 1}:1\n" for i in range(1000)))
        (server,), flags = self.start_ps()
        self.start_workers(flags, 1, ["--data", data, "--format", "libsvm", "--model", "lr", "--epochs", "1000000", "--batch-size", "10",
                                      "--admission", "bloom", "--admit-count", "5", "--keys-expected", "100000"])
        page, = self.scrape_until([server], lambda pages: pages[0].sum("starling_table_keys_admitted_total") >= 500)
        self.assertEqual([page.sum(f"starling_table_{name}") for name in (
            "keys_admitted_total", "pushes_refused_total", "keys_waiting")], [500, 4 * 500, 0])
        self.assertGreater(page.sum("starling_table_part_bytes", part="admission"), 100000 * 9.5 / 2)


class Scheduler(Metrics):
    def test_scheduler_has_the_coordinator_and_no_shards(self):
        port, = harness.free_ports(1)
        env = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": str(port), "DMLC_NUM_SERVER": "1",
               "DMLC_NUM_WORKER": "2", "DMLC_ROLE": "scheduler"}
        scheduler = self.start("starling-ps", env=env)
        scheduler.wait_line("ready")
        with socket.create_connection(("127.0.0.1", port)):
            page, = self.scrape_until([scheduler], lambda pages: "starling_servers" in pages[0].types
                                      and pages[0].sum("starling_connections") == 1)
        self.expect_valid(page)
        self.assertEqual(page.sum("starling_connections", transport="tcp"), 1)
        self.assertLessEqual(set(page.types), set(documented()))
        self.assertEqual(page.sum("starling_servers", state="missing"), 1)
        self.assertEqual(page.sum("starling_build_info", role="scheduler"), 1)
        self.assertNotIn("starling_requests_total", page.types)


if __name__ == "__main__":
    harness.main()
