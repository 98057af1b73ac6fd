"""The kernel and the modules of the virtual machine, from Debian's linux-image package."""

import glob
import io
import lzma
import os
import shutil

import cache

# What a machine loads. The checksums are found by name at run time, so that no module names them as
# something that it depends on.
MODULES = ["virtio_pci", "virtio_console", "virtio_net", "9pnet_virtio", "9p", "overlay", "dummy",
           "ib_uverbs", "rdma_ucm", "crc32_generic", "crc32c_generic", "libcrc32c", "rdma_rxe"]

# Where in the package these lie, and all that they depend on: a tenth of it.
FOLDERS = ["arch/x86/crypto", "crypto", "drivers/char", "drivers/infiniband/core", "drivers/infiniband/sw",
           "drivers/net/dummy.ko*", "drivers/net/net_failover.ko*", "drivers/net/virtio_net.ko*",
           "drivers/virtio", "fs/9p", "fs/configfs", "fs/fscache", "fs/netfs", "fs/overlayfs", "lib",
           "net/9p", "net/core", "net/ipv4", "net/ipv6"]


class Modules:
    """A folder of .ko files, wherever in it they lie."""

    def __init__(self, folder):
        found = glob.glob(os.path.join(folder, "**", "*.ko"), recursive=True)
        self.files = {os.path.basename(file)[:-3].replace("-", "_"): file for file in found}

    def needs(self, name):
        with open(self.files[name], "rb") as file:
            information = file.read().split(b"\0depends=", 1)[1].split(b"\0", 1)[0].decode()
        return [other.replace("-", "_") for other in information.split(",") if other]

    def in_order(self, names):
        """The names and all that they need, each behind what it needs. A name without a file is built
        into the kernel."""
        order = []

        def visit(name):
            if name in self.files and name not in order:
                for other in self.needs(name):
                    visit(other)
                order.append(name)
        for name in names:
            visit(name)
        return order


def _unpack_modules(folder):
    for compressed in glob.glob(os.path.join(folder, "**", "*.ko.xz"), recursive=True):
        with lzma.open(compressed) as source, open(compressed[:-3], "wb") as target:
            shutil.copyfileobj(source, target)


def _check_modules(modules, folder, package):
    built_in = set()
    for listing in glob.glob(os.path.join(folder, "**", "modules.builtin"), recursive=True):
        with open(listing, encoding="utf-8") as file:
            built_in |= {os.path.basename(line.strip())[:-3].replace("-", "_") for line in file}
    for name in MODULES + [other for name in modules.in_order(MODULES) for other in modules.needs(name)]:
        if name not in modules.files and name not in built_in:
            raise cache.Broken(f"{package} has no module {name}: choose another by STARLING_RDMA_VM_KERNEL")


def _kernel_image(compressed):
    """The kernel as an ELF file, which boots without unpacking itself: seconds, where the processor
    is emulated. As it is when the package compresses it otherwise."""
    start = compressed.find(b"\xfd7zXZ\0")
    if start >= 0:
        try:
            image = lzma.LZMADecompressor().decompress(compressed[start:])
            if image.startswith(b"\x7fELF"):
                return image
        except lzma.LZMAError:
            pass
    return compressed


def _take(archive, package, scratch, target):
    deb = archive.fetch(package)
    archive.unpack(deb, scratch, ["./boot/vmlinuz-*", "*/modules.builtin"] +
                   [f"*/kernel/{folder}" for folder in FOLDERS])
    _unpack_modules(scratch)
    modules = Modules(scratch)
    images = glob.glob(os.path.join(scratch, "boot", "vmlinuz-*"))
    if not images:
        raise cache.Broken(f"{package} holds no kernel")
    _check_modules(modules, scratch, package)
    for name in modules.in_order(MODULES):
        shutil.copyfile(modules.files[name], os.path.join(target, name + ".ko"))
    with open(images[0], "rb") as source, open(os.path.join(target, "kernel"), "wb") as file:
        file.write(_kernel_image(source.read()))
    with open(os.path.join(target, "version"), "w", encoding="utf-8") as file:
        file.write(f"{package} {archive.field(deb, 'Version')}\n")
    os.remove(deb)


def prepare(folder, budget):
    """The folder with kernel, version and modules; fetched when it is not there. The caller holds the
    cache's lock."""
    target = os.path.join(folder, "kernel")
    wanted = os.environ.get("STARLING_RDMA_VM_KERNEL")
    if os.path.isdir(target) and wanted in (None, "", version(target)[0]):
        return target
    for program, package in (("apt-get", "apt"), ("dpkg-deb", "dpkg"), ("tar", "tar")):
        cache.require(program, package)
    archive = cache.Archive(folder, budget)
    package = wanted or archive.depends("linux-image-amd64")
    cache.say(f"fetching {package} into {folder}")
    with cache.scratch(folder) as scratch:
        fresh = os.path.join(scratch, "fresh")
        os.mkdir(fresh)
        _take(archive, package, scratch, fresh)
        shutil.rmtree(target, ignore_errors=True)
        os.rename(fresh, target)
    return target


def version(kernel):
    """(package, version) of the kernel in this folder."""
    with open(os.path.join(kernel, "version"), encoding="utf-8") as file:
        return tuple(file.read().split())


def _archive_entry(out, name, mode, data=b""):
    """One entry of a cpio archive in the form that the kernel unpacks at its start ("newc")."""
    encoded = name.encode() + b"\0"
    fields = [0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0]
    out.write(b"070701" + b"".join(b"%08X" % field for field in fields) + encoded)
    out.write(b"\0" * (-out.tell() % 4))
    out.write(data)
    out.write(b"\0" * (-out.tell() % 4))


def first_files(kernel):
    """The archive that the kernel starts from: busybox, our init, and the modules in load order."""
    modules = Modules(kernel)
    busybox = shutil.which("busybox")
    init = os.path.join(os.path.dirname(os.path.abspath(__file__)), "guest", "init")
    out = io.BytesIO()
    for folder in ("bin", "dev", "job", "modules", "proc", "sys"):
        _archive_entry(out, folder, 0o40755)
    contents = [("bin/busybox", busybox), ("init", init)]
    for index, name in enumerate(modules.in_order(MODULES)):
        contents.append((f"modules/{index:02}_{name}.ko", modules.files[name]))
    for name, file in contents:
        with open(file, "rb") as source:
            _archive_entry(out, name, 0o100755, source.read())
    _archive_entry(out, "TRAILER!!!", 0)
    return out.getvalue()
