"""One virtual machine: QEMU's arguments, the conversation with the init inside it, and its end."""

import io
import os
import selectors
import socket
import subprocess
import tarfile
import time

import cache
import monitor

SHARES_MAX = 4
CONSOLE_BYTES_MAX = 1 << 20
LAST_WORDS_LINES = 15

BOOT = ("console=ttyS0 quiet panic=-1 oops=panic mitigations=off nokaslr tsc=reliable clocksource=tsc "
        "nowatchdog rcupdate.rcu_expedited=1 cryptomgr.notests")
ACCELERATORS = {"kvm": ["-accel", "kvm", "-cpu", "host"],
                "tcg": ["-accel", "tcg,thread=multi", "-cpu", "max,la57=off"]}


class Plan:
    """What a machine is made of."""

    def __init__(self, kernel, first_files, accelerator, cpus, memory_mb):
        self.kernel = kernel
        self.first_files = first_files
        self.accelerator = accelerator
        self.cpus = cpus
        self.memory_mb = memory_mb

    def devices(self):
        """What the guest sees. A machine that was saved can be resumed only by one that has the same,
        so the shares and the network device are there whether a job uses them or not."""
        arguments = ["-machine", "q35", "-smp", str(self.cpus), "-m", str(self.memory_mb),
                     *ACCELERATORS[self.accelerator], "-append", BOOT, "-serial", "chardev:console",
                     "-device", "virtio-serial-pci"]
        for number, name in enumerate(("output", "errors", "talk"), 1):
            arguments += ["-device", f"virtserialport,chardev={name},nr={number}"]
        for tag in ["root"] + [f"share{i}" for i in range(SHARES_MAX)]:
            arguments += ["-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
        return arguments + ["-device", "virtio-net-pci,netdev=net,romfile="]


class Machine:
    """QEMU and the pipes to it. Nothing of it is in the file system, and the kernel kills QEMU when
    this process ends, however it does."""

    def __init__(self, plan):
        self.plan = plan
        self.console = b""
        self.complaints = b""
        self.lines = []
        self.half_line = b""
        self.lent = []
        self.selector = selectors.DefaultSelector()
        self.process = self.talk = self.monitor = self.nowhere = None

    def _lend(self, fd):
        """A descriptor of ours for QEMU; closed here once QEMU runs."""
        self.lent.append(fd)
        return fd

    def _pipe(self, take):
        """The end of a pipe that QEMU writes to; take(bytes) gets what comes out."""
        reading, writing = os.pipe()
        self.selector.register(reading, selectors.EVENT_READ, take)
        return self._lend(writing)

    def _pair(self):
        """Our end of a pair of sockets, and the number of QEMU's."""
        ours, theirs = socket.socketpair()
        return ours, self._lend(theirs.detach())

    def _take_talk(self, data):
        *whole, self.half_line = (self.half_line + data).split(b"\n")
        self.lines += [line.decode(errors="replace") for line in whole]

    def _take_console(self, data):
        self.console = (self.console + data)[-CONSOLE_BYTES_MAX:]

    def _take_complaints(self, data):
        self.complaints = (self.complaints + data)[-CONSOLE_BYTES_MAX:]

    def _conversation(self):
        arguments = []
        takers = {"output": _writer_to(1), "errors": _writer_to(2), "console": self._take_console}
        for name, take in takers.items():
            arguments += ["-chardev", f"file,id={name},path=/proc/self/fd/{self._pipe(take)}"]
        self.talk, talk = self._pair()
        self.selector.register(self.talk, selectors.EVENT_READ, self._take_talk)
        monitored, monitoring = self._pair()
        self.monitor = monitor.Monitor(monitored)
        return arguments + ["-chardev", f"socket,id=talk,fd={talk}",
                            "-chardev", f"socket,id=monitor,fd={monitoring}",
                            "-mon", "chardev=monitor,mode=control"]

    def _backends(self, shares, network):
        """What the guest's devices lead to: `network` is a socket, connected to another machine's."""
        common = "security_model=none,multidevs=remap"
        arguments = ["-fsdev", f"local,id=root,path=/,{common},readonly=on"]
        for i in range(SHARES_MAX):
            used = i < len(shares)
            path = (shares[i] if used else self.plan.kernel).replace(",", ",,")
            access = "" if used else ",readonly=on"
            arguments += ["-fsdev", f"local,id=share{i},path={path},{common}{access}"]
        if network is None:
            self.nowhere, network = socket.socketpair()
        return arguments + ["-netdev", f"socket,id=net,fd={self._lend(network.detach())}"]

    def start(self, shares=(), network=None, saved=None):
        """Starts QEMU; with `saved`, a file descriptor, it resumes what was saved there."""
        first_files = os.memfd_create("first-files")
        _writer_to(first_files)(self.plan.first_files)
        resume = ["-incoming", f"fd:{self._lend(saved)}"] if saved is not None else []
        command = ["setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64", "-nodefaults",
                   "-no-user-config", "-display", "none", "-no-reboot",
                   "-kernel", os.path.join(self.plan.kernel, "kernel"),
                   "-initrd", f"/proc/self/fd/{self._lend(first_files)}",
                   *self._conversation(), *self.plan.devices(), *self._backends(shares, network), *resume]
        complaints = self._pipe(self._take_complaints)
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=complaints,
                                        stderr=complaints, pass_fds=self.lent)
        for fd in self.lent:
            os.close(fd)

    def pump(self, seconds):
        """Carries what the machine says; False when there was nothing to carry."""
        events = self.selector.select(max(seconds, 0))
        for key, _ in events:
            try:
                data = os.read(key.fd, 65536)
            except ConnectionResetError:
                data = b""
            if data:
                key.data(data)
            else:
                self.selector.unregister(key.fd)
        return bool(events)

    def _drain(self):
        while self.selector.get_map() and self.pump(0):
            pass

    def next_line(self, deadline):
        """What init says next; None when the deadline (of time.monotonic) passes."""
        while not self.lines:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            ended = self.process.poll() is not None
            self._drain() if ended else self.pump(min(left, 0.1))
            if ended and not self.lines:
                raise cache.Broken("the virtual machine ended")
        line = self.lines.pop(0)
        if line.startswith("failed "):
            raise cache.Broken(line.removeprefix("failed ") + " in the virtual machine")
        return line

    def expect(self, wanted, deadline):
        line = self.next_line(deadline)
        if line != wanted:
            said = "nothing" if line is None else repr(line)
            raise cache.Broken(f"the virtual machine said {said} where '{wanted}' was due")

    def give(self, job):
        """Sends the job: file names, and their contents (bytes)."""
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for name, data in job.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
        self.talk.sendall(b"%d\n" % len(out.getvalue()) + out.getvalue())

    def last_words(self):
        text = (self.complaints + self.console).decode(errors="replace").replace("\r", "")
        lines = [line for line in text.split("\n") if line.strip()]
        return "\n".join(lines[-LAST_WORDS_LINES:]) or "none"

    def end(self):
        """Ends QEMU at once, and carries what was said before."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            self.process.wait()
        self._drain()


def _writer_to(fd):
    def write(data):
        while data:
            data = data[os.write(fd, data):]
    return write
