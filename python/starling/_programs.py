"""The programs of a wheel as console scripts: each replaces the interpreter by the program beside this file."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def _run(name: str) -> NoReturn:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", name)
    os.execv(path, [path, *sys.argv[1:]])


def starling_ps() -> NoReturn:
    """starling-ps"""
    _run("starling-ps")


def starling_launch() -> NoReturn:
    """starling-launch"""
    _run("starling-launch")


def starling_ckpt() -> NoReturn:
    """starling-ckpt"""
    _run("starling-ckpt")


def starling_objects() -> NoReturn:
    """starling-objects"""
    _run("starling-objects")
