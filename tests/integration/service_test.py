#!/usr/bin/env python3
"""Servers and schedulers as services: the messages to a service manager, on a socket of its kind; and the units."""

import glob
import os
import shutil
import signal
import socket
import subprocess

import harness

UNITS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../share/systemd")


class Notify(harness.StarlingTest):
    def manager(self, address):
        """A socket of a service manager; bound."""
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(manager.close)
        manager.settimeout(harness.DEADLINE_S)
        manager.bind(address)
        return manager

    def messages(self, manager, until):
        """Those that arrive, as dictionaries, up to one with the name `until`."""
        messages = []
        while not messages or until not in messages[-1]:
            lines = manager.recv(4096).decode().split("\n")
            messages.append(dict(line.split("=", 1) for line in lines))
        return messages

    def check(self, address, variable, *flags, ready, env=None):
        """A process is ready, and stops at SIGTERM."""
        manager = self.manager(address)
        process = self.start("starling-ps", *flags, env={"NOTIFY_SOCKET": variable, **(env or {})})
        message = self.messages(manager, "READY")[-1]
        self.assertEqual(message["READY"], "1")
        line = process.wait_line(" ready: ")
        self.assertEqual(message["STATUS"], "serves: " + line.split(" ready: ")[1])
        self.assertRegex(message["STATUS"], ready)
        process.signal(signal.SIGTERM)
        messages = self.messages(manager, "STOPPING")
        self.assertEqual(messages[-1]["STOPPING"], "1")
        self.assertFalse([message for message in messages if "EXTEND_TIMEOUT_USEC" in message])  # it has started
        process.wait()
        return process

    def test_server(self):
        """Over a path, and over an abstract name."""
        path, name = os.path.join(self.folder, "notify"), f"starling-test-notify-{os.getpid()}"
        for address, variable in ((path, path), (f"\0{name}", f"@{name}")):
            port = harness.free_ports(1)[0]
            process = self.check(address, variable, "--ps-hosts", f"127.0.0.1:{port}", "--num-workers", 1,
                                 "--reactors", 2,
                                 ready=rf"^serves: control tcp://127.0.0.1:{port}, .*shards 0-1 of 2")
            self.assertEqual(process.wait(), 0, process.output)

    def test_scheduler(self):
        name = f"starling-test-scheduler-{os.getpid()}"
        job = {"DMLC_ROLE": "scheduler", "DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_NUM_SERVER": "1", "DMLC_NUM_WORKER": "1",
               "DMLC_PS_ROOT_PORT": str(harness.free_ports(1)[0])}
        self.check(f"\0{name}", f"@{name}", ready="^serves: control tcp://127.0.0.1:", env=job)

    def test_start_takes_longer(self):
        """A server that waits for another one asks for more time, with the reason, until it is ready."""
        name = f"starling-test-start-{os.getpid()}"
        manager = self.manager(f"\0{name}")
        ports = harness.free_ports(2)
        flags = ["--ps-hosts", f"127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}", "--num-workers", 1, "--reactors", 1]
        servers = [self.start("starling-ps", *flags, "--task-index", 0, env={"NOTIFY_SOCKET": f"@{name}"})]
        message = {"STATUS": ""}
        while "ps/1" not in message["STATUS"]:
            message = self.messages(manager, "EXTEND_TIMEOUT_USEC")[-1]
            self.assertNotIn("READY", message)
            self.assertGreater(int(message["EXTEND_TIMEOUT_USEC"]), 1000000)
        servers.append(self.start("starling-ps", *flags, "--task-index", 1))
        self.messages(manager, "READY")
        self.drain(servers)

    def test_watchdog(self):
        """It is fed while all reactors answer."""
        name = f"starling-test-watchdog-{os.getpid()}"
        manager = self.manager(f"\0{name}")
        server = self.start("starling-ps", "--ps-hosts", f"127.0.0.1:{harness.free_ports(1)[0]}", "--num-workers", 1,
                            "--reactors", 2, env={"NOTIFY_SOCKET": f"@{name}"})
        self.messages(manager, "READY")
        for _ in range(2):
            message = self.messages(manager, "WATCHDOG")[-1]
            self.assertEqual(message, {"WATCHDOG": "1"})
        self.drain([server])

    def test_socket_that_nobody_reads(self):
        """The server serves all the same, and logs the reason."""
        for variable, reason in (("nonsense", "invalid"), ("/no/such/socket", "not found")):
            port = harness.free_ports(1)[0]
            process = self.start("starling-ps", "--ps-hosts", f"127.0.0.1:{port}", "--num-workers", 1, "--reactors", 1,
                                 env={"NOTIFY_SOCKET": variable})
            process.wait_line(f"NOTIFY_SOCKET={variable}: {reason}; accepts a path")
            self.drain([process])


class Units(harness.StarlingTest):
    def verify(self, change=lambda text: text):
        """What systemd-analyze has to say about the units, changed, with the programs of this build."""
        analyze = shutil.which("systemd-analyze")
        if analyze is None:
            self.skipTest("systemd-analyze is not installed: apt-get install systemd")
        for path in sorted(glob.glob(os.path.join(UNITS, "**"), recursive=True)):
            name = os.path.relpath(path, UNITS)
            if os.path.isdir(path):
                os.makedirs(os.path.join(self.folder, name), exist_ok=True)
                continue
            with open(path, encoding="utf-8") as file:
                text = change(file.read().replace("/usr/bin/", os.path.abspath(harness.BIN) + "/"))
            for instance in ("@0.", "@1."):
                self.file(name.replace("@.", instance), text)
        units = sorted(os.path.basename(path) for path in glob.glob(os.path.join(self.folder, "*.[st]*[!d]")))
        self.assertEqual(len(units), 14)  # two of each of six templates
        done = subprocess.run([analyze, "verify", "--man=no", *units], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={**os.environ, "SYSTEMD_UNIT_PATH": self.folder + ":"}, text=True, check=False)
        return "\n".join(line for line in done.stdout.splitlines() if self.folder in line or "starling" in line)

    def test_units(self):
        self.assertEqual(self.verify(), "")

    def test_mistakes_are_found(self):
        for right in ("WatchdogSec", "UMask"):  # of a unit, of the file that all share
            self.assertIn(f"{right}s", self.verify(lambda text: text.replace(right, f"{right}s")))  # pylint: disable=cell-var-from-loop
        self.assertIn("starling-pt", self.verify(lambda text: text.replace("starling-ps --config", "starling-pt --config")))


if __name__ == "__main__":
    harness.main()
