#!/usr/bin/env python3
"""starling-ckpt: files of tensors in and out, as NumPy and PyTorch read them; damage; full disks; wrong
words. An interpreter that has NumPy is looked for: this one, or the system's."""

import json
import math
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import zipfile

import checkpoint_test
import harness
import protocol_client

CODES = {"F32": "f", "F16": "e", "BF16": "H", "I64": "q", "U64": "Q", "U8": "B"}

FORMAT_1 = os.path.join(os.path.dirname(os.path.abspath(__file__)), "checkpoint_format_1")
FORMAT_1_KEYS = [0, 2**64 - 1, 2**63] + [key * key * 7919 + 5 for key in range(37)]


def python_with(module):
    """An interpreter that has the module, or None."""
    for python in (sys.executable, "/usr/bin/python3"):
        if os.path.exists(python) and subprocess.run([python, "-c", f"import {module}"],
                                                     capture_output=True, check=False).returncode == 0:
            return python
    return None


def single(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def write_safetensors(path, tensors, metadata=None):
    """tensors: {name: (dtype, shape, flat values)}."""
    head, data = {}, b""
    if metadata:
        head["__metadata__"] = metadata
    for name, (dtype, shape, values) in tensors.items():
        piece = values if isinstance(values, bytes) else struct.pack(f"<{len(values)}{CODES[dtype]}", *values)
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    text = json.dumps(head).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    with open(path, "rb") as file:
        whole = file.read()
    length = struct.unpack("<Q", whole[:8])[0]
    head, data = json.loads(whole[8:8 + length]), whole[8 + length:]
    metadata = head.pop("__metadata__", {})
    out = {}
    for name, one in head.items():
        begin, end = one["data_offsets"]
        count = (end - begin) // struct.calcsize(CODES[one["dtype"]])
        out[name] = (one["dtype"], one["shape"],
                     list(struct.unpack(f"<{count}{CODES[one['dtype']]}", data[begin:end])))
    return out, metadata


def nearest_bf16(value):
    """The number of the bf16 that is nearest to the value, ties to even."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16


def value_of_bf16(number):
    return struct.unpack("<f", struct.pack("<I", number << 16))[0]


def nearest_f16(value):
    return struct.unpack("<e", struct.pack("<e", value))[0]


def rows_of(tensors, name):
    """{key: [values]} of a sparse table."""
    _, shape, values = tensors[name + ".values"]
    keys = [key % 2**64 for key in tensors[name + ".keys"][2]]
    assert shape[0] == len(keys)
    return {key: values[i * shape[1]:(i + 1) * shape[1]] for i, key in enumerate(keys)}


def model(seed=1, rows=3000):
    """A sparse table with every kind of key, dense ones around the lengths of blocks, a KV table."""
    chance = random.Random(seed)
    keys = [0, 2**64 - 1, 2**63, 1] + [chance.getrandbits(64) for _ in range(rows - 4)]
    floats = lambda n: [single(chance.uniform(-1, 1)) for _ in range(n)]
    lens = [1, 3000, 1, 70000]
    return {
        "emb.keys": ("U64", [rows], keys),
        "emb.values": ("F32", [rows, 5], floats(rows * 5)),
        "w": ("F32", [3, 5], floats(15)),
        "bias": ("F32", [1], floats(1)),
        "deep.0.weight": ("F32", [1025, 2], floats(2050)),
        "block": ("F32", [1024], floats(1024)),
        "kv.keys": ("I64", [4], [5, -1, 7, 2**62]),
        "kv.lens": ("I64", [4], lens),
        "kv.values": ("F32", [sum(lens)], floats(sum(lens))),
    }


class CkptToolTest(harness.StarlingTest):
    def path(self, name):
        return os.path.join(self.folder, name)

    def run_tool(self, *words, code=0, **options):
        done = subprocess.run([harness.program("starling-ckpt"), *words], capture_output=True, text=True,
                              timeout=harness.DEADLINE_S, check=False, **options)
        self.assertEqual(done.returncode, code, f"{words}: {done.stdout}{done.stderr}")
        return done.stdout if code == 0 else done.stderr

    def make(self, *more, tensors=None, out="ckpts"):
        write_safetensors(self.path("in.safetensors"), tensors or model())
        return self.run_tool("import", self.path("in.safetensors"), "--out", self.path(out), *more)

    def export(self, name, *more):
        self.run_tool("export", self.path("ckpts"), "--out", self.path(name), *more)
        return self.path(name)

    def check_same(self, tensors, name="out.safetensors"):
        """The export holds what was imported."""
        out, metadata = read_safetensors(self.path(name))
        self.assertEqual(set(out), set(tensors))
        self.assertEqual(rows_of(out, "emb"), rows_of(tensors, "emb"))
        for dense in ("w", "bias", "deep.0.weight", "block"):
            self.assertEqual(out[dense][2], tensors[dense][2])
            self.assertEqual(out[dense][1], [len(tensors[dense][2])])
        arrays = lambda all: dict(zip([key % 2**64 for key in all["kv.keys"][2]], all["kv.lens"][2]))
        self.assertEqual(arrays(out), arrays(tensors))
        self.assertEqual(sorted(out["kv.values"][2]), sorted(tensors["kv.values"][2]))
        return out, metadata

    def test_import_export_round_trip(self):
        tensors = model()
        for shards in ("1", "3", "16"):
            self.make("--shards", shards, tensors=tensors)
            self.export("out.safetensors", "--replace")
            self.check_same(tensors)
        listed = self.run_tool("ls", self.path("ckpts"))
        self.assertEqual(len(listed.splitlines()), 1 + 3)
        self.assertIn("000003  full", listed)
        named = self.run_tool("ls", self.path("ckpts"), "newest")
        self.assertRegex(named, r"(?m)^emb  sparse, 5 columns, 3000 rows, 120000 bytes  optimizer=sgd,lr=[^,]+,initializer=zeros,consistency=asp$")
        self.assertIn("deep.0.weight  dense, 2050 elements, ", named)
        self.assertIn("kv  kv, of f32", named)
        self.assertIn("whole    checkpoint 000002", self.run_tool("verify", self.path("ckpts")))

    def test_specifications(self):
        said = self.make("--with", "lr=0.5", "emb:optimizer=adam,lr=0.25,initializer=normal,b=0.125,seed=9",
                         "w:consistency=bsp,workers=4")
        self.assertRegex(said, r"emb .*optimizer=adam,lr=0.25,.*initializer=normal,a=0,b=0.125,seed=9,")
        self.assertRegex(said, r"\nw .*optimizer=sgd,lr=0.5,.*consistency=bsp,workers=4")
        # The export says so, and a second import needs no words.
        self.export("out.safetensors")
        said = self.run_tool("import", self.path("out.safetensors"), "--out", self.path("again"))
        self.assertRegex(said, r"emb .*optimizer=adam,lr=0.25,.*initializer=normal,a=0,b=0.125,seed=9,")

    def test_row_slots_and_updates(self):
        """Row-wise Adagrad begins at initial_accumulator, in rows and in blocks; decay and limits are kept."""
        asked = "optimizer=rowwise_adagrad,weight_decay=0.5,initial_accumulator=0.25,decay=l2,clip_norm=2,value_bound=8"
        self.make("--with", asked)
        out, metadata = read_safetensors(self.export("out.safetensors", "--slots"))
        self.assertIn("decay=l2,clip_norm=2,value_bound=8,", metadata["starling.table.emb"])
        self.assertEqual((out["emb.slots"][1], set(out["emb.slots"][2])), ([3000, 1], {0.25}))
        blocks = out["deep.0.weight.block_slots"]
        self.assertEqual((blocks[1], set(blocks[2])), ([3, 1], {0.25}))
        said = self.run_tool("import", self.path("out.safetensors"), "--out", self.path("again"))
        self.assertRegex(said, r"emb .*optimizer=rowwise_adagrad,.*decay=l2,clip_norm=2,value_bound=8,")
        why = self.run_tool("import", self.path("in.safetensors"), "--out", self.path("x"), "--with",
                            "optimizer=lamb,decay=l2", code=1)
        self.assertIn("since it has its own decay", why)

    def test_slots_go_with_the_rows(self):
        self.make("--with", "optimizer=adagrad,initial_accumulator=0.5")
        self.export("out.safetensors", "--slots")
        out, metadata = read_safetensors(self.path("out.safetensors"))
        self.assertEqual(out["emb.slots"][1], [3000, 5])
        self.assertEqual(set(out["emb.slots"][2]), {0.5})
        self.assertEqual(out["deep.0.weight.slots"][1], [1, 2050])
        self.assertEqual(set(out["emb.steps"][2]) | set(out["w.counts"][2]), {0})
        # As if 9 pushes had been.
        chance = random.Random(5)
        out["emb.slots"] = ("F32", [3000, 5], [single(chance.random()) for _ in range(15000)])
        out["deep.0.weight.slots"] = ("F32", [1, 2050], [single(chance.random()) for _ in range(2050)])
        out["emb.steps"] = ("I64", [3000], [chance.randrange(10) for _ in range(3000)])
        out["emb.counts"] = ("I64", [3000], [chance.randrange(2**32) for _ in range(3000)])
        metadata["starling.table.emb"] = metadata["starling.table.emb"].replace("step=0,", "step=9,")
        write_safetensors(self.path("more.safetensors"), out, metadata)
        said = self.run_tool("import", self.path("more.safetensors"), "--out", self.path("ckpts"), "--shards", "4")
        self.assertIn("step=9\n", said)
        self.export("again.safetensors", "--slots")
        again, _ = read_safetensors(self.path("again.safetensors"))
        self.assertEqual(again["deep.0.weight.slots"], out["deep.0.weight.slots"])
        order = {key: i for i, key in enumerate(again["emb.keys"][2])}
        for i, key in enumerate(out["emb.keys"][2]):
            j = order[key]
            self.assertEqual(again["emb.slots"][2][5 * j:5 * j + 5], out["emb.slots"][2][5 * i:5 * i + 5])
            self.assertEqual(again["emb.steps"][2][j], out["emb.steps"][2][i])
            self.assertEqual(again["emb.counts"][2][j], out["emb.counts"][2][i])

    def test_narrow_values(self):
        """Values keep the width of their table, unless asked for f32; a file of any width becomes a table of any."""
        tensors = model()
        said = self.make("--with", "emb:values=bf16,optimizer=adagrad,optimizer_slots=f16", "kv:values=f16", tensors=tensors)
        self.assertRegex(said, r"emb .*,values=bf16,optimizer_slots=f16")
        listed = self.run_tool("ls", self.path("ckpts"), "newest")
        # 16 bytes of key and visits, 5 bf16 padded to 12, 5 f16 padded to 12.
        self.assertRegex(listed, r"(?m)^emb  sparse, 5 columns, 3000 rows, 120000 bytes  .*,values=bf16,optimizer_slots=f16$")
        self.assertIn("kv  kv, of f16", listed)
        wanted = {key: [nearest_bf16(value) for value in row] for key, row in rows_of(tensors, "emb").items()}
        out, _ = read_safetensors(self.export("out.safetensors", "--slots"))
        self.assertEqual((out["emb.values"][0], out["kv.values"][0], out["w"][0]), ("BF16", "F16", "F32"))
        self.assertEqual(rows_of(out, "emb"), wanted)
        self.assertEqual(sorted(out["kv.values"][2]), sorted(map(nearest_f16, tensors["kv.values"][2])))
        self.assertEqual(set(out["emb.slots"][2]), {nearest_f16(0.1)})
        wide, _ = read_safetensors(self.export("wide.safetensors", "--widen"))
        self.assertEqual((wide["emb.values"][0], wide["kv.values"][0]), ("F32", "F32"))
        self.assertEqual(rows_of(wide, "emb"), {key: list(map(value_of_bf16, row)) for key, row in wanted.items()})
        self.assertEqual(wide["kv.values"][2], out["kv.values"][2])
        with zipfile.ZipFile(self.export("out.npz")) as archive:  # NumPy has no bf16
            self.assertIn(b"'<f4'", archive.read("emb.values.npy")[:80])
            self.assertIn(b"'<f2'", archive.read("kv.values.npy")[:80])
        # Both files say what the table was: it is made again, bit for bit.
        for name in ("out.safetensors", "wide.safetensors"):
            self.run_tool("import", self.path(name), "--out", self.path("ckpts"), "--shards", "3")
            again, _ = read_safetensors(self.export("again.safetensors", "--slots", "--replace"))
            self.assertEqual((rows_of(again, "emb"), again["emb.slots"]), (wanted, out["emb.slots"]))
        # Files of f16 and bf16 without words become tables of f32.
        narrow = {"emb.keys": out["emb.keys"], "emb.values": out["emb.values"],
                  "w": ("F16", [15], list(map(nearest_f16, tensors["w"][2])))}
        self.make(tensors=narrow)
        again, _ = read_safetensors(self.export("again.safetensors", "--replace"))
        self.assertEqual(rows_of(again, "emb"), rows_of(wide, "emb"))
        self.assertEqual(again["w"], ("F32", [15], narrow["w"][2]))
        why = self.run_tool("import", self.path("in.safetensors"), "--out", self.path("x"), "--with", "w:values=f16", code=1)
        self.assertIn("values", why)

    def test_int8_values(self):
        """A row's values are 127 steps, of a power of two, to its largest one; an export is f32."""
        tensors = model()
        self.make("--with", "emb:values=int8", tensors=tensors)
        self.assertIn(" 3000 rows, 96000 bytes ", self.run_tool("ls", self.path("ckpts"), "newest"))  # 16 + 4 + 5, padded
        out, _ = read_safetensors(self.export("out.safetensors"))
        self.assertEqual(out["emb.values"][0], "F32")
        rows = rows_of(out, "emb")
        for key, row in rows_of(tensors, "emb").items():
            step = 2.0**math.ceil(math.log2(max(map(abs, row)) / 127))
            for got, given in zip(rows[key], row):
                self.assertLessEqual(abs(got - given), step / 2)
                self.assertEqual(got / step, round(got / step))
        self.run_tool("import", self.path("out.safetensors"), "--out", self.path("ckpts"))
        again, _ = read_safetensors(self.export("again.safetensors"))
        self.assertEqual(rows_of(again, "emb"), rows)

    def test_one_table(self):
        self.make()
        out, metadata = read_safetensors(self.export("one.safetensors", "--table", "emb"))
        self.assertEqual(set(out), {"emb.keys", "emb.values"})
        self.assertEqual(set(metadata), {"format", "starling.table.emb"})
        why = self.run_tool("export", self.path("ckpts"), "--out", self.path("x.npz"), "--table", "emd", code=1)
        self.assertIn('checkpoint 1 has no table "emd"', why)
        self.assertFalse(os.path.exists(self.path("x.npz")))

    def test_numpy_reads_it(self):
        python = python_with("numpy")
        if python is None:
            self.skipTest("no interpreter has numpy (Debian: python3-numpy)")
        tensors = model()
        self.make("--shards", "2", tensors=tensors)
        self.export("out.npz", "--slots")
        self.export("out.safetensors", "--slots")
        script = """
import json, sys
import numpy as np
with np.load(sys.argv[1]) as npz:
    arrays = {name: npz[name] for name in npz.files}
raw = open(sys.argv[2], "rb").read()
length = int(np.frombuffer(raw[:8], "<u8")[0])
head = json.loads(raw[8:8 + length])
kinds = {"F32": "<f4", "I64": "<i8"}
tensors = {name: np.frombuffer(raw[8 + length:][slice(*one["data_offsets"])], kinds[one["dtype"]])
           .reshape(one["shape"]) for name, one in head.items() if name != "__metadata__"}
assert set(arrays) == set(tensors), (set(arrays), set(tensors))
for name, array in arrays.items():
    assert array.shape == tensors[name].shape, name
    assert array.tobytes() == tensors[name].tobytes(), name
assert arrays["emb.keys"].dtype == np.uint64 and tensors["emb.keys"].dtype == np.int64
assert arrays["emb.values"].shape == (3000, 5) and arrays["emb.values"].dtype == np.float32
order = np.argsort(arrays["emb.keys"])
print(json.dumps([[int(k) for k in arrays["emb.keys"][order]],
                  [float(v) for v in arrays["emb.values"][order].ravel()],
                  [float(v) for v in arrays["deep.0.weight"]]]))
"""
        done = subprocess.run([python, "-c", script, self.path("out.npz"), self.path("out.safetensors")],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        keys, values, dense = json.loads(done.stdout)
        rows = rows_of(tensors, "emb")
        self.assertEqual(keys, sorted(rows))
        self.assertEqual(values, [value for key in sorted(rows) for value in rows[key]])
        self.assertEqual(dense, tensors["deep.0.weight"][2])
        # The zip is a whole one, by another program's judgement.
        with zipfile.ZipFile(self.path("out.npz")) as archive:
            self.assertIsNone(archive.testzip())

    def test_damage_is_named(self):
        self.make("--shards", "2")
        self.make("--shards", "2")
        folder = self.path("ckpts/checkpoint-000002")
        file = os.path.join(folder, "shard-0001-of-0002.slc")
        with open(file, "r+b") as out:
            out.seek(5000)
            byte = out.read(1)
            out.seek(5000)
            out.write(bytes([byte[0] ^ 4]))
        why = self.run_tool("verify", self.path("ckpts"), code=1)
        self.assertIn("1 of the checkpoints in", why)
        why = self.run_tool("verify", self.path("ckpts"), "2", code=1)
        self.assertRegex(why, f"{file}: block [0-9]+: the checksum of its bytes does not match")
        self.assertIn("whole    checkpoint 000001", self.run_tool("verify", self.path("ckpts"), "1"))
        self.assertIn("whole ", self.run_tool("verify", self.path("ckpts"), "2", "--shards", "1"))
        why = self.run_tool("export", self.path("ckpts"), "--out", self.path("x.npz"), code=1)
        self.assertIn(file, why)
        os.truncate(file, 4000)
        why = self.run_tool("export", self.path("ckpts"), "--out", self.path("x.npz"), code=1)
        self.assertIn(f"{file}: it has 4000 bytes; the manifest says ", why)
        os.remove(file)
        why = self.run_tool("verify", self.path("ckpts"), "newest", code=1)
        self.assertIn(f"cannot open {file}: No such file or directory", why)
        self.assertIn("damaged", self.damaged_manifest(folder))
        self.assertEqual(sorted(os.listdir(self.folder)), ["ckpts", "in.safetensors"])
        self.run_tool("export", self.path("ckpts"), "1", "--out", self.path("x.npz"))

    def damaged_manifest(self, folder):
        with open(os.path.join(folder, "manifest.json"), "r+b") as out:
            out.write(b"[")
        return self.run_tool("ls", self.path("ckpts"))

    def test_wrong_words(self):
        self.make()
        ckpts = self.path("ckpts")
        for words, code, why in (
                (("ls", self.path("none")), 1, "cannot list the directory"),
                (("ls", self.folder, "1"), 1, "cannot open"),
                (("ls", ckpts, "x"), 1, '"x" is not a checkpoint'),
                (("ls", ckpts, "9"), 1, "checkpoint-000009/manifest.json: No such file"),
                (("verify", self.folder), 1, "there is no complete checkpoint in"),
                (("ls",), 2, "an argument is missing"),
                (("ls", ckpts, "1", "2"), 2, 'unexpected argument "2"'),
                (("look", ckpts), 2, 'unknown command "look"'),
                ((), 2, "starling-ckpt ls DIR"),
                (("export", ckpts), 1, "--out is missing"),
                (("export", ckpts, "--out", self.path("x.pt")), 1, "ends in .safetensors or .npz"),
                (("export", ckpts, "--out", self.path("in.safetensors")), 1, "is there already"),
                (("export", ckpts, "--out", self.path("none/x.npz")), 1, "No such file or directory"),
                (("export", ckpts, "--output", "x.npz"), 2, "--out"),
                (("import", self.path("none"), "--out", ckpts), 1, "No such file or directory"),
                (("import", self.folder, "--out", ckpts), 1, "it is not a regular file"),
                (("import", self.path("in.safetensors"), "--out", ckpts, "--number", "1"), 1,
                 "has a checkpoint 1 already"),
                (("import", self.path("in.safetensors"), "--out", ckpts, "--with", "lr=x"), 1, "lr=x: expected"),
                (("import", self.path("in.safetensors"), "--out", ckpts, "--with", "nome:lr=1"), 1,
                 "makes no table of that name"),
                (("import", self.path("in.safetensors"), "--out", ckpts, "--with", "rate=1"), 1, '"rate" is none of'),
                (("import", self.path("in.safetensors"), "--out", ckpts, "--with", "lr=-1"), 1, 'table "emb": '),
        ):
            with self.subTest(words):
                self.assertIn(why, self.run_tool(*words, code=code))
        self.assertEqual(sorted(os.listdir(ckpts)), ["checkpoint-000001"])
        for words in (("--help",), ("--version",), ("ls", "--help"), ("import", "--help"), ("export", "-h")):
            self.assertIn("starling-ckpt", self.run_tool(*words))

    def test_what_cannot_be_a_table(self):
        floats = ("F32", [2], [1.0, 2.0])
        keys = ("I64", [2], [1, 2])
        for tensors, why in (
                ({"h": ("I64", [1], b"abcdefgh")}, '"h" is I64 [1]: a dense table is made of F32, F16 or BF16; convert it'),
                ({"h": ("F8_E5M2FNUZ", [4], b"abcd")}, '"h" is F8_E5M2FNUZ [4]: a dense table is made of F32'),
                ({"h": ("C64", [], b"abcdefgh")}, '"h" is C64 []: a dense table is made of F32'),
                ({"h": ("F32", [0], [])}, "a dense table has 1 to 2^36 elements"),
                ({"a b": floats}, 'table "a b"'),
                ({"n" * 64: floats}, "has at most 63 bytes"),
                ({"e.keys": keys, "e.values": floats}, "F32, F16 or BF16 [keys][columns]"),
                ({"e.keys": keys, "e.values": ("F32", [3, 1], [1.0, 2.0, 3.0])}, "F32, F16 or BF16 [keys][columns]"),
                ({"e.keys": keys, "e.values": ("F32", [2, 4097], bytes(8 * 4097))}, "1 to 4096 columns"),
                ({"e.keys": floats, "e.values": ("F32", [2, 1], [1.0, 2.0])}, "are I64 or U64"),
                ({"e.keys": ("I64", [2], [7, 7]), "e.values": ("F32", [2, 1], [1.0, 2.0])}, "has the key 7 twice"),
                ({"e.keys": keys, "e.values": floats, "e.lens": ("I64", [2], [1, 2])}, "lengths are 1 to"),
                ({"e.keys": keys, "e.values": floats, "e.lens": ("I64", [2], [1, 0])}, "lengths are 1 to"),
                ({"e.keys": keys, "e.values": ("F32", [3], [1., 2., 3.]), "e.lens": ("I64", [2], [1, 1])},
                 "lengths are 1 to"),
                ({"w": floats, "w.slots": ("F32", [1, 2], [0.0, 0.0])}, "the optimizer sgd needs"),
                ({"w": floats, "w.steps": ("I64", [1], [-1])}, "expected 0 to 2^32 - 1"),
        ):
            with self.subTest(why):
                write_safetensors(self.path("in.safetensors"), tensors)
                said = self.run_tool("import", self.path("in.safetensors"), "--out", self.path("ckpts"), code=1)
                self.assertIn(why, said)
                if os.path.exists(self.path("ckpts")):
                    self.assertEqual(os.listdir(self.path("ckpts")), [])

    def test_full_disk(self):
        self.make()
        # A file may not grow beyond a limit: what a full disk does to one.
        limit = lambda: __import__("resource").setrlimit(__import__("resource").RLIMIT_FSIZE, (2000, 2000))
        for name in ("x.npz", "x.safetensors"):
            why = self.run_tool("export", self.path("ckpts"), "--out", self.path(name), code=1, preexec_fn=limit)
            self.assertIn(f"cannot write {self.path(name)}", why)
        why = self.run_tool("import", self.path("in.safetensors"), "--out", self.path("ckpts"), code=1,
                            preexec_fn=limit)
        self.assertRegex(why, "cannot write .*checkpoint-000002/.*File too large")
        self.assertEqual(os.listdir(self.path("ckpts")), ["checkpoint-000001"])
        self.assertEqual(sorted(os.listdir(self.folder)), ["ckpts", "in.safetensors"])
        with open("/dev/full", "w") as full:
            done = subprocess.run([harness.program("starling-ckpt"), "ls", self.path("ckpts")], stdout=full,
                                  stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot write to the standard output", done.stderr)


    def test_interrupted(self):
        """A signal that comes at any time leaves no unfinished file: here it waits at the start."""
        def interrupt():
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            os.kill(os.getpid(), signal.SIGTERM)
        self.make()
        for name in ("x.npz", "x.safetensors"):
            why = self.run_tool("export", self.path("ckpts"), "--out", self.path(name), code=1, preexec_fn=interrupt)
            self.assertIn("interrupted by a signal", why)
        why = self.run_tool("import", self.path("in.safetensors"), "--out", self.path("ckpts"), code=1,
                            preexec_fn=interrupt)
        self.assertIn("interrupted by a signal", why)
        self.assertEqual(os.listdir(self.path("ckpts")), ["checkpoint-000001"])
        self.assertEqual(sorted(os.listdir(self.folder)), ["ckpts", "in.safetensors"])


class RealPs(checkpoint_test.CheckpointTest):
    """What a ps wrote is exported; what was imported a ps serves."""

    def tool(self, *words):
        done = subprocess.run([harness.program("starling-ckpt"), *words], capture_output=True, text=True,
                              timeout=harness.DEADLINE_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_export_of_what_was_pushed(self):
        ps, coordinator = self.cluster(ps_count=2, reactors=2)
        exported = os.path.join(self.folder, "out.safetensors")
        with self.client(coordinator) as client:
            model = checkpoint_test.Model(client, 3)
            model.push()
            self.ask(client)
            for share in (0.3, 0.1):
                model.push(share)
                self.ask(client)  # adds to the one before
            rows, dense = model.state()
            newest = self.ask(client)
        self.assertNotEqual(self.manifest(newest)["base"], 0)
        self.tool("export", self.checkpoints, str(newest), "--out", exported, "--slots")
        tensors, metadata = read_safetensors(exported)
        self.assertEqual(set(tensors), {"emb.keys", "emb.values", "emb.slots", "emb.steps", "emb.counts",
                                        "wide", "wide.slots", "wide.steps", "wide.counts"})
        self.assertEqual(tensors["wide"][2], dense)
        merged = rows_of(tensors, "emb")
        self.assertEqual(merged, {key: list(row) for key, row in zip(model.KEYS, rows)})
        self.assertEqual(max(tensors["emb.counts"][2]), 3)
        self.assertRegex(metadata["starling.table.emb"], "optimizer=adam,.*step=3,")
        self.assertIn("whole", self.tool("verify", self.checkpoints))
        # A cluster of another size goes on from the export, slots and all.
        with self.client(coordinator) as client:
            again = checkpoint_test.Model(client, 4)
            again.push()
            wanted = again.state()
        self.drain(ps)
        for folder in harness.visible(self.checkpoints):
            subprocess.run(["rm", "-r", os.path.join(self.checkpoints, folder)], check=True)
        self.tool("import", exported, "--out", self.checkpoints, "--shards", "3")
        ps, coordinator = self.cluster(more=["--restore", "newest"])
        with self.client(coordinator) as client:
            model = checkpoint_test.Model(client, 4)
            model.push()
            self.assertEqual(model.state(), wanted)
        self.drain(ps)

    def test_import_is_served(self):
        path = os.path.join(self.folder, "in.safetensors")
        tensors = model(rows=500)
        write_safetensors(path, tensors)
        self.tool("import", path, "--out", self.checkpoints, "--shards", "2", "--with",
                  "emb:optimizer=adagrad,lr=0.25,epsilon=0,initial_accumulator=0.5,initializer=uniform,a=-1,b=1,seed=5")
        ps, coordinator = self.cluster(reactors=3, more=["--restore", "newest"])
        with self.client(coordinator) as client:
            emb = client.open(name="emb", kind=protocol_client.SPARSE, dim=5, consistency={},
                              optimizer=self.optimizer(kind=3, lr=0.25, epsilon=0.0, initial_accumulator=0.5),
                              initializer={"kind": 2, "a": -1.0, "b": 1.0, "seed": 5})
            deep = client.open(name="deep.0.weight", kind=protocol_client.DENSE, length=2050, consistency={},
                               optimizer=self.optimizer(kind=1, lr=0.01), initializer={})
            rows = rows_of(tensors, "emb")
            keys = sorted(rows)
            self.assertEqual([list(row) for row in client.pull(emb, keys)], [rows[key] for key in keys])
            self.assertEqual(list(client.dense_pull(deep, 0, 2050)), tensors["deep.0.weight"][2])
            # Adagrad begins with its accumulator at 0.5: w - 0.25 * 1 / sqrt(0.5 + 1).
            client.push(emb, [keys[0]], [[1.0] * 5])
            for before, after in zip(rows[keys[0]], client.pull(emb, [keys[0]])[0]):
                self.assertAlmostEqual(after, before - 0.25 / 1.5**0.5, places=6)
        self.drain(ps)

    def open_format_1(self, client):
        return client.open(name="emb", kind=protocol_client.SPARSE, dim=3, consistency={},
                           optimizer=self.optimizer(kind=3, lr=0.5, initial_accumulator=0.25), initializer={})

    def test_format_1_and_erased_rows(self):
        """A checkpoint of format 1 is restored. Rows erased after it are in none of what follows."""
        os.makedirs(self.checkpoints, exist_ok=True)
        shutil.copytree(FORMAT_1, self.checkpoints, dirs_exist_ok=True)
        rows = [tuple((3 * i + column) / 8 for column in range(3)) for i in range(len(FORMAT_1_KEYS))]
        ps, coordinator = self.cluster(reactors=2, more=["--restore", "newest"])
        with self.client(coordinator) as client:
            emb = self.open_format_1(client)
            self.assertEqual(client.pull(emb, FORMAT_1_KEYS), rows)
            self.ask(client)
            client.erase(emb, FORMAT_1_KEYS[::2])
            newest = self.ask(client)
        self.assertNotEqual(self.manifest(newest)["base"], 0)
        self.drain(ps)
        exported = os.path.join(self.folder, "out.safetensors")
        self.tool("export", self.checkpoints, str(newest), "--out", exported)
        tensors, _ = read_safetensors(exported)
        self.assertEqual(rows_of(tensors, "emb"), {key: list(row) for key, row in
                                                   list(zip(FORMAT_1_KEYS, rows))[1::2]})
        for reactors in (2, 3, 1):
            ps, coordinator = self.cluster(reactors=reactors, more=["--restore", "newest"])
            with self.client(coordinator) as client:
                emb = self.open_format_1(client)
                self.assertEqual(client.pull(emb, FORMAT_1_KEYS),
                                 [row if i % 2 else (0, 0, 0) for i, row in enumerate(rows)])
            self.drain(ps)

    def optimizer(self, **said):
        """As sl_optimizer_defaults has it."""
        return {"momentum": single(0.9), "rho": single(0.9), "beta1": single(0.9), "beta2": single(0.999),
                "epsilon": single(1e-8), "weight_decay": single(0.01), "initial_accumulator": single(0.1),
                "lr_power": -0.5, "decay_steps": 100000, "decay_baseline": single(0.1), **said}


if __name__ == "__main__":
    harness.main()
