#!/usr/bin/env python3
"""etcd.py LINK: makes LINK lead to an etcd for tests. That is one that is installed ($STARLING_ETCD, or in
the PATH), else Debian's, unpacked into ~/.cache/starling-etcd ($STARLING_ETCD_CACHE names another folder):
where the package is installed, it starts a service. Ends with 77 and says why where there is none."""

import contextlib
import os
import shutil
import sys

import debian

SKIPPED = 77
FOLDER = "STARLING_ETCD_CACHE"
FETCH_S = 240  # at most


def installed():
    return shutil.which(os.environ.get("STARLING_ETCD") or "etcd")


def unpacked():
    """Fetched once."""
    with debian.locked(debian.cache(FOLDER, "starling-etcd"), FOLDER) as folder:
        program = os.path.join(folder, "etcd")
        if not os.path.exists(program):
            for needed, package in (("apt-get", "apt"), ("dpkg-deb", "dpkg"), ("tar", "tar")):
                debian.require(needed, package)
            archive = debian.Archive(folder, debian.Budget(FETCH_S))
            deb = archive.fetch("etcd-server")
            with debian.scratch(folder) as scratch:
                archive.unpack(deb, scratch, ["./usr/bin/etcd"])
                os.rename(os.path.join(scratch, "usr/bin/etcd"), program)
            os.remove(deb)
        return program


def main(link):
    with contextlib.suppress(FileNotFoundError):
        os.remove(link)
    try:
        program = installed() or unpacked()
    except (debian.Missing, debian.Broken, OSError) as error:
        print(f"skipped: {error}; or apt-get install etcd-server")
        return SKIPPED
    os.symlink(os.path.abspath(program), link)
    print(f"{link} leads to {program}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
