"""Real daemons for the tests of starling-launch: an sshd with two addresses, and a Slurm of two nodes. Each keeps
all that it reads and writes in the directory of the test, and ends with it. A daemon that cannot start skips the
tests, with its last log line."""

import os
import re
import shutil
import socket
import subprocess
import time
import unittest

import harness

HOSTS = ("127.0.0.1", "127.0.0.2")  # both are this machine


def need(*names):
    """Paths of the programs, also of those that only root usually runs; skips the tests where one is missing."""
    path = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"
    found = [shutil.which(name, path=path) for name in names]
    missing = [name for name, where in zip(names, found) if where is None]
    if missing:
        raise unittest.SkipTest(f"not installed: {', '.join(missing)}")
    return found


class Daemons:
    """Processes that end when the test does, in the order opposite to that of their start."""

    def __init__(self, folder):
        self.folder = folder
        self.env = {}
        self._all = []

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, text, mode=0o600):
        with open(self.path(name), "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(text if isinstance(text, bytes) else text.encode())
        return self.path(name)

    def start(self, is_up, program, *args):
        """Starts a daemon, which logs to its standard error, and waits until is_up()."""
        daemon = harness.Process(program, list(args), env=self.env, cwd=self.folder)
        self._all.append(daemon)
        end = time.monotonic() + harness.DEADLINE_S
        while not is_up():
            if not daemon.running() or time.monotonic() > end:
                daemon.end()
                lines = [line for line in daemon.lines if line.strip()]
                self.stop()
                raise unittest.SkipTest(f"{program} does not start: {lines[-1] if lines else 'without a word'}")
            time.sleep(0.02)
        return daemon

    def stop(self):
        while self._all:
            self._all.pop().end()


def listens(port, hosts=HOSTS):
    for host in hosts:
        try:
            socket.create_connection((host, port), timeout=1).close()
        except OSError:
            return False
    return True


class Sshd(Daemons):
    """An sshd at a port of both hosts; `ssh` is the client's command."""

    def __init__(self, folder):
        super().__init__(folder)
        sshd, client, keygen = need("sshd", "ssh", "ssh-keygen")
        for key in ("host_key", "client_key"):
            subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", self.path(key)], check=True)
        if os.getuid() == 0:  # a folder that sshd has compiled in, and that its package makes
            os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        port = harness.free_ports(1)[0]
        self.write("sshd_config", "".join(f"ListenAddress {host}\n" for host in HOSTS) + f"""
Port {port}
HostKey {self.path("host_key")}
AuthorizedKeysFile {self.path("client_key.pub")}
PidFile none
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
MaxStartups 100
""")
        with open(self.path("host_key.pub"), encoding="ascii") as file:
            key = file.read()
        self.write("known_hosts", "".join(f"[{host}]:{port} {key}" for host in HOSTS))
        config = self.write("ssh_config", f"""
Port {port}
IdentityFile {self.path("client_key")}
IdentitiesOnly yes
UserKnownHostsFile {self.path("known_hosts")}
StrictHostKeyChecking yes
BatchMode yes
""")
        self.daemon = self.start(lambda: listens(port), sshd, "-D", "-e", "-f", self.path("sshd_config"))
        self.ssh = f"{client} -F {config}"


class Slurm(Daemons):
    """munged, slurmctld and a slurmd for each host; the nodes are named by their addresses. `env` names the
    configuration for Slurm's programs."""

    def __init__(self, folder):
        super().__init__(folder)
        munged, slurmctld, slurmd, self.srun, self.salloc, self.sbatch, self.scancel, sinfo, _ = need(
            "munged", "slurmctld", "slurmd", "srun", "salloc", "sbatch", "scancel", "sinfo", "scontrol")
        os.chmod(folder, 0o755)
        os.makedirs(self.path("munge"), mode=0o755)
        os.makedirs(self.path("state"))
        self.write("munge.key", os.urandom(1024), 0o400)
        munge = self.path("munge", "socket")
        self.start(lambda: os.path.exists(munge), munged, "--foreground", "--force", f"--key-file={self.path('munge.key')}",
                   f"--socket={munge}", f"--pid-file={self.path('munge', 'pid')}",
                   f"--log-file={self.path('munge', 'log')}", f"--seed-file={self.path('munge', 'seed')}")
        port, *ports = harness.free_ports(1 + len(HOSTS))
        user = subprocess.run(["id", "-un"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        nodes = "".join(f"NodeName={host} NodeAddr={host} NodeHostname={socket.gethostname().split('.')[0]} Port={own} "
                        "CPUs=16 State=UNKNOWN\n" for host, own in zip(HOSTS, ports))
        config = self.write("slurm.conf", f"""
ClusterName=test
SlurmctldHost=localhost({HOSTS[0]})
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={munge}
CredType=cred/munge
StateSaveLocation={self.path("state")}
SlurmdSpoolDir={self.path("spool-%n")}
SlurmctldPidFile={self.path("slurmctld.pid")}
SlurmdPidFile={self.path("slurmd-%n.pid")}
SlurmdParameters=config_overrides
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
KillWait=10
ReturnToService=2
{nodes}PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
""")
        self.env["SLURM_CONF"] = config
        self.start(lambda: listens(port, HOSTS[:1]), slurmctld, "-D", "-f", config)
        for host, own in zip(HOSTS, ports):
            self.start(lambda own=own: listens(own, HOSTS[:1]), slurmd, "-D", "-N", host, "-f", config)

        def idle():
            said = subprocess.run([sinfo, "--noheader", "--format=%D %t"], env={**os.environ, **self.env},
                                  stdout=subprocess.PIPE, text=True, check=False).stdout
            return said.split() == [str(len(HOSTS)), "idle"]
        end = time.monotonic() + harness.DEADLINE_S
        while not idle():
            if time.monotonic() > end:
                self.stop()
                raise unittest.SkipTest("the nodes of Slurm do not become idle")
            time.sleep(0.05)


def servers(port):
    """The process ids of the servers of a job, one of which listens at the port."""
    commands = {int(pid): command(int(pid)) for pid in os.listdir("/proc") if pid.isdigit()}
    return [pid for pid, words in commands.items()
            if words.startswith(harness.program("starling-ps")) and re.search(rf":{port}\b", words)]


def command(pid):
    return " ".join(harness.command_of(pid))


class JobTest(harness.StarlingTest):
    """Tests of jobs that these daemons start."""

    def pid(self, rank):
        """Of the command of a worker, once it runs."""
        path = os.path.join(self.folder, f"pid-{rank}")
        end = time.monotonic() + harness.DEADLINE_S
        while time.monotonic() < end:
            if os.path.exists(path):
                with open(path, encoding="ascii") as file:
                    if text := file.read().strip():
                        return int(text)
            time.sleep(0.02)
        self.fail(f"worker {rank} does not run")

    def are_gone(self, pids):
        end = time.monotonic() + harness.DEADLINE_S
        while left := [words for words in map(command, pids) if words]:
            self.assertLess(time.monotonic(), end, f"still there: {left}")
            time.sleep(0.02)
