"""Starling: a parameter server for recommendation models. docs/python.md describes the package.

    import starling

    with starling.local_cluster() as cluster, cluster.connect() as client:
        table = client.sparse("embeddings", dim=8, optimizer=starling.Adagrad(lr=0.05))
        rows = table.pull([7, 42])

Rows and gradients are float32 arrays of NumPy or CPU tensors of torch, keys 64-bit integers.
"""

import re as _re

# Shared library -> the Debian package that has it.
_PACKAGES = {"curl": "libcurl4", "crypto": "libssl3", "hwloc": "libhwloc15", "ibverbs": "libibverbs1",
             "inih": "libinih1",
             "jansson": "libjansson4", "rdmacm": "librdmacm1", "ssl": "libssl3",
             "uring": "liburing2", "xxhash": "libxxhash0", "z": "zlib1g", "zstd": "libzstd1"}

try:
    from . import _native
except ImportError as error:
    _missing = _re.match(r"lib(\w+).*: cannot open shared object file", str(error))
    if _missing and _missing.group(1) in _PACKAGES:
        raise ImportError(f"{error}; install the Debian package {_PACKAGES[_missing.group(1)]}") from error
    if getattr(error, "name", None) == "numpy":
        raise ImportError(f"{error}; install the Debian package python3-numpy") from error
    raise

from .client import Client, TableEntry, connect
from .cluster import LocalCluster, local_cluster
from .errors import (BusyError, CancelledError, ClosedError, CorruptError, DeadlineError, ExistsError, ForkError,
                     InUseError, InvalidError, NoMemoryError, NotFoundError, ProtocolError, RefusedError, StarlingError, SystemCallError,
                     TableMismatch, TooLargeError, UnsupportedError, VersionError)
from .keys import unique
from .specs import (ASP, BSP, FTRL, SGD, SSP, Adadelta, Adagrad, AdagradDecay, Adam, AdamAsync, AdamW, Consistency,
                    Constant, FTRLGroup, Initializer, Lamb, Lion, Momentum, Normal, Optimizer, Policy, RMSProp,
                    RowwiseAdagrad, RowwiseAdam, Slot, Sum, TruncatedNormal, Uniform, Zeros)
from .tables import DenseTable, ScanBatch, SparseTable, Step, TableStats

__version__ = _native.version
__all__ = [
    "ASP", "BSP", "FTRL", "SGD", "SSP", "Adadelta", "Adagrad", "AdagradDecay", "Adam", "AdamAsync", "AdamW",
    "BusyError", "CancelledError", "Client", "ClosedError", "Consistency", "Constant", "CorruptError",
    "DeadlineError", "DenseTable", "ExistsError", "FTRLGroup", "ForkError", "InUseError", "Initializer", "InvalidError", "Lamb", "Lion",
    "LocalCluster", "Momentum", "NoMemoryError", "Normal", "NotFoundError", "Optimizer", "Policy",
    "ProtocolError", "RMSProp", "RefusedError", "RowwiseAdagrad", "RowwiseAdam", "ScanBatch", "Slot", "SparseTable",
    "StarlingError", "Step", "Sum", "SystemCallError", "TableEntry", "TableMismatch", "TableStats",
    "TooLargeError", "TruncatedNormal", "Uniform", "UnsupportedError", "VersionError", "Zeros", "connect",
    "local_cluster", "unique",
]
