#!/usr/bin/env python3
"""container_test.py FOLDER: buildah builds share/container/Containerfile with the packages in FOLDER (./dev deb builds them
in build/deb) on a base that mmdebstrap makes, and a server runs in it with share/container/seccomp.json. Needs root, and
Debian's archive. Part of `./dev test nightly`."""

import glob
import os
import shutil
import subprocess
import sys
import tempfile

import harness

SHARE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../share/container")
SERVE = "id -un; timeout --signal=TERM 10 starling-ps --config /etc/starling/starling.conf --http 127.0.0.1:0"


def skip(reason):
    print(f"skipped: {reason}")
    return harness.SKIPPED


class Buildah:
    """With a storage of its own, without a daemon, mounts of its own or an overlay."""

    def __init__(self, folder):
        self.storage = ["--storage-driver", "vfs", "--root", os.path.join(folder, "storage"), "--runroot",
                        os.path.join(folder, "run")]
        self.env = {**os.environ, "BUILDAH_ISOLATION": "chroot"}

    def __call__(self, *args):
        done = subprocess.run(["buildah", *self.storage, *args], env=self.env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        print(done.stdout[-3000:])
        if done.returncode not in (0, 124):  # timeout(1)
            raise SystemExit(1)
        return done.stdout

    def import_base(self, archive):
        container = self.last("from", "scratch")
        subprocess.run(["tar", "-xf", archive, "-C", self.last("mount", container)], check=True)
        self("umount", container)
        self("commit", "--quiet", container, "localhost/starling-base")

    def last(self, *args):
        """The last line, which names what was made."""
        return self(*args).strip().split("\n")[-1]


def main(folder):
    for program in ("mmdebstrap", "buildah"):
        if shutil.which(program) is None:
            return skip(f"{program} is not installed: apt-get install {program}")
    if os.getuid() != 0:
        return skip("the storage vfs with isolation chroot needs the rights of root")
    if not glob.glob(os.path.join(folder, "starling_*.deb")):
        return skip(f"{folder} has no packages: ./dev deb")
    with tempfile.TemporaryDirectory(prefix="starling-container-") as temporary:
        base = os.path.join(temporary, "base.tar")
        subprocess.run(["mmdebstrap", "--quiet", "--variant=apt", "bookworm", base], check=True)
        buildah = Buildah(temporary)
        buildah.import_base(base)
        buildah("build", "--pull=never", "--build-arg", "BASE=localhost/starling-base", "--tag", "starling", "--file",
                os.path.join(SHARE, "Containerfile"), folder)
        container = buildah.last("from", "--pull=never", "--security-opt",
                                 f"seccomp={os.path.join(os.path.abspath(SHARE), 'seccomp.json')}", "localhost/starling")
        output = buildah("run", container, "--", "sh", "-c", SERVE)
        buildah("umount", "--all")
    return 0 if "ps/0 ready: " in output and "ps/0 done: " in output else 1


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
