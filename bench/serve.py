#!/usr/bin/env python3
"""Model serving: cold models under each schedule, resident models beside the engine in a loop, more models than memory,
and memory. Needs python3-onnx."""

import contextlib
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import time

import driver
import processes
import report
from driver import number

PARTS = ("cold", "schedules", "resident", "http", "shared", "zipf", "strategies", "many", "memory")
MIB = 1 << 20
WAIT = 120  # seconds, for what is not measured


class Process:
    """A program that prints a line when it is ready; its first word is its address."""

    def __init__(self, words, core=-1, environment=None):
        self.child = subprocess.Popen(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
                                      env={**os.environ, **(environment or {})}, preexec_fn=processes.child_setup(core))
        self.line = self.child.stdout.readline()
        if not self.line:
            raise report.Failure(f"{' '.join(words)} has ended")
        self.address = self.line.split()[0]

    def end(self):
        self.child.send_signal(signal.SIGTERM)
        self.child.wait(WAIT)
        self.child.stdout.close()


class Serving:
    """Storage with an agent, and for each name of `fronts` a gateway with workers of these flags. source: where the
    agent has models from: "page cache" or "disk": files of its own; "shared memory" or "TCP": a storage process."""

    def __init__(self, options, models, pool, fronts, source="shared memory", workers=1, gateway=()):
        self.stack, self.options, self.connections = contextlib.ExitStack(), options, {}
        self.agent = f"bench-{os.getpid()}-{random.randrange(1 << 30)}"
        of_agent = ["--agent", f"--agent-name={self.agent}", f"--pool-memory={pool}"]
        over = ["--endpoints=tcp://127.0.0.1:0"] if source == "TCP" else []
        try:
            if source in ("page cache", "disk"):
                storage = self.serve_objects(f"--dir={models}", *of_agent)
            else:
                storage = self.serve_objects(f"--dir={models}", *over)
                self.serve_objects(f"--catalogue={storage.address}", *of_agent, *over)
            self.workers, self.urls, self.storage = {}, {}, storage
            for front, flags in fronts.items():
                self.add_front(front, flags, gateway, [self.agent] * workers)
        except BaseException:
            self.stack.close()
            raise

    def add_front(self, front, flags, gateway, agents):
        """A gateway, and a worker with these flags at each agent."""
        gate = self.start("starling-serve", "gateway", "--http=127.0.0.1:0", "--listen=127.0.0.1:0",
                          f"--catalogue={self.storage.address}", *gateway, core=self.options.client_core)
        self.urls[front] = re.search(r"http://([\w.:]+)", gate.line).group(1)
        self.workers[front] = [
            self.start("starling-serve", "worker", f"--gateway={gate.address}", f"--agent-name={agent}", *flags,
                       core=self.options.server_core) for agent in agents]
        self.wait_ready(front)

    def serve_objects(self, *flags):
        return self.start("starling-objects", "serve", "--name=127.0.0.1:0", *flags, core=self.options.client_core)

    def start(self, program, *words, core=-1):
        process = Process([os.path.join(self.options.bin, program), *words], core)
        self.stack.callback(process.end)
        return process

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stack.close()

    def ask(self, front, method, path, body=b"", head=0):
        """Status, answer and seconds."""
        connection = self.connections.get(front)
        if connection is None:
            connection = self.connections[front] = http.client.HTTPConnection(self.urls[front])
        headers = {"Starling-Timeout-Ms": str(WAIT * 1000)}
        if head:
            headers["Inference-Header-Content-Length"] = str(head)
        begun = time.perf_counter()
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        data = response.read()
        return response.status, data, time.perf_counter() - begun

    def wait_ready(self, front):
        ends = time.monotonic() + WAIT
        while self.ask(front, "GET", "/v2/health/ready")[0] != 200:
            if time.monotonic() > ends:
                raise report.Failure("the gateway is not ready")
            time.sleep(0.02)

    def infer(self, front, model, shape):
        """Seconds, and the parameters of the answer."""
        data = bytes(4 * product(shape))
        text = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": shape,
                                       "parameters": {"binary_data_size": len(data)}}],
                           "parameters": {"binary_data_output": True}}).encode()
        status, answer, seconds = self.ask(front, "POST", f"/v2/models/{model}/infer", text + data, len(text))
        if status != 200:
            raise report.Failure(f"{model}: {status} {answer[:300]!r}")
        found = re.search(rb'"parameters": ?(\{[^{}]*queue_us[^{}]*\})', answer)
        return seconds, json.loads(found.group(1)) if found else {}

    def load(self, front, model):
        status, answer, seconds = self.ask(front, "POST", f"/v2/repository/models/{model}/load")
        if status != 200:
            raise report.Failure(f"load of {model}: {status} {answer[:300]!r}")
        return seconds


def product(shape):
    total = 1
    for size in shape:
        total *= size
    return total


class Models:
    """Deployed models. Those of a kind have the same bytes, under many names."""

    def __init__(self, options, folder):
        self.options, self.folder, self.dir = options, folder, os.path.join(folder, "models")
        self.files = {}

    def file(self, kind):
        if kind not in self.files:
            import serve_models  # needs python3-onnx
            path = os.path.join(self.folder, f"{kind}.onnx")
            {"mlp": lambda: serve_models.mlp(path, 1024, 8), "small": lambda: serve_models.mlp(path, 512, 4),
             "tiny": lambda: serve_models.mlp(path, 64, 1), "relu": lambda: serve_models.relu(path, MIB // 4),
             "large": lambda: serve_models.mlp(path, 2048, 16),
             "resnet": lambda: serve_models.resnet50(path, self.options.pixels)}[kind]()
            self.files[kind] = path
        return self.files[kind]

    def deploy(self, kind, names):
        links = os.path.join(self.folder, f"links-{kind}")
        os.makedirs(links, exist_ok=True)
        for name in names:
            os.symlink(self.file(kind), os.path.join(links, f"{name}.onnx"))
        done = subprocess.run([os.path.join(self.options.bin, "starling-serve"), "deploy", links, f"--dir={self.dir}"],
                              check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode != 0:
            raise report.Failure(done.stdout[-1000:])
        return self

    def requests(self, names, batch):
        path = os.path.join(self.folder, "request_list.txt")
        with open(path, "w", encoding="ascii") as file:
            file.write("model_name, batch_size, send_interval\n")
            file.writelines(f"{name}, {batch}, 0\n" for name in names)
        return path


def client(options, url, path, *flags):
    """What starling-serve client measured."""
    done = subprocess.run([os.path.join(options.bin, "starling-serve"), "client", path, url, "--json", "--timeout-ms=60000",
                           *flags], check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          preexec_fn=processes.child_setup(options.client_core))
    if done.returncode != 0:
        raise report.Failure(f"client: {done.stdout[-500:]}{done.stderr[-500:]}")
    return json.loads(done.stdout.splitlines()[-1])


# ---- Parts -----------------------------------------------------------------------------------------------------


def run_cold(options, serving, model, evict, rows, rounds, *flags):
    """{figure: samples} of starling-bench cold, on the worker's core."""
    raw = os.path.join(options.folder, "cold.json")
    done = subprocess.run([os.path.join(options.bin, "starling-bench"), "cold", f"--agent={serving.agent}", f"--model={model}",
                           f"--evict={evict}", f"--rows={rows}", f"--rounds={rounds}", "--json", raw, *flags], check=False,
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          preexec_fn=processes.child_setup(options.server_core))
    if done.returncode != 0:
        raise report.Failure(done.stdout[-1000:])
    with open(raw, encoding="utf-8") as file:
        return {figure["name"]: figure["samples"] for figure in json.load(file)["figures"]}


def measure_cold(options, models, bench):
    """A model whose load and compute take about equally long."""
    models.deploy("mlp", ["a", "b", "c"])
    with Serving(options, models.dir, 35 * MIB, {}) as serving:
        rows = 16
        for _ in range(3):
            found = run_cold(options, serving, "a", "b,c", rows, 3)
            rows = max(1, min(256, round(rows * min(found["load alone"]) / min(found["compute alone"]))))
        timeline = os.path.join(options.folder, "timeline.json")
        found = run_cold(options, serving, "a", "b,c", rows, options.rounds, f"--timeline={timeline}")
    for name, samples in found.items():
        for value in samples:
            bench.sample(f"cold MLP of 32 MB, {rows} rows: {name}", "time", "ms", value)
    for optimal, longer, whole in zip(found["optimal"], found["the longer of load and compute"], found["whole"]):
        bench.sample_ratio("cold: optimal / the longer of load and compute", optimal / longer, most=1.2)
        bench.sample_ratio("cold: optimal / reading all, then computing", optimal / whole, most=0.65)
    if options.timeline:
        with open(timeline, encoding="utf-8") as file:
            draw_timeline(json.load(file), options.timeline)


def draw_timeline(lines, path):
    """An SVG: for each schedule, above when bytes arrived, below when layers were computed."""
    width, height, left = 900, 130, 110
    end = max(sum(line["layers"][-1]) for line in lines)
    def x(us):
        return left + us / end * (width - left - 20)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height * len(lines) + 40}" '
           f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>']
    for number, line in enumerate(lines):
        top = number * height + 20
        out.append(f'<text x="8" y="{top + 45}">{line["schedule"]}</text><text x="8" y="{top + 60}" fill="#666">'
                   f'{len(line["groups"])} groups</text>')
        points = [(0, 0)] + line["arrivals"]
        steps = " ".join(f"H{x(us):.1f}V{top + 60 - bytes_ / line['bytes'] * 55:.1f}" for us, bytes_ in points)
        out.append(f'<path d="M{x(0):.1f},{top + 60}{steps}V{top + 60}Z" fill="#9ecae1" stroke="#3182bd"/>')
        for group in line["groups"]:
            y = top + 60 - group / line["bytes"] * 55
            out.append(f'<line x1="{left}" x2="{width - 20}" y1="{y:.1f}" y2="{y:.1f}" stroke="#bbb" stroke-dasharray="2 3"/>')
        for begin, duration in line["layers"]:
            out.append(f'<rect x="{x(begin):.1f}" y="{top + 68}" width="{max(1, x(begin + duration) - x(begin)):.1f}" '
                       f'height="22" fill="#fdae6b" stroke="#e6550d"/>')
    base = height * len(lines) + 20
    for i in range(11):
        out.append(f'<text x="{x(end * i / 10):.0f}" y="{base}" text-anchor="middle">{end * i / 10000:.1f}</text>')
    out.append(f'<text x="{width - 16}" y="{base}">ms</text></svg>')
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(out))


def measure_schedules(options, models, bench):
    models.deploy("resnet", ["resnet", "other"]).deploy("large", ["large", "large2"])
    for source in ("page cache", "disk", "TCP"):
        with Serving(options, models.dir, 290 * MIB, {}, source) as serving:
            for model, evict, rows in (("resnet", "large,large2", 1), ("large", "resnet,large2", 8)):
                found = run_cold(options, serving, model, evict, rows, options.rounds,
                                 *(["--drop-caches=1"] if source == "disk" else []))
                for name, samples in found.items():
                    for value in samples:
                        bench.sample(f"{model} from {source}: {name}", "time", "ms", value, "TCP" if source == "TCP" else "")
                for optimal, best in zip(found["optimal"], found["the best fixed schedule"]):
                    bench.sample_ratio(f"{model} from {source}: optimal / the best fixed schedule", optimal / best, most=1.05)


def run_engine(options, path, rows):
    """Milliseconds of a batch, on the worker's core."""
    raw = os.path.join(os.path.dirname(path), "engine.json")
    done = subprocess.run([os.path.join(options.bin, "starling-bench"), "engine", f"--model={path}", f"--rows={rows}",
                           "--rounds=1", "--seconds=1", "--json", raw], check=False, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, preexec_fn=processes.child_setup(options.server_core))
    if done.returncode != 0:
        raise report.Failure(done.stdout)
    with open(raw, encoding="utf-8") as file:
        return {figure["quantity"]: figure["samples"][0] for figure in json.load(file)["figures"]}


def measure_resident(options, models, bench):
    models.deploy("mlp", ["a"])
    path = models.requests(["a"], 32)
    single = os.path.join(models.folder, "single.txt")
    with open(single, "w", encoding="ascii") as file:
        file.write("model_name, batch_size, send_interval\na, 1, 0\n")
    with Serving(options, models.dir, 100 * MIB, {"cost": []}) as serving:
        url = serving.urls["cost"]
        client(options, url, path, "--mode=max", "--concurrency=4", "--requests=50")
        for _ in range(options.rounds):
            engine = run_engine(options, models.file("mlp"), 32)
            one = run_engine(options, models.file("mlp"), 1)
            served = client(options, url, path, "--mode=max", "--concurrency=4", "--requests=300")
            alone = client(options, url, single, "--mode=one", "--requests=500")
            bench.sample("engine, 32 rows", "rows", "1/s", engine["rows"])
            bench.sample("served, 32 rows", "rows", "1/s", 32 * served["answers_per_s"])
            bench.sample("engine, 1 row", "time", "ms", one["batch"])
            bench.sample("served, 1 row", "p50", "ms", alone["p50_ms"])
            bench.sample("added by HTTP, gateway and worker, 1 row", "p50", "us", 1000 * (alone["p50_ms"] - one["batch"]))
            bench.sample_ratio("served / the engine in a loop, 32 rows", 32 * served["answers_per_s"] / engine["rows"], least=0.85)


def measure_http(options, models, bench):
    """A model whose computation takes no time, beside libmicrohttpd with a constant answer."""
    path = models.deploy("tiny", ["t"]).requests(["t"], 1)
    with Serving(options, models.dir, 10 * MIB, {"cost": []}) as serving:
        urls = {"starling-serve": serving.urls["cost"], "libmicrohttpd": serving.start("bare_http").address}
        for number in range(options.rounds):
            rates = {}
            for name in sorted(urls, reverse=bool(number % 2)):
                result = client(options, urls[name], path, "--mode=max", "--concurrency=16", "--requests=10000")
                rates[name] = bench.sample(f"64 values, {name}", "answers", "1/s", result["answers_per_s"])
                result = client(options, urls[name], path, "--mode=one", "--requests=1000")
                bench.sample(f"64 values, {name}", "p50", "us", 1000 * result["p50_ms"])
            bench.sample_ratio("starling-serve / libmicrohttpd with a constant answer", rates["starling-serve"] / rates["libmicrohttpd"])


class Tensors:
    """A client with one input and one output of 1 MiB of a model, over one connection, without a library that copies."""

    def __init__(self, url, stack, agent):
        host, port = url.rsplit(":", 1)
        self.socket = stack.enter_context(socket.create_connection((host, int(port)), WAIT))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.data, self.answer = random.randbytes(MIB // 4) * 4, bytearray(2 * MIB)
        self.key = f"{agent}-http"
        with open(f"/dev/shm/{self.key}", "wb") as file:
            file.write(self.data + bytes(MIB))
        stack.callback(os.unlink, f"/dev/shm/{self.key}")
        region = json.dumps({"key": self.key, "offset": 0, "byte_size": 2 * MIB}).encode()
        self.ask("/v2/systemsharedmemory/region/tensors/register", region)
        shared = {"shared_memory_region": "tensors", "shared_memory_byte_size": MIB}
        self.binary = self.request({"binary_data_size": MIB}, {"binary_data": True})
        self.shared = self.request(shared, {**shared, "shared_memory_offset": MIB})

    @staticmethod
    def request(of_input, of_output):
        return json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, MIB // 4], "parameters": of_input}],
                           "outputs": [{"name": "r0", "parameters": of_output}]}).encode()

    def ask(self, path, text, tail=b""):
        """Sends a request, and reads its answer."""
        head = (f"POST {path} HTTP/1.1\r\nHost: bench\r\nStarling-Timeout-Ms: {WAIT * 1000}\r\n"
                f"Inference-Header-Content-Length: {len(text)}\r\nContent-Length: {len(text) + len(tail)}\r\n\r\n")
        self.socket.sendall(head.encode() + text)
        self.socket.sendall(tail)
        view, have, end = memoryview(self.answer), 0, -1
        while end < 0 or have < end:
            count = self.socket.recv_into(view[have:])
            have += count
            begin = self.answer.find(b"\r\n\r\n", 0, have) if end < 0 else -1
            if begin >= 0:
                end = begin + 4 + int(re.search(rb"\r\nContent-Length: *(\d+)", self.answer[:begin]).group(1))
            if count == 0 or (end == have and self.answer[9:12] != b"200"):
                raise report.Failure(f"{path}: {bytes(self.answer[:min(have, 500)])!r}")

    def seconds(self, way):
        """The time of one inference whose tensors go this way."""
        begun = time.perf_counter()
        if way == "binary":
            self.ask("/v2/models/w/infer", self.binary, self.data)
        else:
            self.ask("/v2/models/w/infer", self.shared)
        return time.perf_counter() - begun


def measure_shared(options, models, bench):
    """1 MiB in and 1 MiB out, behind the JSON and in shared memory."""
    models.deploy("relu", ["w"])
    with Serving(options, models.dir, 10 * MIB, {"cost": []}) as serving:
        tensors = Tensors(serving.urls["cost"], serving.stack, serving.agent)
        for number in range(options.rounds):
            times = {}
            for way in sorted(("binary", "shared memory"), reverse=bool(number % 2)):
                samples = sorted(tensors.seconds(way) for _ in range(300))
                times[way] = bench.sample(f"1 MiB in and out, {way}", "p50", "us", 1e6 * samples[len(samples) // 2])
                bench.sample(f"1 MiB in and out, {way}", "inferences", "1/s", len(samples) / sum(samples))
            bench.sample_ratio("1 MiB in and out: time with binary tensors / with shared memory", times["binary"] / times["shared memory"],
                               least=1.5)


def measure_zipf(options, models, bench):
    names = [f"m{i}" for i in range(options.models)]
    models.deploy("mlp", names)
    path = models.requests(names, 8)
    rules = {rule: [f"--schedule={rule}"] for rule in ("optimal", "whole")}
    with Serving(options, models.dir, options.pool_models * 33 * MIB, rules) as serving:
        for front in rules:
            client(options, serving.urls[front], path, "--mode=max", "--concurrency=8", "--zipf=1", "--requests=100")
        for number in range(options.rounds):
            rates = {}
            for front in sorted(rules, reverse=bool(number % 2)):
                result = client(options, serving.urls[front], path, "--mode=max", "--concurrency=8", "--zipf=1",
                                f"--seed={number + 1}", f"--requests={options.requests}")
                rates[front] = bench.sample(f"{options.models} models, pool for {options.pool_models}, {front}", "answers", "1/s",
                                           result["answers_per_s"])
                bench.sample(f"{options.models} models, pool for {options.pool_models}, {front}", "p99", "ms", result["p99_ms"])
            bench.sample_ratio("Zipf 1: optimal / whole, answers", rates["optimal"] / rates["whole"], least=1.3)


def measure_strategies(options, models, bench):
    """Two agents, as on two hosts, with one worker each; a gateway for each strategy."""
    names = [f"m{i}" for i in range(20)]
    models.deploy("mlp", names)
    path, pool = models.requests(names, 8), 6 * 33 * MIB
    with Serving(options, models.dir, pool, {}) as serving:
        second = f"{serving.agent}-2"
        serving.serve_objects(f"--catalogue={serving.storage.address}", "--agent", f"--agent-name={second}", f"--pool-memory={pool}")
        for strategy in ("basic", "cost"):
            serving.add_front(strategy, [], gateway=[f"--strategy={strategy}"], agents=(serving.agent, second))
            client(options, serving.urls[strategy], path, "--mode=max", "--concurrency=6", "--zipf=1", "--requests=100")
        for number in range(options.rounds):
            result = {}
            for strategy in sorted(serving.urls, reverse=bool(number % 2)):
                result[strategy] = client(options, serving.urls[strategy], path, "--mode=max", "--concurrency=6", "--zipf=1",
                                          f"--seed={number + 1}", f"--requests={options.requests}")
                bench.sample(f"20 models, 2 agents with room for 6, {strategy}", "answers", "1/s", result[strategy]["answers_per_s"])
                bench.sample(f"20 models, 2 agents with room for 6, {strategy}", "p99", "ms", result[strategy]["p99_ms"])
            bench.sample_ratio("p99: cost / basic", result["cost"]["p99_ms"] / result["basic"]["p99_ms"])


def measure_many(options, models, bench):
    names = [f"s{i}" for i in range(1000)]
    models.deploy("small", names)  # 4 MB
    with Serving(options, models.dir, 10 * 5 * MIB, {"cost": []}) as serving:
        order = names * 2
        for _ in range(options.rounds):
            times = []
            for name in random.Random(1).sample(order, 300):
                seconds, _ = serving.infer("cost", name, [1, 512])
                times.append(1000 * seconds)
            times.sort()
            bench.sample("1000 models, 10 resident, cold", "p50", "ms", times[len(times) // 2])
            bench.sample("1000 models, 10 resident, cold", "p99", "ms", times[len(times) * 99 // 100])
            bench.sample_ratio("1000 models: p99 / p50 of cold requests", times[len(times) * 99 // 100] / times[len(times) // 2], most=3)


def private_bytes(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        found = dict(re.findall(r"^(\w+): +(\d+) kB", file.read(), re.M))
    return 1024 * (int(found["Private_Dirty"]) + int(found["Private_Clean"]))


def measure_memory(options, models, bench):
    names = [f"k{i}" for i in range(20)]
    models.deploy("small", names)
    with Serving(options, models.dir, 8 * 5 * MIB, {"cost": []}) as serving:
        worker = serving.workers["cost"][0].child.pid

        def load(count):
            for i in range(count):
                serving.infer("cost", names[i % len(names)], [1, 512])

        load(20)
        early = private_bytes(worker)
        load(1000)
        late = private_bytes(worker)
        bench.sample("private memory of a worker, 20 loads", "memory", "B", early)
        bench.sample("private memory of a worker, 1020 loads", "memory", "B", late)
        bench.sample_ratio("memory after 1020 loads / after 20", late / early, most=1.02)


# ---- The whole -------------------------------------------------------------------------------------------------


def add_arguments(parser):
    parser.set_defaults(seconds=0, warm_up=0)
    add = parser.add_argument
    add("--part", choices=("all", *PARTS), default="all", help="what is measured")
    add("--models", type=number("models", 1, 10**6), default=100, help="of zipf")
    add("--pool-models", type=number("pool-models", 1, 10**6), default=10, help="of zipf: so many fit into the pool")
    add("--requests", type=number("requests", 1, 10**9), default=400, help="of zipf, a round")
    add("--pixels", type=number("pixels", 1, 4096), default=224, help="of ResNet-50")
    add("--timeline", metavar="FILE", help="of cold: write an SVG with transfers and layers")


def run(bench):
    options = bench.options
    options.folder = bench.folder
    for part in PARTS:
        if options.part in ("all", part):
            models = Models(options, os.path.join(bench.folder, part))
            os.mkdir(models.folder)
            globals()[f"measure_{part}"](options, models, bench)
    return "one worker on a core of its own; gateway, storage, agent and client share the others"


if __name__ == "__main__":
    driver.run_program(lambda argv: driver.main(["serve", *argv]))
