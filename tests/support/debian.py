"""Debian's packages for tests: downloaded and unpacked into a folder that is kept between runs, not
installed."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import time


class Missing(Exception):
    """Something that this machine lacks: the caller skips, and says what to install."""


class Broken(Exception):
    """What was there, or was made of it, does not work."""


def cache(variable, name):
    """The folder that the variable names, else one of this name in the user's cache."""
    folder = os.environ.get(variable)
    if not folder:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        folder = os.path.join(base, name)
    return os.path.abspath(folder)


@contextlib.contextmanager
def locked(folder, variable):
    """The folder, while no other process prepares anything in it. variable: what names another."""
    try:
        os.makedirs(folder, exist_ok=True)
        lock = open(os.path.join(folder, "lock"), "w", encoding="ascii")
    except OSError as error:
        raise Missing(f"cannot write to {folder} ({error.strerror}): set {variable} to another folder") from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


@contextlib.contextmanager
def scratch(folder):
    """An empty folder in the cache, gone afterwards. The caller holds the lock, so one that is there
    was left by a process that was killed."""
    fresh = os.path.join(folder, "scratch")
    shutil.rmtree(fresh, ignore_errors=True)
    os.makedirs(fresh)
    try:
        yield fresh
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def require(program, package):
    if shutil.which(program) is None:
        raise Missing(f"there is no {program}: apt-get install --no-install-recommends {package}")


class Budget:
    """The time that preparing may take, all steps together."""

    def __init__(self, seconds, advice=""):
        self.seconds = seconds
        self.advice = advice
        self.end = time.monotonic() + seconds

    def run(self, command, **more):
        """Runs a command to its end; returns what it printed. Missing when the time is over."""
        left = self.end - time.monotonic()
        try:
            return subprocess.run(command, timeout=max(left, 0.001), check=True, text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, **more).stdout
        except subprocess.TimeoutExpired:
            raise Missing(f"fetching and unpacking take longer than {self.seconds:g} s{self.advice}") from None


class Archive:
    """Where apt-get downloads packages from."""

    def __init__(self, folder, budget):
        self.folder = folder
        self.budget = budget
        self.options = ["-qq", "-o", "APT::Sandbox::User=root"] if os.getuid() == 0 else ["-qq"]
        self.has_own_lists = False

    def _use_own_lists(self):
        """apt's lists may be absent, or older than the archive, and are not ours to write."""
        lists = os.path.join(self.folder, "lists")
        os.makedirs(os.path.join(lists, "partial"), exist_ok=True)
        self.options += ["-o", f"Dir::State::lists={lists}", "-o", "Dir::Cache::pkgcache=",
                         "-o", "Dir::Cache::srcpkgcache="]
        self.has_own_lists = True
        self.budget.run(["apt-get", *self.options, "update"])

    def _try(self, attempt):
        """What attempt() returns; once more with lists of our own when that is nothing."""
        reason = "it is not in the package lists"
        while True:
            try:
                found = attempt()
                if found:
                    return found
            except subprocess.CalledProcessError as error:
                reason = (error.stderr or "").strip().split("\n")[-1]
            if self.has_own_lists:
                raise Missing(reason)
            try:
                self._use_own_lists()
            except subprocess.CalledProcessError as error:
                raise Missing((error.stderr or reason).strip().split("\n")[-1]) from None

    def depends(self, package):
        """The first package that `package` depends on."""
        def look():
            printed = self.budget.run(["apt-cache", *self.options[1:], "depends", package])
            names = [line.split(":", 1)[1].strip() for line in printed.split("\n")
                     if line.strip().startswith("Depends:")]
            return names[0] if names else None
        try:
            return self._try(look)
        except Missing as missing:
            raise Missing(f"cannot find the package {package}: {missing}") from None

    def fetch(self, package, version=None):
        """The package's file, which stays in the directory: an attempt that fails later finds it there."""
        wanted = f"{package}={version}" if version else package

        def held():
            names = [name for name in os.listdir(self.folder)
                     if name.startswith(package + "_") and name.endswith(".deb")]
            return os.path.join(self.folder, names[0]) if names else None

        def download():
            self.budget.run(["apt-get", *self.options, "download", wanted], cwd=self.folder)
            return held()
        try:
            return held() or self._try(download)
        except Missing as missing:
            raise Missing(f"cannot download {wanted}: {missing}") from None

    def field(self, deb, name):
        return self.budget.run(["dpkg-deb", "--field", deb, name]).strip()

    def unpack(self, deb, into, patterns=()):
        """What in the package matches one of the patterns; none: all of it."""
        chosen = ["--wildcards", *patterns] if patterns else []
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE) as source:
            # A pattern that nothing matches is an error of tar's, and none here.
            taken = subprocess.run(["tar", "-x", "-C", into, *chosen], stdin=source.stdout,
                                   capture_output=True, text=True, check=False)
            source.stdout.close()
        if taken.returncode != 0 and not (patterns and "Not found in archive" in taken.stderr):
            raise Broken(f"cannot unpack {deb}: {taken.stderr.strip()}")
