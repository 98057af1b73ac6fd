"""starling-ctl on running jobs: every verb as text and as JSON, what changes tables, and bad input."""

import json
import os
import pty
import re
import subprocess
import tempfile
import time
import unittest

import support
from support import harness, numpy, starling

SECRET, OPERATORS, OTHER = "the cluster's own secret", "the operators' own secret", "some other secret of nobody"


def ctl(*args, **variables):
    return subprocess.run([harness.program("starling-ctl"), *map(str, args)], env=harness.environment(variables),
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                          timeout=harness.DEADLINE_S)


class CtlTest(support.ClusterTest):
    log = "warn"  # the default

    def done(self, *args):
        """Returns what the verb prints, which succeeds."""
        result = ctl(*args, STARLING_COORDINATOR=self.cluster.coordinator, STARLING_LOG=self.log)
        self.assertEqual((result.returncode, result.stderr), (0, ""), args)
        return result.stdout

    def json(self, *args):
        return json.loads(self.done(*args, "--json"))

    def refused(self, status, text, *args):
        result = ctl(*args, STARLING_COORDINATOR=self.cluster.coordinator)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertRegex(result.stderr, text)
        self.assertEqual(result.stdout, "")

    def file(self, content, suffix=".secret"):
        with tempfile.NamedTemporaryFile("w", suffix=suffix, delete=False) as file:
            file.write(content)
        self.addCleanup(os.unlink, file.name)
        return file.name


class Verbs(CtlTest):
    directory = tempfile.TemporaryDirectory()
    args = ("--checkpoint-dir", directory.name)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.addClassCleanup(cls.directory.cleanup)

    def setUp(self):
        super().setUp()
        self.rows = self.client.sparse("rows", 2, starling.Adagrad(lr=0.5), starling.Constant(0.25),
                                       policy=starling.Policy(ttl_steps=1000000))
        self.rows.assign(numpy.arange(10), numpy.full((10, 2), -1.5, numpy.float32))
        self.line = self.client.dense("line", 3000, starling.Sum())

    def test_tables(self):
        tables = {table["name"]: table for table in self.json("tables")}
        self.assertEqual((tables["rows"]["kind"], tables["rows"]["dim"]), ("sparse", 2))
        self.assertEqual((tables["line"]["kind"], tables["line"]["length"]), ("dense", 3000))
        spec = tables["rows"]["spec"]
        self.assertEqual((spec["optimizer"], spec["lr"], spec["ttl_steps"]), ("adagrad", 0.5, 1000000))
        self.assertRegex(self.done("tables"), r"(?m)^rows  sparse  2  0  optimizer=adagrad,lr=0.5,.*ttl_steps=1000000")
        self.assertNotIn("beta1", spec)
        self.assertNotIn("staleness", spec)

    def test_tables_have_the_members_of_their_optimizers(self):
        kinds = starling.specs._all_kinds(starling.Optimizer)
        self.assertEqual(len(kinds), 16)
        for kind in kinds:
            self.client.sparse(f"of/{kind.__name__}", 2, kind())
        tables = {table["name"]: table["spec"] for table in self.json("tables")}
        members = {member for kind in kinds for member in kind()._spec()[1]}
        for kind in kinds:
            own = {name for name, value in kind()._spec()[1].items() if name not in ("decay", "clip_norm", "value_bound") or value}
            self.assertEqual(set(tables[f"of/{kind.__name__}"]) & members, own, kind)
        self.client.sparse("of/decay", 2, starling.SGD(weight_decay=0.5, clip_norm=2))
        spec = next(table["spec"] for table in self.json("tables") if table["name"] == "of/decay")
        self.assertEqual((spec["weight_decay"], spec["decay"], spec["clip_norm"]), (0.5, "l2", 2))

    def test_precisions(self):
        self.client.sparse("of/narrow", 2, starling.Adagrad(), values="int8", slots="bf16")
        spec = self.json("table", "of/narrow")["spec"]
        self.assertEqual((spec["values"], spec["optimizer_slots"]), ("int8", "bf16"))
        self.assertNotIn("values", self.json("table", "rows")["spec"])

    def test_table(self):
        table = self.json("table", "rows")
        stats = self.rows.stats()
        self.assertEqual({name: table[name] for name in stats._fields}, stats._asdict())
        self.assertGreater(table["bytes_rows"], 0)
        self.assertEqual(table["spec"]["initializer"], "constant")
        self.assertRegex(self.done("table", "rows"), r"(?m)^rows: \d+$")
        support.wait_until(lambda: "pushed_keys_s" in self.json("table", "rows"), "the servers report the table")

    def test_get(self):
        rows = self.json("get", "rows", 3, 18446744073709551615)
        self.assertEqual(rows, [{"key": "3", "found": True, "values": [-1.5, -1.5]},
                                {"key": "18446744073709551615", "found": False, "values": [0.25, 0.25]}])
        self.assertEqual(self.done("get", "rows", 3), "3  true  -1.5 -1.5\n")
        self.line.assign(numpy.array([7.0], numpy.float32), start=2999)
        self.assertEqual(self.json("get", "line", 2999), [{"key": "2999", "values": [7.0]}])

    def test_set_and_erase(self):
        self.assertEqual(self.json("set", "rows", 100, "-0.5", 2, "--yes"),
                         {"done": "set 2 values of key 100 of table rows"})
        self.assert_rows(self.rows.pull([100]), [[-0.5, 2]])
        self.done("--yes", "set", "line", 1022, 1, 2, "-3.5")
        numpy.testing.assert_array_equal(self.line.pull(start=1022, count=3), [1, 2, -3.5])
        self.assertEqual(self.done("erase", "rows", 100, 3, 101, "--yes"),
                         "done: erase 3 keys of table rows, from 100 on\n")
        self.assertEqual([row["found"] for row in self.json("get", "rows", 100, 3, 4)], [False, False, True])
        events = self.json("events")
        found = [event["fields"] for event in events
                 if event["event"] == "operation" and "erase 3 keys" in event["fields"]["what"]]
        self.assertRegex(found[0]["by"], "client [0-9a-f]{16}")
        self.assertRegex(found[0]["what"], "of table rows, from 100 on, asked by .+ at .+")

    def test_without_yes_nothing_changes(self):
        for verb in (("set", "rows", 5, 1, 1), ("erase", "rows", 5)):
            self.refused(2, "would (set 2 values|erase 1 key) of .*without a terminal to ask, this needs --yes", *verb)
        self.assert_rows(self.rows.pull([5]), [[-1.5, -1.5]])

    def test_evict(self):
        table = self.sparse(1, starling.Sum())
        for keys in ([1, 2, 3], [1, 2], [1]):
            table.push(keys, numpy.ones((len(keys), 1), numpy.float32))
        self.refused(2, f"would evict rows of table {table.name} by thresholds: count_below=2; without a terminal",
                     "evict", table.name, "count_below=2")
        what = f"evict rows of table {table.name} by thresholds: count_below=2 l2_below=0.5"
        self.assertEqual(self.json("evict", table.name, "count_below=2", "l2_below=0.5", "--yes"),
                         {"done": what, "evicted": 1})
        self.assertEqual(self.done("evict", table.name, "ttl_steps=1000", "--yes"),
                         f"done: evict rows of table {table.name} by thresholds: ttl_steps=1000\nevicted: 0\n")
        self.assertEqual(table.stats().rows, 2)
        self.assertEqual(self.json("evict", "rows", "--yes"), {"done": "evict rows of table rows by its policy",
                                                               "evicted": 0})
        events = [event["fields"] for event in self.json("events") if event["event"] == "operation"]
        self.assertRegex("".join(event["what"] for event in events), re.escape(what) + ", asked by .+ at .+")
        self.refused(2, f"table {table.name}.*: the table's policy has no threshold", "evict", table.name, "--yes")
        self.refused(1, "table line is dense: accepted is a sparse table", "evict", "line", "--yes")
        for word in ("ttl_steps=0", "ttl_steps=2147483649", "count_below=x", "l2_below=nan", "l2_below=-1", "norm=1",
                     "ttl_steps"):
            with self.subTest(word):
                self.refused(2, f'"{word}": accepted is ttl_steps=N with N from 1 to 2147483648, count_below=N with N '
                             "from 1 to 4294967295, l2_below=X with X above 0", "evict", table.name, word, "--yes")

    def test_drop(self):
        table = self.sparse(1, starling.Sum())
        table.push([1, 2], numpy.ones((2, 1), numpy.float32))
        self.refused(2, f"would drop table {table.name} with 2 rows; without a terminal", "drop", table.name)
        self.assertEqual(self.done("drop", table.name, "--yes"), f"done: drop table {table.name} with 2 rows\n")
        self.refused(1, f"table {table.name}: ", "drop", table.name, "--yes")
        self.assertNotIn(table.name, [one["name"] for one in self.json("tables")])
        with self.assertRaisesRegex(starling.NotFoundError, table.name):
            while True:  # until the servers follow
                table.push([1], numpy.ones((1, 1), numpy.float32))

    def test_a_terminal_is_asked(self):
        for answer, status in (("n\n", 1), ("y\n", 0)):
            with self.subTest(answer):
                pid, terminal = pty.fork()
                if pid == 0:
                    os.environ["STARLING_COORDINATOR"] = self.cluster.coordinator
                    os.environ.pop("LD_PRELOAD", None)
                    os.execv(harness.program("starling-ctl"), ["starling-ctl", "erase", "rows", "6"])
                seen = b""
                while b"[y/N]" not in seen:
                    seen += os.read(terminal, 1000)
                self.assertIn(b"erase 1 key of table rows, from 6 on? [y/N]", seen)
                os.write(terminal, answer.encode())
                self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), status)
                os.close(terminal)
                self.assertEqual(self.json("get", "rows", 6)[0]["found"], status == 1)

    def test_scan(self):
        lines = [json.loads(line) for line in self.done("scan", "rows", "--json").splitlines()]
        self.assertEqual(len(lines), self.rows.stats().rows)
        self.assertIn("9", {line["key"] for line in lines})
        self.assertEqual(len(self.done("scan", "rows", "--limit", 4).splitlines()), 4)
        for suffix in (".npz", ".safetensors"):
            path = os.path.join(self.directory.name, "scanned" + suffix)
            self.assertEqual(self.json("scan", "rows", "--out", path, "--replace"), {"rows": len(lines), "file": path})
        with numpy.load(os.path.join(self.directory.name, "scanned.npz")) as file:
            self.assertEqual(sorted(file["keys"]), sorted(int(line["key"]) for line in lines))
            numpy.testing.assert_array_equal(file["rows"], self.rows.pull(file["keys"]))
            self.assertEqual(file["last_step"].shape, file["count"].shape)
        self.refused(1, "scanned.npz", "scan", "rows", "--out", os.path.join(self.directory.name, "scanned.npz"))

    def test_state_of_the_job(self):
        support.wait_until(lambda: self.json("status")["job"] == "running", "the job runs")
        self.assertEqual(self.json("status")["servers"], 2)
        self.assertIn("job running", self.done("status"))
        members = self.json("members")
        self.assertEqual([server["name"] for server in members["servers"]], ["ps/0", "ps/1"])
        self.assertRegex(self.done("members"), r"(?s)^SERVER .*ps/0 .*ps/1 .*\nWORKER ")
        for _ in range(2000):
            self.rows.pull(numpy.array([9], numpy.uint64))
        support.wait_until(lambda: ctl("top", "rows", STARLING_COORDINATOR=self.cluster.coordinator).returncode == 0, "a server has reported the table")
        support.wait_until(lambda: any(key["key"] == "9" for key in self.json("top", "rows")["keys"]), "9 is hot")
        self.assertRegex(self.done("top", "rows"), r"(?m)^KEY .*\n(.*\n)*9 ")
        self.assertIn("requests", self.json("slow"))
        self.assertIn("TIME", self.done("slow"))
        self.assertIsInstance(self.json("events")[0]["time"], float)
        events = self.done("events")
        self.assertRegex(events, r"(?m)^\d\d:\d\d:\d\d  info  table_opened  ps/0  table rows has id \d+ \(opened first by [^)]*\)$")
        self.refused(1, 'no server has reported a table "row"', "top", "row")

    def test_checkpoint(self):
        first = self.json("checkpoint")["checkpoint"]
        self.assertEqual(self.done("checkpoint"), f"checkpoint: {first + 1}\n")
        # The text says the number, and not the base.
        self.assertRegex(self.done("events"), rf"(?m)  checkpoint_started  ps/0  checkpoint {first} begins.*  base=\d+$")

    def test_unknown_table(self):
        for verb in (("table", "nothing"), ("get", "nothing", 1), ("set", "nothing", 1, 1, "--yes"),
                     ("erase", "nothing", 1, "--yes"), ("scan", "nothing"), ("get", "n" * 100, 1)):
            with self.subTest(verb):
                self.refused(1, "starling-ctl: table n.*: ", *verb)

    def test_wrong_use(self):
        for text, args in (("a verb is missing", ()), ('unknown verb "tabels"', ("tabels",)),
                           ("get: accepted is starling-ctl get TABLE KEY", ("get", "rows")),
                           ('"x": accepted is a key from 0', ("get", "rows", "x")),
                           ('"3000": accepted is a number of an element from 0 to 2999', ("get", "line", 3000)),
                           ("1 values: table rows accepts 2", ("set", "rows", 1, 1, "--yes")),
                           ("2 values: table line accepts at most 1", ("set", "line", 2999, 1, 1, "--yes")),
                           ('"nan": accepted is a finite number', ("set", "rows", 1, "nan", 1, "--yes")),
                           ("--out=x.txt: accepted are .safetensors and .npz", ("scan", "rows", "--out", "x.txt")),
                           ("--timeout=0: accepts", ("tables", "--timeout", 0)),
                           ("unknown flag", ("tables", "--jsonn"))):
            with self.subTest(text):
                self.refused(2, re.escape(text) if '"' in text else text, *args)
        self.refused(1, "table line is dense: accepted is a sparse table", "erase", "line", 1, "--yes")

    def test_no_coordinator(self):
        result = ctl("tables", STARLING_COORDINATOR="")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--coordinator (or STARLING_COORDINATOR) is missing", result.stderr)
        with tempfile.TemporaryDirectory():
            began = time.monotonic()
            result = ctl("tables", "--timeout", "1s", "--coordinator", f"127.0.0.1:{harness.free_ports(1)[0]}")
        self.assertEqual(result.returncode, 1)
        self.assertIn("could not reach coordinator at tcp://127.0.0.1:", result.stderr)
        result = ctl("tables", "--coordinator", f"127.0.0.1:{harness.free_ports(1)[0]}")  # not until the 30 s have passed
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"within (29|30)\d\d ms: refused: no process listens there")
        self.assertLess(time.monotonic() - began, harness.DEADLINE_S / 2)

    def test_python_opens_by_name(self):
        found = {table.name: table for table in self.client.tables()}
        self.assertEqual(found["rows"], ("rows", "sparse", 2, 0))
        self.assertEqual(found["line"], ("line", "dense", 0, 3000))
        rows = self.connect().open("rows")
        self.assertIsInstance(rows, starling.SparseTable)
        self.assertEqual((rows.optimizer, rows.consistency, rows.dim), (starling.Adagrad(lr=0.5), starling.ASP, 2))
        self.assert_rows(rows.pull([9]), [[-1.5, -1.5]])
        line = self.client.open("line")
        self.assertIsInstance(line, starling.DenseTable)
        self.assertEqual(line.optimizer, starling.Sum())
        with self.assertRaisesRegex(starling.NotFoundError, "nothing"):
            self.client.open("nothing")
        decays = starling.AdamW(lr=0.1, weight_decay=0.25), starling.SGD(weight_decay=0.5, decay="decoupled", clip_norm=3)
        for number, optimizer in enumerate(decays):
            self.client.sparse(f"decays{number}", 1, optimizer)
            self.assertEqual(self.client.open(f"decays{number}").optimizer, optimizer)


class Shards(CtlTest):
    args = ("--shards", "4", "--reactors", "1")
    log = "error"  # the verb may still be connected to a server that is left

    def places(self):
        return [shard["primary"] for shard in self.json("shards")]

    def wait_for_places(self, *places):
        support.wait_until(lambda: self.places() == list(places), f"the shards are at {places}")

    def test_move_balance_and_drain(self):
        table = self.sparse(1, starling.Sum())
        keys = numpy.arange(1000)
        table.push(keys, numpy.ones((1000, 1), numpy.float32))
        self.assertEqual(self.json("shards")[2], {"shard": 2, "primary": "ps/1", "backup": None, "in_sync": None, "moves_to": None})
        self.assertRegex(self.done("shards"), r"^SHARD  PRIMARY .*\n    0  ps/0 ")
        self.assertEqual(self.json("balance", "--dry-run"), [])
        self.refused(2, "without a terminal to ask, this needs --yes", "move", 0, "ps/1")
        self.assertEqual(self.json("move", 0, "ps/1", "--dry-run"), [{"shard": 0, "from": "ps/0", "to": "ps/1"}])
        self.assertEqual(self.done("move", 0, "ps/1", "--yes"), "0  ps/0  ps/1\n")
        self.wait_for_places("ps/1", "ps/0", "ps/1", "ps/1")
        table.push(keys, numpy.ones((1000, 1), numpy.float32))
        self.assert_rows(table.pull(keys), numpy.full((1000, 1), 2))
        self.assertEqual(self.json("balance", "--yes"), [{"shard": 0, "from": "ps/1", "to": "ps/0"}])
        self.wait_for_places("ps/0", "ps/0", "ps/1", "ps/1")
        self.assertEqual([move["shard"] for move in self.json("drain", "ps/1", "--yes")], [2, 3])
        self.wait_for_places(*["ps/0"] * 4)
        support.wait_until(lambda: len(self.json("members")["servers"]) == 1, "ps/1 is no longer part of the job")
        table.push(keys, numpy.ones((1000, 1), numpy.float32))
        self.assert_rows(table.pull(keys), numpy.full((1000, 1), 3))
        events = [event["event"] for event in self.json("events")]
        self.assertEqual((events.count("shard_moved"), events.count("server_drained")), (4, 1))
        for text, verb in (("there is no shard 4: the job has 4", ("move", 4, "ps/0")),
                           ("shard 0 is at ps/0 already", ("move", 0, "ps/0")),
                           ("shard 0 cannot move from ps/0 to ps/1: ps/1 is not there", ("move", 0, "ps/1")),
                           ("there is no ps/7", ("drain", "ps/7")),
                           ("ps/0 cannot be drained: it hosts the coordinator", ("drain", "ps/0"))):
            self.refused(1, text, *verb, "--yes")
        for text, verb in (("one: accepted is 0 to 4095", ("move", "one", "ps/0")),
                           ("1: accepted is ps/0 to ps/1023", ("move", 0, 1)), ("ps/: accepted is ps/0", ("drain", "ps/"))):
            self.refused(2, text, *verb, "--yes")


class WithSecrets(CtlTest):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        cls.files = {}
        for text in (SECRET, OPERATORS, OTHER):
            cls.files[text] = os.path.join(cls.directory.name, str(len(cls.files)))
            with open(os.open(cls.files[text], os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
        cls.args = ("--secret-file", cls.files[SECRET], "--operator-secret-file", cls.files[OPERATORS])
        super().setUpClass()

    def setUp(self):
        self.client = self.connect(secret_file=self.files[SECRET])

    def test_changes_need_the_operators_secret(self):
        table = self.sparse(1, starling.Sum())
        table.push([1, 2], numpy.ones((2, 1), numpy.float32))
        member = ("--secret-file", self.files[SECRET])
        operator = ("--operator-secret-file", self.files[OPERATORS])
        self.refused(1, "needs a secret", "tables", "--timeout", "3s")
        self.refused(1, "secret", "tables", "--timeout", "3s", "--secret-file", self.files[OTHER])
        self.refused(1, "secret", "tables", "--timeout", "3s", "--operator-secret-file", self.files[SECRET])
        self.assertEqual(self.json("get", table.name, 1, *member)[0]["found"], True)
        self.refused(1, "this needs the operator's secret: --operator-secret-file", "erase", table.name, 1, "--yes",
                     *member)
        self.assert_rows(table.pull([1]), [[1]])
        self.done("erase", table.name, 1, "--yes", *operator)
        self.assert_rows(table.pull([1, 2]), [[0], [1]])
        self.assertEqual(self.json("get", table.name, 2, *operator)[0]["values"], [1])
        self.refused(1, "operator's secret", "evict", table.name, "ttl_steps=9", "--yes", *member)
        self.assertEqual(self.json("evict", table.name, "ttl_steps=9", "--yes", *operator)["evicted"], 0)
        self.refused(1, "operator's secret", "drop", table.name, "--yes", *member)
        with self.assertRaisesRegex(starling.StarlingError, "operator's secret"):
            self.client.drop(table.name)
        self.done("drop", table.name, "--yes", *operator)
        self.refused(1, "operator's secret", "move", 0, "ps/1", "--yes", *member)
        self.refused(1, "operator's secret", "balance", "--dry-run", *member)
        self.assertEqual(self.json("balance", "--dry-run", *operator), [])


class WithoutAnOperatorsSecret(CtlTest):
    def test_one_that_is_given_is_refused(self):
        file = self.file(OPERATORS)
        self.refused(1, "this cluster has no operator's secret: leave out --operator-secret-file", "tables",
                     "--timeout", "3s", "--operator-secret-file", file)


if __name__ == "__main__":
    unittest.main(verbosity=2)
