#!/usr/bin/env python3
"""deb_test.py FOLDER: the packages in FOLDER (./dev deb builds them in build/deb) pass lintian, and are installed and run in
a fresh Debian 12, which mmdebstrap makes. Needs root, and Debian's archive. Part of `./dev test nightly`."""

import glob
import os
import shutil
import subprocess
import sys
import tempfile

import harness

PACKAGES = ("libstarling-compat-dev", "libstarling-dev", "libstarling0", "python3-starling", "starling-dpdk", "starling")
# A job in the fresh system: a server as its unit starts it, and a client in C and in Python.
RUN = """set -e
for program in /usr/bin/starling-*; do $program --version; done
test "$(getent passwd starling | cut -d: -f6)" = /var/lib/starling
test -e /etc/starling/starling.conf
starling-ps --config /etc/starling/starling.conf --job-name ps --task-index 0 --http 127.0.0.1:0 > /tmp/ps 2>&1 &
server=$!
until grep -q ready: /tmp/ps; do kill -0 $server || { cat /tmp/ps; exit 1; }; sleep 0.1; done
cat /tmp/ps
python3 -c '
import starling
with starling.connect("127.0.0.1:3333", task=0, workers=1) as client:
    print("python3-starling", starling.__version__, client)
'
kill $server
wait $server
starling-worker generate --out /tmp/data --rows 2000 --test-rows 500
starling-launch --ps 1 --workers 2 --ps-reactors 1 -- --data /tmp/data/train.tsv --test /tmp/data/test.tsv \\
    --format criteo --model lr --epochs 1
starling-ps doctor --transport tcp || true
# Every unit, in two instances, with the examples of the configuration uncommented.
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \\n' > /etc/starling/secret
chmod 600 /etc/starling/secret
chown starling: /etc/starling/secret
python3 /var/tmp/units_run.py /lib/systemd/system /etc/starling /usr/bin /var/lib
echo "all done"
"""


def run(*command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **more)


def skip(reason):
    print(f"skipped: {reason}")
    return harness.SKIPPED


def main(folder):
    for program in ("mmdebstrap", "lintian", "ip"):
        if shutil.which(program) is None:
            return skip(f"{program} is not installed: apt-get install {program}")
    if os.getuid() != 0:
        return skip("mmdebstrap's root needs the rights of root to be entered")
    debs = sorted(deb for deb in glob.glob(os.path.join(folder, "*.deb")) if "-dbgsym" not in deb)
    found = tuple(os.path.basename(deb).split("_")[0] for deb in debs)
    if found != PACKAGES:
        return skip(f"{folder} has {found or 'no packages'}: ./dev deb")
    checked = run("lintian", "--suppress-tags", "initial-upload-closes-no-bugs", "--fail-on", "warning", *debs)
    print(checked.stdout)
    with tempfile.TemporaryDirectory(prefix="starling-deb-") as temporary:
        root = os.path.join(temporary, "root")
        runner = os.path.join(os.path.dirname(os.path.abspath(__file__)), "units_run.py")
        copies = "; ".join(f"cp {os.path.abspath(path)} $1/var/tmp/" for path in (*debs, runner))
        made = run("mmdebstrap", "--variant=apt", f"--customize-hook={copies}",
                   "--customize-hook=chroot $1 sh -c 'apt-get install -y --no-install-recommends /var/tmp/*.deb'",
                   "bookworm", root)
        print(made.stdout[-3000:])
        if made.returncode != 0:
            return 1
        enter = "ip link set lo up && for address in 10.0.0.1 10.0.0.2; do ip address add $address/32 dev lo; done && mount -t proc proc $0/proc && mount --rbind /dev $0/dev && exec chroot $0 sh -c \"$1\""
        done = run("unshare", "--mount", "--net", "--fork", "sh", "-c", enter, root, RUN, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"})
        print(done.stdout)
    return 0 if checked.returncode == 0 and done.returncode == 0 and done.stdout.endswith("all done\n") else 1


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
