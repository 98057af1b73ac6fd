#!/usr/bin/env python3
"""Servers and schedulers as services: the messages to a service manager, on a socket of its kind."""

import os
import signal
import socket

import harness


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

    def check(self, address, variable, *flags, ready):
        """A process is ready, and stops at SIGTERM."""
        manager = self.manager(address)
        process = self.start("starling-ps", *flags, env={"NOTIFY_SOCKET": variable})
        message = self.messages(manager, "READY")[-1]
        self.assertEqual(message["READY"], "1")
        line = process.wait_line(" ready: ")
        self.assertEqual(message["STATUS"], "serves: " + line.split(" ready: ")[1])
        self.assertRegex(message["STATUS"], ready)
        process.signal(signal.SIGTERM)
        self.assertEqual(self.messages(manager, "STOPPING")[-1]["STOPPING"], "1")
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

    def test_socket_that_nobody_reads(self):
        """The server serves all the same, and logs the reason."""
        for variable, reason in (("nonsense", "invalid"), ("/no/such/socket", "not found")):
            port = harness.free_ports(1)[0]
            process = self.start("starling-ps", "--ps-hosts", f"127.0.0.1:{port}", "--num-workers", 1, "--reactors", 1,
                                 env={"NOTIFY_SOCKET": variable})
            process.wait_line(f"NOTIFY_SOCKET={variable}: {reason}; accepts a path")
            self.drain([process])


if __name__ == "__main__":
    harness.main()
