"""Become another program that the kernel kills when its parent dies, however that happens.

Run as a script: `python tether.py PARENT_PID PROGRAM ARGUMENT…`. It does what a `preexec_fn` would, which is unsafe
beside threads. Mind that Linux takes "parent" for the *thread* that started this process.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def _die_with(parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # It may have died before the line above took effect.
    if os.getppid() != parent:
        sys.exit(1)


if __name__ == "__main__":
    if sys.platform == "linux":
        _die_with(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 - no shell is what we want; the command is the caller's own
