"""What the tests of starling.torch share."""

import sys

from support import harness

try:
    import torch  # noqa: F401
except ImportError:
    print("skipped: this interpreter has no torch (Debian: python3-torch)")
    sys.exit(harness.SKIPPED)

import starling.torch  # noqa: F401
