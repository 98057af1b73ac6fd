#!/usr/bin/env python3
"""Extensions of the Open Inference Protocol, as their published documents have them: model configuration, statistics,
system shared memory, logging, trace; and compressed bodies. The client is written here, and curl's where it is there."""

import contextlib
import gzip
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import zlib

try:
    import numpy as np
    import serve_http_test as http_test  # needs onnx
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

import harness

PACK = {"gzip": gzip.compress, "deflate": zlib.compress}
UNPACK = {"gzip": gzip.decompress, "deflate": zlib.decompress}


class Memory:
    """A file below /dev/shm, as shm_open makes it."""

    def __init__(self, name, count):
        self.key, self.path = f"/{name}", f"/dev/shm/{name}"
        self.file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.truncate(self.file, count)

    def end(self):
        os.close(self.file)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)


def where(region, count, offset=0):
    return {"shared_memory_region": region, "shared_memory_byte_size": count, "shared_memory_offset": offset}


class Extensions(http_test.Http):
    def memory(self, count):
        self.made = getattr(self, "made", 0) + 1
        memory = Memory(f"starling-{self.agent}-{self.made}", count)
        self.addCleanup(memory.end)
        return memory

    def register(self, oip, name, memory, count, offset=0):
        status, answer = oip.json("POST", f"/v2/systemsharedmemory/region/{name}/register",
                                  {"key": memory.key, "offset": offset, "byte_size": count})
        self.assertEqual(status, 200, answer)

    def infer_shared(self, oip, region, rows, out):
        """Infers `rows` rows that begin with the region; the output is wanted at `out`."""
        return oip.json("POST", "/v2/models/mlp/infer", {
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [rows, 4], "parameters": where(region, 16 * rows)}],
            "outputs": [{"name": "y", "parameters": where(region, 12 * rows, out)}]})

    def test_configuration_and_statistics(self):
        self.start_all(models=(("mlp", 1), ("other", 2)), worker_count=2)
        oip = self.ready()
        self.assertLess({"model_configuration", "statistics", "system_shared_memory", "logging"},
                        set(oip.json("GET", "/v2")[1]["extensions"]))
        status, config = oip.json("GET", "/v2/models/mlp/config")
        self.assertEqual(status, 200, config)
        self.assertEqual((config["name"], config["input"], config["output"]),
                         ("mlp", [{"name": "x", "data_type": "TYPE_FP32", "dims": [4]}],
                          [{"name": "y", "data_type": "TYPE_FP32", "dims": [3]}]))
        version = oip.json("GET", "/v2/models/mlp")[1]["versions"][0]
        self.assertEqual(oip.json("GET", f"/v2/models/mlp/versions/{version}/config")[1], config)
        most = config["max_batch_size"]
        self.assertEqual(oip.infer("mlp", {"x": ("FP32", np.ones((most, 4), "f4"))}, True, True)[0], 200)
        status, answer = oip.infer("mlp", {"x": ("FP32", np.ones((most + 1, 4), "f4"))}, True, True)
        self.assertEqual((status, answer["error"].count(f"accepted are 1 to {most}")), (400, 1), answer)

        rows, waited, computed = [1, 1, 3], 0, 0
        for count in rows:
            times = oip.infer("mlp", {"x": ("FP32", np.ones((count, 4), "f4"))})[1]["parameters"]
            waited += times["queue_us"] + times["load_us"]
            computed += times["compute_us"]
        before = time.time()
        status, stats = oip.json("GET", "/v2/models/mlp/stats")
        self.assertEqual(status, 200, stats)
        (of,) = stats["model_stats"]
        self.assertEqual((of["name"], of["version"], of["inference_count"], of["execution_count"]),
                         ("mlp", version, sum(rows) + most, 1 + len(rows)))
        self.assertLess(abs(of["last_inference"] / 1000 - before), harness.DEADLINE_S)
        times = of["inference_stats"]
        self.assertEqual({name: times[name]["count"] for name in times},
                         {"success": 4, "fail": 1, "queue": 4, "compute_input": 4, "compute_infer": 4, "compute_output": 4,
                          "cache_hit": 0, "cache_miss": 0})
        self.assertGreaterEqual(times["queue"]["ns"], 1000 * waited)
        self.assertGreaterEqual(times["compute_infer"]["ns"], 1000 * computed)
        self.assertGreaterEqual(times["success"]["ns"], times["queue"]["ns"] + times["compute_infer"]["ns"])
        self.assertTrue(all(times[name]["ns"] > 0 for name in ("fail", "compute_input", "compute_output")), times)
        self.assertEqual({each["batch_size"]: each["compute_infer"]["count"] for each in of["batch_stats"]},
                         {1: 2, 3: 1, most: 1})
        self.assertEqual(oip.json("GET", f"/v2/models/mlp/versions/{version}/stats")[1], stats)
        self.assertEqual([each["inference_count"] for each in oip.json("GET", "/v2/models/stats")[1]["model_stats"]],
                         [sum(rows) + most, 0])
        self.assertEqual(oip.json("GET", "/v2/models/none/stats")[0], 404)

    def test_shared_memory(self):
        self.start_all()
        oip, model = self.ready(), self.models["mlp"]
        memory, rows = self.memory(8192), 20
        x = np.random.default_rng(3).standard_normal((rows, 4)).astype("f4")
        os.pwrite(memory.file, x.tobytes(), 1024)
        self.register(oip, "mine", memory, 4096, 1024)
        status, answer = self.infer_shared(oip, "mine", rows, 2048)
        self.assertEqual(status, 200, answer)
        self.assertEqual(answer["outputs"], [{"name": "y", "datatype": "FP32", "shape": [rows, 3]}])
        y = np.frombuffer(os.pread(memory.file, 12 * rows, 1024 + 2048), "<f4").reshape(rows, 3)
        np.testing.assert_allclose(y, model.compute(x), rtol=1e-4, atol=1e-5)
        # The input in memory, and the output behind the JSON; then the other way around.
        status, text = oip.ask("POST", "/v2/models/mlp/infer", json.dumps({
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [rows, 4], "parameters": where("mine", 16 * rows)}],
            "outputs": [{"name": "y", "parameters": {"binary_data": True}}]}))
        self.assertEqual((status, text[int(oip.headers["Inference-Header-Content-Length"]):]), (200, y.tobytes()))
        status, answer = oip.infer("mlp", {"x": ("FP32", x[:1])}, True,
                                   outputs=[{"name": "z", "parameters": where("mine", 12)}])
        self.assertEqual((status, answer["error"].count("`z`")), (400, 1), answer)
        self.assertEqual(oip.json("GET", "/v2/systemsharedmemory/status")[1],
                         [{"name": "mine", "key": memory.key, "offset": 1024, "byte_size": 4096}])
        os.truncate(memory.file, 1024 + 100)
        status, answer = self.infer_shared(oip, "mine", rows, 2048)
        self.assertEqual((status, answer["error"].count("region `mine`")), (400, 1), answer)
        os.truncate(memory.file, 8192)
        os.unlink(memory.path)
        status, answer = self.infer_shared(oip, "mine", rows, 2048)
        self.assertEqual((status, answer["error"].count("region `mine`")), (400, 1), answer)
        self.assertEqual(oip.ask("POST", "/v2/systemsharedmemory/unregister")[0], 200)
        self.assertEqual(oip.json("GET", "/v2/systemsharedmemory/status")[1], [])
        for path, body, status, words in [
                ("/v2/systemsharedmemory/region/a/register", {"key": "../etc/passwd", "byte_size": 1}, 400, "not accepted"),
                ("/v2/systemsharedmemory/region/a/register", {"key": "/starling-none", "byte_size": 1}, 400, "cannot be opened"),
                ("/v2/cudasharedmemory/region/a/register", {"raw_handle": {"b64": ""}, "device_id": 0, "byte_size": 1}, 400,
                 "no GPU")]:
            got, answer = oip.json("POST", path, body)
            self.assertEqual((got, answer["error"].count(words)), (status, 1), answer)
        self.assertEqual(oip.json("GET", "/v2/cudasharedmemory/status")[1], [])
        self.assertEqual(oip.ask("POST", "/v2/cudasharedmemory/unregister")[0], 200)
        self.check(oip.infer("mlp", {"x": ("FP32", x)})[1], model, x)

    def test_memory_that_changes_its_size_meanwhile(self):
        """A stranger truncates and extends the file all the time: requests succeed or name the region, and the gateway lives."""
        self.start_all()
        oip, memory, rows = self.ready(), self.memory(1 << 20), 32
        self.register(oip, "mine", memory, 1 << 20)
        ended, changes = threading.Event(), [0]

        def change():
            while not ended.is_set():
                for count in (0, 256, 1 << 20):
                    os.truncate(memory.file, count)
                changes[0] += 1

        stranger, seen = threading.Thread(target=change), {200: 0, 400: 0}
        stranger.start()
        try:
            end = time.monotonic() + harness.DEADLINE_S
            while sum(seen.values()) < 300 or (min(seen.values()) == 0 and time.monotonic() < end):
                status, answer = self.infer_shared(oip, "mine", rows, (1 << 20) - 12 * rows)
                self.assertIn(status, seen, answer)
                self.assertTrue(status == 200 or "region `mine`" in answer["error"], answer)
                seen[status] += 1
        finally:
            ended.set()
            stranger.join()
        self.assertGreater(min(*seen.values(), changes[0]), 0, (seen, changes))
        self.assertEqual(oip.ask("GET", "/v2/health/live")[0], 200)

    def test_compressed_bodies(self):
        self.start_all()
        oip, model = self.ready(), self.models["mlp"]
        x = np.random.default_rng(4).standard_normal((16, 4)).astype("f4")
        tensor = {"name": "x", "datatype": "FP32", "shape": [16, 4]}
        plain = json.dumps({"inputs": [{**tensor, "data": x.tolist()}]}).encode()
        head = json.dumps({"inputs": [{**tensor, "parameters": {"binary_data_size": x.nbytes}}],
                           "parameters": {"binary_data_output": True}}).encode()
        for coding, wanted in (("gzip", "deflate"), ("deflate", "gzip"), ("gzip", "gzip")):
            headers = {"Content-Encoding": coding, "Accept-Encoding": wanted}
            status, text = oip.ask("POST", "/v2/models/mlp/infer", PACK[coding](plain), headers)
            self.assertEqual((status, oip.headers["Content-Encoding"]), (200, wanted), text)
            (y,) = json.loads(UNPACK[wanted](text))["outputs"]
            np.testing.assert_allclose(np.reshape(y["data"], (16, 3)), model.compute(x), rtol=1e-4, atol=1e-5)
            headers["Inference-Header-Content-Length"] = str(len(head))
            status, text = oip.ask("POST", "/v2/models/mlp/infer", PACK[coding](head + x.tobytes()), headers)
            self.assertEqual(status, 200, text)
            text = UNPACK[wanted](text) if oip.headers["Content-Encoding"] else text
            y = np.frombuffer(text[int(oip.headers["Inference-Header-Content-Length"]):], "<f4").reshape(16, 3)
            np.testing.assert_allclose(y, model.compute(x), rtol=1e-4, atol=1e-5)
        status, text = oip.ask("POST", "/v2/models/mlp/infer", plain, {"Accept-Encoding": "identity"})
        self.assertEqual((status, oip.headers["Content-Encoding"]), (200, None))
        bomb = gzip.compress(b" " * (80 << 20))
        for body, status, words in ((bomb, 413, "67108864"), (PACK["gzip"](plain)[:-1], 400, "Content-Encoding"),
                                    (PACK["gzip"](plain) + b"x", 400, "Content-Encoding"), (plain, 400, "Content-Encoding")):
            got, text = oip.ask("POST", "/v2/models/mlp/infer", body, {"Content-Encoding": "gzip"})
            self.assertEqual((got, json.loads(text)["error"].count(words)), (status, 1), text)
        self.assertEqual(oip.ask("POST", "/v2/models/mlp/infer", plain, {"Content-Encoding": "br"})[0], 415)
        if shutil.which("curl") is not None:
            path = self.file("body.gz", "")
            with open(path, "wb") as file:
                file.write(gzip.compress(plain))
            text = subprocess.run(["curl", "-sf", "--compressed", f"http://{self.address}/v2/models/mlp/infer", "--data-binary",
                                   f"@{path}", "-H", "Content-Encoding: gzip", "-H", "Starling-Timeout-Ms: 60000"], check=True,
                                  capture_output=True, timeout=harness.DEADLINE_S).stdout
            np.testing.assert_allclose(np.reshape(json.loads(text)["outputs"][0]["data"], (16, 3)), model.compute(x),
                                       rtol=1e-4, atol=1e-5)

    def test_log_trace_and_parameters(self):
        self.start_all()
        oip = self.ready()
        status, log = oip.json("POST", "/v2/logging", {"log_verbose_level": 1})
        self.assertEqual((status, log["log_verbose_level"], log["log_info"]), (200, 1, True))
        status, log = oip.json("POST", "/v2/logging", {"log_info": False, "log_verbose_level": 0})
        self.assertEqual((status, log), (200, oip.json("GET", "/v2/logging")[1]))
        self.assertEqual((log["log_verbose_level"], log["log_info"], log["log_warning"]), (0, False, True))
        self.assertEqual(oip.json("POST", "/v2/logging", {"log_error": False, "log_info": True})[0], 400)
        self.assertEqual(oip.json("GET", "/v2/models/mlp/trace/setting")[1]["trace_level"], ["OFF"])
        self.assertEqual(oip.json("POST", "/v2/trace/setting", {"trace_level": ["TENSORS"]})[0], 400)
        x = {"x": ("FP32", np.ones((1, 4), "f4"))}
        self.assertEqual(oip.infer("mlp", x, parameters={"timeout": 30_000_000})[0], 200)
        self.assertEqual(oip.infer("mlp", x, parameters={"timeout": 1})[0], 504)
        for name, value in (("sequence_id", 7), ("sequence_start", True), ("sequence_end", True), ("priority", 1)):
            status, answer = oip.infer("mlp", x, parameters={name: value})
            self.assertEqual((status, answer["error"].count(f"parameters.{name}")), (400, 1), answer)
        status, answer = oip.json("POST", "/v2/models/mlp/infer", {
            "inputs": [{"name": "x", "datatype": "BYTES", "shape": [1], "data": ["a"]}]})
        self.assertEqual((status, answer["error"].count("BYTES")), (400, 1), answer)


if __name__ == "__main__":
    harness.main()
