"""Soft-iWARP's module. Debian's kernels come without it: it is built from the kernel's source package,
for the kernel in the cache."""

import os
import re
import shutil
import subprocess
import tarfile

import cache
import kernel

WHERE = "drivers/infiniband/sw/siw/"


def _take_source(deb, version, target):
    """Siw's files from the archive within the package; the rest of it is not even read."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE) as package:
        with tarfile.open(fileobj=package.stdout, mode="r|") as outer:
            inner = next(entry for entry in outer if entry.name.endswith(f"linux-source-{version}.tar.xz"))
            with tarfile.open(fileobj=outer.extractfile(inner), mode="r|xz") as sources:
                _take_folder(sources, target)
        package.kill()


def _take_folder(sources, target):
    found = False
    for entry in sources:
        if WHERE in entry.name and entry.isfile():
            found = True
            with open(os.path.join(target, os.path.basename(entry.name)), "wb") as file:
                shutil.copyfileobj(sources.extractfile(entry), file)
        elif found and entry.isfile():
            return


def _unpack_headers(archive, package, version, scratch):
    """Returns the folder to build in and the compiler that the kernel was built by."""
    release = package.removeprefix("linux-image-").removesuffix("-unsigned")
    headers = archive.fetch(f"linux-headers-{release}", version)
    needs = archive.field(headers, "Depends")
    compiler = re.search(r"linux-compiler-(gcc-\d+)", needs)
    debs = [headers] + [archive.fetch(name, version)
                        for name in re.findall(r"linux-(?:headers|kbuild)-[^ ,]+", needs)]
    for deb in debs:
        archive.unpack(deb, scratch)
    folder = os.path.join(scratch, "usr/src", f"linux-headers-{release}")
    makefile = os.path.join(folder, "Makefile")
    with open(makefile, encoding="utf-8") as file:
        text = file.read()
    with open(makefile, "w", encoding="utf-8") as file:
        file.write(text.replace("/usr/src/", f"{scratch}/usr/src/"))
    return folder, compiler.group(1) if compiler else "gcc", debs


def _build(archive, from_kernel, scratch, target):
    package, version = kernel.version(from_kernel)
    series = re.match(r"linux-image-(\d+\.\d+)", package).group(1)
    folder, compiler, debs = _unpack_headers(archive, package, version, scratch)
    cache.require(compiler, compiler)
    source = archive.fetch(f"linux-source-{series}", version)
    module = os.path.join(scratch, "siw")
    os.mkdir(module)
    _take_source(source, series, module)
    try:
        archive.budget.run(["make", "-s", f"-j{os.cpu_count()}", "-C", folder, f"M={module}", "CONFIG_RDMA_SIW=m",
                            "CONFIG_DEBUG_INFO_BTF_MODULES=", f"CC={compiler}", "modules"])
        archive.budget.run(["strip", "--strip-debug", os.path.join(module, "siw.ko")])
    except subprocess.CalledProcessError as error:
        raise cache.Broken(f"cannot build siw: {error.stderr.strip()[-500:]}") from None
    os.rename(os.path.join(module, "siw.ko"), target)
    for deb in [source, *debs]:
        os.remove(deb)


def prepare(folder, budget, from_kernel):
    """The module's file; built when it is not there. The caller holds the cache's lock."""
    target = os.path.join(from_kernel, "siw", "siw.ko")
    if not os.path.exists(target):
        for program, package in (("apt-get", "apt"), ("dpkg-deb", "dpkg"), ("make", "make"),
                                 ("strip", "binutils")):
            cache.require(program, package)
        cache.say(f"fetching the kernel's source (about 155 MB) into {folder}, and building siw")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with cache.scratch(folder) as scratch:
            try:
                _build(cache.Archive(folder, budget), from_kernel, scratch, target)
            except cache.Missing as missing:
                raise cache.Missing(f"{missing}; where the archive has moved on to a newer kernel, "
                                    f"delete {from_kernel}") from None
    return target
