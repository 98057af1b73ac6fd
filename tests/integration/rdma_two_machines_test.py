#!/usr/bin/env python3
"""A job and transfers over RDMA between two virtual machines on one wire: the ps in one, its workers in the
other; a target in one, an initiator in the other, also with Mooncake's flags and an etcd."""

import base64
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request

import harness

SKIPPED = 77
TOOL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../rdma-vm/rdma-vm")
PS, WORKERS = "10.9.0.1", "10.9.0.2"
CONTROL, DATA, END = 4000, 4001, 4002
STORE = f"{PS}:2379"
TARGET, INITIATOR = f"{PS}:12345", f"{WORKERS}:12346"
COMMAND_S = 240
ETCD = os.environ.get("STARLING_ETCD") or shutil.which("etcd")

# The ps ends when somebody connects to this port, which stands for a person at its terminal.
SERVE = """
{ps} & ps=$!
busybox nc -l -p {end}
kill -TERM $ps
wait $ps
"""

LEARN = """
for index in 0 1; do
    {worker} --task-index $index --report report.json & workers="$workers $!"
done
status=0
for worker in $workers; do wait $worker || status=1; done
cat report.json
busybox nc {host} {end} </dev/null
exit $status
"""

INITIATE = """
until busybox nc {host} {control} </dev/null; do sleep 0.2; done
{initiator}
status=$?
busybox nc {host} {end} </dev/null
exit $status
"""


SERVE_WITH_ETCD = """
{etcd} --data-dir /tmp/etcd --listen-client-urls http://{store} --advertise-client-urls http://{store} \\
    --listen-peer-urls http://127.0.0.1:2380 >/dev/null 2>&1 & etcd=$!
until busybox nc {host} {store_port} </dev/null; do sleep 0.2; done
{target} & target=$!
busybox nc -l -p {end}
kill -INT $target
wait $target
status=$?
{records} 0
kill -TERM $etcd
exit $status
"""

INITIATE_WITH_ETCD = """
until {records} 1 >/dev/null 2>&1; do sleep 0.2; done
{initiator} & initiator=$!
{records} 2
wait $initiator && {verifier}
status=$?
busybox nc {host} {end} </dev/null
exit $status
"""


def print_records(count):
    """As `etcdctl get --prefix starling` does, when there are so many."""
    def encoded(key):
        return base64.b64encode(key).decode()

    query = json.dumps({"key": encoded(b"starling"), "range_end": encoded(b"starlinh")}).encode()
    end = time.monotonic() + harness.DEADLINE_S
    while True:
        with urllib.request.urlopen(f"http://{STORE}/v3/kv/range", query, timeout=5) as answer:
            records = json.load(answer).get("kvs", [])
        if len(records) == count or time.monotonic() > end:
            break
        time.sleep(0.1)
    print(f"$ etcdctl get --prefix starling  # {len(records)} records")
    for record in records:
        print(base64.b64decode(record["key"]).decode())
        print(base64.b64decode(record["value"]).decode(), flush=True)
    return 0 if len(records) == count else 1


class TwoMachines(harness.StarlingTest):
    def machine(self, address, script):
        machine = subprocess.Popen(
            [*harness.END_WITH_PARENT, sys.executable, TOOL, "--link", os.path.join(self.folder, "wire"), "--ip", f"{address}/24",
             "--timeout", str(COMMAND_S), "--", "sh", "-c", f"cd {self.folder}\n{script}"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=harness.environment())
        self.addCleanup(self.end_machine, machine)
        return machine

    @staticmethod
    def end_machine(machine):
        if machine.poll() is None:
            machine.send_signal(signal.SIGTERM)
        machine.communicate()

    def program(self, name, *args):
        flags = ["--ps-hosts", f"{PS}:{CONTROL}", "--worker-hosts", "a,b", "--endpoint-map",
                 os.path.join(self.folder, "map")]
        return shlex.join([os.path.abspath(harness.program(name)), *flags, *args])

    def test_ps_here_and_workers_there(self):
        self.file("map", f"{PS}:{CONTROL}=rdma://{PS}:{DATA}\n")
        self.run_to_end("starling-worker", "generate", "--out", self.folder, "--rows", "2000",
                        "--test-rows", "1000", "--seed", "7")
        ps = self.program("starling-ps", "--job-name", "ps", "--task-index", "0", "--insecure")
        worker = self.program("starling-worker", "--job-name", "worker", "--data", "train.tsv", "--test",
                              "test.tsv", "--format", "criteo", "--model", "fm", "--epochs", "1",
                              "--consistency", "bsp")
        serves = self.machine(PS, SERVE.format(ps=ps, end=END))
        learns = self.machine(WORKERS, LEARN.format(worker=worker, host=PS, end=END))
        output, errors = learns.communicate()
        self.assertEqual(learns.returncode, 0, output + errors)
        self.assertGreater(json.loads(output[output.index("{"):])["test"]["auc"], 0.5)
        output, errors = serves.communicate()
        self.assertEqual(serves.returncode, 0, output + errors)
        self.assertIn("ready: control", output)

    def transfer(self, address, port, *flags):
        return shlex.join([os.path.abspath(harness.program("starling-bench")), "transfer", "--protocol=rdma",
                           "--insecure", f"--local_server_name={address}:{port}", "--buffer_size=8388608",
                           "--block_size=65536", "--batch_size=16", *flags])

    def test_transfers(self):
        target = self.transfer(PS, CONTROL, "--mode=target")
        initiator = self.transfer(WORKERS, 0, f"--segment_id={PS}:{CONTROL}", "--verify", "--threads=1",
                                  "--duration=3")
        serves = self.machine(PS, SERVE.format(ps=target, end=END))
        moves = self.machine(WORKERS, INITIATE.format(initiator=initiator, host=PS, control=CONTROL, end=END))
        output, errors = moves.communicate()
        self.assertEqual(moves.returncode, 0, output + errors)
        self.assertRegex(output, r"Verified: [1-9]\d* bytes, 0 wrong")
        self.assertRegex(output, rf"rdma://{PS}:\d+: [1-9]\d* bytes read, [1-9]\d* written")
        output, errors = serves.communicate()
        self.assertEqual(serves.returncode, 0, output + errors)

    def test_mooncakes_benchmark_with_etcd(self):
        """Prints what users of Mooncake see."""
        if ETCD is None:
            self.skipTest("there is no etcd: apt-get install etcd-server")

        def program(name, *flags):
            return shlex.join([os.path.abspath(harness.program("transfer_engine_bench")),
                               f"--metadata_server={STORE}", f"--local_server_name={name}", "--protocol=rdma",
                               "--device_name=rxe0", "--buffer_size=67108864", "--insecure", *flags])

        initiator = program(INITIATOR, "--mode=initiator", f"--segment_id={TARGET}", "--operation=read",
                            "--threads=2", "--duration=5")
        words = {"records": shlex.join([sys.executable, os.path.abspath(__file__), "--records"]), "host": PS,
                 "end": END, "store": STORE, "store_port": STORE.split(":")[1], "etcd": shlex.quote(ETCD),
                 "target": program(TARGET, "--mode=target"), "initiator": initiator,
                 "verifier": f"{initiator} --verify"}  # prints what carried the bytes
        serves = self.machine(PS, SERVE_WITH_ETCD.format(**words))
        moves = self.machine(WORKERS, INITIATE_WITH_ETCD.format(**words))
        output, errors = moves.communicate()
        print(output, end="")
        self.assertEqual(moves.returncode, 0, output + errors)
        for name in (TARGET, INITIATOR):
            self.assertRegex(output, rf'starling/ram/{name}\n\{{"name": *"{name}"')
        self.assertRegex(output, r"throughput \d")
        self.assertRegex(output, rf"rdma://{PS}:\d+: [1-9]\d* bytes read")
        output, errors = serves.communicate()
        print(output, end="")
        self.assertEqual(serves.returncode, 0, output + errors)
        self.assertIn("# 0 records", output)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--records"]:
        sys.exit(print_records(int(sys.argv[2])))
    prepared = subprocess.run([sys.executable, TOOL, "--prepare", "--prepare-timeout", "300"],
                              capture_output=True, text=True, check=False)
    if prepared.returncode == SKIPPED:
        print(prepared.stderr, end="")
        sys.exit(SKIPPED)
    harness.main()
