"""units_run.py UNITS ETC BIN STATE: every unit of the folder UNITS as systemd starts it, two instances of each template,
with the configuration of ETC, in which every example is no comment any more. No systemd is needed, and Python alone: the
packages' test runs it in a fresh system. The addresses of the examples must be those of this host.

Paths of the units are below /usr/bin, /etc/starling and /var/lib (%S): here BIN, ETC and STATE. As root, processes are of
the user that the units name, if there is one."""

import glob
import os
import pwd
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

DEADLINE_S = 120
INSTANCES = {"starling-agent@": ("default", "second")}  # an instance is a name; of others a number
ORDER = ["starling-ps@", "starling-catalogue@", "starling-keeper@", "starling-agent@", "starling-gateway@", "starling-serve-worker@"]


def uncomment(etc):
    """Makes settings of the examples of the configuration. A file of its own for an instance is in a comment too."""
    path = os.path.join(etc, "starling.conf")
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    found, name = 0, None
    for index, line in enumerate(lines):
        if name is not None:
            with open(os.path.join(etc, name), "w", encoding="utf-8") as file:
                file.write(line.removeprefix("; ") + "\n")
        of_instance = re.match(r"; .* in /etc/starling/([a-z]+-1\.env):$", line)
        name = of_instance[1] if of_instance else None
        if re.match(r"; ([a-z-]+ = |    )", line):
            # This host has less memory than a server of a job.
            lines[index] = re.sub(r"\d+G$", "512M", line[2:]).replace("/etc/starling", etc)
            found += 1
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines).replace("/var/lib", os.path.dirname(etc) + "/var/lib" if etc != "/etc/starling" else "/var/lib") + "\n")
    path = os.path.join(etc, "scheduler.env")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    with open(path, "w", encoding="utf-8") as file:
        file.write(re.sub("^#(?=[A-Z_]+=)", "", text, flags=re.MULTILINE))
    return found


def sections(path):
    """[Service] of a unit: a list of (key, value)."""
    with open(path, encoding="utf-8") as file:
        inside = re.search(r"^\[Service\]\n(.*?)(?=^\[|\Z)", file.read(), re.MULTILINE | re.DOTALL)[1]
    return [tuple(line.split("=", 1)) for line in inside.splitlines() if "=" in line and not line.startswith("#")]


class Unit:
    def __init__(self, units, etc, programs, state, name, instance):
        self.name = f"{name}{instance}" if name.endswith("@") else name
        settings = sections(os.path.join(units, "starling-.service.d/common.conf")) + sections(os.path.join(units, f"{name}.service"))

        def here(text):
            text = text.replace("%i", instance).replace("%S", state)
            return text.replace("/etc/starling", etc).replace("/usr/bin", programs)

        env = {"PATH": os.environ["PATH"], "NOTIFY_SOCKET": f"@starling-units-{os.getpid()}-{self.name}"}
        for key, value in settings:
            if key == "Environment":
                env.update([here(value).split("=", 1)])
            elif key == "EnvironmentFile":
                self.read(here(value), env)
        value = dict(settings)
        self.user = value["User"]
        options = shlex.split(env.pop("OPTIONS", ""))
        command = [word for part in here(value["ExecStart"]).split() for word in (options if part == "$OPTIONS" else [part])]
        self.reload = value.get("ExecReload")
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.manager.bind("\0" + env["NOTIFY_SOCKET"][1:])
        self.manager.settimeout(DEADLINE_S)
        folder = here(value["WorkingDirectory"])
        os.makedirs(folder, exist_ok=True)
        as_user = {}
        if os.getuid() == 0 and self.user in (entry.pw_name for entry in pwd.getpwall()):
            as_user = {"user": self.user, "group": value["Group"], "extra_groups": []}
            shutil.chown(folder, self.user, value["Group"])  # StateDirectory
        self.log = open(os.path.join(state, f"{self.name}.log"), "w+", encoding="utf-8")
        self.child = subprocess.Popen(command, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, umask=0o077, **as_user)

    @staticmethod
    def read(path, env):
        optional = path.startswith("-")
        path = path.removeprefix("-")
        if optional and not os.path.exists(path):
            return
        with open(path, encoding="utf-8") as file:
            env.update(line.rstrip("\n").split("=", 1) for line in file if "=" in line and line[0] != "#")

    def output(self):
        self.log.seek(0)
        return self.log.read()

    def fail(self, why):
        raise SystemExit(f"{self.name} {why}:\n{self.output()}")

    def wait_ready(self):
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            if self.child.poll() is not None:
                self.fail(f"ended with {self.child.returncode} before it was ready")
            if select.select([self.manager], [], [], 0.2)[0] and "READY=1" in self.manager.recv(4096).decode().split("\n"):
                print(f"{self.name} is ready", flush=True)
                return
        self.fail("is not ready")

    def stop(self):
        self.child.send_signal(signal.SIGTERM)
        if self.child.wait(DEADLINE_S) != 0:
            self.fail(f"ended with {self.child.returncode} after SIGTERM")


def wait_for(what, check):
    end = time.monotonic() + DEADLINE_S
    while not check():
        if time.monotonic() > end:
            raise SystemExit(f"no {what}")
        time.sleep(0.2)


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status == 200
    except OSError:
        return False


def main(units, etc, programs, state):
    names = {os.path.basename(path)[:-len(".service")] for path in glob.glob(os.path.join(units, "starling-*.service"))}
    if names != {*ORDER, "starling-scheduler"}:
        raise SystemExit(f"no order for {names ^ {*ORDER, 'starling-scheduler'}}")
    found = uncomment(etc)
    print(f"{found} examples")
    started = []
    try:
        for name in ORDER:
            group = [Unit(units, etc, programs, state, name, instance) for instance in INSTANCES.get(name, "01")]
            started += group  # servers wait for each other
            for unit in group:
                unit.wait_ready()
        for gateway in ("127.0.0.1:8080", "127.0.0.1:8081"):
            wait_for(f"answer of {gateway}", lambda: answers(f"http://{gateway}/v2/health/live"))  # pylint: disable=cell-var-from-loop
        for unit in started:
            if unit.reload != "/bin/kill -HUP $MAINPID":
                unit.fail(f"has ExecReload={unit.reload}")
            unit.child.send_signal(signal.SIGHUP)
        for unit in reversed(started):
            unit.stop()
        started = [Unit(units, etc, programs, state, "starling-scheduler", "")]
        started[0].wait_ready()
        started[0].stop()
        started = []
    finally:
        for unit in started:
            unit.child.kill()
    print("all units ran")


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
