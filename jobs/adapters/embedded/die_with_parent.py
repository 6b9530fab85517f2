"""Execute another program that the kernel kills when its parent dies for any reason.

Run as a script: `python die_with_parent.py PARENT_PID PROGRAM ARGUMENT…`. It replaces a `preexec_fn`, which is unsafe
in a process with threads. For Linux the parent is the *thread* that started this process.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def _die_with(parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # the parent may have died before the line above took effect
    if os.getppid() != parent:
        sys.exit(1)


if __name__ == "__main__":
    if sys.platform == "linux":
        _die_with(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 - no shell is needed, and the command is the caller's
