"""What a virtual machine is made of, kept between runs, and how it is fetched from Debian's archive."""

import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))

import debian  # noqa: E402
from debian import Archive, Broken, Missing, require, scratch  # noqa: E402, F401

FOLDER = "STARLING_RDMA_VM_CACHE"


def say(text):
    print(f"rdma-vm: {text}", file=sys.stderr, flush=True)


def path():
    return debian.cache(FOLDER, "starling-rdma-vm")


def locked():
    """The cache's folder, while no other process prepares anything in it."""
    return debian.locked(path(), FOLDER)


def budget(seconds):
    return debian.Budget(seconds, "; run tests/rdma-vm/rdma-vm --prepare once")
