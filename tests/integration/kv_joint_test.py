#!/usr/bin/env python3
"""Jobs of processes that are servers and workers at once, with barriers of all groups and messages; and
what waits when one of them is killed."""

import signal

import harness

VARIABLES = {"PS_HEARTBEAT_TIMEOUT": "2", "NETWORK_PS_CORE_NUMBER": "1"}


class KvJoint(harness.StarlingTest):
    def start_part(self, role, rank, port, *more, servers=2, workers=3):
        return self.start("kv_joint", role, str(rank), str(port), str(servers), str(workers), *more, env=VARIABLES)

    def test_joint_processes_and_a_worker(self):
        port, = harness.free_ports(1)
        parts = [("worker", 2), ("joint", 1), ("scheduler", 0), ("joint", 0)]
        processes = [self.start_part(role, rank, port) for role, rank in parts]
        self.end_well(processes)
        for (role, rank), process in zip(parts, processes):
            self.assertIn(f"{role}/{rank} is done", process.output)

    def wait_all(self):
        port, = harness.free_ports(1)
        self.parts = {name: self.start_part(*name.split("/"), port, "wait", workers=2)
                      for name in ("scheduler/0", "joint/0", "joint/1")}
        for name, process in self.parts.items():
            process.wait_line(f"{name} waits")

    def test_killed_server_ends_all_waits_by_name(self):
        self.wait_all()
        self.parts["joint/1"].signal(signal.SIGKILL)
        for name in ("scheduler/0", "joint/0"):
            process = self.parts[name]
            process.wait_line(f"{name} message: closed: ")
            process.wait_line(f"{name} barrier: closed: ")
            self.assertRegex(process.output, rf"{name} message: closed: .*ps/1")
            self.assertRegex(process.output, rf"{name} barrier: closed: .*(ps|worker)/1 ")

    def test_killed_scheduler_ends_all_waits(self):
        self.wait_all()
        self.parts["scheduler/0"].signal(signal.SIGKILL)
        process = self.parts["joint/0"]
        process.wait_line("joint/0 message: closed: ")
        self.assertRegex(process.output, r"joint/0 message: closed: .*ps/1")


if __name__ == "__main__":
    harness.main()
