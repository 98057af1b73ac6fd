"""Everything that a run needs, from the cache or made now: the kernel, the accelerator that works here,
and a machine that was saved when it had started, so that a run resumes it instead of booting."""

import collections
import glob
import hashlib
import os
import shutil
import time

import cache
import kernel
import machine

KVM_BOOT_S = 20

# plan: machine.Plan; saved: descriptor of the file of a saved machine, or None.
Ready = collections.namedtuple("Ready", "plan saved")


def check_host():
    for program, package in (("qemu-system-x86_64", "qemu-system-x86"), ("busybox", "busybox-static"),
                             ("setpriv", "util-linux"), ("rdma", "iproute2"), ("perl", "perl-base")):
        cache.require(program, package)
    if not glob.glob("/usr/lib/*/libibverbs/librxe-rdmav*.so"):
        raise cache.Missing("there is no verbs provider for rxe: "
                            "apt-get install --no-install-recommends ibverbs-providers")


def _boots(plan, seconds):
    trial = machine.Machine(plan)
    try:
        trial.start()
        trial.expect("ready", time.monotonic() + seconds)
        return True
    except cache.Broken:
        return False
    finally:
        trial.end()


def _choose_accelerator(folder, plan):
    """Into the plan. /dev/kvm is believed when this kernel has booted with it; remembered for the host's kernel."""
    answer = os.path.join(folder, f"accelerator-{os.uname().release}")
    if not os.path.exists(answer):
        plan.accelerator = "kvm"
        works = os.access("/dev/kvm", os.R_OK | os.W_OK) and _boots(plan, KVM_BOOT_S)
        with open(answer, "w", encoding="ascii") as file:
            file.write("kvm" if works else "tcg")
    with open(answer, encoding="ascii") as file:
        plan.accelerator = file.read()


def _saved_name(plan):
    """Changes with everything that the saved state depends on."""
    qemu = os.stat(shutil.which("qemu-system-x86_64"))
    parts = [*plan.devices(), str(qemu.st_size), str(qemu.st_mtime_ns), *kernel.version(plan.kernel)]
    digest = hashlib.sha256(plan.first_files)
    with open(machine.__file__, "rb") as code:
        digest.update(code.read())
    digest.update("\0".join(parts).encode())
    return f"saved-rxe-{plan.cpus}x{plan.memory_mb}-{digest.hexdigest()[:16]}"


def _save(plan, path, boot_s):
    fresh = path + ".new"
    booted = machine.Machine(plan)
    deadline = time.monotonic() + boot_s
    try:
        booted.start()
        booted.expect("ready", deadline)
        booted.monitor.save(fresh, deadline)
    finally:
        booted.end()
    for older in glob.glob(glob.escape(path.rsplit("-", 1)[0]) + "-*[0-9a-f]"):
        os.remove(older)
    os.rename(fresh, path)


def _open_saved(folder, plan, boot_s):
    if plan.accelerator == "kvm":
        return None  # boots in little more time, and a saved one would hold for this very processor
    path = os.path.join(folder, _saved_name(plan))
    if not os.path.exists(path):
        try:
            _save(plan, path, boot_s)
        except cache.Broken as error:
            cache.say(f"cannot save a machine, so each run boots one: {error}")
            return None
    return os.open(path, os.O_RDONLY)


def ready(cpus, memory_mb, budget_s, boot_s):
    """Missing says what the host lacks; Broken, what went wrong."""
    check_host()
    with cache.locked() as folder:
        budget = cache.budget(budget_s)
        from_kernel = kernel.prepare(folder, budget)
        files = kernel.first_files(from_kernel)
        plan = machine.Plan(from_kernel, files, "tcg", cpus, memory_mb)
        _choose_accelerator(folder, plan)
        return Ready(plan, _open_saved(folder, plan, boot_s))
